//! The one entry point for people and for CI: set up a machine, run redraft, test it, check it.
//!
//! Standard library only, so that it builds in seconds on a fresh machine. Everything here calls ordinary
//! tools (cargo, rustup, apt, pip) and prints each command before it runs.

mod checks;
mod phases;
mod process;
mod setup;
mod test_log;
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use process::Cmd;

/// What a command of this program ends with; the message is for a person and says what to do.
type Outcome<T = ()> = Result<T, String>;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  run [PROMPT]     set up what is missing, then answer PROMPT with the default model
  chat [ARGS]      set up what is missing, then chat in the terminal (ARGS go to `redraft chat`)
  web              build the browser package and its chat demo, serve the demo with the default model, print its address
  web build        only build; the package is then in web/package/dist, the demo in web/demo/dist
  web pack         build, and pack the package for npm into web/.build
  web test         build, then the unit tests and the tests in Chromium
  setup [--tests]  a Vulkan driver and the default model; with --tests what the tests need as well
  test [--fast]    set up, then format, lints, tests, wasm32 and Windows type checks, docs, browser; stops at the first failure
                   --fast: only format, lints and tests; no browser
  ci               the same phases; runs them all, ends with a summary, needs GPU tests on both tiers
  help             this text";

const DEFAULT_MODEL: &str = "smollm2-135m";
const DEFAULT_PROMPT: &str = "What is the capital of France?";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match dispatch(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command that `args` name; `Ok(false)` when they name none.
fn dispatch(args: &[&str]) -> Outcome<bool> {
    match args {
        ["run", prompt @ ..] => run(prompt)?,
        ["chat", rest @ ..] => chat(rest)?,
        ["setup"] => setup::for_running()?,
        ["setup", "--tests"] => {
            setup::for_tests()?;
            setup::web::for_testing()?;
        }
        ["web"] => web::serve()?,
        ["web", "build"] => web::build()?,
        ["web", "pack"] => web::pack()?,
        ["web", "test"] => {
            web::build()?;
            web::unit_tests()?;
            web::browser_tests()?;
        }
        ["test"] => checks::run(checks::Scope::Full, checks::OnFailure::Stop)?,
        ["test", "--fast"] => checks::run(checks::Scope::Fast, checks::OnFailure::Stop)?,
        ["ci"] => checks::run(checks::Scope::Full, checks::OnFailure::KeepGoing)?,
        ["help" | "--help" | "-h"] => println!("{USAGE}"),
        _ => return Ok(false),
    }
    Ok(true)
}

fn run(prompt: &[&str]) -> Outcome {
    setup::for_running()?;
    let words = if prompt.first() == Some(&"--") { &prompt[1..] } else { prompt };
    let prompt = if words.is_empty() { DEFAULT_PROMPT.to_owned() } else { words.join(" ") };
    redraft().args(["generate", "--model", DEFAULT_MODEL]).arg(format!("--prompt={prompt}")).run()
}

fn chat(rest: &[&str]) -> Outcome {
    setup::for_running()?;
    let rest = if rest.first() == Some(&"--") { &rest[1..] } else { rest };
    redraft().arg("chat").args(rest.iter().copied()).run()
}

/// The release build of the `redraft` command, built when it is out of date.
fn redraft() -> Cmd {
    Cmd::cargo("run").args(["--release", "--locked", "--quiet", "--package", "redraft-cli", "--"])
}

/// Root of the checkout.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    here.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

/// Where cargo puts what it builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
