//! Every variant of every real kernel.

use crate::checks;
use redraft_shaders::{kernel, kernels};

#[test]
fn labels_are_unique_and_variants_are_found() {
    checks::labels_and_flags(kernels());
    for expected in kernels() {
        let mut flags = expected.flags.to_vec();
        flags.reverse();
        let found = kernel(expected.name, &flags).map(|k| k.label);
        assert_eq!(found, Some(expected.label), "flags in reverse");
        flags.push("no_such_flag");
        assert!(kernel(expected.name, &flags).is_none(), "{} with a flag too many", expected.label);
        if let Some((last, rest)) = expected.flags.split_last() {
            let mut doubled = rest.to_vec();
            doubled.extend(rest.first().or(Some(last)));
            if doubled != expected.flags {
                let found = kernel(expected.name, &doubled);
                assert!(found.is_none(), "{} with {doubled:?}", expected.label);
            }
        }
    }
    assert!(kernel("no_such_kernel", &[]).is_none(), "an unknown name finds nothing");
}

#[test]
fn every_kernel_compiles_for_vulkan_metal_and_dx12() {
    for kernel in kernels() {
        checks::compiles_natively(kernel);
        checks::bindings_in_order(kernel);
    }
    eprintln!("{} variants through SPIR-V, MSL and HLSL", kernels().len());
}

#[test]
fn native_and_browser_text_differ_only_in_enable_lines() {
    for kernel in kernels() {
        checks::targets_differ_in_enables(kernel);
    }
}

#[test]
fn browser_text_passes_tint() {
    if let Some(texts) = checks::tint_accepts("shaders: browser_text_passes_tint", kernels()) {
        eprintln!("{texts} distinct texts through tint");
    }
}
