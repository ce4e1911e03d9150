//! The f16 families: single kernels against their formulas in f64, within what f16 can cost.

use crate::{Bench, CLOSE, dot, packed, single, small, step, values};
use ::half::f16;
use redraft_gguf::{GgmlType, GpuFormat, PANEL};
use redraft_gpu::{AdapterChoice, Gpu, GpuError, GpuOptions};
use redraft_shaders::params::{AttentionParams, GateUpParams, MatmulParams, RmsNormParams};
use redraft_testing::{Tolerance, assert_close, ran_on_gpu_in_f16, skip_without_f16};

/// Unit roundoff of f16. WGSL lets a device round either way, which would be twice that; none is known that does.
pub(crate) const UNIT: f64 = 1.0 / 2048.0;

/// Roundings that a term of a block's sum goes through: its product's own and seven sums.
const ROUNDINGS: f64 = 8.0;

/// Room for what is of second order: products of roundings, sums in f32, numbers below 2^-14 that are flushed to zero.
pub(crate) const SECOND_ORDER: f64 = 1.01;

/// A device of the tier, or none where the adapter has no f16.
pub(crate) fn open(test: &str, strict: bool) -> Option<Bench> {
    let options = GpuOptions { strict, f16: true, checked: true, ..GpuOptions::default() };
    match pollster::block_on(Gpu::open(&AdapterChoice::Auto, &options)) {
        Err(GpuError::NoF16 { .. }) => {
            skip_without_f16(test);
            None
        }
        gpu => {
            let gpu = gpu.expect("an adapter");
            ran_on_gpu_in_f16(test, &gpu.report().name, strict);
            Some(Bench(gpu))
        }
    }
}

/// Numbers as f16 kernels read them, multiplied by `scale`, and what they stand for.
pub(crate) fn rounded(numbers: &[f32], scale: f32) -> (Vec<u16>, Vec<f32>) {
    let halves: Vec<f16> = numbers.iter().map(|number| f16::from_f32(number * scale)).collect();
    (halves.iter().map(|h| h.to_bits()).collect(), halves.iter().map(|h| h.to_f32() / scale).collect())
}

/// What an f16 kernel wrote, `count` numbers that were multiplied by `scale`.
fn halves(bench: &Bench, buffer: &redraft_gpu::Buffer, count: usize, scale: f32) -> Vec<f32> {
    let bytes = pollster::block_on(bench.0.fetch(buffer.slice(0, (count * 2).next_multiple_of(4) as u64)));
    let bytes = bytes.expect("readable");
    let one = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f32() / scale;
    bytes.chunks_exact(2).map(one).take(count).collect()
}

/// The greatest error of a product in f16: `dot(|c|, |x|)` is the sum of the magnitudes of its terms.
pub(crate) fn product_bound(magnitude: f64) -> f64 {
    SECOND_ORDER * ROUNDINGS * UNIT * magnitude
}

pub(crate) fn magnitude(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) * f64::from(*b)).abs()).sum()
}

/// What a block's weights have in common, the minimum of the centred form: w = c + minimum.
fn minimum(format: GpuFormat, blocks: usize, words: &[u32], row: usize, block: usize) -> f64 {
    let slot = block * 8 + row % PANEL;
    let pair = |word: u32| {
        let half = |bits: u32| f64::from(f16::from_bits(u16::try_from(bits & 0xffff).expect("masked")));
        (half(word), half(word >> 16))
    };
    let float = |word: u32| f64::from(f32::from_bits(word));
    let panel = |words_of_block: usize| row / PANEL * blocks * words_of_block;
    match format.name() {
        "q4" => {
            let (d, m) = pair(words[panel(40) + blocks * 32 + slot]);
            m + 8.0 * d
        }
        "q4k" => {
            let scales = panel(41) + blocks * 32;
            let small = words[scales + slot];
            let (d, m) = pair(words[scales + blocks * 8 + block / 8 * 8 + row % PANEL]);
            8.0 * d * f64::from(small & 63) - m * f64::from(small >> 8 & 63)
        }
        "q8m" => {
            let at = panel(80) + blocks * 64 + slot * 2;
            float(words[at + 1]) + 16.0 * float(words[at])
        }
        _ => 0.0,
    }
}

