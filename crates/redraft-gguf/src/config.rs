//! The shape of a model, from the metadata, checked against the tensors.

use crate::container::Gguf;
use crate::error::GgufError;
use crate::metadata::Metadata;

mod tensors;

/// The architectures whose forward pass is implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama and what runs like it (Mistral, SmolLM2): interleaved RoPE, no biases on the projections as a rule.
    Llama,
    /// Qwen2: half-split RoPE, biases on the query, key and value projections.
    Qwen2,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Llama, Self::Qwen2];

    /// The value of `general.architecture`, which is also the prefix of the architecture's metadata keys.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
        }
    }

    /// How files of this architecture order the rows of their query and key projections.
    #[must_use]
    pub fn rope_layout(self) -> RopeLayout {
        match self {
            Self::Llama => RopeLayout::Interleaved,
            Self::Qwen2 => RopeLayout::HalfSplit,
        }
    }

    fn from_metadata(metadata: &Metadata) -> Result<Self, GgufError> {
        const KEY: &str = "general.architecture";
        let found = metadata.str(KEY)?.ok_or_else(|| missing_key(KEY.into()))?;
        Self::ALL.into_iter().find(|architecture| architecture.name() == found).ok_or_else(|| {
            GgufError::Architecture {
                found: found.to_owned(),
                supported: Self::ALL.map(Self::name).join(", "),
            }
        })
    }
}

/// Which elements of a head RoPE rotates together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeLayout {
    /// Elements 2i and 2i+1.
    Interleaved,
    /// Elements i and i + dims/2.
    HalfSplit,
}

/// How RoPE angles differ from `position / base^(2i/dims)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeScaling {
    /// Positions are divided by this; 1 where there is no linear scaling.
    pub linear: f64,
    /// Whether the angle of pair i is divided by element i of the tensor `rope_freqs.weight` (f32, dims/2 long).
    pub factors: bool,
}

/// Rotary position embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub base: f64,
    /// Leading elements of each head that are rotated: even, at most `head_dim`.
    pub dims: u32,
    /// Which elements form a pair.
    pub layout: RopeLayout,
    /// Changes to the angles.
    pub scaling: RopeScaling,
}

/// The shape of a decoder-only transformer.
///
/// Products run over `hidden`, `ffn` and `heads * head_dim`, all multiples of 32.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Which forward pass the model takes.
    pub architecture: Architecture,
    /// Number of blocks.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a head; even.
    pub head_dim: u32,
    /// Rows of the embedding.
    pub vocab: u32,
    /// Tokens that the model was trained to attend over.
    pub context: u32,
    /// Added to the mean square in RMSNorm.
    pub rms_eps: f32,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Whether the output head is `token_embd.weight`; else it is `output.weight`.
    pub tied_embeddings: bool,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
}

// Limits far above any model of these architectures, so that products of them fit 64 bits with room to spare.
const MAX_LAYERS: u32 = 1024;
const MAX_WIDTH: u32 = 1 << 20;
const MAX_HEADS: u32 = 1 << 12;
const MAX_HEAD_DIM: u32 = 1 << 12;
const MAX_VOCAB: u64 = 1 << 22;
const MAX_CONTEXT: u32 = 1 << 27;

/// All products run over whole blocks of this many weights.
const BLOCK: u32 = 32;

impl ModelConfig {
    /// Reads the shape from the metadata, and checks that every tensor that it calls for is there, of the right
    /// dimensions and of a type that can be repacked, and that no other tensor is: a tensor that the forward pass
    /// does not know would be left out of the arithmetic in silence.
    ///
    /// # Errors
    ///
    /// A [`GgufError`] that names the key or the tensor.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, GgufError> {
        let architecture = Architecture::from_metadata(&gguf.metadata)?;
        let keys = Keys { metadata: &gguf.metadata, prefix: architecture.name() };

        let layers = keys.count("block_count", MAX_LAYERS)?;
        let hidden = keys.blocks("embedding_length", MAX_WIDTH)?;
        let ffn = keys.blocks("feed_forward_length", MAX_WIDTH)?;
        let heads = keys.count("attention.head_count", MAX_HEADS)?;
        let kv_heads = keys.count_or("attention.head_count_kv", MAX_HEADS, heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let wanted = format!("a divisor of the {heads} query heads");
            return Err(keys.invalid("attention.head_count_kv", wanted, kv_heads));
        }
        let head_dim = keys.head_dim(hidden, heads)?;
        let rope = keys.rope(architecture, head_dim, gguf.tensor("rope_freqs.weight").is_some())?;
        let rms_eps = keys.rms_eps()?;
        let context = keys.count("context_length", MAX_CONTEXT)?;
        let config = Self {
            architecture,
            layers,
            hidden,
            ffn,
            heads,
            kv_heads,
            head_dim,
            vocab: tensors::vocab(gguf, hidden)?,
            context,
            rms_eps,
            rope,
            tied_embeddings: gguf.tensor("output.weight").is_none(),
            qkv_bias: architecture == Architecture::Qwen2 || gguf.tensor("blk.0.attn_q.bias").is_some(),
        };
        tensors::check(gguf, &config)?;
        Ok(config)
    }
}

