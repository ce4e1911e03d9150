//! Drafters in the formats of other engines.
//!
//! [`DrafterFile::to_eagle`] writes the checkpoint that SafeAILab's EAGLE, SpecForge, SGLang and vLLM read, and
//! [`DrafterFile::read_with_config`] reads it; [`DrafterFile::to_gguf`] and [`DrafterFile::read_gguf`] do the same for
//! llama.cpp's architecture `eagle3`. All of them know the first pass alone: what only reconsideration needs is left out
//! and named in `left_out`. What cannot be left out without changing results is a
//! [`DrafterError::Unrepresentable`].
//!
//! Both carry the target's fingerprint in a place that other engines pass over, so that a drafter which went out and
//! came back still knows what it is for.

use crate::config::DrafterConfig;
use crate::error::DrafterError;
use crate::file::{DrafterFile, ReconsiderSettings};
use crate::fingerprint::TargetFingerprint;
use redraft_gguf::{Gguf, ModelConfig};

mod eagle;
mod gguf;

pub use eagle::{EagleCheckpoint, FloatType};
pub use gguf::{Eagle3Gguf, GgufOptions};

/// Context that other engines are told. A drafter has no limit of its own; theirs comes from the target.
const CONTEXT: u32 = 1 << 17;

/// How tensors of reconsideration begin.
const RECONSIDER: &str = "reconsider.";

/// What is not in an export: tensors by name, and the settings of gate and merge.
fn left_out(file: &DrafterFile) -> Vec<String> {
    let tensors = file.tensors().map(|(name, _)| name).filter(|name| name.starts_with(RECONSIDER));
    let mut names: Vec<String> = tensors.map(str::to_owned).collect();
    if file.reconsider().settings != ReconsiderSettings::default() {
        names.push("the settings of gate and merge".to_owned());
    }
    names
}

/// A finite number as short as it can be written, so that reading it gives the same bits.
fn number(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

impl DrafterFile {
    /// The same drafter, knowing which model it is for.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Target`] when it is for another one or does not fit this one; [`DrafterError`] when the model
    /// has no tokenizer to be known by.
    pub fn for_target(self, gguf: &Gguf, model: &ModelConfig) -> Result<Self, DrafterError> {
        let found = fingerprint(self.config(), gguf, model)?;
        self.check_target(&found)?;
        let mut parts = self.into_parts();
        // What it was trained on is kept, the type of those weights included.
        parts.target.get_or_insert(found);
        Self::new(parts)
    }
}

/// The fingerprint of a model as this drafter would see it.
fn fingerprint(
    config: &DrafterConfig,
    gguf: &Gguf,
    model: &ModelConfig,
) -> Result<TargetFingerprint, DrafterError> {
    TargetFingerprint::of(gguf, model, config.captures(model.layers)?)
}
