//! Wrong manifests, folders and modules: each fails with a message that says what to do.

use crate::pipeline;
use std::path::Path;

const KERNEL: &str = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
@compute @workgroup_size(1) fn main() { o[0] = 1u; }";

/// Writes a shader folder, compiles it, and returns the problems as one text; empty if there are none.
fn problems(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    compile(folder.path())
}

fn compile(folder: &Path) -> String {
    match pipeline::compile(folder) {
        Ok(_) => String::new(),
        Err(problems) => {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            assert!(!lines.is_empty(), "an error has a message");
            lines.join("\n")
        }
    }
}

fn entry(more: &str) -> String {
    format!("[[kernel]]\nfile = \"k.wgsl\"\n{more}")
}

#[test]
fn an_empty_manifest_and_an_empty_folder_work() {
    assert_eq!(problems(&[("kernels.toml", "")]), "", "no kernels");
}

#[test]
fn files_in_lib_and_other_folders_need_no_entry() {
    let files = [
        ("kernels.toml", &*entry("")),
        ("k.wgsl", KERNEL),
        ("lib/deep/m.wgsl", "const X = 1;"),
        ("notes/x.wgsl", "not WGSL at all"),
    ];
    assert_eq!(problems(&files), "", "listed and unlisted files");
}

#[test]
fn manifest_mistakes_are_named() {
    let axes = "axes = [{ a = ['x', 'y'] }]\n";
    let cases = [
        ("syntax", "[[kernel]\n".to_owned(), "kernels.toml: "),
        ("unknown field", entry("parms = 'P'"), "unknown field `parms`"),
        ("twice", entry("") + &entry(""), "lists k.wgsl twice"),
        ("absent file", entry("") + "[[kernel]]\nfile = 'no.wgsl'", "lists no.wgsl, which is no .wgsl file"),
        ("two keys", entry("axes = [{ a = ['x'], b = ['y'] }]"), "has 2"),
        ("empty axis", entry("axes = [{ a = [] }]"), "axis `a` has no values"),
        ("repeated flag", entry("axes = [{ a = ['x'] }, { b = ['x'] }]"), "`x` occurs twice"),
        ("odd flag", entry("axes = [{ a = ['4bit'] }]"), "no WGSL identifier"),
        ("unknown exclude", entry(&format!("{axes}exclude = [['z']]")), "`exclude` names `z`"),
        ("nothing left", entry(&format!("{axes}exclude = [['x'], ['y']]")), "leaves no variant"),
        ("unknown enable", entry(&format!("{axes}enable = {{ z = ['f16'] }}")), "`enable` names `z`"),
        (
            "unknown extension",
            entry(&format!("{axes}enable = {{ x = ['f64'] }}")),
            "extension `f64` is unknown",
        ),
        ("dynamic", entry("dynamic = ['p']"), "`dynamic` names `p`"),
        ("structs", entry("structs = { Tile = 'HostTile' }"), "pairs `Tile` with `HostTile`"),
        ("params", entry("params = 'P'"), "binding 0 is not a uniform"),
    ];
    for (name, manifest, expected) in cases {
        let found = problems(&[("kernels.toml", &manifest), ("k.wgsl", KERNEL)]);
        assert!(found.contains(expected), "{name}: expected {expected:?}, found {found:?}");
    }
}

#[test]
fn an_unlisted_file_fails() {
    let files = [("kernels.toml", &*entry("")), ("k.wgsl", KERNEL), ("extra.wgsl", KERNEL)];
    let found = problems(&files);
    assert!(found.contains("shaders/extra.wgsl is not listed"), "{found}");
}

#[test]
fn a_missing_manifest_or_folder_fails() {
    assert!(problems(&[("k.wgsl", KERNEL)]).contains("cannot read kernels.toml"), "no manifest");
    let found = compile(Path::new("no/such/folder"));
    assert!(found.contains("cannot read the shader folder"), "{found}");
}

#[test]
fn linking_mistakes_name_file_and_variant() {
    let module = ("lib/m.wgsl", "const SIZE = 4u;\nfn one() -> u32 { return SIZE; }");
    let import = "import package::lib::m::one;\n";
    let used = KERNEL.replace("1u", "one()");
    let cases = [
        (
            "clash",
            format!("{import}const SIZE = 1u;\n{used}"),
            "`SIZE` is declared in shaders/k.wgsl and shaders/lib/m.wgsl",
        ),
        ("misspelled flag", format!("@if(yy) const A = 1u;\n{KERNEL}"), "unexpected feature flag: `yy`"),
        ("missing module", format!("import package::lib::n::one;\n{used}"), "module not found"),
        ("missing item", format!("import package::lib::m::two;\n{}", KERNEL.replace("1u", "two()")), "`two`"),
        (
            "requires",
            format!("requires packed_4x8_integer_dot_product;\n{KERNEL}"),
            "`requires packed_4x8_integer_dot_product;` is not allowed",
        ),
        (
            "unknown enable",
            format!("enable dual_source_blending;\n{KERNEL}"),
            "`enable dual_source_blending;` is not supported",
        ),
        ("syntax", KERNEL.replace("fn main", "fn fn main"), "expected"),
        ("type", KERNEL.replace("1u", "1.5"), "linked.wgsl:6"),
    ];
    let manifest = entry("axes = [{ a = ['x', 'y'] }]");
    for (name, text, expected) in cases {
        let found = problems(&[("kernels.toml", &manifest), ("k.wgsl", &text), module]);
        for part in [expected, "k.wgsl, variant `k.x` and 1 more: "] {
            assert!(found.contains(part), "{name}: expected {part:?}, found {found}");
        }
    }
}

#[test]
fn directives_of_all_modules_are_merged() {
    let off = "diagnostic(off, subgroup_uniformity);";
    let module = format!("{off}\nenable f16;\nfn one() -> u32 {{ return u32(1.0h); }}");
    let kernel = format!("import package::lib::m::one;\n{off}\n{}", KERNEL.replace("1u", "one()"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lib")).unwrap();
    for (path, text) in [("kernels.toml", &entry("")), ("k.wgsl", &kernel), ("lib/m.wgsl", &module)] {
        std::fs::write(folder.path().join(path), text).unwrap();
    }
    let compiled = pipeline::compile(folder.path()).unwrap().kernels;
    assert_eq!(compiled[0].enables, ["f16"], "of the module");
    assert_eq!(compiled[0].wgsl.matches("diagnostic").count(), 1, "{}", compiled[0].wgsl);
}