fn missing_key(field: String) -> GgufError {
    GgufError::Missing { field, hint: "the metadata key is required for a model of this architecture" }
}

/// The metadata keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.prefix)
    }

    fn invalid(&self, suffix: &str, wanted: impl Into<String>, found: impl ToString) -> GgufError {
        GgufError::Invalid { field: self.key(suffix), wanted: wanted.into(), found: found.to_string() }
    }

    fn optional(&self, suffix: &str, most: u32) -> Result<Option<u32>, GgufError> {
        let value = self.metadata.u32(&self.key(suffix))?;
        if let Some(found) = value {
            if found == 0 {
                return Err(self.invalid(suffix, "at least 1", found));
            }
            if found > most {
                let (found, limit) = (found.into(), most.into());
                return Err(GgufError::Limit { field: self.key(suffix), found, limit });
            }
        }
        Ok(value)
    }

    /// A number from 1 to `most`.
    fn count(&self, suffix: &str, most: u32) -> Result<u32, GgufError> {
        self.optional(suffix, most)?.ok_or_else(|| missing_key(self.key(suffix)))
    }

    /// A number from 1 to `most`, with a default.
    fn count_or(&self, suffix: &str, most: u32, default: u32) -> Result<u32, GgufError> {
        Ok(self.optional(suffix, most)?.unwrap_or(default))
    }

    /// A width that products run over.
    fn blocks(&self, suffix: &str, most: u32) -> Result<u32, GgufError> {
        let width = self.count(suffix, most)?;
        if !width.is_multiple_of(BLOCK) {
            return Err(self.invalid(suffix, format!("a multiple of {BLOCK}"), width));
        }
        Ok(width)
    }

    fn head_dim(&self, hidden: u32, heads: u32) -> Result<u32, GgufError> {
        let head_dim = match self.optional("attention.key_length", MAX_HEAD_DIM)? {
            Some(stated) => stated,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let wanted = format!("a divisor of the width {hidden}, as attention.key_length is absent");
                return Err(self.invalid("attention.head_count", wanted, heads));
            }
        };
        if !head_dim.is_multiple_of(2) {
            return Err(self.invalid("attention.key_length", "an even number", head_dim));
        }
        if !(heads * head_dim).is_multiple_of(BLOCK) {
            let wanted = format!("heads times head length to be a multiple of {BLOCK}");
            return Err(self.invalid("attention.key_length", wanted, format!("{heads} times {head_dim}")));
        }
        let value_length = self.count_or("attention.value_length", MAX_HEAD_DIM, head_dim)?;
        if value_length != head_dim {
            let wanted = format!("the key length {head_dim}");
            return Err(self.invalid("attention.value_length", wanted, value_length));
        }
        Ok(head_dim)
    }

    fn rms_eps(&self) -> Result<f32, GgufError> {
        const SUFFIX: &str = "attention.layer_norm_rms_epsilon";
        let key = self.key(SUFFIX);
        let eps = self.metadata.f32(&key)?.ok_or_else(|| missing_key(key))?;
        if !(eps > 0.0 && eps < 1.0) {
            return Err(self.invalid(SUFFIX, "a number above 0 and below 1", eps));
        }
        Ok(eps)
    }

    fn rope(&self, architecture: Architecture, head_dim: u32, factors: bool) -> Result<Rope, GgufError> {
        let dims = self.count_or("rope.dimension_count", MAX_HEAD_DIM, head_dim)?;
        if !dims.is_multiple_of(2) || dims > head_dim {
            let wanted = format!("an even number up to the head length {head_dim}");
            return Err(self.invalid("rope.dimension_count", wanted, dims));
        }
        let base = self.metadata.f64(&self.key("rope.freq_base"))?.unwrap_or(10_000.0);
        if !(base.is_finite() && base >= 1.0) {
            return Err(self.invalid("rope.freq_base", "a finite number of at least 1", base));
        }
        let scaling = RopeScaling { linear: self.linear_scaling()?, factors };
        Ok(Rope { base, dims, layout: architecture.rope_layout(), scaling })
    }

    fn linear_scaling(&self) -> Result<f64, GgufError> {
        const FACTOR: &str = "rope.scaling.factor";
        let kind = self.metadata.str(&self.key("rope.scaling.type"))?;
        if let Some(found) = kind
            && !["none", "linear"].contains(&found)
        {
            let wanted = "\"none\" or \"linear\" (other kinds of scaling are not implemented)";
            return Err(self.invalid("rope.scaling.type", wanted, format!("{found:?}")));
        }
        let stated = self.metadata.f64(&self.key(FACTOR))?;
        // Older files call the same factor scale_linear.
        let factor = match stated {
            Some(factor) => Some(factor),
            None => self.metadata.f64(&self.key("rope.scale_linear"))?,
        };
        match factor {
            // Writers put 0 for "no scaling".
            Some(0.0) | None => Ok(1.0),
            Some(_) if kind == Some("none") => Ok(1.0),
            Some(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
            Some(factor) => Err(self.invalid(FACTOR, "a finite number above 0", factor)),
        }
    }
}
