//! The few operations that the target and the drafter share.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// What is added to scores that must not count. Finite, so that a row with nothing to attend to stays a number.
const MASKED: f32 = -1e30;

/// RMSNorm over the last dimension: `x / sqrt(mean(x²) + eps) * weight`.
pub(crate) fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, eps: f32) -> Tensor<D> {
    let mean = x.clone().square().mean_dim(D - 1);
    x * mean.add_scalar(eps).sqrt().recip() * weight.unsqueeze()
}

/// `x · weightᵀ`, where `weight` is `[out, in]` and `x` is `[batch, rows, in]`.
pub(crate) fn product(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    let [batch, rows, columns] = x.dims();
    let out = weight.dims()[0];
    // One product for all rows: a batched one would be cut into small ones.
    x.reshape([batch * rows, columns]).matmul(weight.transpose()).reshape([batch, rows, out])
}

/// SwiGLU: `down(silu(gate(x)) · up(x))`.
pub(crate) fn swiglu(x: Tensor<3>, gate: Tensor<2>, up: Tensor<2>, down: Tensor<2>) -> Tensor<3> {
    let inner = burn::tensor::activation::silu(product(x.clone(), gate)) * product(x, up);
    product(inner, down)
}

/// Cosines and sines of RoPE in the half-split layout, computed in f64.
#[derive(Clone, Debug)]
pub(crate) struct RopeTable {
    cos: Tensor<2>, // [positions, head_dim]
    sin: Tensor<2>, // [positions, head_dim]
}

impl RopeTable {
    /// `frequency(pair)` is the angle between neighbouring positions; pairs behind `dims / 2` do not turn.
    pub(crate) fn new(
        positions: usize,
        head_dim: usize,
        dims: usize,
        frequency: impl Fn(usize) -> f64,
        device: &Device,
    ) -> Self {
        let half = dims / 2;
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in 0..positions {
            for element in 0..head_dim {
                let angle = if element < dims { position as f64 * frequency(element % half) } else { 0.0 };
                #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
                let (c, s) = (angle.cos() as f32, angle.sin() as f32);
                cos.push(c);
                sin.push(s);
            }
        }
        let table = |values| Tensor::from_data(TensorData::new(values, [positions, head_dim]), device);
        Self { cos: table(cos), sin: table(sin) }
    }

    /// Turns `x`, `[batch, heads, rows, head_dim]`, whose row r is at position `first + r`.
    pub(crate) fn turn(&self, x: Tensor<4>, first: usize) -> Tensor<4> {
        let [_, _, rows, head_dim] = x.dims();
        let at = |table: &Tensor<2>| table.clone().slice([first..first + rows, 0..head_dim]).unsqueeze();
        let half = head_dim / 2;
        let low = x.clone().narrow(3, 0, half);
        let high = x.clone().narrow(3, half, half);
        x * at(&self.cos) + Tensor::cat(vec![high.neg(), low], 3) * at(&self.sin)
    }

    /// Turns `x`, `[batch, heads, rows, head_dim]`, whose row r is at `positions[r]`.
    pub(crate) fn turn_at(&self, x: Tensor<4>, positions: &Tensor<1, Int>) -> Tensor<4> {
        let at = |table: &Tensor<2>| table.clone().select(0, positions.clone()).unsqueeze();
        let half = x.dims()[3] / 2;
        let low = x.clone().narrow(3, 0, half);
        let high = x.clone().narrow(3, half, half);
        x * at(&self.cos) + Tensor::cat(vec![high.neg(), low], 3) * at(&self.sin)
    }
}

/// `[batch, rows, heads · head_dim]` → `[batch, heads, rows, head_dim]`.
pub(crate) fn to_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, rows, width] = x.dims();
    x.reshape([batch, rows, heads, width / heads]).swap_dims(1, 2)
}

/// The reverse of [`to_heads`].
pub(crate) fn from_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, rows, width] = x.dims();
    x.swap_dims(1, 2).reshape([batch, rows, heads * width])
}

/// Rows of query heads that share a key head, one behind the other: `[batch, heads, rows, d]` →
/// `[batch, kv_heads, heads / kv_heads · rows, d]`.
pub(crate) fn group(x: Tensor<4>, kv_heads: usize) -> Tensor<4> {
    let [batch, heads, rows, width] = x.dims();
    x.reshape([batch, kv_heads, heads / kv_heads * rows, width])
}

/// The reverse of [`group`].
pub(crate) fn ungroup(x: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, kv_heads, rows, width] = x.dims();
    x.reshape([batch, heads, kv_heads * rows / heads, width])
}

/// What is added to scores `[…, copies · rows, columns]` so that row r, at column `first + r`, sees columns up to its
/// own.
pub(crate) fn causal_mask(
    first: usize,
    rows: usize,
    columns: usize,
    copies: usize,
    device: &Device,
) -> Tensor<4> {
    let mut values = vec![0.0_f32; rows * columns];
    for (row, line) in values.chunks_exact_mut(columns).enumerate() {
        line.iter_mut().skip(first + row + 1).for_each(|value| *value = MASKED);
    }
    let values = values.repeat(copies);
    Tensor::from_data(TensorData::new(values, [1, 1, copies * rows, columns]), device)
}

/// Causal attention of whole sequences. `q`: `[batch, heads, rows, d]`, `k` and `v`: `[batch, kv_heads, rows, d]`;
/// `mask` as [`causal_mask`] with a copy for each query head of a group.
pub(crate) fn causal_attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, mask: Tensor<4>) -> Tensor<4> {
    let [_, heads, _, head_dim] = q.dims();
    let kv_heads = k.dims()[1];
    let q = group(q, kv_heads).mul_scalar(scale(head_dim));
    let scores = q.matmul(k.transpose()) + mask;
    ungroup(softmax(scores, 3).matmul(v), heads)
}

/// `1 / sqrt(head_dim)`.
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
pub(crate) fn scale(head_dim: usize) -> f32 {
    (1.0 / (head_dim as f64).sqrt()) as f32
}
