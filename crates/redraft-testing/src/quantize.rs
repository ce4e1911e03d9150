//! Quantisers from f32 to ggml's tensor bytes, for generating test files.
//!
//! They round to the nearest level between a block's extremes; no search for better scales, so files are
//! valid and reproducible rather than good. Scales are rounded to f16 first and levels chosen for the rounded
//! scale, which keeps the error of each weight within one step.

mod k;

use half::{bf16, f16};
use redraft_gguf::GgmlType;

/// Why values cannot be quantised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The number of values is not a whole number of blocks.
    #[error("{kind} needs a multiple of {block} values, found {found}: choose another type or width")]
    Length {
        /// Name of the tensor type.
        kind: &'static str,
        /// Values of one block.
        block: usize,
        /// Values given.
        found: usize,
    },
    /// A value is NaN or infinite.
    #[error("value {index} is {value}: only finite values can be quantised")]
    NotFinite {
        /// Index of the value.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A value or block scale does not fit its 16-bit field.
    #[error("{kind}: {value} does not fit in 16 bits: scale the values down")]
    Range {
        /// Name of the tensor type.
        kind: &'static str,
        /// The number that does not fit.
        value: f32,
    },
    /// There is no quantiser for the type.
    #[error("no quantiser for {0}: use F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K")]
    Unsupported(&'static str),
}

/// Encodes `values` (whole rows, row-major) as ggml stores the type `kind`.
///
/// # Errors
/// [`QuantizeError`] when the length is not a multiple of the block, a value is not finite, a scale does not
/// fit in f16, or the type has no quantiser here.
pub fn quantize(kind: GgmlType, values: &[f32]) -> Result<Vec<u8>, QuantizeError> {
    if let Some((index, &value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(QuantizeError::NotFinite { index, value });
    }
    let (block, encode): (usize, fn(&[f32], &mut Encoder)) = match kind {
        GgmlType::F32 => (1, |v, e| v.iter().for_each(|v| e.bytes.extend(v.to_le_bytes()))),
        GgmlType::F16 => (1, |v, e| v.iter().for_each(|&v| _ = e.half(v))),
        GgmlType::BF16 => (1, |v, e| v.iter().for_each(|&v| e.brain(v))),
        GgmlType::Q4_0 => (32, q4_0),
        GgmlType::Q4_1 => (32, q4_1),
        GgmlType::Q5_0 => (32, q5_0),
        GgmlType::Q5_1 => (32, q5_1),
        GgmlType::Q8_0 => (32, q8_0),
        GgmlType::Q4K => (256, k::q4_k),
        GgmlType::Q5K => (256, k::q5_k),
        GgmlType::Q6K => (256, k::q6_k),
        other => return Err(QuantizeError::Unsupported(other.name())),
    };
    if !values.len().is_multiple_of(block) {
        return Err(QuantizeError::Length { kind: kind.name(), block, found: values.len() });
    }
    let mut encoder = Encoder::default();
    for block in values.chunks_exact(block) {
        encode(block, &mut encoder);
    }
    match encoder.unfit {
        Some(value) => Err(QuantizeError::Range { kind: kind.name(), value }),
        None => Ok(encoder.bytes),
    }
}

/// The bytes so far, and the first number that did not fit its field.
#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
    unfit: Option<f32>,
}

impl Encoder {
    /// Appends `value` as f16 and returns the value that a reader will see.
    fn half(&mut self, value: f32) -> f32 {
        let rounded = f16::from_f32(value);
        if !rounded.is_finite() {
            self.unfit.get_or_insert(value);
        }
        self.bytes.extend(rounded.to_le_bytes());
        rounded.to_f32()
    }

    fn brain(&mut self, value: f32) {
        let rounded = bf16::from_f32(value);
        if !rounded.is_finite() {
            self.unfit.get_or_insert(value);
        }
        self.bytes.extend(rounded.to_le_bytes());
    }
}

/// Nearest level of `x` in `0..=top`.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 0..=255 just before")]
fn level(x: f32, top: u8) -> u8 {
    x.round().clamp(0.0, f32::from(top)) as u8
}

/// `x / step`, or 0 for the step of a block without spread.
fn in_steps(x: f32, step: f32) -> f32 {
    if step == 0.0 { 0.0 } else { x / step }
}

/// Smallest and largest of a block.
fn range(block: &[f32]) -> (f32, f32) {
    block.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)))
}

/// The value furthest from zero, with its sign.
fn extreme(block: &[f32]) -> f32 {
    block.iter().fold(0.0_f32, |worst, &x| if x.abs() > worst.abs() { x } else { worst })
}

/// Nibbles as the 32-blocks store them: byte j holds weight j low and weight j + 16 high.
fn nibbles(levels: &[u8], out: &mut Vec<u8>) {
    let (low, high) = levels.split_at(levels.len() / 2);
    out.extend(low.iter().zip(high).map(|(low, high)| (low & 15) | (high & 15) << 4));
}

/// The fifth bits as the 32-blocks store them: bit j of one little-endian word for weight j.
fn fifth_bits(levels: &[u8]) -> [u8; 4] {
    let word = levels.iter().rev().fold(0_u32, |word, level| word << 1 | u32::from(level >> 4 & 1));
    word.to_le_bytes()
}

/// w = d·(q − 8); the extreme value gets level 0 exactly.
fn q4_0(block: &[f32], out: &mut Encoder) {
    let d = out.half(extreme(block) / -8.0);
    let levels: Vec<u8> = block.iter().map(|&x| level(in_steps(x, d) + 8.0, 15)).collect();
    nibbles(&levels, &mut out.bytes);
}

/// w = d·q + m.
fn q4_1(block: &[f32], out: &mut Encoder) {
    let (low, high) = range(block);
    let d = out.half((high - low) / 15.0);
    let m = out.half(low);
    let levels: Vec<u8> = block.iter().map(|&x| level(in_steps(x - m, d), 15)).collect();
    nibbles(&levels, &mut out.bytes);
}

/// w = d·(q − 16), q of five bits.
fn q5_0(block: &[f32], out: &mut Encoder) {
    let d = out.half(extreme(block) / -16.0);
    let levels: Vec<u8> = block.iter().map(|&x| level(in_steps(x, d) + 16.0, 31)).collect();
    out.bytes.extend(fifth_bits(&levels));
    nibbles(&levels, &mut out.bytes);
}

/// w = d·q + m, q of five bits.
fn q5_1(block: &[f32], out: &mut Encoder) {
    let (low, high) = range(block);
    let d = out.half((high - low) / 31.0);
    let m = out.half(low);
    let levels: Vec<u8> = block.iter().map(|&x| level(in_steps(x - m, d), 31)).collect();
    out.bytes.extend(fifth_bits(&levels));
    nibbles(&levels, &mut out.bytes);
}

/// w = d·q, q a signed byte.
fn q8_0(block: &[f32], out: &mut Encoder) {
    let d = out.half(extreme(block).abs() / 127.0);
    // Two's complement: the level above −128 with its top bit flipped.
    out.bytes.extend(block.iter().map(|&x| level(in_steps(x, d) + 128.0, 255) ^ 0x80));
}
