//! The record of GPU tests that ran, which `cargo xtask test` counts.

use crate::declared_skip;
use std::io::Write;

/// Names the file that GPU tests are recorded in; unset outside `cargo xtask test`.
const VARIABLE: &str = "REDRAFT_GPU_TEST_LOG";

/// Records that the test `name` ran on `adapter`, in the tier `default` or `strict`.
///
/// # Panics
/// If the file cannot be written: a run that cannot be counted must not pass.
pub fn ran_on_gpu(name: &str, adapter: &str, strict: bool) {
    record(name, adapter, if strict { "strict" } else { "default" });
}

/// The same for a test with kernels in f16, in the tier `default-f16` or `strict-f16`.
///
/// # Panics
/// As [`ran_on_gpu`].
pub fn ran_on_gpu_in_f16(name: &str, adapter: &str, strict: bool) {
    record(name, adapter, if strict { "strict-f16" } else { "default-f16" });
}

/// Declares that `what` needs kernels in f16 and that the adapter has none. `cargo xtask test` then does without the tiers
/// in f16.
pub fn skip_without_f16(what: &str) {
    declared_skip(what, "the adapter has no shader-f16");
}

fn record(name: &str, adapter: &str, tier: &str) {
    eprintln!("GPU {name} on {adapter} ({tier})");
    if let Some(path) = std::env::var_os(VARIABLE) {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let written =
            file.and_then(|mut file| file.write_all(format!("{name}\t{adapter}\t{tier}\n").as_bytes()));
        written.expect("the GPU test log can be written");
    }
}
