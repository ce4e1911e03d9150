//! Small random models, as GGUF files: whole paths in seconds.

mod drafter;
mod vocabulary;

use redraft_gguf::{Architecture, Array, GgmlType, GgufWriter, QuantizeError, Value};

use crate::prng::Prng;
use crate::quantize::quantize;
pub use drafter::{TinyDrafter, TinyDrafterError};
use vocabulary::{CONTROL, SMALLEST, Vocabulary};

/// ChatML with the optional opening of an answer; no default system message.
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
     message['content'] + '<|im_end|>\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Shape, types and seed of a small random model. Change fields of the default by struct update:
///
/// ```
/// use redraft_testing::TinyModel;
/// let file = TinyModel { layers: 3, seed: 7, ..TinyModel::default() }.to_gguf()?;
/// assert_eq!(file.get(..4), Some(&b"GGUF"[..]));
/// # Ok::<(), redraft_testing::TinyModelError>(())
/// ```
///
/// The bytes are a pure function of the fields, on every machine. Weights are scaled so that attention looks
/// at more than one position, logits spread by a few units and greedy text varies.
#[derive(Clone, Debug, PartialEq)]
pub struct TinyModel {
    /// `Llama` (interleaved RoPE) or `Qwen2` (half-split RoPE, bias on q, k, v).
    pub architecture: Architecture,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Inner width of the feed-forward part.
    pub ffn: usize,
    /// Tokens, at least 259: three control tokens, 256 bytes, then merges.
    pub vocab: usize,
    /// Context length written in the metadata.
    pub context: usize,
    /// The head is the embedding (no `output.weight`).
    pub tied: bool,
    /// RoPE base frequency.
    pub rope_base: f32,
    /// Linear RoPE scaling factor (positions are divided by it), written as metadata.
    pub rope_linear: Option<f32>,
    /// Per-pair RoPE divisors, `[head_dim / 2]`, written as `rope_freqs.weight`.
    pub rope_factors: Option<Vec<f32>>,
    /// Tensor types by role.
    pub types: RoleTypes,
    /// Seed of the weights.
    pub seed: u64,
}

/// Tensor types by role; norms and biases are always F32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleTypes {
    /// `token_embd.weight`, also the head of a tied model.
    pub embedding: GgmlType,
    /// `attn_q`, `attn_k`, `attn_v` and `attn_output`.
    pub attention: GgmlType,
    /// `ffn_gate` and `ffn_up`.
    pub gate_up: GgmlType,
    /// `ffn_down`.
    pub down: GgmlType,
    /// `output.weight` of a model that is not tied.
    pub head: GgmlType,
}

impl RoleTypes {
    /// The same type for every role.
    pub const fn all(kind: GgmlType) -> Self {
        Self { embedding: kind, attention: kind, gate_up: kind, down: kind, head: kind }
    }
}

impl Default for RoleTypes {
    /// As the reference model has them: Q4_1 with Q8_0 embedding and head.
    fn default() -> Self {
        Self { embedding: GgmlType::Q8_0, head: GgmlType::Q8_0, ..Self::all(GgmlType::Q4_1) }
    }
}

impl Default for TinyModel {
    /// Two Llama layers, hidden 64, 4 heads of 16 over 2 KV heads, ffn 96, 320 tokens, tied.
    fn default() -> Self {
        Self {
            architecture: Architecture::Llama,
            layers: 2,
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 96,
            vocab: 320,
            context: 512,
            tied: true,
            rope_base: 10_000.0,
            rope_linear: None,
            rope_factors: None,
            types: RoleTypes::default(),
            seed: 1,
        }
    }
}

/// Why a tiny model cannot be written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TinyModelError {
    /// The vocabulary does not hold the control tokens and the bytes.
    #[error("vocab is {0}: at least {SMALLEST} tokens are needed, for control tokens and bytes")]
    Vocabulary(usize),
    /// A size does not fit the 32-bit metadata field.
    #[error("{field} is {value}: it must fit in 32 bits")]
    Size {
        /// The field of [`TinyModel`].
        field: &'static str,
        /// Its value.
        value: usize,
    },
    /// A tensor cannot be encoded in the type of its role.
    #[error("tensor {name}: {source}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// What its values do not satisfy.
        source: QuantizeError,
    },
}

