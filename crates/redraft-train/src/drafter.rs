//! The drafter as a burn module: one decoder layer over fused features, and the adapter of its second pass.
//!
//! The same arithmetic as the WGSL kernels and as the reference in `redraft-testing`; docs/speculation.md says what a
//! second pass is.

mod alternative;
mod file;

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

use crate::ops::{self, RopeTable, from_heads, group, product, rms_norm, scale, to_heads, ungroup};
pub(crate) use alternative::Alternative;
pub use alternative::SecondPass;
use redraft_drafter::DrafterConfig;

/// Weights of a drafter. Matrices are `[out, in]`.
#[derive(Module, Debug)]
pub struct Drafter {
    pub(crate) fc_norm: Vec<Param<Tensor<1>>>, // three of [target hidden], or none
    pub(crate) fc: Param<Tensor<2>>,           // [hidden, 3 · target hidden]
    pub(crate) input_norm: Param<Tensor<1>>,   // [hidden], of the token's embedding
    pub(crate) hidden_norm: Param<Tensor<1>>,  // [hidden], of the feature
    pub(crate) q: Param<Tensor<2>>,            // [heads · head_dim, 2 · hidden]
    pub(crate) k: Param<Tensor<2>>,            // [kv_heads · head_dim, 2 · hidden]
    pub(crate) v: Param<Tensor<2>>,            // [kv_heads · head_dim, 2 · hidden]
    pub(crate) output: Param<Tensor<2>>,       // [hidden, heads · head_dim]
    pub(crate) ffn_norm: Param<Tensor<1>>,     // [hidden]
    pub(crate) gate: Param<Tensor<2>>,         // [ffn, hidden]
    pub(crate) up: Param<Tensor<2>>,           // [ffn, hidden]
    pub(crate) down: Param<Tensor<2>>,         // [hidden, ffn]
    pub(crate) norm: Param<Tensor<1>>,         // [hidden]
    pub(crate) head: Param<Tensor<2>>,         // [draft vocab, hidden]
    pub(crate) pass: Param<Tensor<1>>,         // [hidden], added to the feature of a second pass
    pub(crate) adapter_down: Param<Tensor<2>>, // [rank, 2 · hidden]
    pub(crate) adapter_up: Param<Tensor<2>>,   // [hidden, rank]
    pub(crate) alternative: Alternative,
}

/// What a drafter needs beside its weights.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The shape.
    pub config: DrafterConfig,
    /// The embedding of the target's tokens, `[vocab, hidden]`; never trained.
    pub embedding: Tensor<2>,
    /// The embeddings of the draft vocabulary, `[draft vocab, hidden]`, for [`SecondPass::Candidates`].
    pub drafts: Option<Tensor<2>>,
    rope: RopeTable,
}

impl Frame {
    /// For texts of up to `positions` tokens.
    #[must_use]
    pub fn new(config: DrafterConfig, embedding: Tensor<2>, positions: usize, device: &Device) -> Self {
        let head_dim = config.head_dim as usize;
        let base = f64::from(config.rope_theta);
        let frequency = |pair: usize| base.powf(-2.0 * pair as f64 / head_dim as f64);
        let rope = RopeTable::new(positions, head_dim, head_dim, frequency, device);
        Self { config, embedding, drafts: None, rope }
    }

    /// The same with the embeddings of the draft vocabulary `ids`.
    #[must_use]
    pub fn with_drafts(mut self, ids: &[u32]) -> Self {
        let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), &self.embedding.device());
        self.drafts = Some(self.embedding.clone().select(0, ids));
        self
    }

    /// Embeddings of `tokens`, `[batch, rows]` → `[batch, rows, hidden]`.
    #[must_use]
    pub fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let [batch, rows] = tokens.dims();
        let hidden = self.embedding.dims()[1];
        self.embedding.clone().select(0, tokens.reshape([batch * rows])).reshape([batch, rows, hidden])
    }
}

/// Keys, after RoPE, and values of some rows, each `[batch, kv_heads, rows, head_dim]`.
#[derive(Clone, Debug)]
pub struct KeysValues {
    /// Keys.
    pub keys: Tensor<4>,
    /// Values.
    pub values: Tensor<4>,
}

impl KeysValues {
    /// Rows `first..first + count`.
    #[must_use]
    pub fn narrow(&self, first: usize, count: usize) -> Self {
        Self {
            keys: self.keys.clone().narrow(2, first, count),
            values: self.values.clone().narrow(2, first, count),
        }
    }
}

impl Drafter {
    /// `fc` over the captures, each normed first if the drafter does that: `[batch, rows, 3 · target hidden]` →
    /// `[batch, rows, hidden]`.
    #[must_use]
    pub fn fuse(&self, frame: &Frame, features: Tensor<3>) -> Tensor<3> {
        let width = frame.config.target_hidden as usize;
        let features = if self.fc_norm.is_empty() {
            features
        } else {
            let normed = self.fc_norm.iter().enumerate().map(|(index, norm)| {
                rms_norm(features.clone().narrow(2, index * width, width), norm.val(), frame.config.rms_eps)
            });
            Tensor::cat(normed.collect(), 2)
        };
        product(features, self.fc.val())
    }

