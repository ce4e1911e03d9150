//! Quantisers from f32 to ggml's tensor bytes, for generating test files.
//!
//! What `redraft-gguf` writes itself is written by it. The other types round to the nearest level between a block's
//! extremes; no search for better scales, so files are valid and reproducible rather than good. Scales are rounded to f16 first and levels chosen for the rounded
//! scale, which keeps the error of each weight within one step.

mod k;

use half::f16;
use redraft_gguf::{GgmlType, QuantizeError};

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
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 | GgmlType::Q4_0 | GgmlType::Q8_0 => {
            return redraft_gguf::quantize(kind, values);
        }
        GgmlType::Q4_1 => (32, q4_1),
        GgmlType::Q5_0 => (32, q5_0),
        GgmlType::Q5_1 => (32, q5_1),
        GgmlType::Q4K => (256, k::q4_k),
        GgmlType::Q5K => (256, k::q5_k),
        GgmlType::Q6K => (256, k::q6_k),
        other => {
            let supported = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K";
            return Err(QuantizeError::Unsupported { kind: other.name(), supported });
        }
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