/// Roundings of the operands themselves: weights that f16 does not hold, and two scales in a block.
fn operand_roundings(kind: GgmlType) -> f64 {
    match kind {
        GgmlType::F32 => 1.0,
        GgmlType::Q6K => 2.0,
        _ => 0.0,
    }
}

/// Greatest error of each of a row's products, from the sums of magnitudes of centred terms and of minimums; the
/// minimum's own sum of 32 activations is a tree of three roundings.
fn bound_of(
    kind: GgmlType,
    (format, words): (GpuFormat, &[u32]),
    row: usize,
    weights: &[f32],
    x: &[f32],
) -> f64 {
    let blocks = x.len() / 32;
    let mut bound = 0.0;
    for (block, (w, x)) in weights.chunks(32).zip(x.chunks(32)).enumerate() {
        let minimum = minimum(format, blocks, words, row, block);
        let centred: f64 =
            w.iter().zip(x).map(|(w, x)| ((f64::from(*w) - minimum) * f64::from(*x)).abs()).sum();
        let plain: f64 = x.iter().map(|x| f64::from(x.abs())).sum();
        bound += (ROUNDINGS + operand_roundings(kind)) * centred + 3.0 * minimum.abs() * plain;
    }
    SECOND_ORDER * UNIT * bound
}

const KINDS: [GgmlType; 8] = [
    GgmlType::Q4_1,
    GgmlType::Q4K,
    GgmlType::Q8_0,
    GgmlType::Q6K,
    GgmlType::Q5_1,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::F32,
];

/// Rows, columns, batch, tile; the batch of the last fills three tiles.
const SHAPES: [(usize, usize, usize, &str); 4] =
    [(1, 256, 1, "m1"), (7, 2816, 2, "m2"), (33, 512, 4, "m4"), (67, 256, 17, "m8")];

#[test]
fn matmul() {
    matmuls("shuffle16", false, &KINDS[..4]);
}

#[test]
fn matmul_of_other_types() {
    matmuls("shuffle16", false, &KINDS[4..]);
}

/// The sums are those of `shuffle16`, whatever the type: one will do.
#[test]
fn matmul_without_subgroups() {
    matmuls("slices16", true, &[GgmlType::Q4_1]);
}

fn matmuls(path: &str, strict: bool, kinds: &[GgmlType]) {
    let Some(bench) = open("kernels.half.matmul", strict) else { return };
    for &kind in kinds {
        let (mut error, mut energy) = (0.0, 0.0);
        for (rows, columns, batch, tile) in SHAPES {
            let what = format!("{path} {kind:?} {rows}x{columns}, {batch} rows");
            let (format, words, weights) = packed(kind, columns, rows, &values(31, rows * columns));
            let padded = batch.next_multiple_of(8);
            let scale = 2048.0;
            let (x_halves, x) = rounded(&values(32, padded * columns), scale);
            // Weights are below 1.
            let weight_scale = 0.5;
            let stride = rows + 3;
            let params = MatmulParams {
                rows: small(rows),
                blocks: small(columns / 32),
                first: 2,
                stride: small(stride),
                add: 0,
                scale: match format.name() {
                    "f16" | "bf16" | "f32" => 1.0 / (scale * weight_scale),
                    _ => 1.0 / scale,
                },
                weight_scale,
                pad0: 0,
            };
            let y = bench.room(padded * stride);
            let buffers = [
                &bench.uniform(&params),
                &bench.uniform(&step(batch)),
                &bench.storage(&x_halves),
                &bench.storage(&words),
                &y,
            ];
            let panels = rows.div_ceil(PANEL).next_multiple_of(4);
            let owned = if tile == "m1" { 2 } else { 4 };
            let tiles = if tile == "m8" { padded / 8 } else { 1 };
            let groups = [small(panels / owned), small(tiles), 1];
            bench.run("matmul", &[format.name(), tile, path], &buffers, groups);
            let found = bench.floats(&y, batch * stride);
            for m in 0..batch {
                for n in 0..rows {
                    let w = &weights[n * columns..(n + 1) * columns];
                    let x = &x[m * columns..(m + 1) * columns];
                    let expected = dot(w, x);
                    let off = f64::from(found[m * stride + 2 + n]) - expected;
                    let bound = bound_of(kind, (format, &words), n, w, x);
                    assert!(
                        off.abs() <= bound,
                        "{what}: [{m}][{n}] is off {expected} by {off}, bound {bound}"
                    );
                    error += off * off;
                    energy += expected * expected;
                }
            }
        }
        // Roundings of a mean square of UNIT²/3 at most: one of each product, and of partial sums whose energy is i
        // terms of a lane's eight, i = 2 … 8, together 35/8 of a product's.
        let limit = (1.0 + 35.0 / 8.0 + operand_roundings(kind)) * UNIT * UNIT / 3.0;
        let nmse = error / energy;
        eprintln!("{path} {kind:?}: NMSE {nmse:.2e}, limit {limit:.2e}");
        assert!(nmse <= limit, "{path} {kind:?}: NMSE {nmse:e} is beyond {limit:e}");
    }
}

