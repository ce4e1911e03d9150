//! What can go wrong in a command, and the exit status each kind gets.

use std::io;
use std::process::ExitCode;

use crate::model::ModelError;
use crate::prompt::PromptError;

/// Exit status of a command stopped by Ctrl-C, as shells have it (128 + SIGINT).
pub(crate) const INTERRUPTED: u8 = 130;

/// The error of a whole command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CliError {
    /// The arguments contradict each other in a way that the parser cannot see. Exit status 2.
    #[error("{0}\n\nFor more information, try '--help'.")]
    Usage(String),
    /// The model could not be found, fetched or verified.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The prompt could not be read.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The library refused or failed.
    #[error(transparent)]
    Engine(#[from] redraft::Error),
    /// A file that the user named could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried, as in "read" or "write".
        action: &'static str,
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The model file cannot be opened.
    #[error(transparent)]
    Open(#[from] redraft_gguf::ReadError),
    /// The file is not a GGUF model that can be read.
    #[error("{path}: {source}")]
    Gguf {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: redraft_gguf::GgufError,
    },
    /// The file is not a drafter that can be used.
    #[error("drafter {path}: {source}")]
    Drafter {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: Box<redraft::DrafterError>,
    },
    /// The drafter does not fit the model.
    #[error("drafter {path}: {source}")]
    DrafterFits {
        /// The file.
        path: String,
        /// What does not fit.
        source: Box<redraft::ModelError>,
    },
    /// A line of a file of prompts is none, or cannot be used with the model.
    #[error("{file} line {line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Speculation changed an answer, which it never may; the report has been printed already.
    #[error(
        "answers with and without speculation differ, which must not be: {0}; run `redraft devices --check` and report it"
    )]
    Differs(String),
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// Standard input or the terminal could not be read.
    #[error("cannot read the terminal or standard input: {0}")]
    Input(io::Error),
    /// `devices --adapter` names none of the adapters.
    #[error("there is no adapter {wanted}; found: {found}")]
    NoAdapter {
        /// What was asked for.
        wanted: String,
        /// Names of those there are.
        found: String,
    },
    /// An item of `devices --check` failed; the report has been printed already.
    #[error("the adapter check failed, see the report")]
    CheckFailed,
    /// The program that trains is not installed.
    #[error(
        "redraft-train is neither beside redraft nor in PATH; build it with `cargo build --release -p redraft-train`"
    )]
    NoTrainer,
    /// A chat message or conversation that cannot be used.
    #[error("{0}")]
    Chat(String),
    /// Ctrl-C during the work; what there was has been printed.
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// The exit status: 2 for usage errors, 130 for Ctrl-C, 1 otherwise. A closed pipe (`redraft … | head`) is no error.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            _ if self.is_broken_pipe() => ExitCode::SUCCESS,
            Self::Usage(_) => ExitCode::from(2),
            Self::Interrupted => ExitCode::from(INTERRUPTED),
            _ => ExitCode::FAILURE,
        }
    }

    /// Whether the reader of standard output has gone away.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
