//! What a model needs on the device, computed before anything is allocated.

use crate::ModelError;
use crate::forward::MAX_ROWS;
use redraft_gguf::{Gguf, GpuFormat, ModelConfig, PackError};

/// The type that keys and values are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KvType {
    /// 16-bit floats.
    #[default]
    F16,
    /// 32-bit floats.
    F32,
}

impl KvType {
    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Bytes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights in the GPU formats.
    pub weights: u64,
    /// Keys and values at the full context.
    pub kv_cache: u64,
    /// Everything a step computes, and the rotary table.
    pub activations: u64,
}

impl MemoryPlan {
    /// The plan for a model at `context` tokens. No GPU is needed.
    ///
    /// # Errors
    /// [`ModelError::Pack`] if a tensor's type has no GPU format.
    pub fn of(config: &ModelConfig, gguf: &Gguf, context: u32, kv: KvType) -> Result<Self, ModelError> {
        let mut weights = 0u64;
        for tensor in &gguf.tensors {
            let (rows, columns) = (tensor.rows(), tensor.columns());
            // Vectors (norms, biases) are kept in f32; matrices in panels of whole groups.
            weights += if rows == 1 {
                columns * 4
            } else {
                let pack = |source: PackError| ModelError::Pack { tensor: tensor.name.clone(), source };
                let format = GpuFormat::for_type(tensor.kind).map_err(pack)?;
                let blocks = columns / 32;
                let panels = rows.div_ceil(32) * 4;
                let scales = format.scale_words_per_panel(usize::try_from(blocks).unwrap_or(0)) as u64;
                panels * (blocks * 8 * format.quant_words_per_block() as u64 + scales) * 4
            };
        }
        let wide = |value: u32| u64::from(value);
        let (rows, context) = (u64::from(MAX_ROWS), wide(context));
        let kv_row = wide(config.kv_heads) * wide(config.head_dim);
        let slots = context + rows;
        let q = wide(config.heads) * wide(config.head_dim);
        let per_row = 2 * wide(config.hidden)
            + 2 * q
            + wide(config.ffn)
            + wide(config.vocab)
            + wide(config.heads) * (context + rows);
        Ok(Self {
            weights,
            kv_cache: 2 * wide(config.layers) * slots * kv_row * kv.bytes(),
            activations: per_row * rows * 4 + slots * wide(config.head_dim) * 4,
        })
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights + self.kv_cache + self.activations
    }
}

impl std::fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { weights, kv_cache, activations } = self;
        write!(f, "weights {weights}, keys and values {kv_cache}, activations {activations}")
    }
}