    /// What attention reads, `[batch, rows, 2 · hidden]`: the normed embedding, then the normed feature.
    #[must_use]
    pub fn input(&self, frame: &Frame, embedded: Tensor<3>, feature: Tensor<3>) -> Tensor<3> {
        let eps = frame.config.rms_eps;
        let embedded = rms_norm(embedded, self.input_norm.val(), eps);
        Tensor::cat(vec![embedded, rms_norm(feature, self.hidden_norm.val(), eps)], 2)
    }

    /// Queries of rows at positions from `first` on, `[batch, heads, rows, head_dim]`, after RoPE.
    #[must_use]
    pub fn queries(&self, frame: &Frame, input: Tensor<3>, first: usize) -> Tensor<4> {
        frame.rope.turn(to_heads(product(input, self.q.val()), frame.config.heads as usize), first)
    }

    /// Keys and values of rows at positions from `first` on.
    #[must_use]
    pub fn keys_values(&self, frame: &Frame, input: Tensor<3>, first: usize) -> KeysValues {
        let heads = frame.config.kv_heads as usize;
        KeysValues {
            keys: frame.rope.turn(to_heads(product(input.clone(), self.k.val()), heads), first),
            values: to_heads(product(input, self.v.val()), heads),
        }
    }

    /// As [`Self::queries`], of rows that are at `positions`, `[rows]`.
    #[must_use]
    pub fn queries_at(&self, frame: &Frame, input: Tensor<3>, positions: &Tensor<1, Int>) -> Tensor<4> {
        frame.rope.turn_at(to_heads(product(input, self.q.val()), frame.config.heads as usize), positions)
    }

    /// As [`Self::keys_values`], of rows that are at `positions`, `[rows]`.
    #[must_use]
    pub fn keys_values_at(&self, frame: &Frame, input: Tensor<3>, positions: &Tensor<1, Int>) -> KeysValues {
        let heads = frame.config.kv_heads as usize;
        KeysValues {
            keys: frame.rope.turn_at(to_heads(product(input.clone(), self.k.val()), heads), positions),
            values: to_heads(product(input, self.v.val()), heads),
        }
    }

    /// The layer's output behind attention, `[batch, rows, hidden]`; `attended` is `[batch, rows, heads · head_dim]`.
    /// A second pass adds what its adapter makes of `input`.
    #[must_use]
    pub fn finish(
        &self,
        frame: &Frame,
        feature: Tensor<3>,
        attended: Tensor<3>,
        second: Option<Tensor<3>>,
    ) -> Tensor<3> {
        let h = feature + product(attended, self.output.val());
        let normed = rms_norm(h.clone(), self.ffn_norm.val(), frame.config.rms_eps);
        let h = h + ops::swiglu(normed, self.gate.val(), self.up.val(), self.down.val());
        match second {
            Some(input) => h + product(product(input, self.adapter_down.val()), self.adapter_up.val()),
            None => h,
        }
    }

    /// The normed output, which the head reads.
    #[must_use]
    pub fn normed(&self, frame: &Frame, h: Tensor<3>) -> Tensor<3> {
        rms_norm(h, self.norm.val(), frame.config.rms_eps)
    }

    /// Logits over the draft vocabulary of normed outputs, `[rows, hidden]` → `[rows, draft vocab]`.
    #[must_use]
    pub fn logits(&self, normed: Tensor<2>) -> Tensor<2> {
        normed.matmul(self.head.val().transpose())
    }
}

/// Attention of rows over a causal stretch and a chain of rows of their own.
///
/// `q`: `[batch, heads, rows, d]`; `stretch` with `mask` (one copy for each query head of a group); of each of `chain`,
/// row r of the queries sees row r only. Softmax is over both. Answers `[batch, rows, heads · d]`.
pub(crate) fn attend(q: Tensor<4>, stretch: &KeysValues, mask: Tensor<4>, chain: &[KeysValues]) -> Tensor<3> {
    let [_, heads, rows, head_dim] = q.dims();
    let kv_heads = stretch.keys.dims()[1];
    let copies = heads / kv_heads;
    let q = group(q, kv_heads).mul_scalar(scale(head_dim));
    let stretch_scores = q.clone().matmul(stretch.keys.clone().transpose()) + mask;
    if chain.is_empty() {
        let weights = burn::tensor::activation::softmax(stretch_scores, 3);
        return from_heads(ungroup(weights.matmul(stretch.values.clone()), heads));
    }
    // One key for each row: the scores are sums of elementwise products.
    let spread = |x: &Tensor<4>| if copies == 1 { x.clone() } else { x.clone().repeat_dim(2, copies) };
    let columns = stretch_scores.dims()[3];
    let mut scores = vec![stretch_scores];
    scores.extend(chain.iter().map(|row| (q.clone() * spread(&row.keys)).sum_dim(3)));
    debug_assert_eq!(q.dims()[2], copies * rows, "rows of a group");
    let weights = burn::tensor::activation::softmax(Tensor::cat(scores, 3), 3);
    let mut out = weights.clone().narrow(3, 0, columns).matmul(stretch.values.clone());
    for (index, row) in chain.iter().enumerate() {
        out = out + weights.clone().narrow(3, columns + index, 1) * spread(&row.values);
    }
    from_heads(ungroup(out, heads))
}
