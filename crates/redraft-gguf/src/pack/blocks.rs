//! From the blocks of a file to the words of a lane, type by type.
//!
//! Written from the layouts and not by way of [`dequantize`](crate::dequantize), so that each checks the other.

use super::{BLOCK, Lane};
use crate::dequant::{IQ4_NL, half, sub_scale};
use crate::types::GgmlType;
use ::half::f16;

/// A scale that the format cannot hold.
pub(super) struct BadScale {
    /// Block of 32 weights within the row.
    pub(super) block: usize,
    /// The scale.
    pub(super) scale: f32,
}

/// Writes one row. `bytes` is a whole number of blocks.
pub(super) fn pack_row(kind: GgmlType, bytes: &[u8], lane: &mut Lane<'_>) -> Result<(), BadScale> {
    match kind {
        GgmlType::Q4_0 => return q4_0(bytes, lane),
        GgmlType::Q4_1 => q4_1(bytes, lane),
        GgmlType::Q4K => q4k(bytes, lane),
        GgmlType::Q8_0 => q8_0(bytes, lane),
        GgmlType::Q5_0 => q5_0(bytes, lane),
        GgmlType::Iq4Nl => iq4_nl(bytes, lane),
        GgmlType::Q6K => q6k(bytes, lane),
        GgmlType::Q5_1 => q5_1(bytes, lane),
        GgmlType::Q5K => q5k(bytes, lane),
        GgmlType::F16 | GgmlType::BF16 => halves(bytes, lane),
        // `pack_rows` lets no other type through.
        _ => floats(bytes, lane),
    }
    Ok(())
}

fn pair(low: f16, high: f16) -> u32 {
    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
}

/// 32 weights of 4 bits in the order of Q4_0: byte j holds weight j low and weight j + 16 high.
fn split_nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|j| bytes[j % 16] >> (j / 16 * 4) & 15)
}

/// 32 weights of 5 bits in the order of Q5_0: nibbles as in Q4_0, bit j of `high` on top.
fn split_fives(high: [u8; 4], bytes: &[u8]) -> [u8; BLOCK] {
    let high = u32::from_le_bytes(high);
    let low = split_nibbles(bytes);
    std::array::from_fn(|j| low[j] | ((high >> j & 1) as u8) << 4)
}

/// The same weights moved down by `zero`, as the bits of an `i8`.
fn signed(weights: [u8; BLOCK], zero: u8) -> [u8; BLOCK] {
    weights.map(|weight| weight.wrapping_sub(zero))
}

/// Sub-block `sub` of 32 weights in the nibbles of a K block: even ones are the low nibbles of 32 bytes, odd
/// ones the high nibbles of the same bytes.
fn k_nibbles(bytes: &[u8], sub: usize) -> [u8; BLOCK] {
    let from = sub / 2 * 32;
    std::array::from_fn(|j| bytes[from + j] >> (sub % 2 * 4) & 15)
}

fn q4_0(bytes: &[u8], lane: &mut Lane<'_>) -> Result<(), BadScale> {
    for (b, block) in bytes.as_chunks::<18>().0.iter().enumerate() {
        let d = half(block[0], block[1]);
        // A product by a power of two, so it is exact unless it leaves the range.
        let m = f16::from_f32(-8.0 * d.to_f32());
        if !m.is_finite() {
            return Err(BadScale { block: b, scale: d.to_f32() });
        }
        lane.nibbles(b, &split_nibbles(&block[2..]));
        lane.scale(b, [pair(d, m)]);
    }
    Ok(())
}

fn q4_1(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<20>().0.iter().enumerate() {
        lane.nibbles(b, &split_nibbles(&block[4..]));
        lane.scale(b, [pair(half(block[0], block[1]), half(block[2], block[3]))]);
    }
}

