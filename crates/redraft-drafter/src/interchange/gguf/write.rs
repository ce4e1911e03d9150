//! To the bytes of a GGUF file.

use super::{
    ARCHITECTURE, CAPTURES, D2T, Eagle3Gguf, GgufOptions, TARGET, file_type, interleave, names, rotated,
};
use crate::config::DrafterConfig;
use crate::error::DrafterError;
use crate::file::DrafterFile;
use crate::interchange::{CONTEXT, fingerprint, left_out};
use crate::tensor::{Role, specs};
use redraft_gguf::{Array, GgmlType, GgufWriter, ModelConfig, Value};

const FORMAT: &str = "llama.cpp's eagle3 architecture";
/// What the keys of a tokenizer begin with.
const TOKENIZER: &str = "tokenizer.";
/// Version of the block types, the only one that is written today.
const QUANTIZATION_VERSION: u32 = 2;

impl DrafterFile {
    /// The file for llama.cpp; norms and tables in F32.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Unrepresentable`] for a drafter with `fc_norm` or `norm_output`, which llama.cpp does not
    /// compute; [`DrafterError::Target`] when the model in `options` is not the drafter's;
    /// [`DrafterError::Missing`] when nothing says which layers are captured; [`DrafterError::Quantize`] when a weight
    /// does not fit the type asked for.
    pub fn to_gguf(&self, options: &GgufOptions<'_>) -> Result<Eagle3Gguf, DrafterError> {
        let config = self.config();
        for (key, stated) in [("fc_norm", config.fc_norm), ("norm_output", config.norm_output)] {
            if stated {
                return Err(DrafterError::Unrepresentable {
                    format: FORMAT,
                    what: format!("a drafter with {key} (EAGLE-3.1)"),
                    hint: "export to an EAGLE-3 checkpoint, or train without it",
                });
            }
        }
        let mut writer = GgufWriter::new();
        writer.metadata("general.architecture", Value::String(ARCHITECTURE.into()));
        writer.metadata("general.type", Value::String("model".into()));
        writer.metadata("general.quantization_version", Value::U32(QUANTIZATION_VERSION));
        let head = self.tensor("lm_head.weight").map(|tensor| tensor.kind);
        let kind = options.matrices.map(crate::Quantization::kind).or(head);
        if let Some(number) = kind.and_then(file_type) {
            writer.metadata("general.file_type", Value::U32(number));
        }
        let captures = self.captures_for(options)?;
        shape(&mut writer, config, captures);
        self.tokenizer(&mut writer, options);
        if let Some(target) = self.target() {
            writer.metadata(TARGET, Value::String(target.to_json().to_string()));
        }
        self.matrices(&mut writer, options)?;
        if config.draft_vocab != config.vocab {
            let ids = self.draft_ids().iter().flat_map(|id| i64::from(*id).to_le_bytes()).collect();
            writer.tensor(D2T, &[config.draft_vocab.into()], GgmlType::I64, ids);
        }
        Ok(Eagle3Gguf { bytes: writer.to_bytes()?, left_out: left_out(self) })
    }

    /// The captured layers, which the format requires.
    fn captures_for(&self, options: &GgufOptions<'_>) -> Result<[u32; 3], DrafterError> {
        let model = options.target.map(ModelConfig::from_gguf).transpose()?;
        if let (Some(gguf), Some(model)) = (options.target, &model) {
            self.check_target(&fingerprint(self.config(), gguf, model)?)?;
        }
        match (self.config().capture_layers, model) {
            (Some(captures), _) => Ok(captures),
            (None, Some(model)) => self.config().captures(model.layers),
            (None, None) => Err(DrafterError::Missing {
                field: "capture_layers".to_owned(),
                hint: "the drafter does not say which layers it captures; give the model that it is for",
            }),
        }
    }

    fn tokenizer(&self, writer: &mut GgufWriter, options: &GgufOptions<'_>) {
        match options.target {
            Some(target) => {
                for (key, value) in target.metadata.iter().filter(|(key, _)| key.starts_with(TOKENIZER)) {
                    writer.metadata(key, value.clone());
                }
            }
            None => {
                writer.metadata("tokenizer.ggml.model", Value::String("none".into()));
            }
        }
    }

    fn matrices(&self, writer: &mut GgufWriter, options: &GgufOptions<'_>) -> Result<(), DrafterError> {
        let config = self.config();
        for spec in specs(config, None) {
            let (Some(tensor), Some((name, _))) = (self.tensor(spec.name), names(&spec)) else { continue };
            let kind = match (spec.role, options.matrices) {
                (Role::Norm | Role::Table, _) => GgmlType::F32,
                (Role::Matrix, Some(quantization)) => quantization.kind(),
                (Role::Matrix, None) => tensor.kind,
            };
            let mut cast = tensor.cast(spec.name, kind)?;
            if rotated(spec.name) {
                let row = kind.row_bytes(cast.columns()).and_then(|bytes| usize::try_from(bytes).ok());
                cast.bytes = interleave(&cast.bytes, row.unwrap_or(1), config.head_dim as usize);
            }
            let dims: Vec<u64> = spec.dims.iter().rev().copied().collect();
            writer.tensor(name, &dims, kind, cast.bytes);
        }
        Ok(())
    }
}

/// The keys of the architecture.
fn shape(writer: &mut GgufWriter, config: &DrafterConfig, captures: [u32; 3]) {
    let mut put = |suffix: &str, value: Value| {
        writer.metadata(&format!("{ARCHITECTURE}.{suffix}"), value);
    };
    put("block_count", Value::U32(1));
    put("context_length", Value::U32(CONTEXT));
    put("embedding_length", Value::U32(config.hidden));
    put("feed_forward_length", Value::U32(config.ffn));
    put("attention.head_count", Value::U32(config.heads));
    put("attention.head_count_kv", Value::U32(config.kv_heads));
    put("attention.key_length", Value::U32(config.head_dim));
    put("attention.value_length", Value::U32(config.head_dim));
    put("attention.layer_norm_rms_epsilon", Value::F32(config.rms_eps));
    put("rope.dimension_count", Value::U32(config.head_dim));
    put("rope.freq_base", Value::F32(config.rope_theta));
    put("vocab_size", Value::U32(config.vocab));
    put("target_hidden_size", Value::U32(config.target_hidden));
    // At most 1024 each.
    let layers = captures.map(|layer| i32::try_from(layer).unwrap_or(i32::MAX));
    for suffix in CAPTURES {
        put(suffix, Value::Array(Array::I32(layers.to_vec())));
    }
    put("norm_before_residual", Value::Bool(false));
}
