//! Support for the tests of all crates; nothing that ships depends on it.
//!
//! - [`reference`](mod@reference): the oracle, a forward pass in plain f32 ([`Forward`]), and one of
//!   drafters ([`reference::Drafter`]).
//! - [`TinyModel`]: small random models as GGUF files, with tokenizer and chat template, and
//!   [`TinyDrafter`], small random drafters for them; below it
//!   [`GgufWriter`], [`quantize`] and the seeded generator [`Prng`].
//! - [`Tolerance`] and [`assert_close`]: how close is close enough.
//! - [`declared_skip`], [`shared_data`], [`model_path`]: inputs outside the repository, never skipped in
//!   silence.
//!
//! A tiny model through the oracle:
//!
//! ```
//! use redraft_testing::TinyModel;
//! use redraft_testing::reference::{Forward, argmax};
//!
//! let file = TinyModel::default().to_gguf()?;
//! let mut model = Forward::load(&file)?;
//! let mut logits = model.prefill(&[1, 75, 76])?;
//! for _ in 0..4 {
//!     logits = model.step(argmax(&logits))?;
//! }
//! assert_eq!(model.length(), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(not(target_arch = "wasm32"))]
mod fixtures;
mod gpu_log;
mod prng;
mod quantize;
pub mod reference;
mod tiny;
mod tolerance;

#[cfg(not(target_arch = "wasm32"))]
pub use fixtures::{MODEL_FILE, Skip, declared_skip, declared_skips, model_path, shared_data};
pub use gpu_log::{ran_on_gpu, ran_on_gpu_in_f16, skip_without_f16};
pub use prng::{Prng, fnv1a};
pub use quantize::quantize;
pub use redraft_gguf::{GgufWriter, QuantizeError};
pub use reference::{Forward, KvType, ReferenceError};
pub use tiny::{RoleTypes, TinyDrafter, TinyDrafterError, TinyModel, TinyModelError, TinyTensor};
pub use tolerance::{Difference, Tolerance, assert_close};
