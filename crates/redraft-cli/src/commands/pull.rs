//! `redraft pull`: fetch a model and print where it is.

use clap::Args;

use crate::error::CliError;
use crate::model::{self, ModelRef};
use crate::output;

/// Flags of `pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Name (smollm2-135m) or hf:owner/repo[@revision]/file.gguf
    pub(crate) model: ModelRef,
}

pub(crate) fn run(args: &PullArgs) -> Result<(), CliError> {
    let path = model::resolve(&args.model)?;
    output::emit(&format!("{}\n", path.display()))
}
