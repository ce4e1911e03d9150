//! What can go wrong, in words that say what to do.

use std::path::{Path, PathBuf};

use redraft_drafter::DrafterError;
use redraft_gguf::{GgufError, PackError, ReadError};
use redraft_text::{TemplateError, TokenizerError};

/// Why a command of the trainer did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file or directory cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of a data file is not what training takes.
    #[error("{file}:{line}: {problem}")]
    Data {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// The model file cannot be read.
    #[error("{path}: {source}")]
    Gguf {
        /// The model file.
        path: PathBuf,
        /// Why.
        source: Box<GgufError>,
    },
    /// The bytes of a tensor cannot be read.
    #[error("tensor {name} of the target: {source}")]
    Read {
        /// The tensor.
        name: String,
        /// Why.
        source: ReadError,
    },
    /// A tensor of the target cannot be dequantised.
    #[error("tensor {name} of the target: {source}")]
    Tensor {
        /// The tensor.
        name: String,
        /// Why.
        source: PackError,
    },
    /// The target is of a kind that the trainer has no forward pass for.
    #[error("the target {problem}; drafters can be trained for llama and qwen2 models")]
    Target {
        /// What it is.
        problem: String,
    },
    /// The drafter file is not valid, or not for this target.
    #[error(transparent)]
    Drafter(#[from] DrafterError),
    /// The target's tokenizer cannot be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A chat cannot be put into the target's template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A file that an earlier command wrote is damaged or belongs to something else.
    #[error("{path}: {problem}; {hint}")]
    State {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// A setting is out of its range, or does not go with another.
    #[error("{setting}: expected {wanted}, found {found}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What would be accepted.
        wanted: String,
        /// What was given.
        found: String,
    },
    /// The loss is no number: nothing that follows would mean anything.
    #[error("the loss of step {step} is {loss}; the last checkpoint is kept, try a lower --learning-rate")]
    Diverged {
        /// The optimizer step.
        step: u64,
        /// The loss.
        loss: f64,
    },
    /// The training framework refused.
    #[error("{what}: {message}")]
    Framework {
        /// What was tried.
        what: &'static str,
        /// What it said.
        message: String,
    },
}

impl TrainError {
    /// For `map_err` of file operations.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }

    /// A setting that is not in its range.
    pub fn setting(setting: &'static str, wanted: impl Into<String>, found: impl ToString) -> Self {
        Self::Setting { setting, wanted: wanted.into(), found: found.to_string() }
    }
}
