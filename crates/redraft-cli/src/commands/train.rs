//! `redraft train`: hands over to `redraft-train`, which brings a training framework along and is built apart.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::error::CliError;

/// `train`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct TrainArgs {
    /// Arguments of redraft-train; `redraft train --help` lists its commands
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Runs it and answers its exit status.
pub(crate) fn run(args: &TrainArgs) -> Result<ExitCode, CliError> {
    let program = beside().unwrap_or_else(|| PathBuf::from(NAME));
    match Command::new(&program).args(&args.arguments).status() {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => Err(CliError::NoTrainer),
        Err(source) => Err(CliError::File { action: "start", path: program.display().to_string(), source }),
    }
}

const NAME: &str = if cfg!(windows) { "redraft-train.exe" } else { "redraft-train" };

/// The program in the folder of this one; else it is looked for in PATH.
fn beside() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(NAME);
    path.is_file().then_some(path)
}
