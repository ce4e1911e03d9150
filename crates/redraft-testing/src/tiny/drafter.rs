//! Small random drafters for small random models.

use std::collections::BTreeMap;

use redraft_drafter::{
    DrafterConfig, DrafterError, DrafterFile, Parts, ReconsiderSettings, TargetFingerprint, Tensor,
};
use redraft_gguf::{GgmlType, Gguf, GgufError, ModelConfig, QuantizeError};

use super::{TinyModel, TinyModelError};
use crate::prng::Prng;

/// Shape, parts and seed of a small random drafter. Change fields of the default by struct update:
///
/// ```
/// use redraft_testing::TinyDrafter;
/// let file = TinyDrafter { adapter_rank: Some(32), seed: 7, ..TinyDrafter::default() }.to_file()?;
/// assert_eq!(file.reconsider().rank, Some(32));
/// # Ok::<(), redraft_testing::TinyDrafterError>(())
/// ```
///
/// The drafter is a pure function of the fields, on every machine. It knows nothing of its target: what it proposes is
/// right by chance.
#[derive(Clone, Debug, PartialEq)]
pub struct TinyDrafter {
    /// The model that it is for.
    pub target: TinyModel,
    /// Layers of the target whose input is captured.
    pub captures: [u32; 3],
    /// Width of the drafter; other than the target's only with `own_embedding`.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Inner width of the feed-forward part.
    pub ffn: usize,
    /// Tokens that it can propose, a random choice of the target's; all of them if there are as many.
    pub draft_vocab: usize,
    /// RoPE base frequency.
    pub rope_theta: f32,
    /// The next feature is the normed output.
    pub norm_output: bool,
    /// Captures are normed before they are fused.
    pub fc_norm: bool,
    /// It has an embedding of its own, `embed_tokens.weight`.
    pub own_embedding: bool,
    /// It has a pass embedding, `reconsider.embedding`.
    pub pass_embedding: bool,
    /// Rank of the second pass's adapter, a multiple of 32.
    pub adapter_rank: Option<usize>,
    /// It has the tables of scores and gains, and says that it is calibrated.
    pub tables: bool,
    /// It says which target it is for.
    pub fingerprint: bool,
    /// Type of the matrices. Norms and tables are F32.
    pub kind: GgmlType,
    /// Seed of the weights.
    pub seed: u64,
}

impl Default for TinyDrafter {
    /// For the default [`TinyModel`], of the same shape, 160 of its 320 tokens; plain EAGLE-3 with a pass embedding.
    fn default() -> Self {
        Self {
            target: TinyModel::default(),
            captures: [0, 1, 2],
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 96,
            draft_vocab: 160,
            rope_theta: 10_000.0,
            norm_output: false,
            fc_norm: false,
            own_embedding: false,
            pass_embedding: true,
            adapter_rank: None,
            tables: false,
            fingerprint: true,
            kind: GgmlType::F32,
            seed: 1,
        }
    }
}

/// Why a tiny drafter cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TinyDrafterError {
    /// Its target cannot be made.
    #[error(transparent)]
    Target(#[from] TinyModelError),
    /// Its target cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The parts do not make a drafter.
    #[error(transparent)]
    Drafter(#[from] DrafterError),
    /// A tensor cannot be encoded.
    #[error("tensor {name}: {source}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// What its values do not satisfy.
        source: QuantizeError,
    },
}

impl TinyDrafter {
    /// A drafter with every optional part, wider than its target.
    pub fn with_everything() -> Self {
        Self {
            hidden: 96,
            heads: 6,
            norm_output: true,
            fc_norm: true,
            own_embedding: true,
            adapter_rank: Some(32),
            tables: true,
            ..Self::default()
        }
    }

