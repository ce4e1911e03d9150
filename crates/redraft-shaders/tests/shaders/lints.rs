//! Each house rule on a small module that breaks it, and on one that keeps it.

use crate::pipeline::lint::{Rules, check};
use crate::pipeline::reflect::validate;

const LOOSE: Rules = Rules { params: false, barriers: true };

fn complaints(wgsl: &str, rules: Rules) -> Vec<String> {
    let module = naga::front::wgsl::parse_str(wgsl).unwrap_or_else(|e| panic!("{e}: {wgsl}"));
    check(&module, &rules)
}

/// A kernel with the given declarations, whose body touches `names`.
fn kernel(declarations: &str, body: &str) -> String {
    format!("{declarations}\n@compute @workgroup_size(64) fn main() {{ {body} }}")
}

const IN_A: &str = "@group(0) @binding(0) var<storage, read> a: array<u32>;";
const OUT_B: &str = "@group(0) @binding(1) var<storage, read_write> b: array<u32>;";

#[test]
fn a_kernel_that_keeps_the_rules_passes() {
    let text = kernel(&format!("{IN_A}{OUT_B}"), "b[0] = a[0];");
    assert_eq!(complaints(&text, LOOSE), [""; 0], "no complaint");
}

#[test]
fn broken_rules_are_named() {
    let nine: String =
        (0..9).map(|i| format!("@group(0) @binding({i}) var<storage, read> s{i}: array<u32>;")).collect();
    let params = Rules { params: true, barriers: true };
    let no_barriers = Rules { params: false, barriers: false };
    let helper = "fn f(p: ptr<workgroup, u32>) { *p = 1u; } var<workgroup> w: u32;";
    let storage_helper = format!("fn f(p: ptr<storage, array<u32>, read_write>) {{ }} {IN_A}");
    let barrier_helper = "fn f() { if true { loop { workgroupBarrier(); break; } } }";
    let uniform_load = "var<workgroup> w: u32;";
    let cases = [
        (
            "group 1",
            kernel("@group(1) @binding(0) var<storage, read> a: u32;", ""),
            LOOSE,
            "expected group 0",
        ),
        ("gap", kernel(OUT_B, ""), LOOSE, "has index 1, expected 0"),
        (
            "same index twice",
            kernel(&format!("{IN_A}{}", IN_A.replace("a:", "c:")), ""),
            LOOSE,
            "has index 0, expected 1",
        ),
        ("no uniform", kernel(IN_A, ""), params, "not a uniform"),
        ("no binding", kernel("", ""), params, "not a uniform"),
        (
            "output before input",
            kernel(
                "@group(0) @binding(0) var<storage, read_write> o: u32;
                 @group(0) @binding(1) var<storage, read> i: u32;",
                "",
            ),
            LOOSE,
            "`i` comes after `o`",
        ),
        (
            "texture",
            kernel("@group(0) @binding(0) var t: texture_2d<f32>;", ""),
            LOOSE,
            "neither a uniform nor a storage buffer",
        ),
        ("nine buffers", kernel(&nine, ""), LOOSE, "9 storage buffers"),
        ("workgroup pointer", kernel(helper, ""), LOOSE, "helper `f` takes `p`"),
        ("storage pointer", kernel(&storage_helper, ""), LOOSE, "helper `f` takes `p`"),
        ("barrier", kernel("", "storageBarrier();"), no_barriers, "function `main` has a barrier"),
        (
            "nested barrier in a helper",
            kernel(barrier_helper, "f();"),
            no_barriers,
            "function `f` has a barrier",
        ),
        (
            "workgroupUniformLoad",
            kernel(uniform_load, "let x = workgroupUniformLoad(&w);"),
            no_barriers,
            "function `main` has a barrier",
        ),
        ("override without default", kernel("override N: u32;", ""), LOOSE, "`N` has no default"),
        ("override with id", kernel("@id(3) override N: u32 = 1u;", ""), LOOSE, "`N` has an @id"),
        (
            "entry point name",
            "@compute @workgroup_size(1) fn go() {}".to_owned(),
            LOOSE,
            "named `main`, found [\"go\"]",
        ),
        ("stage", "@fragment fn main() {}".to_owned(), LOOSE, "one compute entry point"),
    ];
    for (name, text, rules, expected) in cases {
        let found = complaints(&text, rules);
        assert!(found.iter().any(|c| c.contains(expected)), "{name}: expected {expected:?}, found {found:?}");
    }
}

#[test]
fn a_pointer_into_function_memory_is_allowed() {
    let text = kernel("fn f(p: ptr<function, u32>) { *p = 1u; }", "var x = 0u; f(&x);");
    assert_eq!(complaints(&text, LOOSE), [""; 0], "no complaint");
}

#[test]
fn naga_gets_only_the_enabled_capabilities() {
    let half = kernel("", "var x = 1.0h; x += x;");
    let lanes = kernel(IN_A, "let x = subgroupAdd(a[0]);");
    for (text, extension) in [(half, "f16"), (lanes, "subgroups")] {
        let error = validate(&text, &[]).unwrap_err();
        assert!(error.contains("linked.wgsl:2:"), "{error}");
        let enabled = validate(&text, &[extension.to_owned()]);
        assert!(enabled.is_ok(), "{extension}: {enabled:?}");
    }
}
