//! Small vectors of each dequantiser, worked out by hand from ggml's definition of the type.

use redraft_gguf::{GgmlType, PackError, dequantize};

/// f16 bits of the scales below.
const HALF: [u8; 2] = 0x3800u16.to_le_bytes();
const ONE: [u8; 2] = 0x3c00u16.to_le_bytes();
const TWO: [u8; 2] = 0x4000u16.to_le_bytes();
const MINUS_THREE: [u8; 2] = 0xc200u16.to_le_bytes();

/// Bytes that are 0 but for the pieces, each at its offset.
fn block(length: usize, pieces: &[(usize, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; length];
    for &(at, bytes) in pieces {
        out[at..at + bytes.len()].copy_from_slice(bytes);
    }
    out
}

/// Dequantises one block and compares some of its values; all others must be `rest`, where given.
#[track_caller]
fn check(kind: GgmlType, pieces: &[(usize, &[u8])], values: &[(usize, f32)], rest: Option<f32>) {
    let bytes = block(kind.block_bytes(), pieces);
    let mut out = vec![f32::NAN; kind.block_size()];
    dequantize(kind, &bytes, &mut out).unwrap();
    for (at, &found) in out.iter().enumerate() {
        let wanted = values.iter().find(|value| value.0 == at).map(|value| value.1).or(rest);
        if let Some(wanted) = wanted {
            assert_eq!(found, wanted, "{kind}, weight {at}");
        }
    }
}

#[test]
fn plain_floats() {
    check(GgmlType::F32, &[(0, &(-1.5f32).to_le_bytes())], &[(0, -1.5)], None);
    check(GgmlType::F16, &[(0, &MINUS_THREE)], &[(0, -3.0)], None);
    check(GgmlType::F16, &[(0, &[1, 0])], &[(0, 2f32.powi(-24))], None);
    check(GgmlType::BF16, &[(0, &[0xc0, 0x3f])], &[(0, 1.5)], None);
}

#[test]
fn q4_0() {
    // Byte 0 holds weight 0 (15) and weight 16 (1); nibbles of 8 are 0.
    let mut nibbles = [0x88; 16];
    nibbles[0] = 0x1f;
    check(GgmlType::Q4_0, &[(0, &HALF), (2, &nibbles)], &[(0, 3.5), (16, -3.5)], Some(0.0));
}

#[test]
fn q4_1() {
    let pieces: &[(usize, &[u8])] = &[(0, &TWO), (2, &MINUS_THREE), (5, &[0xa4])];
    check(GgmlType::Q4_1, pieces, &[(1, 5.0), (17, 17.0)], Some(-3.0));
}

#[test]
fn q5_0() {
    // High bits of weights 0 and 19; weights without any bit are -16.
    let high = (1u32 | 1 << 19).to_le_bytes();
    let pieces: &[(usize, &[u8])] = &[(0, &ONE), (2, &high), (6, &[0x02, 0, 0, 0xf0])];
    check(GgmlType::Q5_0, pieces, &[(0, 2.0), (19, 15.0)], Some(-16.0));
}

#[test]
fn q5_1() {
    let high = (1u32 << 31 | 1 << 3).to_le_bytes();
    let pieces: &[(usize, &[u8])] =
        &[(0, &HALF), (2, &MINUS_THREE), (4, &high), (8 + 3, &[0x05]), (8 + 15, &[0xf0])];
    check(GgmlType::Q5_1, pieces, &[(3, 7.5), (31, 12.5)], Some(-3.0));
}

#[test]
fn q8_0() {
    check(GgmlType::Q8_0, &[(0, &HALF), (2, &[0x80]), (33, &[127])], &[(0, -64.0), (31, 63.5)], Some(0.0));
}

#[test]
fn iq4_nl_has_ggmls_sixteen_values() {
    // Byte j holds code j for weight j and code 15 - j for weight j + 16.
    let codes: Vec<u8> = (0..16).map(|j| j | (15 - j) << 4).collect();
    let values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113i16];
    let expected: Vec<(usize, f32)> = values
        .iter()
        .enumerate()
        .flat_map(|(j, &value)| [(j, f32::from(value) * 2.0), (31 - j, f32::from(value) * 2.0)])
        .collect();
    check(GgmlType::Iq4Nl, &[(0, &TWO), (2, &codes)], &expected, None);
}

