//! A drafter as the loader of models takes it: an arena of ggml blocks and the header that goes with it.

use crate::config::DrafterConfig;
use crate::error::DrafterError;
use crate::file::{DrafterFile, Reconsider};
use crate::tensor::{Role, Spec, Tensor, specs};
use redraft_gguf::{Architecture, GgmlType, Gguf, ModelConfig, Rope, RopeLayout, RopeScaling, TensorInfo};

/// The type that matrices of floating-point numbers are rewritten in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the names that ggml gives its types")]
pub enum Quantization {
    F32,
    F16,
    Q8_0,
    Q4_0,
}

impl Quantization {
    /// The type of the blocks.
    #[must_use]
    pub fn kind(self) -> GgmlType {
        match self {
            Self::F32 => GgmlType::F32,
            Self::F16 => GgmlType::F16,
            Self::Q8_0 => GgmlType::Q8_0,
            Self::Q4_0 => GgmlType::Q4_0,
        }
    }
}

/// Alignment of the tensors in the arena, in bytes.
const ALIGNMENT: usize = 32;

/// The context of the model: a file does not limit it, the cache that the caller allocates does.
const CONTEXT: u32 = 1 << 17;

/// A drafter to be loaded on the GPU like a model of one layer.
///
/// Matrices, `[columns -> rows]`: `fc.weight` `[3Ht -> H]`, `blk.0.attn_q.weight`, `attn_k`, `attn_v` `[2H -> …]`,
/// `blk.0.attn_output.weight`, `blk.0.ffn_gate.weight`, `ffn_up`, `ffn_down`, `output.weight` `[H -> draft_vocab]`,
/// where the drafter has its own `token_embd.weight` (`drafter.vocab` rows, not `config.vocab`), and where it has an
/// adapter `reconsider.down.weight` `[2H -> rank]` and `reconsider.up.weight` `[rank -> H]`.
///
/// Vectors and tables, always F32: `blk.0.attn_norm.weight` (of the token's embedding), `blk.0.hidden_norm.weight` (of
/// the feature), `blk.0.ffn_norm.weight`, `output_norm.weight`, and where present `fc_norm.{0,1,2}.weight`,
/// `reconsider.embedding`, `reconsider.edges`, `reconsider.log_gain` and `reconsider.lookup_edge`.
#[derive(Debug, Clone)]
pub struct DrafterModel {
    /// The tensors' bytes; the source that `gguf` speaks of.
    pub bytes: Vec<u8>,
    /// Names, shapes, types and places in `bytes` of the tensors.
    pub gguf: Gguf,
    /// The layer as a model: `vocab` is the draft vocabulary, RoPE is half-split, no bias, untied.
    pub config: ModelConfig,
    /// The drafter's own shape.
    pub drafter: DrafterConfig,
    /// Of every row of the head the token of the target; ascending.
    pub draft_ids: Vec<u32>,
    /// What reconsideration needs.
    pub reconsider: Reconsider,
}

impl DrafterFile {
    /// The drafter with its matrices in the blocks of `quantization`, to be written to a smaller file. Matrices that are
    /// quantised already stay as they are; so do vectors and tables. [`Self::to_model`] of the result gives the weights
    /// that it would give of this drafter.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Quantize`] when a weight does not fit the type.
    pub fn quantized(&self, quantization: Quantization) -> Result<Self, DrafterError> {
        let matrices = specs(self.config(), self.reconsider().rank.map(u64::from));
        let mut parts = self.clone().into_parts();
        for Spec { name, .. } in matrices.into_iter().filter(|spec| spec.role == Role::Matrix) {
            let Some(tensor) = parts.tensors.get_mut(name) else { continue };
            let kind = matrix_type(tensor, quantization);
            let mut bytes = Vec::new();
            tensor.append_as(name, kind, &mut bytes)?;
            *tensor = Tensor { kind, dims: tensor.dims.clone(), bytes };
        }
        Self::new(parts)
    }

    /// Rewrites the matrices in the blocks of `quantization` (those that are stored in quantised blocks stay as they
    /// are) and vectors and tables in f32.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Quantize`] when a weight does not fit the type.
    pub fn to_model(&self, quantization: Quantization) -> Result<DrafterModel, DrafterError> {
        let mut bytes = Vec::new();
        let mut infos = Vec::new();
        let reconsider = self.reconsider();
        for spec in specs(self.config(), reconsider.rank.map(u64::from)) {
            let Some(tensor) = self.tensor(spec.name) else { continue };
            let kind = match spec.role {
                Role::Matrix => matrix_type(tensor, quantization),
                Role::Norm | Role::Table => GgmlType::F32,
            };
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            let start = bytes.len();
            tensor.append_as(spec.name, kind, &mut bytes)?;
            infos.push(TensorInfo {
                name: spec.gguf.to_owned(),
                dims: spec.dims.iter().rev().copied().collect(),
                kind,
                offset: start as u64,
                size: (bytes.len() - start) as u64,
            });
        }
        Ok(DrafterModel {
            gguf: Gguf::of_arena(infos, bytes.len() as u64)?,
            bytes,
            config: model_config(self.config()),
            drafter: self.config().clone(),
            draft_ids: self.draft_ids().to_vec(),
            reconsider,
        })
    }
}

/// The type that a matrix gets: quantised blocks stay as they are.
fn matrix_type(tensor: &Tensor, quantization: Quantization) -> GgmlType {
    if tensor.kind.block_size() > 1 { tensor.kind } else { quantization.kind() }
}

fn model_config(drafter: &DrafterConfig) -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Llama,
        layers: 1,
        hidden: drafter.hidden,
        ffn: drafter.ffn,
        heads: drafter.heads,
        kv_heads: drafter.kv_heads,
        head_dim: drafter.head_dim,
        vocab: drafter.draft_vocab,
        context: CONTEXT,
        rms_eps: drafter.rms_eps,
        rope: Rope {
            base: drafter.rope_theta.into(),
            dims: drafter.head_dim,
            layout: RopeLayout::HalfSplit,
            scaling: RopeScaling { linear: 1.0, factors: false },
        },
        tied_embeddings: false,
        qkv_bias: false,
    }
}
