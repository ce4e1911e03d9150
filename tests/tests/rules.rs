//! House rules that no compiler checks: who may depend on whom, how long files may be, and that documents name
//! paths that exist.
//!
//! The dependency rules ask cargo, so that they see what is really built, features and targets included.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates that must also run in a browser.
const LIBRARIES: [&str; 8] = [
    "redraft-drafter",
    "redraft-gguf",
    "redraft-text",
    "redraft-decode",
    "redraft-shaders",
    "redraft-gpu",
    "redraft-model",
    "redraft",
];

const WASM: &str = "wasm32-unknown-unknown";

/// Extensions by which a word in a document is taken for a path even without a slash.
const FILE_KINDS: [&str; 6] = ["lock", "md", "rs", "toml", "ts", "wgsl"];

// ---- Dependencies ----

#[test]
fn wgpu_only_through_redraft_gpu() {
    let users = direct_users(|name| name == "wgpu" || name.starts_with("wgpu-"));
    assert_eq!(users, one("redraft-gpu", "normal"), "wgpu belongs to redraft-gpu alone");
}

#[test]
fn naga_and_wesl_only_while_building_redraft_shaders() {
    let users =
        direct_users(|name| matches!(name, "naga" | "wesl" | "naga_oil") || name.starts_with("wesl-"));
    let allowed = one("redraft-shaders", "build").into_iter().chain(one("redraft-shaders", "dev")).collect();
    assert!(!users.is_empty(), "redraft-shaders links its kernels with wesl and naga");
    assert!(users.is_subset(&allowed), "naga or wesl beyond the build of redraft-shaders: {users:?}");
}

#[test]
fn no_shader_compiler_in_what_runs() {
    // Natively wgpu-core brings naga to compile WGSL; in a browser the browser does that, and nothing may do it twice.
    for package in ["redraft", "redraft-cli"] {
        let tree = tree(package, &[]);
        assert!(tree.contains("wgpu"), "{package} runs on wgpu, so its tree was read wrongly: {tree:?}");
        assert!(!tree.iter().any(|name| name.starts_with("wesl")), "{package} carries the shader linker");
    }
    let tree = tree("redraft", &["--target", WASM]);
    assert!(tree.contains("wgpu"), "the browser build runs on wgpu, so its tree was read wrongly: {tree:?}");
    for name in ["naga", "wgpu-core", "wgpu-hal"] {
        assert!(!tree.contains(name), "{name} is in the browser build");
    }
}

#[test]
fn pure_crates_stay_pure() {
    for package in ["redraft-decode", "redraft-drafter", "redraft-gguf", "redraft-text", "redraft-shaders"] {
        let tree = tree(package, &[]);
        assert!(tree.contains(package), "the tree of {package} was read wrongly: {tree:?}");
        for name in ["wgpu", "redraft-gpu"] {
            assert!(!tree.contains(name), "{package} depends on {name}");
        }
    }
    let tree = tree("redraft-decode", &[]);
    for runtime in ["async-std", "futures", "pollster", "smol", "tokio"] {
        assert!(!tree.contains(runtime), "redraft-decode depends on {runtime}");
    }
}

#[test]
fn burn_only_in_training_and_nothing_hangs_off_training() {
    let burn = direct_users(|name| name == "burn" || name.starts_with("burn-") || name.starts_with("cubecl"));
    assert!(
        burn.iter().all(|(package, _)| package == "redraft-train"),
        "burn outside redraft-train: {burn:?}"
    );
    assert_eq!(
        direct_users(|name| name == "redraft-train"),
        BTreeSet::new(),
        "nothing depends on redraft-train"
    );
}

#[test]
fn wasm_bindgen_only_in_redraft_wasm() {
    let users = direct_users(|name| name.starts_with("wasm-bindgen") || matches!(name, "js-sys" | "web-sys"));
    assert_eq!(users, one("redraft-wasm", "normal"), "what only browsers have belongs to redraft-wasm");
    assert_eq!(
        direct_users(|name| name == "redraft-wasm"),
        BTreeSet::new(),
        "nothing depends on redraft-wasm"
    );
    let tree = tree("redraft-wasm", &["--target", WASM]);
    for name in ["tokio", "burn", "naga", "redraft-testing"] {
        assert!(!tree.contains(name), "{name} is in the module of the browser");
    }
}

#[test]
fn test_support_is_not_shipped() {
    for package in ["redraft", "redraft-cli", "redraft-wasm"] {
        assert!(!tree(package, &[]).contains("redraft-testing"), "{package} carries redraft-testing");
    }
}

#[test]
fn every_package_inherits_the_lints() {
    for package in packages() {
        let path = text_of(&package, "manifest_path");
        let manifest = read(Path::new(path)).replace("\r\n", "\n");
        assert!(
            manifest.contains("[lints]\nworkspace = true\n"),
            "{path} does not take the workspace's lints"
        );
    }
}

/// The packages of this workspace, as `cargo metadata` tells them.
fn packages() -> Vec<Value> {
    let json = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&json).expect("cargo metadata writes JSON");
    metadata["packages"].as_array().expect("`packages` is an array").clone()
}

/// Which packages of this workspace name a dependency that `wanted` accepts, and of which kind.
fn direct_users(wanted: impl Fn(&str) -> bool) -> BTreeSet<(String, String)> {
    let mut users = BTreeSet::new();
    for package in packages() {
        for dependency in package["dependencies"].as_array().expect("`dependencies` is an array") {
            if wanted(text_of(dependency, "name")) {
                let kind = dependency["kind"].as_str().unwrap_or("normal");
                users.insert((text_of(&package, "name").to_owned(), kind.to_owned()));
            }
        }
    }
    users
}