/// Packed 6-bit scales and minima: (1, 2) for sub-block 0, (58, 21) for 4, (33, 0) for 5. The upper two bits of
/// sub-blocks 4 and 5 are on top of bytes 0, 1 (scales) and 4, 5 (minima).
const K_SCALES: [u8; 12] = [1 | 3 << 6, 2 << 6, 0, 0, 2 | 1 << 6, 0, 0, 0, 10 | 5 << 4, 1, 0, 0];

#[test]
fn q4_k() {
    // Bytes 64..96 of the nibbles hold sub-blocks 4 (low) and 5 (high).
    let pieces: &[(usize, &[u8])] =
        &[(0, &ONE), (2, &HALF), (4, &K_SCALES), (16, &[0x93]), (16 + 64 + 5, &[0xc7])];
    let values =
        [(0, 3.0 - 1.0), (1, -1.0), (32, 0.0), (133, 58.0 * 7.0 - 10.5), (134, -10.5), (165, 33.0 * 12.0)];
    check(GgmlType::Q4K, pieces, &values, None);
}

#[test]
fn q5_k() {
    // Bit s of high byte l belongs to weight l of sub-block s.
    let pieces: &[(usize, &[u8])] =
        &[(0, &ONE), (2, &HALF), (4, &K_SCALES), (16 + 5, &[1 << 4]), (48 + 64 + 5, &[0xc7])];
    let values = [(5, -1.0), (133, 58.0 * 23.0 - 10.5), (134, -10.5), (165, 33.0 * 12.0)];
    check(GgmlType::Q5K, pieces, &values, None);
}

#[test]
fn q6_k() {
    // Second half: low bits from 64, high bits from 128 + 32, scales from 192 + 8. Weight 17 of each quarter.
    let scales: [u8; 8] = [0, 2, 0, 7, 0, 0xfd, 0, 1];
    let pieces: &[(usize, &[u8])] = &[
        (64 + 17, &[0xb3]),
        (64 + 32 + 17, &[0x05]),
        (128 + 32 + 17, &[2 << 4 | 1 << 2 | 3]),
        (192 + 8, &scales),
        (208, &HALF),
    ];
    let values = [
        (128 + 17, 0.5 * 2.0 * (3.0 + 48.0 - 32.0)),
        (160 + 17, 0.5 * 7.0 * (5.0 + 16.0 - 32.0)),
        (192 + 17, 0.5 * -3.0 * (11.0 + 32.0 - 32.0)),
        (224 + 17, 0.5 * -32.0),
        (224 + 18, 0.5 * -32.0),
        (17, 0.0),
    ];
    check(GgmlType::Q6K, pieces, &values, None);
}

#[test]
fn lengths_and_types_are_checked() {
    let mut out = [0.0; 32];
    let error = dequantize(GgmlType::Q4_0, &[0; 17], &mut out).unwrap_err();
    assert!(matches!(error, PackError::Length { wanted: 18, found: 17, .. }), "{error}");
    let error = dequantize(GgmlType::Q4K, &[0; 18], &mut out).unwrap_err();
    assert!(matches!(error, PackError::Columns { columns: 32, multiple: 256, .. }), "{error}");
    let error = dequantize(GgmlType::Q8_1, &[0; 36], &mut out).unwrap_err();
    assert!(matches!(error, PackError::Unsupported { kind: GgmlType::Q8_1, .. }), "{error}");
    assert!(error.to_string().contains("Q4_K"), "the supported types are not listed: {error}");
}
