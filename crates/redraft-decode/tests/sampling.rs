//! The sampler against a sort-based oracle in f64, and the drawn frequencies against the softmax.

use std::collections::BTreeMap;

use proptest::prelude::*;
use redraft_decode::sampling::window;
use redraft_decode::{Position, Sampler, SamplingParams, TokenId};

/// What stays by the definition in words: sort by logit, lower id first, and take prefixes. The second set is the
/// largest that rounding at the top-p boundary may give, the first the smallest.
fn oracle(params: &SamplingParams, logits: &[f32], history: &[TokenId]) -> (Vec<u32>, Vec<u32>) {
    let mut values: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&logit| f64::from(logit))).collect();
    penalise(params, &mut values, history);
    let vocab = values.len();
    values.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let by_k = if params.top_k == 0 { vocab } else { vocab.min(params.top_k as usize) };
    values.truncate(by_k);
    let max = values[0].1;
    let mass: Vec<f64> = values.iter().map(|value| (value.1 - max).exp()).collect();
    let total: f64 = mass.iter().sum();
    let reach = |p: f64| {
        let mut sum = 0.0;
        1 + mass
            .iter()
            .take_while(|weight| {
                sum += *weight;
                sum / total < p
            })
            .count()
    };
    // Weights are rounded to 2⁻³⁰ of the maximum.
    let slack = 1e-6 + vocab as f64 * 2f64.powi(-30);
    let p = f64::from(params.top_p);
    let set = |p: f64, min_p: f64| {
        let end = if params.top_p < 1.0 { reach(p).min(values.len()) } else { values.len() };
        let kept = values[..end].iter().filter(|value| min_p == 0.0 || value.1 >= max + min_p.ln());
        let mut ids: Vec<u32> = kept.map(|value| value.0).collect();
        ids.sort_unstable();
        ids
    };
    let min_p = f64::from(params.min_p);
    (set(p - slack, min_p * (1.0 + 1e-5)), set(p + slack, min_p * (1.0 - 1e-5)))
}

fn penalise(params: &SamplingParams, values: &mut [(u32, f64)], history: &[TokenId]) {
    let start = history.len().saturating_sub(params.penalty_window as usize);
    let mut counts = BTreeMap::new();
    for token in &history[start..] {
        *counts.entry(token.0).or_insert(0.0) += 1.0;
    }
    for (id, value) in values.iter_mut() {
        if let Some(count) = counts.get(id) {
            let repetition = f64::from(params.repetition_penalty);
            *value = if *value > 0.0 { *value / repetition } else { *value * repetition };
            *value -= count * f64::from(params.frequency_penalty) + f64::from(params.presence_penalty);
        }
        let bias =
            params.logit_bias.iter().find(|bias| bias.0.0 == *id).map_or(0.0, |bias| f64::from(bias.1));
        *value = (*value + bias.max(-1e30)) / f64::from(params.temperature);
    }
}

fn ids(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

fn contains(outer: &[u32], inner: &[u32]) -> bool {
    inner.iter().all(|id| outer.contains(id))
}

/// Logits of which many tie: multiples of a quarter.
fn coarse_logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec((-40i16..=40).prop_map(|quarter| f32::from(quarter) * 0.25), 1..300)
}

fn fine_logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-12.0f32..12.0, 1..300)
}

