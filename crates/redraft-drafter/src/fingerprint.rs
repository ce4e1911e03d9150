//! Which target a drafter was trained for.

use crate::error::{DrafterError, Warning};
use crate::json::Object;
use redraft_gguf::{GgmlType, Gguf, ModelConfig};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// What identifies a target for its drafter.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TargetFingerprint {
    /// `general.architecture` of the GGUF file.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Number of layers.
    pub layers: u32,
    /// Rows of the embedding.
    pub vocab: u32,
    /// Layers whose input is captured.
    pub capture_layers: [u32; 3],
    /// SHA-256, in hexadecimal, over `tokenizer.ggml.tokens`: of every token its length in bytes (u64,
    /// little-endian) and its bytes.
    pub tokenizer: String,
    /// The type of most weights of the layers, such as `Q4_1`.
    pub quantization: String,
}

const KEYS: [&str; 7] =
    ["architecture", "hidden", "layers", "vocab", "capture_layers", "tokenizer", "quantization"];

impl TargetFingerprint {
    /// The fingerprint of a model file, of which these layers are captured.
    ///
    /// # Errors
    ///
    /// [`DrafterError`] when the file has no token list.
    pub fn of(gguf: &Gguf, config: &ModelConfig, capture_layers: [u32; 3]) -> Result<Self, DrafterError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = gguf.metadata.strings(TOKENS)?.ok_or_else(|| DrafterError::Missing {
            field: TOKENS.to_owned(),
            hint: "a drafter cannot be matched with a model file that has no tokenizer",
        })?;
        Ok(Self {
            architecture: config.architecture.name().to_owned(),
            hidden: config.hidden,
            layers: config.layers,
            vocab: config.vocab,
            capture_layers,
            tokenizer: digest(tokens),
            quantization: quantization(gguf).name().to_owned(),
        })
    }

    /// Compares what a drafter was trained for (`self`) with a model.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Target`] when the tokenizer, the shape or the captured layers differ; another quantisation is a
    /// warning.
    pub fn check(&self, model: &Self) -> Result<Vec<Warning>, DrafterError> {
        let text = |layers: &[u32; 3]| format!("{layers:?}");
        for (field, expected, found) in [
            ("architecture", self.architecture.clone(), model.architecture.clone()),
            ("hidden", self.hidden.to_string(), model.hidden.to_string()),
            ("layers", self.layers.to_string(), model.layers.to_string()),
            ("vocab", self.vocab.to_string(), model.vocab.to_string()),
            ("capture_layers", text(&self.capture_layers), text(&model.capture_layers)),
            ("tokenizer", self.tokenizer.clone(), model.tokenizer.clone()),
        ] {
            if expected != found {
                // A file may say anything: control characters do not reach a terminal.
                let expected = expected.escape_debug().to_string();
                return Err(DrafterError::Target { field, expected, found });
            }
        }
        let (expected, found) = (self.quantization.clone(), model.quantization.clone());
        if expected == found {
            return Ok(Vec::new());
        }
        Ok(vec![Warning::Quantization { expected: expected.escape_debug().to_string(), found }])
    }

    pub(crate) fn from_json(object: &Object<'_>) -> Result<Self, DrafterError> {
        object.only(&KEYS)?;
        let missing = |key: &str| DrafterError::Missing {
            field: object.name(key),
            hint: "a fingerprint of a target has all its fields",
        };
        let number = |key: &str| object.u32(key)?.ok_or_else(|| missing(key));
        let text = |key: &str| object.str(key)?.map(str::to_owned).ok_or_else(|| missing(key));
        let tokenizer = text("tokenizer")?;
        let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if tokenizer.len() != 64 || !tokenizer.bytes().all(hexadecimal) {
            return Err(object.invalid("tokenizer", "64 lower-case hexadecimal digits"));
        }
        Ok(Self {
            architecture: text("architecture")?,
            hidden: number("hidden")?,
            layers: number("layers")?,
            vocab: number("vocab")?,
            capture_layers: object.triple("capture_layers")?.ok_or_else(|| missing("capture_layers"))?,
            tokenizer,
            quantization: text("quantization")?,
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        let values: [Value; KEYS.len()] = [
            self.architecture.as_str().into(),
            self.hidden.into(),
            self.layers.into(),
            self.vocab.into(),
            self.capture_layers.to_vec().into(),
            self.tokenizer.as_str().into(),
            self.quantization.as_str().into(),
        ];
        Value::Object(KEYS.map(str::to_owned).into_iter().zip(values).collect::<Map<_, _>>())
    }
}

fn digest(tokens: &[String]) -> String {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update((token.len() as u64).to_le_bytes());
        hash.update(token.as_bytes());
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// The type that most weights of the layers have; the earliest of equals in the file.
fn quantization(gguf: &Gguf) -> GgmlType {
    let mut counts: Vec<(GgmlType, u64)> = Vec::new();
    for tensor in gguf.tensors.iter().filter(|t| t.name.starts_with("blk.") && t.dims.len() > 1) {
        let weights = tensor.rows().saturating_mul(tensor.columns());
        match counts.iter_mut().find(|(kind, _)| *kind == tensor.kind) {
            Some((_, count)) => *count = count.saturating_add(weights),
            None => counts.push((tensor.kind, weights)),
        }
    }
    let most = counts.iter().map(|(_, count)| *count).max();
    counts.iter().find(|(_, count)| Some(*count) == most).map_or(GgmlType::F32, |(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::digest;

    /// Worked out with another implementation; the bounds of tokens count.
    #[test]
    fn the_digest_is_over_lengths_and_bytes() {
        let found = digest(&["a", "Ġthe", ""].map(str::to_owned));
        assert_eq!(found, "126254cf2bc3fd8913ed13bbeb4613d1dfcad1ef756f22f34947d5d69173814f");
        assert_ne!(digest(&["ab".to_owned()]), digest(&["a".to_owned(), "b".to_owned()]));
    }
}
