//! Decoding logic without a GPU: token trees, sampling, stop rules, log-probabilities.
//!
//! Everything here is plain integer and `f32` arithmetic on slices, so it runs and is tested anywhere. Four groups:
//!
//! - **Trees.** [`Tree`] is the shape of a verification batch: row 0 is the root, every further row names its parent.
//!   [`ancestor_table`] is the table that attention and the penalty window read on the GPU. [`TreeRows`] adds the token
//!   of each row and the [`Position`] of the root, and answers which rows a target's tokens accept.
//! - **Drafts.** [`draft`] grows trees of drafted tokens, the CPU twin of the kernels of a draft round, and chooses when
//!   and how to draft.
//! - **Sampling.** [`SamplingParams`] says how a token is drawn; [`Sampler`] is the CPU twin of the kernels
//!   `sample_window`, `sample_prepare`, `sample_pick`, `sample_histogram`, `sample_cut` and `sample_draw`, stage by stage
//!   and under the same names in [`sampling`]. A drawn token is a pure function of the row of logits, the tokens before
//!   it, its absolute position and the seed, so that decoding one row at a time and verifying a tree draw the same
//!   tokens.
//! - **Ends.** [`StopPolicy`] says where a run of tokens ends, [`log_probs`] what the model thought of a token.
//!
//! ```
//! use redraft_decode::{Position, Sampler, SamplingParams, TokenId};
//!
//! let params = SamplingParams { temperature: 0.8, top_k: 40, seed: 7, ..SamplingParams::default() };
//! let mut sampler = Sampler::new(params, 4)?;
//! let history = [TokenId(2)];
//! let token = sampler.sample(&[0.1, 2.0, -1.0, 0.5], &history, Position(1))?;
//! assert!(token.0 < 4, "a token of the vocabulary");
//! # Ok::<(), redraft_decode::SamplingError>(())
//! ```

#![forbid(unsafe_code)]

pub mod draft;
mod id;
mod log_probs;
pub mod sampling;
mod stop;
mod tree;

pub use id::{Position, TokenId};
pub use log_probs::{LogProb, LogProbs, LogProbsError, log_probs};
pub use sampling::{Sampler, SamplingError, SamplingParams};
pub use stop::{Ending, StopPolicy, StopReason};
pub use tree::{Accepted, MAX_ROWS, Tree, TreeError, TreeRows, ancestor_table};