prop_compose! {
    fn any_params()(
        temperature in prop::sample::select(vec![0.25f32, 0.5, 1.0, 2.0]),
        top_k in prop::sample::select(vec![0u32, 1, 2, 3, 7, 40, 299, 5000]),
        top_p in prop::sample::select(vec![0.0f32, 0.01, 0.3, 0.5, 0.9, 0.95, 0.999, 1.0]),
        min_p in prop::sample::select(vec![0.0f32, 0.01, 0.05, 0.3, 1.0]),
        repetition_penalty in prop::sample::select(vec![1.0f32, 1.25, 2.0, 0.5]),
        frequency_penalty in prop::sample::select(vec![0.0f32, 0.25, -0.5]),
        presence_penalty in prop::sample::select(vec![0.0f32, 0.5]),
        penalty_window in prop::sample::select(vec![0u32, 1, 4, 64]),
        seed in any::<u64>(),
    ) -> SamplingParams {
        SamplingParams {
            temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty,
            penalty_window, seed, logit_bias: Vec::new(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn kept_sets_are_the_oracles(
        params in any_params(),
        logits in prop_oneof![coarse_logits(), fine_logits()],
        history in prop::collection::vec(0u32..300, 0..80),
        biased in prop::option::of(0usize..300),
    ) {
        let mut params = params;
        let vocab = u32::try_from(logits.len()).unwrap();
        if let Some(id) = biased.filter(|&id| id > 0 && id < logits.len()) {
            params.logit_bias = vec![(TokenId(u32::try_from(id).unwrap()), f32::NEG_INFINITY), (TokenId(0), 2.5)];
        }
        let history: Vec<TokenId> = history.into_iter().map(TokenId).collect();
        let mut sampler = Sampler::new(params.clone(), vocab).unwrap();
        let entries = window(&history, params.penalty_window);
        let kept = ids(&sampler.kept(&logits, Some(&entries)).unwrap());
        // Sort what the f32 arithmetic made of the logits: the sets are exact functions of those.
        let scaled = sampler.scaled().to_vec();
        let exact = SamplingParams {
            temperature: 1.0, penalty_window: 0, logit_bias: Vec::new(), ..params.clone()
        };
        let (least, most) = oracle(&exact, &scaled, &[]);
        prop_assert!(contains(&kept, &least) && contains(&most, &kept), "{least:?} {kept:?} {most:?}");
        // And the f32 arithmetic is close to the formula.
        let mut values: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&l| f64::from(l))).collect();
        penalise(&params, &mut values, &history);
        for ((id, expected), &got) in values.iter().zip(&scaled) {
            prop_assert!((f64::from(got) - expected).abs() <= 1e-5 + expected.abs() * 1e-6, "logit of {id}");
        }
        let drawn = sampler.sample(&logits, &history, Position(9)).unwrap();
        prop_assert!(kept.contains(&drawn.0), "{drawn} was dropped");
    }

    #[test]
    fn greedy_is_the_first_largest(logits in prop_oneof![coarse_logits(), fine_logits()]) {
        let vocab = u32::try_from(logits.len()).unwrap();
        let mut sampler = Sampler::new(SamplingParams::default(), vocab).unwrap();
        let got = sampler.sample(&logits, &[], Position(0)).unwrap();
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        prop_assert_eq!(logits.iter().position(|&l| l == largest), Some(got.0 as usize));
    }

    #[test]
    fn a_draw_depends_on_its_key_alone(
        params in any_params(), logits in fine_logits(), position in 0u32..100_000,
    ) {
        let vocab = u32::try_from(logits.len()).unwrap();
        let history = [TokenId(1), TokenId(2)];
        let mut fresh = Sampler::new(params.clone(), vocab).unwrap();
        let first = fresh.sample(&logits, &history, Position(position)).unwrap();
        let mut used = Sampler::new(params, vocab).unwrap();
        let reversed: Vec<f32> = logits.iter().rev().copied().collect();
        used.sample(&reversed, &[TokenId(7)], Position(3)).unwrap();
        prop_assert_eq!(used.sample(&logits, &history, Position(position)).unwrap(), first);
    }
}

/// The chi-square statistic of `counts` against `expected` probabilities.
fn chi_square(counts: &[u32], expected: &[f64]) -> f64 {
    let draws = f64::from(counts.iter().sum::<u32>());
    counts.iter().zip(expected).map(|(&count, p)| (f64::from(count) - draws * p).powi(2) / (draws * p)).sum()
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit.exp() / total).collect()
}

/// 99.99 % quantiles of chi-square by degrees of freedom, 1 to 11.
const CHI_SQUARE: [f64; 11] = [15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88, 31.83, 33.72, 35.56, 37.37];

fn counts(params: &SamplingParams, logits: &[f32], key: impl Fn(u32) -> (u64, u32), draws: u32) -> Vec<u32> {
    let mut counts = vec![0; logits.len()];
    for draw in 0..draws {
        let (seed, position) = key(draw);
        let params = SamplingParams { seed, ..params.clone() };
        let mut sampler = Sampler::new(params, u32::try_from(logits.len()).unwrap()).unwrap();
        let token = sampler.sample(logits, &[], Position(position)).unwrap();
        counts[token.0 as usize] += 1;
    }
    counts
}

#[test]
fn frequencies_are_the_softmax() {
    let logits = [0.3f32, -1.0, 2.0, 0.0, 1.1, -2.5, 0.7, 1.9, -0.4, 0.2, -3.0, 1.0];
    type Key = fn(u32) -> (u64, u32);
    let keys: [(&str, Key); 4] = [
        ("positions", |draw| (42, draw)),
        ("seeds", |draw| (u64::from(draw), 7)),
        ("high seeds", |draw| (u64::from(draw) << 32, 0)),
        ("both", |draw| (u64::from(draw / 251), draw % 251)),
    ];
    for temperature in [0.7f32, 1.0, 1.6] {
        let params = SamplingParams { temperature, ..SamplingParams::default() };
        let scaled: Vec<f64> = logits.iter().map(|&l| f64::from(l) / f64::from(temperature)).collect();
        let expected = softmax(&scaled);
        for (name, key) in keys {
            let statistic = chi_square(&counts(&params, &logits, key, 40_000), &expected);
            assert!(statistic < CHI_SQUARE[10], "along {name} at T = {temperature}: {statistic}");
        }
    }
}

