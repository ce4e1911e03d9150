//! `qkv_rope` against its formula in f64.

use crate::half::{magnitude, product_bound, rounded};
use crate::{Bench, CLOSE, dot, half, open, packed, single, small, step, values};
use ::half::f16;
use redraft_gguf::{GgmlType, PANEL};
use redraft_shaders::params::QkvRopeParams;
use redraft_testing::{Tolerance, assert_close};

/// What activations are multiplied by in f16.
const X_SCALE: f32 = 512.0;

/// What a slot of the cache holds that no row writes.
const UNTOUCHED: f32 = 9.0;

struct Case {
    heads: usize,
    kv_heads: usize,
    /// Pairs of a head.
    half: usize,
    columns: usize,
    batch: usize,
    tile: &'static str,
    bias: bool,
    kv32: bool,
    /// The matrix begins with the keys: of a model whose queries have another type.
    keys_first: bool,
}

const CASES: [Case; 6] = [
    case((1, 1, 4, 32), 1, "m1"),
    Case { bias: true, ..case((3, 1, 12, 96), 2, "m2") },
    Case { kv32: true, ..case((5, 1, 4, 64), 3, "m4") },
    Case { bias: true, kv32: true, keys_first: true, ..case((2, 1, 20, 32), 4, "m4") },
    Case { bias: true, ..case((7, 7, 4, 32), 7, "m8") },
    Case { keys_first: true, ..case((6, 3, 12, 64), 17, "m8") },
];

const fn case(
    (heads, kv_heads, half, columns): (usize, usize, usize, usize),
    batch: usize,
    tile: &'static str,
) -> Case {
    Case { heads, kv_heads, half, columns, batch, tile, bias: false, kv32: false, keys_first: false }
}

