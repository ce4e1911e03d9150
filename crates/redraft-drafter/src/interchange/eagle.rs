//! The EAGLE-3 checkpoint: a `config.json` and a `model.safetensors`.
//!
//! The layers that are captured stand there twice, because the engines number them differently: at the top level by
//! their input, which vLLM asks for first, and in `eagle_config` by their output, which SGLang and SpecForge take.

use super::{CONTEXT, RECONSIDER, left_out, number};
use crate::error::DrafterError;
use crate::file::DrafterFile;
use crate::file::container::{Stored, container};
use crate::tensor::Tensor;
use redraft_gguf::GgmlType;
use serde_json::{Map, Value, json};

const FORMAT: &str = "an EAGLE-3 checkpoint";
/// The key of the captured layers, at both places.
const CAPTURES: &str = "eagle_aux_hidden_state_layer_ids";

/// The type of the numbers in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the names of the types")]
pub enum FloatType {
    F32,
    F16,
    BF16,
}

impl FloatType {
    fn kind(self) -> GgmlType {
        match self {
            Self::F32 => GgmlType::F32,
            Self::F16 => GgmlType::F16,
            Self::BF16 => GgmlType::BF16,
        }
    }

    /// What PyTorch calls it.
    fn torch(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
        }
    }
}

/// A drafter as the EAGLE-3 frameworks load it: two files of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EagleCheckpoint {
    /// `config.json`.
    pub config_json: String,
    /// `model.safetensors`.
    pub weights: Vec<u8>,
    /// What the drafter has and the checkpoint does not: the tensors and settings of reconsideration.
    pub left_out: Vec<String>,
}

impl DrafterFile {
    /// The checkpoint, all weights in `dtype`.
    ///
    /// EAGLE-3.1's `fc_norm` and `norm_output` are written as SpecForge has them; engines from before May 2026 refuse
    /// the tensors of the first and pass over the second.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Unrepresentable`] when the embeddings are captured, [`DrafterError::Quantize`] when a weight does
    /// not fit `dtype`.
    pub fn to_eagle(&self, dtype: FloatType) -> Result<EagleCheckpoint, DrafterError> {
        let config_json = serde_json::to_string_pretty(&self.eagle_config(dtype)?)
            .map_err(|source| DrafterError::Json { field: "config.json", source })?;
        let mut tensors = Vec::new();
        for (name, tensor) in self.tensors().filter(|(name, _)| !name.starts_with(RECONSIDER)) {
            tensors.push((name, tensor.cast(name, dtype.kind())?));
        }
        let mut stored: Vec<Stored<'_>> =
            tensors.iter().map(|(name, tensor)| Stored::new(name, tensor)).collect();
        stored.extend(self.stored_ids());
        stored.extend(self.stored_mask());
        // PyTorch's loaders ask for the format.
        let mut metadata = Map::new();
        metadata.insert("format".into(), "pt".into());
        if let Some(own) = self.stored_target() {
            metadata.insert(own.0.into(), own.1.into());
        }
        Ok(EagleCheckpoint {
            config_json: config_json + "\n",
            weights: container(stored, metadata),
            left_out: left_out(self),
        })
    }

    fn eagle_config(&self, dtype: FloatType) -> Result<Value, DrafterError> {
        let config = self.config();
        let mut json = json!({
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": config.hidden,
            "intermediate_size": config.ffn,
            "num_hidden_layers": 1,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "hidden_act": "silu",
            "attention_bias": false,
            "mlp_bias": false,
            "rms_norm_eps": number(config.rms_eps),
            "rope_theta": number(config.rope_theta),
            "max_position_embeddings": CONTEXT,
            "vocab_size": config.vocab,
            "draft_vocab_size": config.draft_vocab,
            "tie_word_embeddings": false,
            "torch_dtype": dtype.torch(),
        });
        let mut set = |key: &str, value: Value| {
            if let Some(map) = json.as_object_mut() {
                map.insert(key.to_owned(), value);
            }
        };
        // Where it is stated, the frameworks expect an embedding in the file.
        if config.target_hidden != config.hidden {
            set("target_hidden_size", config.target_hidden.into());
        }
        for (key, stated) in [("fc_norm", config.fc_norm), ("norm_output", config.norm_output)] {
            if stated {
                set(key, true.into());
            }
        }
        if let Some(inputs) = config.capture_layers {
            let outputs = inputs.map(|layer| layer.checked_sub(1));
            let [Some(low), Some(middle), Some(high)] = outputs else {
                return Err(DrafterError::Unrepresentable {
                    format: FORMAT,
                    what: "captures of the embeddings, which are no layer's output".to_owned(),
                    hint: "train with captures from layer 1 on",
                });
            };
            set(CAPTURES, inputs.to_vec().into());
            set("eagle_config", json!({ CAPTURES: [low, middle, high], "use_aux_hidden_state": true }));
        }
        Ok(json)
    }

    /// `t2d`: of every token of the target whether the drafter can propose it. Training alone reads it.
    fn stored_mask(&self) -> Option<Stored<'_>> {
        let config = self.config();
        (config.draft_vocab != config.vocab).then(|| {
            let mut mask = vec![0_u8; config.vocab as usize];
            for id in self.draft_ids() {
                if let Some(member) = mask.get_mut(*id as usize) {
                    *member = 1;
                }
            }
            Stored {
                name: "t2d",
                dtype: "BOOL",
                align: 1,
                shape: vec![config.vocab.into()],
                bytes: mask.into(),
            }
        })
    }
}

impl Tensor {
    /// The tensor in another type.
    pub(crate) fn cast(&self, name: &str, kind: GgmlType) -> Result<Self, DrafterError> {
        let mut bytes = Vec::new();
        self.append_as(name, kind, &mut bytes)?;
        Ok(Self { kind, dims: self.dims.clone(), bytes })
    }
}
