//! Parameters of the forward pass.

use bytemuck::{Pod, Zeroable};

/// What changes from step to step, the same for every kernel of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Step {
    /// Batch rows.
    pub rows: u32,
    /// First row of the residual stream that is read.
    pub source: u32,
    /// Positions below it are in the KV slot of their own number; the slots of later ones are in the slot table.
    pub tree_start: u32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `matmul`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct MatmulParams {
    /// Weight rows.
    pub rows: u32,
    /// Blocks of 32 along k.
    pub blocks: u32,
    /// Column of y that weight row 0 writes.
    pub first: u32,
    /// Columns of y.
    pub stride: u32,
    /// 1 adds the product to y, 0 overwrites y.
    pub add: u32,
    /// F16 families: what sums are multiplied by to undo the scales of activations and weights. A power of two; others
    /// ignore it, as the next.
    pub scale: f32,
    /// F16 families: what weights that are kept as floats are multiplied by before they are rounded.
    pub weight_scale: f32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `gate_up`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct GateUpParams {
    /// Rows of the gate, and of the up projection, in this matrix.
    pub rows: u32,
    /// Blocks of 32 along k.
    pub blocks: u32,
    /// Column of y that row 0 writes.
    pub first: u32,
    /// Columns of y.
    pub stride: u32,
    /// F16 families: what sums are multiplied by to undo the scales of activations and weights. A power of two; others
    /// ignore it, as the next.
    pub scale: f32,
    /// F16 families: what weights that are kept as floats are multiplied by before they are rounded.
    pub weight_scale: f32,
    /// F16 families: what results are multiplied by before they are rounded. A power of two.
    pub y_scale: f32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `qkv_rope`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct QkvRopeParams {
    /// Pairs of this matrix.
    pub pairs: u32,
    /// Blocks of 32 along k.
    pub blocks: u32,
    /// Number of its first pair, counted over queries, keys and values.
    pub first_pair: u32,
    /// Pairs of the queries.
    pub q_pairs: u32,
    /// Pairs of the keys, and of the values.
    pub kv_pairs: u32,
    /// Pairs of a head.
    pub half: u32,
    /// 1 adds the bias.
    pub bias: u32,
    /// 1 stores keys and values in f32, 0 in f16.
    pub kv32: u32,
    /// F16 families: what sums are multiplied by to undo the scales of activations and weights. A power of two; others
    /// ignore it, as the next.
    pub scale: f32,
    /// F16 families: what weights that are kept as floats are multiplied by before they are rounded.
    pub weight_scale: f32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
}

/// Parameters of `embed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EmbedParams {
    /// Blocks of 32 along the hidden size.
    pub blocks: u32,
    /// First token of this part of the table.
    pub first: u32,
    /// Tokens of this part.
    pub count: u32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `rms_norm`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct RmsNormParams {
    /// Columns, a multiple of 8.
    pub columns: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Elements from one row of the input to the next.
    pub h_stride: u32,
    /// Element of an input row that is column 0.
    pub h_first: u32,
    /// Elements from one row of the output to the next.
    pub y_stride: u32,
    /// Element of an output row that is column 0.
    pub y_first: u32,
    /// `slices16`: what results are multiplied by before they are rounded to f16. A power of two.
    pub y_scale: f32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `attention`, `attention_scores` and `attention_values`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct AttentionParams {
    /// Query heads.
    pub heads: u32,
    /// Query heads of a key head.
    pub group: u32,
    /// Half the head size.
    pub half: u32,
    /// Key heads times `half`.
    pub kv_pairs: u32,
    /// Columns of the scores.
    pub stride: u32,
    /// Columns of the slot table.
    pub depth: u32,
    /// 1 / sqrt(head size).
    pub scale: f32,
    /// `y16`: what results are multiplied by before they are rounded to f16. A power of two.
    pub y_scale: f32,
}

/// Parameters of `capture`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureParams {
    /// Columns of the residual stream.
    pub columns: u32,
    /// Element of the captures where this layer's rows begin.
    pub first: u32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
}

impl RmsNormParams {
    /// Of rows that follow each other without gaps, in input and output, in f32.
    #[must_use]
    pub fn dense(columns: u32, eps: f32) -> Self {
        Self {
            columns,
            eps,
            h_stride: columns,
            h_first: 0,
            y_stride: columns,
            y_first: 0,
            y_scale: 1.0,
            pad0: 0,
        }
    }
}
