//! Packing loses nothing, and the words lie where the table of the module says.

use crate::random::Random;
use redraft_gguf::{GgmlType, GpuFormat, PackError, dequantize, pack_rows, unpack_rows};

/// Where the f16 scales lie in a block.
fn scale_offsets(kind: GgmlType) -> &'static [usize] {
    match kind {
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::Iq4Nl => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q6K => &[208],
        _ => &[],
    }
}

/// Zeros, the smallest and largest subnormals, one, and the largest number, of both signs.
const SPECIAL: [u16; 10] = [0, 0x8000, 1, 0x8001, 0x3ff, 0x83ff, 0x3c00, 0xbc00, 0x7bff, 0xfbff];

/// Random rows whose scales are finite f16: half of them special.
fn rows(kind: GgmlType, columns: usize, rows: usize, random: &mut Random) -> Vec<u8> {
    let blocks = rows * columns / kind.block_size();
    let mut bytes = random.bytes(blocks * kind.block_bytes());
    for block in bytes.chunks_exact_mut(kind.block_bytes()) {
        for &at in scale_offsets(kind) {
            let mut scale = random.pick(&SPECIAL);
            if random.next().is_multiple_of(2) {
                scale = u16::try_from(random.next() & 0xffff).unwrap();
            }
            // Exponent 31 is infinity or no number; that is another test.
            scale &= if scale & 0x7c00 == 0x7c00 { 0xbfff } else { 0xffff };
            if kind == GgmlType::Q4_0 && scale & 0x7fff > 0x6fff {
                // 8188, the largest whose eightfold is an f16.
                scale = scale & 0x8000 | 0x6fff;
            }
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    bytes
}

fn dequantized(kind: GgmlType, bytes: &[u8], count: usize) -> Vec<f32> {
    let mut out = vec![0.0; count];
    dequantize(kind, bytes, &mut out).unwrap();
    out
}

fn packed(kind: GgmlType, columns: usize, rows: usize, bytes: &[u8]) -> (GpuFormat, Vec<u32>, Vec<u32>) {
    let (mut quants, mut scales) = (Vec::new(), Vec::new());
    let format = pack_rows(kind, columns, rows, bytes, &mut quants, &mut scales).unwrap();
    assert_eq!(format.words(columns, rows), Ok((quants.len(), scales.len())), "words() of {kind}");
    (format, quants, scales)
}

#[test]
fn every_type_comes_back_bit_for_bit() {
    let mut random = Random(1);
    for kind in GgmlType::SUPPORTED {
        let unit = kind.block_size().max(32);
        for (columns, count) in [(unit, 1), (unit * 3, 7), (unit * 2, 8), (unit, 9), (unit * 5, 33)] {
            let bytes = rows(kind, columns, count, &mut random);
            let wanted = dequantized(kind, &bytes, columns * count);
            let (format, quants, scales) = packed(kind, columns, count, &bytes);
            let found = unpack_rows(format, columns, count, &quants, &scales).unwrap();
            assert_eq!(found.len(), wanted.len());
            for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                // The sign of a zero is the one thing that Q4_0 may lose; see the module.
                let zeros = kind == GgmlType::Q4_0 && *found == 0.0 && *wanted == 0.0;
                assert!(
                    zeros || found.to_bits() == wanted.to_bits(),
                    "{kind}, {count} rows of {columns}, weight {at}: {found:?} is not {wanted:?}"
                );
            }
        }
    }
}

#[test]
fn packing_in_pieces_of_panels_gives_the_same_streams() {
    let mut random = Random(2);
    for kind in GgmlType::SUPPORTED {
        let columns = kind.block_size().max(32) * 2;
        let bytes = rows(kind, columns, 21, &mut random);
        let (_, quants, scales) = packed(kind, columns, 21, &bytes);
        let row = bytes.len() / 21;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (from, to) in [(0, 8), (8, 16), (16, 21)] {
            pack_rows(kind, columns, to - from, &bytes[from * row..to * row], &mut a, &mut b).unwrap();
        }
        assert_eq!((a, b), (quants, scales), "{kind}");
    }
}

/// The place of a block's first word in the quants: panel, block, row.
fn place(row: usize, block: usize, blocks: usize) -> usize {
    (row / 8 * blocks + block) * 8 + row % 8
}

#[test]
fn nibbles_and_scales_of_q4_lie_where_the_table_says() {
    // 10 rows of 64: d = row + 1 as f16 of small integers, m = -1 (0xbc00).
    let d: [u16; 10] = [0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800, 0x4880, 0x4900];
    let weight = |row: usize, k: usize| (row * 5 + k * 7 + k / 32) % 16;
    let mut bytes = Vec::new();
    for (row, d) in d.iter().enumerate() {
        for block in 0..2 {
            bytes.extend(d.to_le_bytes());
            bytes.extend([0, 0xbc]);
            let at = |k: usize| u8::try_from(weight(row, block * 32 + k)).unwrap();
            bytes.extend((0..16).map(|j| at(j) | at(j + 16) << 4));
        }
    }
    let (format, quants, scales) = packed(GgmlType::Q4_1, 64, 10, &bytes);
    assert_eq!((format, quants.len(), scales.len()), (GpuFormat::Q4, 2 * 2 * 8 * 4, 2 * 2 * 8));
    for row in 0..10 {
        for k in 0..64 {
            let word = quants[place(row, k / 32, 2) * 4 + k % 32 / 8];
            assert_eq!((word >> (k % 8 * 4) & 15) as usize, weight(row, k), "row {row}, weight {k}");
        }
        for block in 0..2 {
            assert_eq!(scales[place(row, block, 2)], u32::from(d[row]) | 0xbc00_0000, "row {row}");
        }
    }
    // Rows 10 to 15 are padding.
    for row in 10..16 {
        let at = place(row, 1, 2);
        assert_eq!((scales[at], &quants[at * 4..at * 4 + 4]), (0, &[0; 4][..]), "padding row {row}");
    }
}

#[test]
fn q4_0_has_minus_eight_d_as_its_minimum() {
    let mut bytes = vec![0; 18];
    for (d, m) in [(0x3c00u16, 0xc800u32), (0xbc00, 0x4800), (0x0001, 0x8008), (0x6fff, 0xfbff)] {
        bytes[..2].copy_from_slice(&d.to_le_bytes());
        let (_, _, scales) = packed(GgmlType::Q4_0, 32, 1, &bytes);
        assert_eq!(scales[0], u32::from(d) | m << 16, "d = {d:#06x}");
    }
}

#[test]
fn scales_of_q4k_lie_in_two_runs() {
    let mut random = Random(3);
    let bytes = rows(GgmlType::Q4K, 512, 9, &mut random);
    let (_, quants, scales) = packed(GgmlType::Q4K, 512, 9, &bytes);
    let blocks = 16;
    for row in 0..9 {
        for block in 0..blocks {
            let file = &bytes[(row * 2 + block / 8) * 144..][..144];
            let panel = &scales[row / 8 * 9 * blocks..][..9 * blocks];
            let sub = block % 8;
            let packed = &file[4..16];
            let (sc, m) = if sub < 4 {
                (packed[sub] & 63, packed[sub + 4] & 63)
            } else {
                (
                    packed[sub + 4] & 15 | packed[sub - 4] >> 6 << 4,
                    packed[sub + 4] >> 4 | packed[sub] >> 6 << 4,
                )
            };
            assert_eq!(
                panel[block * 8 + row % 8],
                u32::from(sc) | u32::from(m) << 8,
                "row {row} block {block}"
            );
            let both = u32::from_le_bytes([file[0], file[1], file[2], file[3]]);
            assert_eq!(panel[8 * blocks + block / 8 * 8 + row % 8], both, "row {row} block {block}");
            for k in 0..32 {
                let nibble = file[16 + sub / 2 * 32 + k] >> (sub % 2 * 4) & 15;
                let word = quants[place(row, block, blocks) * 4 + k / 8];
                assert_eq!(word >> (k % 8 * 4) & 15, u32::from(nibble), "row {row} block {block} weight {k}");
            }
        }
    }
}

#[test]
fn bytes_of_q8_and_halves_of_f16_lie_where_the_table_says() {
    let mut random = Random(4);
    let bytes = rows(GgmlType::Q8_0, 96, 9, &mut random);
    let (format, quants, scales) = packed(GgmlType::Q8_0, 96, 9, &bytes);
    assert_eq!((format, scales.len()), (GpuFormat::Q8, 2 * 3 * 8));
    for row in 0..9 {
        for k in 0..96 {
            let word = quants[place(row, k / 32, 3) * 8 + k % 32 / 4];
            let file = bytes[(row * 3 + k / 32) * 34 + 2 + k % 32];
            assert_eq!(word.to_le_bytes()[k % 4], file, "row {row} weight {k}");
        }
    }
    for kind in [GgmlType::F16, GgmlType::BF16] {
        let bytes = random.bytes(9 * 64 * 2);
        let (_, quants, scales) = packed(kind, 64, 9, &bytes);
        assert!(scales.is_empty(), "{kind} has scales");
        for (at, half) in bytes.chunks_exact(2).enumerate() {
            let (row, k) = (at / 64, at % 64);
            let word = quants[place(row, k / 32, 2) * 16 + k % 32 / 2];
            assert_eq!(word.to_le_bytes()[k % 2 * 2..][..2], *half, "{kind} row {row} weight {k}");
        }
    }
}

#[test]
fn two_scales_of_q6_k_and_scale_and_minimum_of_q5_1_lie_side_by_side() {
    let mut random = Random(5);
    let bytes = rows(GgmlType::Q6K, 256, 3, &mut random);
    let (format, quants, scales) = packed(GgmlType::Q6K, 256, 3, &bytes);
    let wanted = dequantized(GgmlType::Q6K, &bytes, 768);
    for (at, wanted) in wanted.iter().enumerate() {
        let (row, k) = (at / 256, at % 256);
        let slot = place(row, k / 32, 8);
        let q = f32::from(quants[slot * 8 + k % 32 / 4].to_le_bytes()[k % 4].cast_signed());
        let scale = f32::from_bits(scales[slot * 2 + k % 32 / 16]);
        assert_eq!((scale * q).to_bits(), wanted.to_bits(), "{} row {row} weight {k}", format.name());
    }
    let bytes = rows(GgmlType::Q5_1, 64, 3, &mut random);
    let (format, quants, scales) = packed(GgmlType::Q5_1, 64, 3, &bytes);
    let wanted = dequantized(GgmlType::Q5_1, &bytes, 192);
    for (at, wanted) in wanted.iter().enumerate() {
        let (row, k) = (at / 64, at % 64);
        let slot = place(row, k / 32, 2);
        let q = f32::from(quants[slot * 8 + k % 32 / 4].to_le_bytes()[k % 4]);
        let value = f32::from_bits(scales[slot * 2]) * q + f32::from_bits(scales[slot * 2 + 1]);
        assert_eq!(value.to_bits(), wanted.to_bits(), "{} row {row} weight {k}", format.name());
    }
}

#[test]
fn infinite_scales_and_nans_pass_through_or_are_refused() {
    let mut random = Random(6);
    for kind in GgmlType::SUPPORTED {
        let columns = kind.block_size().max(32) * 2;
        for scale in [0x7c00u16, 0xfc00, 0x7e00, 0xfe01, 0x7bff] {
            let mut bytes = rows(kind, columns, 2, &mut random);
            for &at in scale_offsets(kind) {
                // The last block of row 1.
                let start = bytes.len() - kind.block_bytes() + at;
                bytes[start..start + 2].copy_from_slice(&scale.to_le_bytes());
            }
            let (mut quants, mut scales) = (vec![7], vec![8]);
            let result = pack_rows(kind, columns, 2, &bytes, &mut quants, &mut scales);
            if kind == GgmlType::Q4_0 {
                let error = result.unwrap_err();
                assert!(matches!(error, PackError::Scale { row: 1, block: 1, .. }), "{scale:#x}: {error}");
                assert_eq!((quants, scales), (vec![7], vec![8]), "the streams were left changed");
                continue;
            }
            let found = unpack_rows(result.unwrap(), columns, 2, &quants[1..], &scales[1..]).unwrap();
            for (found, wanted) in found.iter().zip(dequantized(kind, &bytes, columns * 2)) {
                let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
                assert!(same, "{kind}, scale {scale:#x}: {found} is not {wanted}");
            }
        }
    }
}

#[test]
fn wrong_shapes_lengths_and_types_are_refused() {
    let pack = |kind, columns, rows, length: usize| {
        let result = pack_rows(kind, columns, rows, &vec![0; length], &mut Vec::new(), &mut Vec::new());
        result.unwrap_err()
    };
    let error = pack(GgmlType::F32, 48, 1, 192);
    assert!(matches!(error, PackError::Columns { columns: 48, multiple: 32, .. }), "{error}");
    let error = pack(GgmlType::F32, 0, 1, 0);
    assert!(matches!(error, PackError::Columns { columns: 0, .. }), "{error}");
    for kind in [GgmlType::Q4K, GgmlType::Q5K, GgmlType::Q6K] {
        let error = pack(kind, 32, 1, 18);
        assert!(matches!(error, PackError::Columns { columns: 32, multiple: 256, .. }), "{error}");
    }
    let error = pack(GgmlType::Q8_0, 32, 2, 67);
    assert!(matches!(error, PackError::Length { wanted: 68, found: 67, .. }), "{error}");
    let error = pack(GgmlType::F32, usize::MAX - 31, 1, 0);
    assert!(matches!(error, PackError::TooLarge { .. }), "{error}");
    let error = pack(GgmlType::F32, 32, usize::MAX, 0);
    assert!(matches!(error, PackError::TooLarge { .. }), "{error}");
    let error = pack(GgmlType::Mxfp4, 32, 1, 17);
    assert!(matches!(error, PackError::Unsupported { kind: GgmlType::Mxfp4, .. }), "{error}");

    for format in GpuFormat::ALL {
        let (quants, scales) = format.words(256, 3).unwrap();
        let (quants, scales) = (vec![0; quants], vec![0; scales + 1]);
        let error = unpack_rows(format, 256, 3, &quants, &scales).unwrap_err();
        assert!(matches!(error, PackError::Length { what: "scales", .. }), "{error}");
        let error = unpack_rows(format, 256, 3, &quants[1..], &scales[1..]).unwrap_err();
        assert!(matches!(error, PackError::Length { what: "quants", .. }), "{error}");
    }
}