#[test]
fn matmul_adds() {
    let Some(bench) = open("kernels.half.matmul_adds", false) else { return };
    let (rows, columns) = (9, 64);
    let (format, words, weights) = packed(GgmlType::Q8_0, columns, rows, &values(33, rows * columns));
    let (x_halves, x) = rounded(&values(34, 8 * columns), 64.0);
    let params = MatmulParams {
        rows: small(rows),
        blocks: small(columns / 32),
        first: 0,
        stride: small(rows),
        add: 1,
        scale: 1.0 / 64.0,
        weight_scale: 1.0,
        pad0: 0,
    };
    let before = values(35, 8 * rows);
    let y = bench.storage(&before);
    let buffers = [
        &bench.uniform(&params),
        &bench.uniform(&step(1)),
        &bench.storage(&x_halves),
        &bench.storage(&words),
        &y,
    ];
    bench.run("matmul", &[format.name(), "m1", "shuffle16"], &buffers, [2, 1, 1]);
    for (n, found) in bench.floats(&y, rows).iter().enumerate() {
        let w = &weights[n * columns..(n + 1) * columns];
        let expected = dot(w, &x[..columns]) + f64::from(before[n]);
        let off = (f64::from(*found) - expected).abs();
        assert!(off <= product_bound(magnitude(w, &x[..columns])), "row {n}: {found}, expected {expected}");
    }
}

#[test]
fn gate_up() {
    for (path, strict) in [("shuffle16", false), ("slices16", true)] {
        let Some(bench) = open("kernels.half.gate_up", strict) else { return };
        for (rows, columns) in [(7usize, 64usize), (33, 288)] {
            // Even panels hold the gate, odd panels the same rows of the up projection.
            let order: Vec<usize> = (0..rows.div_ceil(8) * 16)
                .map(|at| (at / 16 * 8 + at % 8).min(rows - 1) * 2 + at % 16 / 8)
                .collect();
            let both = values(36, rows * 2 * columns);
            let ordered: Vec<f32> = order
                .iter()
                .flat_map(|row| both[row * columns..(row + 1) * columns].iter().copied())
                .collect();
            let (format, words, weights) = packed(GgmlType::Q8_0, columns, order.len(), &ordered);
            let (x_halves, x) = rounded(&values(37, 8 * columns), 1024.0);
            let (first, stride, y_scale) = (3, rows + 5, 0.25);
            let params = GateUpParams {
                rows: small(rows),
                blocks: small(columns / 32),
                first: small(first),
                stride: small(stride),
                scale: 1.0 / 1024.0,
                weight_scale: 1.0,
                y_scale,
                pad0: 0,
            };
            let y = bench.room(8 * stride);
            let buffers = [
                &bench.uniform(&params),
                &bench.uniform(&step(2)),
                &bench.storage(&x_halves),
                &bench.storage(&words),
                &y,
            ];
            let panels = order.len().div_ceil(PANEL).next_multiple_of(4);
            bench.run("gate_up", &[format.name(), "m2", path], &buffers, [small(panels / 4), 1, 1]);
            let found = halves(&bench, &y, 2 * stride, y_scale);
            for m in 0..2 {
                for n in 0..rows {
                    let x = &x[m * columns..(m + 1) * columns];
                    let product = |which: usize| {
                        let at = (n / 8 * 16 + which * 8 + n % 8) * columns;
                        let w = &weights[at..at + columns];
                        (dot(w, x), product_bound(magnitude(w, x)))
                    };
                    let ((gate, gate_error), (up, up_error)) = (product(0), product(1));
                    let silu = gate / (1.0 + (-gate).exp());
                    let expected = silu * up;
                    // The slope of silu is at most 1.1; last, the result's own rounding.
                    let bound = 1.1 * gate_error * (up.abs() + up_error) + silu.abs() * up_error;
                    let bound = SECOND_ORDER * (bound + UNIT * expected.abs());
                    let off = f64::from(found[m * stride + first + n]) - expected;
                    assert!(off.abs() <= bound, "{path} [{m}][{n}]: off {expected} by {off}, bound {bound}");
                }
            }
        }
    }
}

