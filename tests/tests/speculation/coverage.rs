//! Ends inside accepted runs, and that everything which can happen did.

use crate::support::{Mixed, assert_goes_on, assert_same, chosen, entries, free, runs, speculated, ways};
use pollster::block_on;
use redraft::{
    EngineOptions, GenerateOptions, OracleEntry, Origin, Plan, Rows, SamplingParams, Speculation, Step,
    StopReason, TokenId, Want,
};
use redraft_testing::TinyModel;
use redraft_tests::{answer, load, tiny, tokens};
use std::collections::BTreeMap;

#[test]
fn ends_inside_accepted_runs() {
    ends("speculation.ends", false, 360, 100);
}

#[test]
fn ends_inside_accepted_runs_strictly() {
    ends("speculation.ends.strict", true, 90, 25);
}

/// `least`: how often each kind of end must fall inside an accepted run, among answers of so many seeds.
fn ends(name: &str, strict: bool, seeds: u64, least: u32) {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, strict, ..EngineOptions::default() };
    let mut engine = load(name, &file, options);
    engine.set_costs(&free()).expect("good costs");
    let tree = Speculation::Plan(Plan::tree(15, 5, 4, 4));
    let others = ways();
    let id = |text: &str| TokenId(engine.tokenizer().id_of(text).expect("a token of every tiny model"));
    let among = vec![(id("<|im_end|>"), 20.0), (id("he"), 25.0), (id("in"), 25.0)];
    let mut inside: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    let mut turn = 0;
    let mut mixed = Mixed::default();
    for seed in 0..seeds {
        let prompt = tokens(seed, 5, 320);
        let sampling =
            SamplingParams { temperature: 3.0, logit_bias: among.clone(), seed, ..SamplingParams::default() };
        let limit = 3 + u32::try_from(seed % 9).expect("small");
        let ends = [
            ("eos", GenerateOptions { max_tokens: 30, ..GenerateOptions::default() }),
            (
                "stop",
                GenerateOptions {
                    max_tokens: 30,
                    ignore_eos: true,
                    stop: vec!["inhe".to_owned(), "heheh".to_owned()],
                    ..GenerateOptions::default()
                },
            ),
            ("length", GenerateOptions { max_tokens: limit, ignore_eos: true, ..GenerateOptions::default() }),
        ];
        // What would follow without an end: the oracle sees past it.
        let far = GenerateOptions {
            max_tokens: 40,
            ignore_eos: true,
            sampling: sampling.clone(),
            ..GenerateOptions::default()
        };
        let beyond = answer(&mut engine, &prompt, far).expect("an answer").1;
        engine.foretell(5, &entries(&beyond.ids, 0.02, 320, seed)).expect("fits");
        for (what, options) in ends {
            let options = GenerateOptions { sampling: sampling.clone(), ..options };
            let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
            let wanted = match what {
                "eos" => StopReason::EndOfSequence,
                "stop" => StopReason::StopString,
                _ => StopReason::MaxTokens,
            };
            // One further every time around, and late every second time, so that each way meets each kind of end both ways.
            let around = turn / others.len();
            let (other, way) = others[(turn + around) % others.len()];
            let late = around % 2 == 1;
            turn += 1;
            for (name, way, read_late) in [(what, tree, false), (what, tree, true), (other, way, late)] {
                let options = GenerateOptions { read_late, ..options.clone() };
                let fast = chosen(&mut engine, &prompt, &options, way);
                let case = format!("{what}, seed {seed}, {name}, late: {read_late}");
                assert_same(&case, &plain, &fast);
                if way == Speculation::Auto {
                    mixed.count(&fast.1);
                }
                // Inside a run: the last token was drafted, and is not what the target added to a run.
                let drafted = fast.0.last().is_some_and(|step: &Step| step.origin != Origin::Target);
                if plain.1.stop_reason == wanted && drafted {
                    inside.entry(name).or_default()[usize::from(read_late)] += 1;
                }
                // An end that the device does not know of leaves a round under way: what it wrote is beyond the answer.
                if read_late && seed % 6 == 0 {
                    let said = prompt.iter().chain(&plain.1.ids).copied();
                    let longer: Vec<_> = said.chain(tokens(seed + 500, 2, 320)).collect();
                    let short = GenerateOptions { max_tokens: 5, ..options };
                    assert_goes_on(&case, &mut engine, &longer, &short, way);
                }
            }
        }
    }
    mixed.check_accepted(name);
    // What an automatic choice does depends on what steps take.
    for (way, _) in others.iter().filter(|(_, way)| *way != Speculation::Auto) {
        let count = inside.get(way).copied().unwrap_or_default();
        assert!(count.iter().sum::<u32>() > 0, "no answer ended inside a run of {way}: {inside:?}");
    }
    for what in ["eos", "stop", "length"] {
        let counts = inside.get(what).copied().unwrap_or_default();
        assert!(counts.iter().all(|count| *count >= least), "{what} fell inside too few runs: {inside:?}");
    }
}