/// A tensor before it is encoded: tests may edit `values` between [`TinyModel::tensors`] and
/// [`TinyModel::write`].
#[derive(Clone, Debug, PartialEq)]
pub struct TinyTensor {
    /// GGUF name.
    pub name: String,
    /// Columns (the inner dimension, contiguous).
    pub columns: usize,
    /// Rows; `None` for a vector.
    pub rows: Option<usize>,
    /// The type to encode it in.
    pub kind: GgmlType,
    /// `[rows, columns]`, row-major.
    pub values: Vec<f32>,
}

impl TinyModel {
    /// The GGUF file (version 3) of the model.
    ///
    /// # Errors
    /// [`TinyModelError`] names the field or tensor that does not fit; a width that is no multiple of a
    /// type's block is the usual one (256 for K-quants, 32 for the other quantised types).
    pub fn to_gguf(&self) -> Result<Vec<u8>, TinyModelError> {
        self.write(&self.tensors())
    }

    /// The tokenizer of the file once more, as a `tokenizer.json`.
    #[must_use]
    pub fn tokenizer_json(&self) -> String {
        Vocabulary::new(self.vocab).to_json()
    }

    /// All tensors with their f32 values, in file order.
    pub fn tensors(&self) -> Vec<TinyTensor> {
        let (hidden, ffn, types) = (self.hidden, self.ffn, self.types);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        // Logits of unit-rms rows times the head spread by 2.5; a tied embedding has the head's scale.
        let head_rms = 2.5 / (hidden as f32).sqrt();
        let embedding_rms = if self.tied { head_rms } else { 1.0 };
        let mut tensors = vec![self.matrix("token_embd", types.embedding, self.vocab, hidden, embedding_rms)];
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            // Rows of norm √gain make outputs of standard deviation √gain from unit-rms inputs.
            let product = |part: &str, kind, rows: usize, columns: usize, gain: f32| {
                self.matrix(&name(part), kind, rows, columns, gain / (columns as f32).sqrt())
            };
            tensors.extend([
                self.norm(&name("attn_norm"), hidden),
                // q · k / √head_dim then spreads by about 2: neither uniform nor one-hot.
                product("attn_q", types.attention, q, hidden, 1.4),
                product("attn_k", types.attention, kv, hidden, 1.4),
                product("attn_v", types.attention, kv, hidden, 1.2),
                product("attn_output", types.attention, hidden, q, 1.5),
                self.norm(&name("ffn_norm"), hidden),
                product("ffn_gate", types.gate_up, ffn, hidden, 1.5),
                product("ffn_up", types.gate_up, ffn, hidden, 1.2),
                product("ffn_down", types.down, hidden, ffn, 1.5),
            ]);
            if self.architecture == Architecture::Qwen2 {
                let bias = |part: &str, width| self.vector(&name(part), "bias", width, 0.0, 0.5);
                tensors.extend([bias("attn_q", q), bias("attn_k", kv), bias("attn_v", kv)]);
            }
        }
        tensors.push(self.norm("output_norm", hidden));
        if !self.tied {
            tensors.push(self.matrix("output", types.head, self.vocab, hidden, head_rms));
        }
        if let Some(factors) = &self.rope_factors {
            let name = "rope_freqs.weight".to_owned();
            let (columns, values) = (factors.len(), factors.clone());
            tensors.push(TinyTensor { name, columns, rows: None, kind: GgmlType::F32, values });
        }
        tensors
    }

    /// The GGUF file with the model's metadata and the given tensors.
    ///
    /// # Errors
    /// As [`TinyModel::to_gguf`].
    pub fn write(&self, tensors: &[TinyTensor]) -> Result<Vec<u8>, TinyModelError> {
        let mut writer = GgufWriter::new();
        for (key, value) in self.metadata()? {
            writer.metadata(&key, value);
        }
        for tensor in tensors {
            let bytes = self.encode(tensor)?;
            let dims: Vec<u64> =
                std::iter::once(tensor.columns).chain(tensor.rows).map(|size| size as u64).collect();
            writer.tensor(&tensor.name, &dims, tensor.kind, bytes);
        }
        Ok(writer.to_bytes_unchecked())
    }

    /// Encodes row by row: no block may cross the end of a row.
    fn encode(&self, tensor: &TinyTensor) -> Result<Vec<u8>, TinyModelError> {
        let failed = |source| TinyModelError::Tensor { name: tensor.name.clone(), source };
        let mut bytes = Vec::new();
        for row in tensor.values.chunks(tensor.columns.max(1)) {
            bytes.extend(quantize(tensor.kind, row).map_err(failed)?);
        }
        Ok(bytes)
    }

    fn matrix(&self, name: &str, kind: GgmlType, rows: usize, columns: usize, rms: f32) -> TinyTensor {
        let name = format!("{name}.weight");
        // Uniform values in ±a have rms a / √3.
        let values = Prng::named(self.seed, &name).signed_values(rows * columns, rms * 3.0_f32.sqrt());
        TinyTensor { name, columns, rows: Some(rows), kind, values }
    }

    fn norm(&self, name: &str, width: usize) -> TinyTensor {
        self.vector(name, "weight", width, 1.0, 0.25)
    }

    fn vector(&self, name: &str, suffix: &str, width: usize, mean: f32, spread: f32) -> TinyTensor {
        let name = format!("{name}.{suffix}");
        let mut prng = Prng::named(self.seed, &name);
        let values = (0..width).map(|_| mean + spread * prng.signed()).collect();
        TinyTensor { name, columns: width, rows: None, kind: GgmlType::F32, values }
    }

    fn metadata(&self) -> Result<Vec<(String, Value)>, TinyModelError> {
        let arch = match self.architecture {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
        };
        if self.vocab < SMALLEST {
            return Err(TinyModelError::Vocabulary(self.vocab));
        }
        let text = |value: &str| Value::String(value.to_owned());
        let mut pairs = vec![
            ("general.architecture".to_owned(), text(arch)),
            ("general.name".to_owned(), text("redraft tiny random model")),
        ];
        for (key, field, value) in [
            ("block_count", "layers", self.layers),
            ("context_length", "context", self.context),
            ("embedding_length", "hidden", self.hidden),
            ("feed_forward_length", "ffn", self.ffn),
            ("attention.head_count", "heads", self.heads),
            ("attention.head_count_kv", "kv_heads", self.kv_heads),
            ("attention.key_length", "head_dim", self.head_dim),
            ("attention.value_length", "head_dim", self.head_dim),
            ("rope.dimension_count", "head_dim", self.head_dim),
            ("vocab_size", "vocab", self.vocab),
        ] {
            let small = u32::try_from(value).map_err(|_| TinyModelError::Size { field, value })?;
            pairs.push((format!("{arch}.{key}"), Value::U32(small)));
        }
        pairs.push((format!("{arch}.attention.layer_norm_rms_epsilon"), Value::F32(1e-5)));
        pairs.push((format!("{arch}.rope.freq_base"), Value::F32(self.rope_base)));
        if let Some(factor) = self.rope_linear {
            pairs.push((format!("{arch}.rope.scaling.type"), text("linear")));
            pairs.push((format!("{arch}.rope.scaling.factor"), Value::F32(factor)));
        }
        pairs.extend(self.tokenizer());
        Ok(pairs)
    }

    fn tokenizer(&self) -> Vec<(String, Value)> {
        let Vocabulary { tokens, types, merges } = Vocabulary::new(self.vocab);
        let id = |name: &str| {
            let position = CONTROL.iter().position(|&control| control == name);
            Value::U32(position.and_then(|position| u32::try_from(position).ok()).unwrap_or(0))
        };
        [
            ("ggml.model", Value::String("gpt2".to_owned())),
            ("ggml.pre", Value::String("smollm".to_owned())),
            ("ggml.tokens", Value::Array(Array::String(tokens))),
            ("ggml.token_type", Value::Array(Array::I32(types))),
            ("ggml.merges", Value::Array(Array::String(merges))),
            ("ggml.bos_token_id", id("<|im_start|>")),
            ("ggml.eos_token_id", id("<|im_end|>")),
            ("ggml.unknown_token_id", id("<|endoftext|>")),
            ("ggml.padding_token_id", id("<|im_end|>")),
            ("ggml.add_bos_token", Value::Bool(false)),
            ("ggml.add_space_prefix", Value::Bool(false)),
            ("chat_template", Value::String(CHAT_TEMPLATE.to_owned())),
        ]
        .map(|(key, value)| (format!("tokenizer.{key}"), value))
        .into()
    }
}
