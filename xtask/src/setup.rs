//! What a machine needs: a Vulkan driver, the default model, for the tests two more compilation targets, and for the
//! browser package what `web` lists.
//! Everything is idempotent and quick when nothing is missing.

mod apt;
mod model;
mod vulkan;
pub(crate) mod web;

use crate::Outcome;
use crate::process::{Cmd, which};

/// The target of the browser build.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// The target of the Windows type check.
pub(crate) const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// What running the `redraft` command needs.
pub(crate) fn for_running() -> Outcome {
    vulkan::set_up()?;
    model::set_up()
}

/// What the tests and checks need, those of the browser package aside.
pub(crate) fn for_tests() -> Outcome {
    for_running()?;
    targets(&[WASM, WINDOWS])
}

/// The default model.
pub(crate) fn model() -> Outcome {
    model::set_up()
}

fn targets(wanted: &[&str]) -> Outcome {
    if which("rustup").is_none() {
        return Err(format!(
            "rustup is not installed, so the targets {} cannot be added; install Rust through rustup",
            wanted.join(" and ")
        ));
    }
    let installed = Cmd::new("rustup").args(["target", "list", "--installed"]).read()?;
    let missing: Vec<_> =
        wanted.iter().filter(|target| !installed.lines().any(|line| line == **target)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Cmd::new("rustup").args(["target", "add"]).args(missing).run()
}
