//! Drafter files: EAGLE-3 checkpoints in safetensors, with what reconsideration adds.
//!
//! Nothing here knows a GPU. [`DrafterFile::read`] reads a file that this project wrote,
//! [`DrafterFile::read_with_config`] a checkpoint with the `config.json` of the framework that trained it; both check
//! names, shapes and every weight, and what does not fit is a [`DrafterError`] that names it. [`DrafterFile::check_target`]
//! compares the [`TargetFingerprint`] in the file with that of a model. [`DrafterFile::to_model`] rewrites the weights
//! as ggml blocks with a GGUF header of their own, so that they load like a model of one layer. Other engines get
//! [`DrafterFile::to_eagle`] and [`DrafterFile::to_gguf`].
//!
//! A drafter is one decoder layer over the target's features. With H its width, Ht the target's:
//!
//! ```text
//! g = fc · concat(a, b, c)           three captures of the target, [3Ht -> H]; each normed first with fc_norm
//! x = concat(norm(e), norm(g))       e the embedding of the next token; norms input_layernorm, hidden_norm
//! h = g + attention(x)               q, k, v [2H -> …]
//! h = h + mlp(norm(h))               post_attention_layernorm
//! logits = lm_head · norm(h)         the next feature, in place of g, is h (norm(h) with norm_output)
//! ```
//!
//! A second pass adds `reconsider.embedding` to its feature, and `up · down · x` of the adapter to h after the MLP.
//!
//! ```
//! use redraft_drafter::{DrafterFile, Quantization};
//! use redraft_testing::TinyDrafter;
//!
//! let file = TinyDrafter::default().to_file()?;
//! let read = DrafterFile::read(&file.write())?;
//! assert_eq!(read, file);
//! let model = read.to_model(Quantization::Q8_0)?;
//! assert_eq!(model.config.vocab, read.config().draft_vocab);
//! assert!(model.gguf.tensor("blk.0.attn_q.weight").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod config;
mod error;
mod file;
mod fingerprint;
mod interchange;
mod json;
mod model;
mod tensor;

pub use config::DrafterConfig;
pub use error::{DrafterError, Warning};
pub use file::{DrafterFile, Parts, Reconsider, ReconsiderSettings};
pub use fingerprint::TargetFingerprint;
pub use interchange::{Eagle3Gguf, EagleCheckpoint, FloatType, GgufOptions};
pub use model::{DrafterModel, Quantization};
pub use tensor::Tensor;