    /// The drafter.
    ///
    /// # Errors
    /// [`TinyDrafterError`] names the field or tensor that does not fit.
    pub fn to_file(&self) -> Result<DrafterFile, TinyDrafterError> {
        let settings = ReconsiderSettings {
            gate_threshold: self.tables.then_some(0.25),
            refined_offset: self.tables.then_some(-0.5),
            calibrated: self.tables,
        };
        let all = self.draft_vocab == self.target.vocab;
        Ok(DrafterFile::new(Parts {
            config: self.config(),
            tensors: self.tensors()?,
            draft_ids: (!all).then(|| self.draft_ids()),
            reconsider: settings,
            target: if self.fingerprint { Some(self.fingerprint()?) } else { None },
        })?)
    }

    /// The shape; sizes beyond 32 bits become the largest, which no drafter may have.
    pub fn config(&self) -> DrafterConfig {
        let small = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        DrafterConfig {
            hidden: small(self.hidden),
            target_hidden: small(self.target.hidden),
            heads: small(self.heads),
            kv_heads: small(self.kv_heads),
            head_dim: small(self.head_dim),
            ffn: small(self.ffn),
            rms_eps: 1e-5,
            vocab: small(self.target.vocab),
            draft_vocab: small(self.draft_vocab),
            rope_theta: self.rope_theta,
            capture_layers: Some(self.captures),
            norm_output: self.norm_output,
            fc_norm: self.fc_norm,
        }
    }

    /// Of every row of the head a token of the target: a random choice, ascending.
    pub fn draft_ids(&self) -> Vec<u32> {
        let mut prng = Prng::named(self.seed, "d2t");
        let mut wanted = self.draft_vocab;
        let mut left = self.target.vocab;
        let mut ids = Vec::with_capacity(wanted);
        for id in 0..u32::try_from(self.target.vocab).unwrap_or(u32::MAX) {
            // Of `left` tokens each is taken with the same chance.
            if prng.below(left) < wanted {
                ids.push(id);
                wanted -= 1;
            }
            left -= 1;
        }
        ids
    }

    /// The fingerprint of the target.
    ///
    /// # Errors
    /// [`TinyDrafterError`] when the target cannot be made.
    pub fn fingerprint(&self) -> Result<TargetFingerprint, TinyDrafterError> {
        let file = self.target.to_gguf()?;
        let gguf = pollster::block_on(Gguf::read(&file))?;
        Ok(TargetFingerprint::of(&gguf, &ModelConfig::from_gguf(&gguf)?, self.captures)?)
    }

