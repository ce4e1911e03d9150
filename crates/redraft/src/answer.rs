//! How an answer is asked for, and what it is.

use crate::Speculation;
use redraft_decode::draft::{Origin, SpeculationStats};
use redraft_decode::{LogProbs, SamplingParams, StopReason, TokenId};
use redraft_model::{RoundTrace, TreeKernel};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops an answer from elsewhere: another thread, a signal handler, a button. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Stops the answer at the next token, or the prompt at its next chunk.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How to answer.
#[derive(Debug, Clone)]
pub struct GenerateOptions {
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// How tokens are chosen; greedy by default.
    pub sampling: SamplingParams,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// With each token its log-probability and those of this many likeliest tokens.
    pub log_probs: Option<u8>,
    /// Stops the answer early.
    pub cancel: CancelToken,
    /// Go on after end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Whether and how the answer is drafted ahead; its tokens do not depend on it.
    pub speculation: Speculation,
    /// At a temperature the drafter proposes with the noise that the target draws with, so that the two agree more often.
    /// `false` is for measuring what that is worth.
    pub coupled: bool,
    /// Submit each round before the one before it is read, so that the device need not wait for the host; tokens are seen
    /// one round late. With a fixed plan, and without log-probabilities and traces.
    pub read_late: bool,
    /// With the first token of each round its draft tree; rounds are slower then.
    pub trace: bool,
    /// Kernels of the tree that run on the CPU instead, to find one that is wrong; rounds are much slower then.
    pub on_cpu: Vec<TreeKernel>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 256,
            sampling: SamplingParams::default(),
            stop: Vec::new(),
            log_probs: None,
            cancel: CancelToken::default(),
            ignore_eos: false,
            speculation: Speculation::Off,
            coupled: true,
            read_late: false,
            trace: false,
            on_cpu: Vec::new(),
        }
    }
}

/// One token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The token.
    pub id: TokenId,
    /// Text that is final with it: whole characters, nothing that might belong to a stop string. May be empty.
    pub text: String,
    /// Log-probabilities, if asked for.
    pub log_probs: Option<LogProbs>,
    /// Who proposed the token before the target confirmed it.
    pub origin: Origin,
    /// The tree of the round whose first token this is, if asked for.
    pub trace: Option<RoundTrace>,
}

/// What the next call of [`TokenStream::next`](crate::TokenStream::next) begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Measuring what steps cost, which an automatic choice of speculation does once in the life of an engine. On a
    /// software adapter that is seconds before the first token; worth telling whoever waits.
    Measuring,
    /// Computing the prompt.
    Prompt,
    /// Computing the next token.
    Answer,
    /// Nothing: the answer has ended.
    Ended,
}

/// Where the time went.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timings {
    /// Seconds until the first token, measuring included.
    pub prefill_s: f64,
    /// Seconds of those in which an automatic choice of speculation measured what steps cost: in the first answer of an
    /// engine that was given no costs, else 0.
    pub measuring_s: f64,
    /// Seconds for the tokens after the first.
    pub decode_s: f64,
    /// Prompt tokens computed; those reused from the last sequence are not counted.
    pub prefill_tokens: u32,
    /// Tokens after the first.
    pub decode_tokens: u32,
}

impl Timings {
    /// Seconds for the prompt and the first token alone.
    #[must_use]
    pub fn prompt_s(&self) -> f64 {
        (self.prefill_s - self.measuring_s).max(0.0)
    }
}

/// A finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The answer, up to the stop string if there was one.
    pub text: String,
    /// The prompt.
    pub prompt_ids: Vec<TokenId>,
    /// All tokens of the answer, an end-of-sequence token included.
    pub ids: Vec<TokenId>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Where the time went.
    pub timings: Timings,
    /// Prompt tokens whose keys and values were reused.
    pub reused_tokens: u32,
    /// What speculation did; `None` if it was off.
    pub speculation: Option<SpeculationStats>,
    /// Why speculation was given up in the middle of the answer, if it was.
    pub warning: Option<String>,
}