fn q4k(bytes: &[u8], lane: &mut Lane<'_>) {
    for (k, block) in bytes.as_chunks::<144>().0.iter().enumerate() {
        for sub in 0..8 {
            let (scale, min) = sub_scale(&block[4..16], sub);
            lane.nibbles(k * 8 + sub, &k_nibbles(&block[16..], sub));
            lane.scale(k * 8 + sub, [u32::from(scale) | u32::from(min) << 8]);
        }
        lane.shared_scale(k, pair(half(block[0], block[1]), half(block[2], block[3])));
    }
}

fn q8_0(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<34>().0.iter().enumerate() {
        lane.bytes(b, &std::array::from_fn(|j| block[2 + j]));
        lane.scale(b, [half(block[0], block[1]).to_f32().to_bits()]);
    }
}

fn q5_0(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<22>().0.iter().enumerate() {
        let weights = split_fives([block[2], block[3], block[4], block[5]], &block[6..]);
        lane.bytes(b, &signed(weights, 16));
        lane.scale(b, [half(block[0], block[1]).to_f32().to_bits()]);
    }
}

fn iq4_nl(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<18>().0.iter().enumerate() {
        let codes = split_nibbles(&block[2..]);
        lane.bytes(b, &codes.map(|code| IQ4_NL[usize::from(code)].cast_unsigned()));
        lane.scale(b, [half(block[0], block[1]).to_f32().to_bits()]);
    }
}

fn q6k(bytes: &[u8], lane: &mut Lane<'_>) {
    for (k, block) in bytes.as_chunks::<210>().0.iter().enumerate() {
        let d = half(block[208], block[209]).to_f32();
        for sub in 0..8 {
            // Each half of 128 weights has 64 bytes of low nibbles and 32 bytes of high bits: sub-blocks 0 and 2
            // are the two nibbles of the first 32 bytes, 1 and 3 those of the second, and sub-block i has bits
            // 2i and 2i + 1 of the high ones.
            let (part, quarter) = (sub / 4, sub % 4);
            let low = part * 64 + quarter % 2 * 32;
            let high = 128 + part * 32;
            let weights = std::array::from_fn(|j| {
                let nibble = block[low + j] >> (quarter / 2 * 4) & 15;
                nibble | (block[high + j] >> (quarter * 2) & 3) << 4
            });
            lane.bytes(k * 8 + sub, &signed(weights, 32));
            let scale = |at: usize| (d * f32::from(block[192 + at].cast_signed())).to_bits();
            lane.scale(k * 8 + sub, [scale(sub * 2), scale(sub * 2 + 1)]);
        }
    }
}

fn q5_1(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<24>().0.iter().enumerate() {
        lane.bytes(b, &split_fives([block[4], block[5], block[6], block[7]], &block[8..]));
        let words = [half(block[0], block[1]), half(block[2], block[3])];
        lane.scale(b, words.map(|word| word.to_f32().to_bits()));
    }
}

fn q5k(bytes: &[u8], lane: &mut Lane<'_>) {
    for (k, block) in bytes.as_chunks::<176>().0.iter().enumerate() {
        let (d, dmin) = (half(block[0], block[1]).to_f32(), half(block[2], block[3]).to_f32());
        for sub in 0..8 {
            let (scale, min) = sub_scale(&block[4..16], sub);
            let low = k_nibbles(&block[48..], sub);
            lane.bytes(k * 8 + sub, &std::array::from_fn(|j| low[j] | (block[16 + j] >> sub & 1) << 4));
            let words = [d * f32::from(scale), -(dmin * f32::from(min))];
            lane.scale(k * 8 + sub, words.map(f32::to_bits));
        }
    }
}

fn halves(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<64>().0.iter().enumerate() {
        let (words, _) = block.as_chunks::<4>();
        lane.words::<16>(b, std::array::from_fn(|c| u32::from_le_bytes(words[c])));
    }
}

fn floats(bytes: &[u8], lane: &mut Lane<'_>) {
    for (b, block) in bytes.as_chunks::<128>().0.iter().enumerate() {
        let (words, _) = block.as_chunks::<4>();
        lane.words::<32>(b, std::array::from_fn(|c| u32::from_le_bytes(words[c])));
    }
}