    /// All tensors by name.
    ///
    /// # Errors
    /// [`TinyDrafterError::Tensor`] when one cannot be encoded.
    pub fn tensors(&self) -> Result<BTreeMap<String, Tensor>, TinyDrafterError> {
        let (h, ht, ffn) = (self.hidden, self.target.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let layer = |part: &str| format!("midlayer.{part}.weight");
        let mut out = Collector { drafter: self, tensors: BTreeMap::new() };
        // Gains as in TinyModel: scores of attention spread by about 2, logits by 2.5.
        out.matrix("fc.weight", h, 3 * ht, 1.0)?;
        out.norm(&layer("input_layernorm"), h, 1.0, 0.2)?;
        out.norm(&layer("hidden_norm"), h, 1.0, 0.2)?;
        out.matrix(&layer("self_attn.q_proj"), q, 2 * h, 1.4)?;
        out.matrix(&layer("self_attn.k_proj"), kv, 2 * h, 1.4)?;
        out.matrix(&layer("self_attn.v_proj"), kv, 2 * h, 1.2)?;
        out.matrix(&layer("self_attn.o_proj"), h, q, 1.5)?;
        out.norm(&layer("post_attention_layernorm"), h, 1.0, 0.2)?;
        out.matrix(&layer("mlp.gate_proj"), ffn, h, 1.5)?;
        out.matrix(&layer("mlp.up_proj"), ffn, h, 1.2)?;
        out.matrix(&layer("mlp.down_proj"), h, ffn, 1.5)?;
        out.norm("norm.weight", h, 1.0, 0.2)?;
        out.matrix("lm_head.weight", self.draft_vocab, h, 2.5)?;
        if self.own_embedding {
            out.matrix("embed_tokens.weight", self.target.vocab, h, (h as f32).sqrt())?;
        }
        if self.fc_norm {
            for index in 0..3 {
                out.norm(&format!("fc_norm.{index}.weight"), ht, 1.0, 0.2)?;
            }
        }
        if self.pass_embedding {
            out.norm("reconsider.embedding", h, 0.0, 0.5)?;
        }
        if let Some(rank) = self.adapter_rank {
            out.matrix("reconsider.down.weight", rank, 2 * h, 1.0)?;
            out.matrix("reconsider.up.weight", h, rank, 0.7)?;
        }
        if self.tables {
            // By log-probability in steps of a quarter, as if calibrated well but for noise; candidates that are refined
            // or of a lower rank somewhat less likely.
            let noise = |name: &str, count| Prng::named(self.seed, name).signed_values(count, 0.1);
            let edge = |(at, noise): (usize, f32)| {
                let [bin, rank, refined] = [at % 32, at / 32 % 4, at / 1024].map(|x| x as f32);
                -(bin + 0.5) / 4.0 - 0.1 * rank - 0.2 * refined + noise
            };
            let edges = noise("edges", 2048).into_iter().enumerate().map(edge).map(|edge| edge.min(0.0));
            out.add("reconsider.edges", GgmlType::F32, &[2, 8, 4, 32], &edges.collect::<Vec<_>>())?;
            let gain = |(at, noise): (usize, f32)| (at % 64) as f32 / 16.0 - 4.0 + noise;
            let gains = noise("log_gain", 512).into_iter().enumerate().map(gain);
            out.add("reconsider.log_gain", GgmlType::F32, &[8, 64], &gains.collect::<Vec<_>>())?;
            let lookup: Vec<f32> = (0..17_u8).map(|length| -1.0 / (f32::from(length) + 0.5)).collect();
            out.add("reconsider.lookup_edge", GgmlType::F32, &[17], &lookup)?;
        }
        Ok(out.tensors)
    }
}

struct Collector<'a> {
    drafter: &'a TinyDrafter,
    tensors: BTreeMap<String, Tensor>,
}

impl Collector<'_> {
    fn add(
        &mut self,
        name: &str,
        kind: GgmlType,
        dims: &[usize],
        values: &[f32],
    ) -> Result<(), TinyDrafterError> {
        let failed = |source| TinyDrafterError::Tensor { name: name.to_owned(), source };
        let columns = dims.last().copied().unwrap_or(1).max(1);
        if !columns.is_multiple_of(kind.block_size()) {
            let (kind, block, found) = (kind.name(), kind.block_size(), columns);
            return Err(failed(QuantizeError::Length { kind, block, found }));
        }
        let bytes = crate::quantize::quantize(kind, values).map_err(failed)?;
        let dims = dims.iter().map(|dim| *dim as u64).collect();
        self.tensors.insert(name.to_owned(), Tensor { kind, dims, bytes });
        Ok(())
    }

    /// Unit-rms inputs give outputs of standard deviation `gain`.
    fn matrix(&mut self, name: &str, rows: usize, columns: usize, gain: f32) -> Result<(), TinyDrafterError> {
        let scale = gain * (3.0 / columns as f32).sqrt();
        let values = Prng::named(self.drafter.seed, name).signed_values(rows * columns, scale);
        self.add(name, self.drafter.kind, &[rows, columns], &values)
    }

    fn norm(&mut self, name: &str, width: usize, mean: f32, spread: f32) -> Result<(), TinyDrafterError> {
        let mut prng = Prng::named(self.drafter.seed, name);
        let values: Vec<f32> = (0..width).map(|_| mean + spread * prng.signed()).collect();
        self.add(name, GgmlType::F32, &[width], &values)
    }
}