fn pairs_of(values: &[f32]) -> Vec<[f32; 2]> {
    values.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// The cache as words, every element [`UNTOUCHED`].
fn cache(pairs: usize, kv32: bool) -> Vec<u32> {
    let half = u32::from(f16::from_f32(UNTOUCHED).to_bits());
    if kv32 { vec![UNTOUCHED.to_bits(); pairs * 2] } else { vec![half << 16 | half; pairs] }
}

/// The cache's words as numbers.
fn numbers(words: &[f32], kv32: bool) -> Vec<f32> {
    let halves = |word: u32| {
        [word & 0xffff, word >> 16].map(|bits| f16::from_bits(u16::try_from(bits).expect("half")).to_f32())
    };
    if kv32 { words.to_vec() } else { words.iter().flat_map(|word| halves(word.to_bits())).collect() }
}

fn run(bench: &Bench, path: &str, case: &Case) {
    let &Case { heads, kv_heads, half, columns, batch, tile, bias, kv32, keys_first } = case;
    let (q_pairs, kv_pairs) = (heads * half, kv_heads * half);
    let all = q_pairs + 2 * kv_pairs;
    let first = if keys_first { q_pairs } else { 0 };
    let own = all - first;
    // Even panels hold the first, odd panels the second of each pair.
    let logical = values(21, own * 2 * columns);
    let order: Vec<usize> =
        (0..own.div_ceil(8) * 16).map(|at| (at / 16 * 8 + at % 8).min(own - 1) * 2 + at % 16 / 8).collect();
    let ordered: Vec<f32> =
        order.iter().flat_map(|row| logical[row * columns..(row + 1) * columns].iter().copied()).collect();
    let (format, words, weights) = packed(GgmlType::Q8_0, columns, order.len(), &ordered);
    let padded = batch.next_multiple_of(8);
    let x = values(22, padded * columns);
    // In f16, the activations as they are rounded.
    let in_f16 = path.ends_with("16");
    let (halves, x) = if in_f16 { rounded(&x, X_SCALE) } else { (Vec::new(), x) };
    let x_buffer = if in_f16 { bench.storage(&halves) } else { bench.storage(&x) };
    let shifts = pairs_of(&values(23, all * 2));
    let positions = 2 * batch + 5;
    let angles = pairs_of(&values(24, positions * half * 2));
    // Positions repeat, as in a tree; slots do not, and leave gaps.
    let rows: Vec<[u32; 4]> = (0..padded)
        .map(|row| [0, small((row * 5 + 3) % positions.min(batch + 2)), small(row * 2 + 1), 0])
        .collect();
    let slots = 2 * padded + 1;
    let params = QkvRopeParams {
        pairs: small(own),
        blocks: small(columns / 32),
        first_pair: small(first),
        q_pairs: small(q_pairs),
        kv_pairs: small(kv_pairs),
        half: small(half),
        bias: u32::from(bias),
        kv32: u32::from(kv32),
        scale: if in_f16 { 1.0 / X_SCALE } else { 1.0 },
        weight_scale: 1.0,
        pad0: 0,
        pad1: 0,
    };
    let blank = cache(slots * kv_pairs, kv32);
    let q_before = vec![UNTOUCHED; padded * q_pairs * 2];
    let (q, keys, held) = (bench.storage(&q_before), bench.storage(&blank), bench.storage(&blank));
    let buffers = [
        &bench.uniform(&params),
        &bench.uniform(&step(batch)),
        &x_buffer,
        &bench.storage(&words),
        &bench.storage(&shifts),
        &bench.storage(&angles),
        &bench.storage(&rows),
        &q,
        &keys,
        &held,
    ];
    let panels = order.len().div_ceil(PANEL).next_multiple_of(4);
    let owned = if tile == "m1" && path != "plain" { 2 } else { 4 };
    let tiles = if tile == "m8" { padded / 8 } else { 1 };
    bench.run("qkv_rope", &[format.name(), tile, path], &buffers, [small(panels / owned), small(tiles), 1]);

    let mut expected_q = q_before;
    let mut expected_keys = vec![UNTOUCHED; slots * kv_pairs * 2];
    let mut expected_values = expected_keys.clone();
    let mut error: f64 = 0.0;
    for (row, &[_, position, slot, _]) in rows.iter().enumerate().take(batch) {
        for pair in 0..own {
            let product = |which: usize| {
                let at = (pair / 8 * 16 + which * 8 + pair % 8) * columns;
                let (w, x) = (&weights[at..at + columns], &x[row * columns..(row + 1) * columns]);
                (dot(w, x), product_bound(magnitude(w, x)))
            };
            let ((a, a_error), (b, b_error)) = (product(0), product(1));
            // Sines and cosines are below 1, so a rotated number is off by both errors at most.
            error = error.max(if in_f16 { a_error + b_error } else { 0.0 });
            let global = first + pair;
            let shift = if bias { shifts[global].map(f64::from) } else { [0.0; 2] };
            let [a, b] = [a + shift[0], b + shift[1]];
            let [cos, sin] = angles[position as usize * half + global % half].map(f64::from);
            let rotated = [a * cos - b * sin, a * sin + b * cos];
            let (to, at, pair) = if global < q_pairs {
                (&mut expected_q, row * q_pairs + global, rotated)
            } else if global < q_pairs + kv_pairs {
                (&mut expected_keys, slot as usize * kv_pairs + global - q_pairs, rotated)
            } else {
                (&mut expected_values, slot as usize * kv_pairs + global - q_pairs - kv_pairs, [a, b])
            };
            to[at * 2..at * 2 + 2].copy_from_slice(&pair.map(single));
        }
    }
    let what = format!("{path} {tile}: {heads} and {kv_heads} heads of {}, {batch} rows", 2 * half);
    assert_close(
        &format!("{what}, q"),
        &bench.floats(&q, expected_q.len()),
        &expected_q,
        off_by(CLOSE, error),
    );
    // Half precision has eleven bits, and what is stored stays below 16.
    let close = off_by(if kv32 { CLOSE } else { Tolerance::within(4e-3) }, error);
    for (name, buffer, expected) in [("keys", &keys, expected_keys), ("values", &held, expected_values)] {
        let found = numbers(&bench.floats(buffer, blank.len()), kv32);
        assert_close(&format!("{what}, {name}"), &found, &expected, close);
    }
}

/// A tolerance with `error` more.
fn off_by(tolerance: Tolerance, error: f64) -> Tolerance {
    tolerance.with_absolute(tolerance.absolute + single(error))
}

#[test]
fn qkv_rope_in_f16() {
    for (path, strict) in [("shuffle16", false), ("slices16", true)] {
        let Some(bench) = half::open("kernels.qkv_rope_in_f16", strict) else { return };
        for case in &CASES {
            run(&bench, path, case);
        }
    }
}

#[test]
fn qkv_rope() {
    for (path, strict) in [("broadcast", false), ("shuffle", false), ("plain", true), ("slices", true)] {
        let bench = Bench(open("kernels.qkv_rope", strict));
        for case in &CASES {
            run(&bench, path, case);
        }
    }
}
