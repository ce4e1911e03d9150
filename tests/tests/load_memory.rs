//! How much host memory loading the real model takes beyond what any model takes on this driver.
//!
//! Peaks are of whole processes, so each load has a process of its own: this test runs itself again. What the driver
//! and its compiler take is seen by loading a tiny model of the same formats, which runs the same kernels.

#![cfg(target_os = "linux")]

use redraft::{EngineOptions, FileSource};
use redraft_testing::{TinyModel, model_path};
use redraft_tests::{load, tiny};
use std::path::Path;
use std::process::Command;

/// Bytes that the 98 MB model may take on the host, half of what is promised for driver and model together. Measured:
/// 67 MB, mostly vocabulary and logits; the file as a whole in memory would be 98 MB more.
const ALLOWED: u64 = 128 << 20;
/// Names the model to load, in the processes that do.
const MODEL: &str = "REDRAFT_LOAD_MEMORY";
const TEST: &str = "loading_takes_little_host_memory";

/// A field of the process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field of the status");
    let kilobytes: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
    kilobytes << 10
}

/// Loads a model and prints by how much the process grew, and how much of that is memory of the device.
fn measure(path: &Path) {
    let before = status("VmRSS");
    let file = FileSource::open(path).expect("readable");
    // A small context, because keys and values that nothing has touched take no memory of a software adapter.
    let engine = load("load_memory", &file, EngineOptions { context: Some(64), ..EngineOptions::default() });
    let grown = status("VmHWM").saturating_sub(before);
    // A software adapter keeps its buffers in the process; a GPU does not, and then nothing may be taken off.
    let device = if engine.adapter().device_type == "cpu" { engine.memory().weights } else { 0 };
    println!("grown {grown} device {device}");
}

/// What loading takes on the host, in a process of its own.
fn host_bytes(path: &Path) -> u64 {
    let this = std::env::current_exe().expect("this program");
    let child = Command::new(this).args(["--exact", TEST, "--nocapture"]).env(MODEL, path).output();
    let child = child.expect("this program once more");
    let [out, err] = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(child.status.success(), "{}: {out}{err}", path.display());
    let line = out.lines().find_map(|line| line.split_once("grown ")).expect("a measurement").1;
    let (grown, device) = line.split_once(" device ").expect("two numbers");
    let [grown, device] = [grown, device].map(|bytes| bytes.parse::<u64>().expect("a number"));
    grown.saturating_sub(device)
}

#[test]
fn loading_takes_little_host_memory() {
    if let Some(path) = std::env::var_os(MODEL) {
        return measure(Path::new(&path));
    }
    let Some(path) = model_path("load_memory") else { return };
    let small = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load_memory.gguf");
    std::fs::write(&small, tiny(&TinyModel::default())).expect("a folder for temporary files");
    // The first load leaves compiled kernels in the driver's cache, so that the others compile alike.
    host_bytes(&small);
    let (driver, all) = (host_bytes(&small), host_bytes(&path));
    let host = all.saturating_sub(driver);
    eprintln!(
        "loading takes {all} bytes on the host, {driver} of them whatever the model, {host} for this one"
    );
    assert!(host <= ALLOWED, "{host} bytes of host memory for the model, {all} with what the driver takes");
}
