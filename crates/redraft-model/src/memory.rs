//! What a model needs on the device, computed before anything is allocated.

use crate::forward::MAX_ROWS;
use crate::kernels::PANEL_GROUP;
use crate::sampler::planned_bytes;
use crate::{ModelError, Path};
use redraft_gguf::{GgmlType, Gguf, GpuFormat, ModelConfig, PANEL, PackError, TensorInfo};

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

/// What the plan depends on besides the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Tokens of the context.
    pub context: u32,
    /// Type of the KV cache.
    pub kv: KvType,
    /// Kernel family: those for software adapters keep attention scores.
    pub path: Path,
    /// Captured layers.
    pub captures: u32,
}

/// Bytes of storage on the device. Parameters and readback buffers, a few kilobytes, are not counted, and neither is
/// what a sampler adds for longer penalty windows and more biases than 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights in the GPU formats.
    pub weights: u64,
    /// Keys and values at the full context.
    pub kv_cache: u64,
    /// Everything a step computes, captures included, and the rotary table.
    pub activations: u64,
    /// What the sampler works in.
    pub sampling: u64,
    /// What a drafter takes, weights and cache included; 0 without one.
    pub drafter: u64,
    /// Draft trees; 0 where nothing is drafted.
    pub trees: u64,
}

impl MemoryPlan {
    /// The plan for a model. No GPU is needed.
    ///
    /// # Errors
    /// [`ModelError::Pack`] if a tensor's type has no GPU format.
    pub fn of(config: &ModelConfig, gguf: &Gguf, planned: &Planned) -> Result<Self, ModelError> {
        let wide = |value: u32| u64::from(value);
        let Planned { context, kv, path, captures } = *planned;
        let rows = wide(MAX_ROWS);
        let slots = wide(context) + rows;
        let q = wide(config.heads) * wide(config.head_dim);
        let scores = if path.whole_rows() { rows * wide(config.heads) * slots * 4 } else { 16 };
        // Per row: token, position and slot; slots of ancestors; h, x; q, mixed; act; logits; captures.
        let per_row = 4
            + rows
            + 2 * wide(config.hidden)
            + 2 * q
            + wide(config.ffn)
            + wide(config.vocab)
            + wide(captures) * wide(config.hidden);
        let kv_layer = slots * wide(config.kv_heads) * wide(config.head_dim) * kv.bytes();
        Ok(Self {
            weights: weights(config, gguf)?,
            kv_cache: 2 * wide(config.layers) * rounded(kv_layer),
            activations: per_row * rows * 4 + scores + rounded(slots * wide(config.head_dim) * 4),
            sampling: planned_bytes(config.vocab, context),
            drafter: 0,
            trees: 0,
        })
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights + self.kv_cache + self.activations + self.sampling + self.drafter + self.trees
    }
}

impl std::fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { weights, kv_cache, activations, sampling, drafter, trees } = self;
        write!(
            f,
            "weights {weights}, keys and values {kv_cache}, activations {activations}, sampling {sampling}"
        )?;
        if drafter + trees > 0 {
            write!(f, ", drafter {drafter}, draft trees {trees}")?;
        }
        Ok(())
    }
}

/// Buffers are multiples of 16 bytes.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.max(16).next_multiple_of(16)
}

/// The matrices as `load` packs them, norms and biases.
pub(crate) fn weights(config: &ModelConfig, gguf: &Gguf) -> Result<u64, ModelError> {
    let find = |name: &str| gguf.tensor(name);
    let hidden = u64::from(config.hidden);
    let pairs_of = |heads: u32| u64::from(heads) * u64::from(config.head_dim / 2);
    let mut total = rounded(hidden * 4) * (2 * u64::from(config.layers) + 1);
    let table = |name: &str| find(name).map_or(Ok(0), |tensor| matrix(tensor, tensor.kind, tensor.rows()));
    total += table("token_embd.weight")?;
    if !config.tied_embeddings {
        total += table("output.weight")?;
    }
    let all_pairs = pairs_of(config.heads) + 2 * pairs_of(config.kv_heads);
    for layer in 0..config.layers {
        let part = |name: &str| find(&format!("blk.{layer}.{name}.weight"));
        // Neighbours of one type share a matrix; each fills whole panels of pairs.
        let mut group: Option<(&TensorInfo, u64)> = None;
        for (name, heads) in [("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)] {
            let Some(tensor) = part(&format!("attn_{name}")) else { continue };
            group = match group {
                Some((first, pairs)) if first.kind == tensor.kind => Some((first, pairs + pairs_of(heads))),
                other => {
                    total +=
                        other.map_or(Ok(0), |(first, pairs)| matrix(first, first.kind, in_pairs(pairs)))?;
                    Some((tensor, pairs_of(heads)))
                }
            };
        }
        total += group.map_or(Ok(0), |(first, pairs)| matrix(first, first.kind, in_pairs(pairs)))?;
        total += rounded(if config.qkv_bias { all_pairs * 8 } else { 8 });
        for name in ["attn_output", "ffn_down"] {
            total += part(name).map_or(Ok(0), |tensor| matrix(tensor, tensor.kind, hidden))?;
        }
        if let (Some(gate), Some(up)) = (part("ffn_gate"), part("ffn_up")) {
            // Of different types, both are kept in f32.
            let kind = if gate.kind == up.kind { gate.kind } else { GgmlType::F32 };
            total += matrix(gate, kind, in_pairs(u64::from(config.ffn)))?;
        }
    }
    Ok(total)
}

/// Packed rows of `pairs` pairs: a panel of first and a panel of second rows for each eight.
fn in_pairs(pairs: u64) -> u64 {
    pairs.div_ceil(PANEL as u64) * 2 * PANEL as u64
}

/// Bytes of `rows` rows as long as those of `tensor`, kept as `kind`.
pub(crate) fn matrix(tensor: &TensorInfo, kind: GgmlType, rows: u64) -> Result<u64, ModelError> {
    let pack = |source: PackError| ModelError::Pack { tensor: tensor.name.clone(), source };
    let format = GpuFormat::for_type(kind).map_err(pack)?;
    let blocks = tensor.columns() / 32;
    let panels = rows.div_ceil(PANEL as u64).next_multiple_of(PANEL_GROUP as u64);
    let scales = format.scale_words_per_panel(usize::try_from(blocks).unwrap_or(0)) as u64;
    let quants = blocks * PANEL as u64 * format.quant_words_per_block() as u64;
    Ok(rounded(panels * (quants + scales) * 4))
}
