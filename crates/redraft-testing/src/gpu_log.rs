//! The record of GPU tests that ran, which `cargo xtask test` counts.

use std::io::Write;

/// Names the file that GPU tests are recorded in; unset outside `cargo xtask test`.
const VARIABLE: &str = "REDRAFT_GPU_TEST_LOG";

/// Records that the test `name` ran on `adapter`, in the tier `default` or `strict`.
///
/// # Panics
/// If the file cannot be written: a run that cannot be counted must not pass.
pub fn ran_on_gpu(name: &str, adapter: &str, strict: bool) {
    let tier = if strict { "strict" } else { "default" };
    eprintln!("GPU {name} on {adapter} ({tier})");
    if let Some(path) = std::env::var_os(VARIABLE) {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let written =
            file.and_then(|mut file| file.write_all(format!("{name}\t{adapter}\t{tier}\n").as_bytes()));
        written.expect("the GPU test log can be written");
    }
}
