//! From f32 to the bytes of a tensor, for the types that this project writes.
//!
//! Q4_0 and Q8_0 are rounded to the nearest level as ggml's reference quantisers do, with the same order of
//! operations, so that a tensor has the same bytes whoever quantised it.

use crate::types::GgmlType;
use half::{bf16, f16};
use thiserror::Error;

/// Why values cannot be quantised.
#[derive(Clone, Debug, PartialEq, Error)]
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
    #[error("no quantiser for {kind}: use {supported}")]
    Unsupported {
        /// Name of the tensor type.
        kind: &'static str,
        /// The types that there are quantisers for.
        supported: &'static str,
    },
}

/// Encodes `values` (whole rows, row-major) as ggml stores the type `kind`: F32, F16, BF16, Q4_0 or Q8_0.
///
/// # Errors
///
/// [`QuantizeError`] when the length is not a multiple of the block, a value is not finite, a value or a scale does
/// not fit its 16 bits, or the type is none of those.
pub fn quantize(kind: GgmlType, values: &[f32]) -> Result<Vec<u8>, QuantizeError> {
    if let Some((index, &value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(QuantizeError::NotFinite { index, value });
    }
    let block = kind.block_size();
    if !values.len().is_multiple_of(block) {
        return Err(QuantizeError::Length { kind: kind.name(), block, found: values.len() });
    }
    let mut out =
        Output { bytes: Vec::with_capacity(values.len() / block * kind.block_bytes()), unfit: None };
    match kind {
        GgmlType::F32 => values.iter().for_each(|value| out.bytes.extend(value.to_le_bytes())),
        GgmlType::F16 => values.iter().for_each(|&value| out.half(value)),
        GgmlType::BF16 => values.iter().for_each(|&value| out.brain(value)),
        GgmlType::Q4_0 => values.as_chunks().0.iter().for_each(|block| q4_0(block, &mut out)),
        GgmlType::Q8_0 => values.as_chunks().0.iter().for_each(|block| q8_0(block, &mut out)),
        other => {
            let supported = "F32, F16, BF16, Q4_0 or Q8_0";
            return Err(QuantizeError::Unsupported { kind: other.name(), supported });
        }
    }
    match out.unfit {
        Some(value) => Err(QuantizeError::Range { kind: kind.name(), value }),
        None => Ok(out.bytes),
    }
}

/// The bytes so far, and the first number that did not fit its field.
struct Output {
    bytes: Vec<u8>,
    unfit: Option<f32>,
}

impl Output {
    fn half(&mut self, value: f32) {
        let rounded = f16::from_f32(value);
        if !rounded.is_finite() {
            self.unfit.get_or_insert(value);
        }
        self.bytes.extend(rounded.to_le_bytes());
    }

    fn brain(&mut self, value: f32) {
        let rounded = bf16::from_f32(value);
        if !rounded.is_finite() {
            self.unfit.get_or_insert(value);
        }
        self.bytes.extend(rounded.to_le_bytes());
    }
}

/// 1/d, or 0 for a block of zeros and for a scale so small that its inverse is infinite.
fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// w = d·(q − 8): the value furthest from zero, the first of equals, gets level 0.
fn q4_0(block: &[f32; 32], out: &mut Output) {
    let extreme = block.iter().fold(0.0f32, |worst, &x| if x.abs() > worst.abs() { x } else { worst });
    let d = extreme / -8.0;
    let inverse = inverse(d);
    out.half(d);
    #[expect(clippy::cast_possible_truncation, reason = "x/d lies in −8…8, so the sum is in 0…16.5")]
    let level = |x: f32| ((x * inverse + 8.5) as u8).min(15);
    out.bytes.extend((0..16).map(|j| level(block[j]) | level(block[j + 16]) << 4));
}

/// w = d·q, q a signed byte.
fn q8_0(block: &[f32; 32], out: &mut Output) {
    let d = block.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
    let inverse = inverse(d);
    out.half(d);
    #[expect(clippy::cast_possible_truncation, reason = "x/d lies in −127…127")]
    let level = |x: f32| ((x * inverse).round() as i8).cast_unsigned();
    out.bytes.extend(block.iter().map(|&x| level(x)));
}

#[cfg(test)]
mod tests {
    use super::{QuantizeError, quantize};
    use crate::{GgmlType, dequantize};

    #[test]
    fn ties_and_extremes_round_as_in_the_reference() {
        let mut block = [0.0f32; 32];
        // d = 1; halves go away from zero in Q8_0.
        (block[0], block[1], block[2], block[3]) = (127.0, 0.5, -0.5, -126.5);
        let bytes = quantize(GgmlType::Q8_0, &block).unwrap();
        assert_eq!(bytes[..6], [0x00, 0x3c, 127, 1, 0xff, 0x81]);
        // d = 1; the extreme of the other sign is clamped to level 15, halves go up in Q4_0.
        block.fill(0.0);
        (block[0], block[1], block[2], block[16]) = (-8.0, 8.0, 0.5, -0.5);
        let bytes = quantize(GgmlType::Q4_0, &block).unwrap();
        assert_eq!(bytes[..5], [0x00, 0x3c, 0x80, 0x8f, 0x89]);
    }

    #[test]
    fn blocks_of_zeros_and_of_tiny_values_become_zeros() {
        for kind in [GgmlType::Q4_0, GgmlType::Q8_0] {
            for value in [0.0, f32::from_bits(1), -f32::MIN_POSITIVE] {
                let mut read = [1.0; 32];
                dequantize(kind, &quantize(kind, &[value; 32]).unwrap(), &mut read).unwrap();
                assert!(read.iter().all(|w| *w == 0.0), "{kind} of {value:e}: {read:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let error = |kind, values: &[f32]| quantize(kind, values).unwrap_err();
        assert_eq!(
            error(GgmlType::Q8_0, &[0.0; 33]),
            QuantizeError::Length { kind: "Q8_0", block: 32, found: 33 }
        );
        assert_eq!(
            error(GgmlType::F32, &[0.0, f32::NEG_INFINITY]),
            QuantizeError::NotFinite { index: 1, value: f32::NEG_INFINITY }
        );
        assert_eq!(error(GgmlType::F16, &[7e4]), QuantizeError::Range { kind: "F16", value: 7e4 });
        assert_eq!(
            error(GgmlType::Q4_0, &[1e6; 32]),
            QuantizeError::Range { kind: "Q4_0", value: -125_000.0 }
        );
        assert!(error(GgmlType::Q6K, &[0.0; 256]).to_string().contains("Q6_K"), "names the type");
    }
}
