//! llama.cpp's GGUF of architecture `eagle3`.
//!
//! It differs from a checkpoint in four ways: rows of the query and key projections are in the order of interleaved
//! RoPE; `d2t` has tokens and not offsets to them; captured layers are numbered by their input, as here; and a file has
//! a tokenizer, the target's, because every GGUF has.

use crate::tensor::Spec;
use redraft_gguf::{GgmlType, Gguf};

mod read;
mod write;

/// The value of `general.architecture`, which is also the prefix of the architecture's keys.
const ARCHITECTURE: &str = "eagle3";
/// The captured layers, under the key of today and under the one of the first months.
const CAPTURES: [&str; 2] = ["target_layers", "extract_layers"];
/// Tokens of the rows of the head, in I64.
const D2T: &str = "d2t";
/// Where this project keeps the target's fingerprint, as JSON.
const TARGET: &str = "redraft.target";

/// How a drafter is written as GGUF.
#[derive(Debug, Clone, Copy, Default)]
pub struct GgufOptions<'a> {
    /// The type of all matrices; none leaves them in the types that they have.
    pub matrices: Option<crate::Quantization>,
    /// The model that the drafter is for: its tokenizer goes into the file, and where the drafter does not say which
    /// layers it captures, its depth decides. Without it the file has no tokenizer.
    pub target: Option<&'a Gguf>,
}

/// A drafter as llama.cpp loads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eagle3Gguf {
    /// The file.
    pub bytes: Vec<u8>,
    /// What the drafter has and the file does not: the tensors and settings of reconsideration.
    pub left_out: Vec<String>,
}

/// llama.cpp's name of a tensor, and the one that its first files had; none where it has no such tensor.
fn names(spec: &Spec) -> Option<(&'static str, &'static str)> {
    match spec.gguf {
        "blk.0.hidden_norm.weight" => Some(("blk.0.attn_norm_2.weight", spec.gguf)),
        // EAGLE-3.1 and reconsideration.
        name if name == spec.name && name != "fc.weight" => None,
        name => Some((name, name)),
    }
}

/// Whether the rows of a tensor are rotated by RoPE.
fn rotated(name: &str) -> bool {
    matches!(name, "midlayer.self_attn.q_proj.weight" | "midlayer.self_attn.k_proj.weight")
}

/// Rows of a projection, `row` bytes each, from half-split to interleaved order: row i of the lower half of a head is
/// followed by row i of the upper half.
fn interleave(bytes: &[u8], row: usize, head_dim: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks(row * head_dim) {
        let (low, high) = head.split_at(head.len() / 2);
        for (low, high) in low.chunks(row).zip(high.chunks(row)) {
            out.extend_from_slice(low);
            out.extend_from_slice(high);
        }
    }
    out
}

/// The inverse of [`interleave`].
fn split_halves(bytes: &[u8], row: usize, head_dim: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks(row * head_dim) {
        for half in [0, 1] {
            head.chunks(row).skip(half).step_by(2).for_each(|row| out.extend_from_slice(row));
        }
    }
    out
}

/// ggml's number of a file whose matrices are mostly of this type; informative.
fn file_type(kind: GgmlType) -> Option<u32> {
    Some(match kind {
        GgmlType::F32 => 0,
        GgmlType::F16 => 1,
        GgmlType::Q4_0 => 2,
        GgmlType::Q4_1 => 3,
        GgmlType::Q8_0 => 7,
        GgmlType::Q5_0 => 8,
        GgmlType::Q5_1 => 9,
        GgmlType::Q4K => 14,
        GgmlType::Q5K => 16,
        GgmlType::Q6K => 18,
        GgmlType::Iq4Nl => 25,
        GgmlType::BF16 => 32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{interleave, split_halves};

    /// Two heads of four rows of two bytes.
    #[test]
    fn rows_of_each_head_are_paired_and_parted() {
        let rows = |order: [u8; 8]| order.iter().flat_map(|row| [*row, 100 + row]).collect::<Vec<u8>>();
        let halves = rows([0, 1, 2, 3, 4, 5, 6, 7]);
        let pairs = rows([0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(interleave(&halves, 2, 4), pairs);
        assert_eq!(split_halves(&pairs, 2, 4), halves);
    }
}
