//! The K-quants: super-blocks of 256 weights whose sub-blocks have small integer scales.

use super::{Encoder, extreme, in_steps, level, nibbles, range};

/// Q4_K: w = (d·sc)·q − (dmin·mn), eight sub-blocks of 32, levels of four bits.
pub(super) fn q4_k(block: &[f32], out: &mut Encoder) {
    let levels = scaled_levels(block, 15, out);
    nibble_pairs(&levels, out);
}

/// Q5_K: as Q4_K with levels of five bits; bit s of the high byte l is weight l of sub-block s.
pub(super) fn q5_k(block: &[f32], out: &mut Encoder) {
    let levels = scaled_levels(block, 31, out);
    let mut high = [0_u8; 32];
    for (sub, levels) in levels.chunks_exact(32).enumerate() {
        for (high, level) in high.iter_mut().zip(levels) {
            *high |= (level >> 4 & 1) << sub;
        }
    }
    out.bytes.extend(high);
    nibble_pairs(&levels, out);
}

/// Q6_K: w = d·sc·(q − 32), sixteen sub-blocks of 16, levels of six bits, signed 8-bit scales.
pub(super) fn q6_k(block: &[f32], out: &mut Encoder) {
    // Level 0 stands for the extreme value exactly: −32 · d · sc.
    let wanted: Vec<f32> = block.chunks_exact(16).map(|sub| extreme(sub) / -32.0).collect();
    let mut fields = Encoder::default();
    let d = fields.half(extreme(&wanted) / -128.0);
    let scales: Vec<u8> = wanted.iter().map(|&x| level(in_steps(x, d) + 128.0, 255)).collect();
    let mut levels = Vec::with_capacity(block.len());
    for (sub, &scale) in block.chunks_exact(16).zip(&scales) {
        let step = d * (f32::from(scale) - 128.0);
        levels.extend(sub.iter().map(|&x| level(in_steps(x, step) + 32.0, 63)));
    }
    for half in levels.chunks_exact(128) {
        // Low nibbles: byte l of 64 holds weight l low and weight l + 64 high.
        nibbles(half, &mut out.bytes);
    }
    for half in levels.chunks_exact(128) {
        // High pairs: byte l of 32 holds weights l, l + 32, l + 64, l + 96 from the low bits up.
        let quarters: Vec<&[u8]> = half.chunks_exact(32).collect();
        out.bytes.extend((0..32).map(|l| {
            quarters.iter().rev().fold(0_u8, |byte, quarter| byte << 2 | quarter.get(l).map_or(0, |q| q >> 4))
        }));
    }
    out.bytes.extend(scales.iter().map(|scale| scale ^ 0x80));
    out.bytes.extend(&fields.bytes);
    out.unfit = out.unfit.or(fields.unfit);
}

/// Writes d, dmin and the twelve bytes of 6-bit scales, and returns the 256 levels in `0..=top`.
fn scaled_levels(block: &[f32], top: u8, out: &mut Encoder) -> Vec<u8> {
    // The offset is subtracted and not negative, so a sub-block above zero starts at zero.
    let offsets = block.chunks_exact(32).map(|sub| -range(sub).0.min(0.0)).collect::<Vec<_>>();
    let dmin_wanted = extreme(&offsets) / 63.0;
    let dmin = f32::from(half::f16::from_f32(dmin_wanted));
    // Rounded up, so that the sub-block's smallest value stays inside.
    let mins: Vec<u8> = offsets.iter().map(|&x| level(in_steps(x, dmin).ceil(), 63)).collect();
    let steps = block.chunks_exact(32).zip(&mins);
    let steps: Vec<f32> =
        steps.map(|(sub, &min)| (range(sub).1 + dmin * f32::from(min)).max(0.0) / f32::from(top)).collect();
    let d = out.half(extreme(&steps) / 63.0);
    let dmin = {
        let written = out.half(dmin_wanted);
        debug_assert!(written.to_bits() == dmin.to_bits(), "one rounding, one value");
        written
    };
    let scales: Vec<u8> = steps.iter().map(|&x| level(in_steps(x, d).ceil(), 63)).collect();
    out.bytes.extend(six_bit_fields(&scales, &mins));
    let mut levels = Vec::with_capacity(block.len());
    for ((sub, &scale), &min) in block.chunks_exact(32).zip(&scales).zip(&mins) {
        let (step, offset) = (d * f32::from(scale), dmin * f32::from(min));
        levels.extend(sub.iter().map(|&x| level(in_steps(x + offset, step), top)));
    }
    levels
}

/// Eight scales and eight minima of six bits in twelve bytes: the first four of each fill bytes 0..4 and
/// 4..8; the last four share bytes 8..12 as nibbles, their top two bits above the first four's.
fn six_bit_fields(scales: &[u8], mins: &[u8]) -> [u8; 12] {
    let mut bytes = [0_u8; 12];
    let (scale, min) =
        (|j: usize| scales.get(j).copied().unwrap_or(0), |j: usize| mins.get(j).copied().unwrap_or(0));
    for j in 0..4 {
        bytes[j] = scale(j) | (scale(j + 4) >> 4) << 6;
        bytes[j + 4] = min(j) | (min(j + 4) >> 4) << 6;
        bytes[j + 8] = (scale(j + 4) & 15) | (min(j + 4) & 15) << 4;
    }
    bytes
}

/// Sub-blocks in pairs: byte l of 32 holds weight l of the even one low, of the odd one high.
fn nibble_pairs(levels: &[u8], out: &mut Encoder) {
    for pair in levels.chunks_exact(64) {
        nibbles(pair, &mut out.bytes);
    }
}
