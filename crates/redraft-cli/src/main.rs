//! The `redraft` command.
//!
//! `args` is the command line, `commands` has one module a command, `model` turns a name into a verified file, `chat`
//! is what the interactive command is made of, `speculate` is what the flags of speculation mean, `tree`
//! draws trees. Blocking on the library's futures happens here and nowhere below.

#![forbid(unsafe_code)]

mod args;
mod chat;
mod commands;
mod error;
mod files;
mod interrupt;
mod loading;
mod model;
mod output;
mod progress;
mod prompt;
mod speculate;
mod tree;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => "warn",
        1 => "warn,redraft=info",
        _ => "warn,redraft=debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    interrupt::install();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            if !error.is_broken_pipe() {
                output::error(&error);
            }
            error.exit_code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Train(args) => return commands::train::run(&args),
        Command::Chat(args) => commands::chat::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Tree(args) => commands::tree::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Devices(args) => commands::devices::run(&args),
        Command::Drafter(command) => commands::drafter::run(&command),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Pull(args) => commands::pull::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}
