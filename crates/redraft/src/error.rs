//! One error for everything the library does.

use redraft_decode::draft::{CostError, PolicyError};
use redraft_decode::{LogProbsError, SamplingError};
use redraft_drafter::DrafterError;
use redraft_gguf::GgufError;
use redraft_gpu::GpuError;
use redraft_model::ModelError;
use redraft_text::{StopError, TemplateError, TokenizerError};

/// An error of the library. Messages say what was expected, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model file cannot be used.
    #[error("the model file cannot be used: {0}")]
    File(#[from] GgufError),
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The drafter's file cannot be used.
    #[error("drafter: {0}")]
    Drafter(#[from] DrafterError),
    /// Costs of speculation that are no costs.
    #[error("costs of speculation: {0}")]
    Costs(#[from] CostError),
    /// The caller cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The policy of speculation cannot be set up.
    #[error("speculation: {0}")]
    Policy(#[from] PolicyError),
    /// The GPU layer failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The tokenizer cannot be built, or cannot encode a text.
    #[error("tokenizer: {0}")]
    Tokenizer(#[from] TokenizerError),
    /// The chat template cannot be used.
    #[error("chat template: {0}")]
    Template(#[from] TemplateError),
    /// Sampling parameters out of range.
    #[error("sampling: {0}")]
    Sampling(#[from] SamplingError),
    /// Log-probabilities cannot be computed.
    #[error("log-probabilities: {0}")]
    LogProbs(#[from] LogProbsError),
    /// Stop strings cannot be used.
    #[error("stop strings: {0}")]
    Stop(#[from] StopError),
    /// The model has no chat template.
    #[error(
        "this model has no chat template; give a plain prompt instead of messages (on the command line: --raw)"
    )]
    NoTemplate,
    /// The tokenizer does not belong to the model.
    #[error(
        "the tokenizer has {tokenizer} tokens but the model's embedding only {model}; they belong to two models"
    )]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// Rows of the embedding.
        model: u32,
    },
    /// The prompt is empty.
    #[error("the prompt has no tokens; give some text, or a model that adds a beginning-of-sequence token")]
    EmptyPrompt,
    /// The prompt does not fit.
    #[error(
        "the prompt has {tokens} tokens, which leaves no room in the context of {context}; shorten it or load the model with a larger context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: u64,
        /// Tokens of the context.
        context: u32,
    },
    /// A token id that the model does not have.
    #[error("token id {id} is not in the vocabulary of {vocab} tokens")]
    Token {
        /// The id.
        id: u32,
        /// Number of tokens.
        vocab: u32,
    },
}