#[test]
fn rms_norm() {
    let Some(bench) = open("kernels.half.rms_norm", true) else { return };
    for (columns, rows) in [(8, 1), (40, 3), (1760, 2)] {
        let h = values(38, rows * columns);
        let gain = values(39, columns);
        let params = RmsNormParams { y_scale: 64.0, ..RmsNormParams::dense(small(columns), 1e-5) };
        let y = bench.room(rows * columns);
        let buffers = [
            &bench.uniform(&params),
            &bench.uniform(&step(rows)),
            &bench.storage(&h),
            &bench.storage(&gain),
            &y,
        ];
        bench.run("rms_norm", &["slices16"], &buffers, [small(rows), 1, 1]);
        let found = halves(&bench, &y, rows * columns, 64.0);
        for (m, row) in h.chunks(columns).enumerate() {
            let mean = dot(row, row) / f64::from(small(columns)) + 1e-5;
            for (k, (h, gain)) in row.iter().zip(&gain).enumerate() {
                let expected = f64::from(*h) / mean.sqrt() * f64::from(*gain);
                let off = f64::from(found[m * columns + k]) - expected;
                let bound = SECOND_ORDER * UNIT * expected.abs() + f64::from(CLOSE.absolute);
                assert!(off.abs() <= bound, "[{m}][{k}] of {columns}: off {expected} by {off}");
            }
        }
    }
}

#[test]
fn attention_writes_what_it_writes_in_f32_rounded() {
    let Some(bench) = open("kernels.half.attention", true) else { return };
    let (heads, kv_heads, size, position) = (4, 2, 24, 70);
    let slots = position + 1;
    let q = bench.storage(&values(40, heads * size));
    let keys = bench.storage(&values(41, slots * kv_heads * size));
    let held = bench.storage(&values(42, slots * kv_heads * size));
    let params = AttentionParams {
        heads: small(heads),
        group: small(heads / kv_heads),
        half: small(size / 2),
        kv_pairs: small(kv_heads * size / 2),
        stride: small(slots),
        depth: 1,
        scale: 0.2,
        y_scale: 2048.0,
    };
    let shared = [
        &bench.uniform(&params),
        &bench.uniform(&step(1)),
        &bench.storage(&[[0, small(position), small(position), 0]]),
        &bench.storage(&[0u32]),
    ];
    let run = |out: &str| {
        let y = bench.room(heads * size);
        let rest = [&q, &keys, &held, &y];
        bench.run("attention", &["kv32", out], &[&shared[..], &rest].concat(), [small(heads), 1, 1]);
        y
    };
    let expected = bench.floats(&run("y32"), heads * size);
    let found = halves(&bench, &run("y16"), heads * size, 2048.0);
    // One more operation may change what a compiler fuses, by far less than a rounding to f16.
    let close = Tolerance::within(1e-6).with_relative(single(SECOND_ORDER * UNIT));
    assert_close("y16", &found, &expected, close.with_nmse(UNIT * UNIT / 3.0));
}
