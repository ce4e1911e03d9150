//! Dequantisation as ggml defines it, in the order of operations of its reference code.

use crate::error::PackError;
use crate::types::GgmlType;
use half::f16;

/// The 16 values of IQ4_NL.
pub(crate) const IQ4_NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The half-precision number in two bytes.
pub(crate) fn half(low: u8, high: u8) -> f16 {
    f16::from_le_bytes([low, high])
}

/// Scale and minimum (6 bits each) of sub-block `sub` of 32 weights, from the 12 packed bytes of Q4_K and Q5_K.
///
/// The first four pairs are the low six bits of bytes 0–3 and 4–7; the last four have their low four bits in bytes
/// 8–11 and their upper two bits on top of the first eight bytes.
pub(crate) fn sub_scale(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        let low = packed[sub + 4];
        (low & 15 | packed[sub - 4] >> 6 << 4, low >> 4 | packed[sub] >> 6 << 4)
    }
}

/// The values of `bytes`, which are whole blocks of type `kind`, in f32.
///
/// `out` has as many elements as the blocks have weights. Infinite scales and NaNs pass through.
///
/// # Errors
///
/// [`PackError`] when the type is known by name only, or the lengths do not agree.
pub fn dequantize(kind: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), PackError> {
    let columns = out.len();
    if !columns.is_multiple_of(kind.block_size()) {
        return Err(PackError::Columns { kind: kind.name(), columns, multiple: kind.block_size() });
    }
    let blocks = columns / kind.block_size();
    let wanted = blocks.checked_mul(kind.block_bytes()).ok_or(PackError::TooLarge { rows: 1, columns })?;
    if bytes.len() != wanted {
        let (what, unit, found) = ("tensor data", "bytes", bytes.len());
        return Err(PackError::Length { what, unit, wanted, found, rows: 1, columns });
    }
    match kind {
        GgmlType::F32 => each(bytes, out, |b: &[u8; 4], y: &mut [f32; 1]| y[0] = f32::from_le_bytes(*b)),
        GgmlType::F16 => each(bytes, out, |b: &[u8; 2], y: &mut [f32; 1]| y[0] = half(b[0], b[1]).to_f32()),
        GgmlType::BF16 => each(bytes, out, |b: &[u8; 2], y: &mut [f32; 1]| {
            y[0] = f32::from_le_bytes([0, 0, b[0], b[1]]);
        }),
        GgmlType::Q4_0 => each(bytes, out, q4_0),
        GgmlType::Q4_1 => each(bytes, out, q4_1),
        GgmlType::Q5_0 => each(bytes, out, q5_0),
        GgmlType::Q5_1 => each(bytes, out, q5_1),
        GgmlType::Q8_0 => each(bytes, out, q8_0),
        GgmlType::Q4K => each(bytes, out, q4k),
        GgmlType::Q5K => each(bytes, out, q5k),
        GgmlType::Q6K => each(bytes, out, q6k),
        GgmlType::Iq4Nl => each(bytes, out, iq4_nl),
        kind => return Err(PackError::Unsupported { kind, supported: GgmlType::supported_names() }),
    }
    Ok(())
}

/// Applies `block` to every block of `B` bytes and its `W` weights.
fn each<const B: usize, const W: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; B], &mut [f32; W]),
) {
    for (bytes, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        block(bytes, out);
    }
}

fn q4_0(x: &[u8; 18], y: &mut [f32; 32]) {
    let d = half(x[0], x[1]).to_f32();
    for j in 0..16 {
        y[j] = f32::from(i16::from(x[2 + j] & 15) - 8) * d;
        y[j + 16] = f32::from(i16::from(x[2 + j] >> 4) - 8) * d;
    }
}

fn q4_1(x: &[u8; 20], y: &mut [f32; 32]) {
    let (d, m) = (half(x[0], x[1]).to_f32(), half(x[2], x[3]).to_f32());
    for j in 0..16 {
        y[j] = f32::from(x[4 + j] & 15) * d + m;
        y[j + 16] = f32::from(x[4 + j] >> 4) * d + m;
    }
}

/// The two 5-bit weights of byte j: 16 and a set bit of `high` give the fifth bit.
fn fives(high: u32, byte: u8, j: usize) -> [u8; 2] {
    let bit = |at: usize| if high >> at & 1 == 1 { 16 } else { 0 };
    [byte & 15 | bit(j), byte >> 4 | bit(j + 16)]
}

