//! Attention of rows of many texts, each over its own: ragged, so in plain Rust.

use rayon::prelude::*;

use super::evaluate::Request;
use super::text::Extended;
use crate::ops::scale;

/// Heads of a drafter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) width: usize,
}

/// Attention of `requests`: over the stable rows of its text, its chain, and itself, in this order.
///
/// `q`: `[rows, query heads · width]`; `keys` and `values` of the rows themselves: `[rows, key heads · width]`. Answers
/// `[rows, query heads · width]`.
pub(super) fn attend(
    heads: Heads,
    requests: &[Request<'_>],
    q: &[f32],
    keys: &[f32],
    values: &[f32],
) -> Vec<f32> {
    let (wide, narrow) = (heads.queries * heads.width, heads.keys * heads.width);
    let mut out = vec![0.0; q.len()];
    out.par_chunks_exact_mut(wide)
        .zip(q.par_chunks_exact(wide))
        .zip(keys.par_chunks_exact(narrow).zip(values.par_chunks_exact(narrow)))
        .zip(requests)
        .for_each_init(Vec::new, |weights, (((out, q), own), request)| {
            let copies = heads.queries / heads.keys;
            let pairs = out.chunks_exact_mut(heads.width).zip(q.chunks_exact(heads.width));
            for (head, (out, q)) in pairs.enumerate() {
                one(heads, head / copies, request, q, own, weights, out);
            }
        });
    out
}

/// One query head, which reads key head `head`.
fn one(
    heads: Heads,
    head: usize,
    request: &Request<'_>,
    q: &[f32],
    own: (&[f32], &[f32]),
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    let width = heads.width;
    let part = |row: &'_ [f32]| -> std::ops::Range<usize> {
        debug_assert_eq!(row.len(), heads.keys * width, "a row of keys or values");
        head * width..(head + 1) * width
    };
    let text: &Extended = request.text;
    let (stable_keys, stable_values) = text.stable(head, request.stable);
    let factor = scale(width);
    weights.clear();
    weights.extend(stable_keys.chunks_exact(width).map(|key| factor * dot(q, key)));
    weights.extend(request.chain.iter().map(|state| factor * dot(q, &state.keys[part(&state.keys)])));
    weights.push(factor * dot(q, &own.0[part(own.0)]));
    let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for weight in weights.iter_mut() {
        *weight = (*weight - most).exp();
        sum += *weight;
    }
    let values = stable_values
        .chunks_exact(width)
        .chain(request.chain.iter().map(|state| &state.values[part(&state.values)]))
        .chain([&own.1[part(own.1)]]);
    for (weight, value) in weights.iter().zip(values) {
        let share = weight / sum;
        out.iter_mut().zip(value).for_each(|(out, value)| *out += share * value);
    }
}

/// Sums in sixteen lanes, so that the compiler may use vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    let (a_blocks, b_blocks) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_blocks.zip(b_blocks) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    lanes.iter().sum::<f32>() + rest
}
