//! `cargo xtask test` and `cargo xtask ci`: one list of phases, one heavy cargo at a time.

use crate::Outcome;
use crate::phases::Phases;
use crate::process::{Cmd, which};
use crate::setup::{self, WASM, WINDOWS};
use crate::test_log::TestLog;
use crate::web;

/// How much to check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scope {
    /// Format, lints and tests.
    Fast,
    /// The other targets and the documentation as well.
    Full,
}

/// What a failed phase does to those after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OnFailure {
    Stop,
    KeepGoing,
}

/// The crates that must compile for browsers, in dependency order.
const WASM_CRATES: [&str; 9] = [
    "redraft-drafter",
    "redraft-gguf",
    "redraft-text",
    "redraft-decode",
    "redraft-shaders",
    "redraft-gpu",
    "redraft-model",
    "redraft",
    "redraft-wasm",
];

/// The tiers of an adapter that GPU tests run on: as the browser floor sees it, and with all it offers.
const TIERS: [&str; 2] = ["strict", "default"];
/// The same with kernels in f16, where the adapter has f16.
const F16_TIERS: [&str; 2] = ["strict-f16", "default-f16"];

pub(crate) fn run(scope: Scope, on_failure: OnFailure) -> Outcome {
    let mut phases = Phases::new(on_failure);
    phases.run("setup", setup::for_tests);
    phases.run("format", || Cmd::cargo("fmt").args(["--all", "--check"]).run());
    phases.run("lints", || {
        locked("clippy").args(["--workspace", "--all-targets", "--", "--deny", "warnings"]).run()
    });
    phases.run("tests", || tests(on_failure));
    if scope == Scope::Full {
        phases.run("wasm32", wasm);
        phases.run("windows", windows);
        phases.run("docs", docs);
        phases.run("web: build", web::build);
        phases.run("web: unit tests", web::unit_tests);
        phases.run("web: browser tests", web::browser_tests);
        if which("cargo-deny").is_some() {
            phases.run("deny", || Cmd::cargo("deny").args(["check", "licenses", "bans", "sources"]).run());
        } else {
            eprintln!("\n== deny: SKIP, cargo-deny is not installed");
        }
    }
    phases.finish()
}

/// Everything is built in the release profile, so that each dependency is compiled once.
fn locked(subcommand: &str) -> Cmd {
    Cmd::cargo(subcommand).args(["--release", "--locked"])
}

fn tests(on_failure: OnFailure) -> Outcome {
    let log = TestLog::start(&crate::target_dir())?;
    let run = || {
        if which("cargo-nextest").is_none() {
            return log.given_to(locked("test").args(["--workspace", "--no-fail-fast"])).run();
        }
        let all = if on_failure == OnFailure::KeepGoing { "--no-fail-fast" } else { "--fail-fast" };
        let nextest = Cmd::cargo("nextest").args(["run", "--release", "--locked", "--workspace", all]);
        log.given_to(nextest).run()?;
        // nextest leaves the examples in doc comments out.
        log.given_to(locked("test").args(["--workspace", "--doc", "--quiet"])).run()
    };
    // The report stands also where tests failed: it may say why.
    let outcome = run();
    let report = log.report(&TIERS, &F16_TIERS);
    outcome.and(report)
}

fn wasm() -> Outcome {
    let packages = WASM_CRATES.iter().flat_map(|name| ["--package", name]);
    locked("check").args(["--target", WASM]).args(packages).run()
}

/// The command is type-checked, not linked, so no Windows tool is needed.
fn windows() -> Outcome {
    locked("check").args(["--target", WINDOWS, "--package", "redraft-cli"]).run()
}

/// Libraries only: the command `redraft` and the library `redraft` would write the same page.
fn docs() -> Outcome {
    locked("doc").args(["--workspace", "--no-deps", "--lib"]).env("RUSTDOCFLAGS", "--deny warnings").run()
}