fn q5_0(x: &[u8; 22], y: &mut [f32; 32]) {
    let d = half(x[0], x[1]).to_f32();
    let high = u32::from_le_bytes([x[2], x[3], x[4], x[5]]);
    for j in 0..16 {
        let [a, b] = fives(high, x[6 + j], j);
        y[j] = f32::from(i16::from(a) - 16) * d;
        y[j + 16] = f32::from(i16::from(b) - 16) * d;
    }
}

fn q5_1(x: &[u8; 24], y: &mut [f32; 32]) {
    let (d, m) = (half(x[0], x[1]).to_f32(), half(x[2], x[3]).to_f32());
    let high = u32::from_le_bytes([x[4], x[5], x[6], x[7]]);
    for j in 0..16 {
        let [a, b] = fives(high, x[8 + j], j);
        y[j] = f32::from(a) * d + m;
        y[j + 16] = f32::from(b) * d + m;
    }
}

fn q8_0(x: &[u8; 34], y: &mut [f32; 32]) {
    let d = half(x[0], x[1]).to_f32();
    for j in 0..32 {
        y[j] = f32::from(x[2 + j].cast_signed()) * d;
    }
}

fn q4k(x: &[u8; 144], y: &mut [f32; 256]) {
    let (d, dmin) = (half(x[0], x[1]).to_f32(), half(x[2], x[3]).to_f32());
    for group in 0..4 {
        let scales = [0, 1].map(|odd| {
            let (scale, min) = sub_scale(&x[4..16], group * 2 + odd);
            (d * f32::from(scale), dmin * f32::from(min))
        });
        for l in 0..32 {
            let byte = x[16 + group * 32 + l];
            y[group * 64 + l] = scales[0].0 * f32::from(byte & 15) - scales[0].1;
            y[group * 64 + 32 + l] = scales[1].0 * f32::from(byte >> 4) - scales[1].1;
        }
    }
}

fn q5k(x: &[u8; 176], y: &mut [f32; 256]) {
    let (d, dmin) = (half(x[0], x[1]).to_f32(), half(x[2], x[3]).to_f32());
    for group in 0..4 {
        let scales = [0, 1].map(|odd| {
            let (scale, min) = sub_scale(&x[4..16], group * 2 + odd);
            (d * f32::from(scale), dmin * f32::from(min))
        });
        let (first, second) = (1 << (group * 2), 2 << (group * 2));
        for l in 0..32 {
            let (byte, high) = (x[48 + group * 32 + l], x[16 + l]);
            let low = (byte & 15) + if high & first != 0 { 16 } else { 0 };
            let upper = (byte >> 4) + if high & second != 0 { 16 } else { 0 };
            y[group * 64 + l] = scales[0].0 * f32::from(low) - scales[0].1;
            y[group * 64 + 32 + l] = scales[1].0 * f32::from(upper) - scales[1].1;
        }
    }
}

fn q6k(x: &[u8; 210], y: &mut [f32; 256]) {
    let d = half(x[208], x[209]).to_f32();
    for part in 0..2 {
        let (low, high) = (&x[part * 64..], &x[128 + part * 32..]);
        let scale = |at: usize| d * f32::from(x[192 + part * 8 + at].cast_signed());
        for l in 0..32 {
            let value =
                |nibble: u8, shift: u32| f32::from(i16::from(nibble | (high[l] >> shift & 3) << 4) - 32);
            let y = &mut y[part * 128 + l..];
            y[0] = scale(l / 16) * value(low[l] & 15, 0);
            y[32] = scale(l / 16 + 2) * value(low[l + 32] & 15, 2);
            y[64] = scale(l / 16 + 4) * value(low[l] >> 4, 4);
            y[96] = scale(l / 16 + 6) * value(low[l + 32] >> 4, 6);
        }
    }
}

fn iq4_nl(x: &[u8; 18], y: &mut [f32; 32]) {
    let d = half(x[0], x[1]).to_f32();
    for j in 0..16 {
        y[j] = d * f32::from(IQ4_NL[usize::from(x[2 + j] & 15)]);
        y[j + 16] = d * f32::from(IQ4_NL[usize::from(x[2 + j] >> 4)]);
    }
}