#[test]
fn filtered_frequencies_are_the_renormalised_softmax() {
    let logits = [0.3f32, -1.0, 2.0, 0.0, 1.1, -2.5, 0.7, 1.9];
    let base = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let cases = [
        ("top-k", SamplingParams { top_k: 3, ..base.clone() }, vec![2, 7, 4]),
        // Probabilities 0.34, 0.31, 0.14, …: two are short of 0.7, three reach it.
        ("top-p", SamplingParams { top_p: 0.7, ..base.clone() }, vec![2, 7, 4]),
        ("min-p", SamplingParams { min_p: 0.2, ..base }, vec![2, 7, 4, 6]),
    ];
    for (name, params, kept) in cases {
        let counts = counts(&params, &logits, |draw| (5, draw), 30_000);
        let of_kept: Vec<u32> = kept.iter().map(|&id: &usize| counts[id]).collect();
        assert_eq!(of_kept.iter().sum::<u32>(), 30_000, "{name}: {counts:?}");
        let expected = softmax(&kept.iter().map(|&id| f64::from(logits[id])).collect::<Vec<_>>());
        let statistic = chi_square(&of_kept, &expected);
        assert!(statistic < CHI_SQUARE[kept.len() - 2], "{name}: {statistic}");
    }
}

#[test]
fn successive_draws_are_independent() {
    // Pairs (token at p, token at p + 1) of a fair coin with four faces: 16 cells, 15 degrees of freedom.
    let params = SamplingParams { temperature: 1.0, seed: 3, ..SamplingParams::default() };
    let mut sampler = Sampler::new(params, 4).unwrap();
    let faces: Vec<u32> =
        (0..40_001).map(|p| sampler.sample(&[0.5; 4], &[], Position(p)).unwrap().0).collect();
    let mut cells = vec![0u32; 16];
    for pair in faces.windows(2) {
        cells[(pair[0] * 4 + pair[1]) as usize] += 1;
    }
    let statistic = chi_square(&cells, &[1.0 / 16.0; 16]);
    assert!(statistic < 44.26, "{statistic} is above the 99.99 % quantile of 15 degrees");
}

#[test]
fn ties_at_a_threshold_keep_the_lower_ids() {
    let logits = [1.0f32, 2.0, 1.0, 2.0, 1.0, 0.0, 1.0];
    let base = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    for (top_k, expected) in [(1, vec![1]), (2, vec![1, 3]), (3, vec![0, 1, 3]), (5, vec![0, 1, 2, 3, 4])] {
        let mut sampler = Sampler::new(SamplingParams { top_k, ..base.clone() }, 7).unwrap();
        assert_eq!(ids(&sampler.kept(&logits, None).unwrap()), expected, "top-k {top_k}");
    }
    // Equal logits: n of 7 have mass n/7. Then top-p within a top-k whose own threshold ties.
    for (top_k, top_p, n) in [(0, 0.5, 4), (0, 0.01, 1), (0, 0.99, 7), (5, 0.5, 3), (5, 0.99, 5), (1, 0.5, 1)]
    {
        let mut sampler = Sampler::new(SamplingParams { top_k, top_p, ..base.clone() }, 7).unwrap();
        let kept = ids(&sampler.kept(&[3.0; 7], None).unwrap());
        assert_eq!(kept, (0..n).collect::<Vec<u32>>(), "top-k {top_k}, top-p {top_p}");
    }
}

#[test]
fn odd_rows_are_survived() {
    let params =
        SamplingParams { temperature: 1.0, top_k: 3, top_p: 0.9, min_p: 0.01, ..SamplingParams::default() };
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows: [(&[f32], &[u32]); 6] = [
        (&[nan, 1.0, nan, nan], &[1]),
        (&[-inf, -inf, 0.0, -inf], &[2]),
        (&[inf, 1.0, inf, -inf], &[0, 2]),
        (&[nan, nan, nan, nan], &[0, 1, 2]),
        (&[-inf; 4], &[0, 1, 2]),
        (&[f32::MIN, f32::MAX, 0.0, -0.0], &[1]),
    ];
    for (row, allowed) in rows {
        let mut sampler = Sampler::new(params.clone(), 4).unwrap();
        let token = sampler.sample(row, &[], Position(1)).unwrap();
        assert!(allowed.contains(&token.0), "{row:?} drew {token}");
    }
    let mut sampler = Sampler::new(params, 4).unwrap();
    assert!(sampler.sample(&[0.0; 5], &[], Position(1)).is_err(), "a row of another length");
}

#[test]
fn a_large_flat_vocabulary_is_summed_exactly() {
    let vocab = 262_144;
    let row = vec![1.0f32; vocab];
    let params = SamplingParams { temperature: 1.0, top_p: 0.25, ..SamplingParams::default() };
    let mut sampler = Sampler::new(params, 262_144).unwrap();
    assert_eq!(sampler.kept(&row, None).unwrap().len(), vocab / 4, "a quarter of equal masses");
}