#[test]
fn every_accepted_length_happens() {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, ..EngineOptions::default() };
    let mut engine = load("speculation.lengths", &file, options);
    let plan = Plan::reconsider(40, 5, 6, 4, 3, 2);
    let mut lengths = [0u32; 6];
    let (mut refined, mut duplicates, mut rescues) = (0, 0, 0);
    for seed in 0..80u64 {
        let prompt = tokens(seed + 1000, 4, 320);
        let sampling = SamplingParams { temperature: 1.0, seed, ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 100, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        // From nearly always right to mostly wrong.
        let wrong = [0.0, 0.0, 0.1, 0.5][usize::try_from(seed % 4).expect("below 4")];
        engine.foretell(4, &entries(&plain.1.ids, wrong, 320, seed)).expect("fits");
        let fast = speculated(&mut engine, &prompt, &options, plan);
        assert_same(&format!("seed {seed}"), &plain, &fast);
        for run in runs(&fast.0) {
            lengths[run.min(5)] += 1;
        }
        let stats = fast.1.speculation.expect("speculation was on");
        refined += stats.refined;
        duplicates += stats.duplicates;
        rescues += stats.rescues;
        let emitted = u64::try_from(fast.1.ids.len()).expect("short") - 1;
        assert_eq!(stats.emitted, emitted, "all but the first token come from rounds: {stats:?}");
    }
    assert!(lengths.iter().all(|count| *count >= 100), "accepted lengths 0 … 5: {lengths:?}");
    assert!(refined > 1000 && duplicates > 1000 && rescues > 100, "{refined}, {duplicates}, {rescues}");
}

#[test]
fn frequencies_with_speculation_are_those_of_the_target() {
    // Pairs of tokens among four: the first is sampled behind the prompt, the second in a round, whatever was drafted.
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, ..EngineOptions::default() };
    let mut engine = load("speculation.frequencies", &file, options);
    let prompt = tokens(77, 6, 320);
    let chosen = [11u32, 90, 200, 301];
    let bias: Vec<_> = chosen.iter().map(|id| (TokenId(*id), 100.0)).collect();
    // So warm that no pair is rare.
    let temperature = 3.0f32;
    let mut softmax = |history: &[TokenId]| -> Vec<f64> {
        engine.reset();
        let want = Want { logits: Rows::Last, captures: false };
        let logits = block_on(engine.forward(history, want)).expect("fits").logits;
        let weights: Vec<f64> =
            chosen.iter().map(|id| f64::from(logits[*id as usize] / temperature).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    };
    let mut expected = Vec::new();
    for (first, p) in chosen.iter().zip(softmax(&prompt)) {
        let longer: Vec<_> = prompt.iter().copied().chain([TokenId(*first)]).collect();
        expected.extend(softmax(&longer).into_iter().map(|q| p * q));
    }
    let draws = 2000u32;
    // The statistic is that of chi² only where no cell is rare.
    let rarest = expected.iter().copied().fold(f64::INFINITY, f64::min) * f64::from(draws);
    assert!(rarest >= 5.0, "a pair is expected only {rarest} times: {expected:?}");
    let mut counts = [0u32; 16];
    let mut accepted = 0;
    // The oracle proposes the same four tokens for every position, in one order.
    let top: Vec<_> = chosen.iter().map(|id| (TokenId(*id), -1.4)).collect();
    let entry = OracleEntry { first: top.clone(), second: top, unsure: 0.5 };
    engine.foretell(6, &vec![entry; 8]).expect("fits");
    for seed in 0..u64::from(draws) {
        let sampling =
            SamplingParams { temperature, logit_bias: bias.clone(), seed, ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 2, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let fast = speculated(&mut engine, &prompt, &options, Plan::tree(3, 1, 1, 3));
        let place =
            |at: usize| chosen.iter().position(|id| *id == fast.1.ids[at].0).expect("one of the four");
        counts[place(0) * 4 + place(1)] += 1;
        accepted += fast.1.speculation.expect("speculation was on").accepted;
    }
    // The oracle proposes three of the four, so that most second tokens are drafted ones, and some are not.
    let draws_u64 = u64::from(draws);
    assert!(accepted * 2 > draws_u64 && accepted < draws_u64, "{accepted} of {draws} tokens were drafted");
    let chi: f64 = counts
        .iter()
        .zip(&expected)
        .map(|(count, p)| (f64::from(*count) - p * f64::from(draws)).powi(2) / (p * f64::from(draws)))
        .sum();
    // The 99.9 % point with 15 degrees of freedom; the draws are the same on every run.
    assert!(chi < 37.7, "chi² {chi}: {counts:?}, expected shares {expected:?}");
}