fn one(package: &str, kind: &str) -> BTreeSet<(String, String)> {
    BTreeSet::from([(package.to_owned(), kind.to_owned())])
}

fn text_of<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("cargo metadata: `{field}` is not a string in {value}"))
}

/// The names of `package` and of all that it is linked with: no build and no dev dependencies.
fn tree(package: &str, more: &[&str]) -> BTreeSet<String> {
    let fixed = ["tree", "--package", package, "--edges", "normal,no-proc-macro", "--prefix", "none"];
    let listing = cargo(&[&fixed, more].concat());
    listing.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn cargo(args: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(program).args(args).arg("--locked").current_dir(root()).output().expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {}: {said}", args.join(" "));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

// ---- Source files ----

#[test]
fn files_are_not_too_long() {
    let mut seen = 0;
    for (extensions, limit) in [(&["rs", "ts"][..], 600), (&["wesl", "wgsl"][..], 250)] {
        for file in files(&["crates", "examples", "shaders", "tests", "web", "xtask"], extensions) {
            let lines = read(&file).lines().count();
            assert!(lines <= limit, "{} has {lines} lines; {limit} is the limit", shown(&file));
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} source files were found");
}

#[test]
fn libraries_rarely_ask_for_the_target() {
    let mut asked = Vec::new();
    for file in library_sources() {
        let text = read(&file);
        let code = |line: &&str| !line.trim_start().starts_with("//") && line.contains("target_arch");
        asked.extend(text.lines().filter(code).map(|line| format!("{}: {}", shown(&file), line.trim())));
    }
    assert!(asked.len() < 10, "{} places ask for the target:\n{}", asked.len(), asked.join("\n"));
}

#[test]
fn exports_are_explicit() {
    for file in library_sources() {
        for (index, line) in read(&file).lines().enumerate() {
            let glob = line.trim_start().starts_with("pub use ") && line.trim_end().ends_with("*;");
            assert!(!glob, "{}:{}: {line}", shown(&file), index + 1);
        }
    }
}

#[test]
fn unsafe_code_in_one_file() {
    // The workspace denies `unsafe_code`, which an attribute could lift anywhere; it may in this file alone.
    let allowed = root().join("crates/redraft-gpu/src/unchecked.rs");
    for file in files(&["crates", "examples", "xtask"], &["rs"]) {
        for line in read(&file).lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
            let lifted = line.contains("unsafe_code") && !line.contains("(unsafe_code)]");
            let lowered = lifted || line.contains("allow(unsafe_code") || line.contains("expect(unsafe_code");
            assert!(!lowered || file == allowed, "{} lifts the lint `unsafe_code`: {line}", shown(&file));
        }
    }
}

fn library_sources() -> Vec<PathBuf> {
    let sources = LIBRARIES.map(|name| format!("crates/{name}/src"));
    let found = files(&sources.each_ref().map(String::as_str), &["rs"]);
    assert!(found.len() >= LIBRARIES.len(), "every library has a source file; found {found:?}");
    found
}

/// The files with one of `extensions` below those of `folders` that exist; links are not followed.
fn files(folders: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<_> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.expect("a folder of the checkout can be listed");
            let (path, kind) = (entry.path(), entry.file_type().expect("the kind of a file can be read"));
            let built = matches!(entry.file_name().to_str(), Some("dist" | "node_modules" | "target"));
            if kind.is_dir() && !built {
                open.push(path);
            } else if kind.is_file() && has_extension(&path, extensions) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

// ---- Documents ----

#[test]
fn documents_name_paths_that_exist() {
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/testing.md"] {
        let paths = paths_in(&read(&root().join(document)));
        assert!(!paths.is_empty(), "{document} names no path, or paths are no longer recognised");
        for path in paths {
            let from = root().join(document).parent().expect("a document lies in a folder").to_path_buf();
            let exists = root().join(&path).exists() || from.join(&path).exists();
            assert!(exists, "{document} names {path}, which does not exist");
        }
    }
}

#[test]
fn architecture_names_every_package() {
    let named = paths_in(&read(&root().join("ARCHITECTURE.md")));
    for package in packages() {
        let manifest = Path::new(text_of(&package, "manifest_path"));
        let folder = shown(manifest.parent().expect("a manifest lies in a folder"));
        assert!(named.contains(&folder), "ARCHITECTURE.md does not name `{folder}/`");
    }
}

#[test]
fn recognises_paths() {
    let text = "See `shaders/lib`, `xtask/` and [the tests](docs/testing.md#tiers), `Cargo.toml`, `.ci/run`; not \
                `redraft::Engine`, `if a/b`, [a page](https://example.org/x.md), `../shared/data` or `cargo`.";
    let expected = [".ci/run", "Cargo.toml", "docs/testing.md", "shaders/lib", "xtask"].map(str::to_owned);
    assert_eq!(paths_in(text), BTreeSet::from(expected));
}

/// The paths of the checkout that a document names: what looks like one in backticks or as the target of a link.
fn paths_in(markdown: &str) -> BTreeSet<String> {
    let quoted = markdown.split('`').skip(1).step_by(2);
    let linked = markdown.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let looks_like_path = |word: &&str| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        let inside = !word.starts_with("..") && !word.starts_with('/');
        plain && inside && (word.contains('/') || has_extension(Path::new(word), &FILE_KINDS))
    };
    quoted.chain(linked).filter(looks_like_path).map(|word| word.trim_end_matches('/').to_owned()).collect()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout").to_path_buf()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", shown(file)))
}

/// Relative to the checkout.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
