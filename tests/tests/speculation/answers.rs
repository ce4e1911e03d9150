//! The matrix: plans × temperatures × parameters, with an oracle in place of a drafter.

use crate::support::{assert_same, entries, largest, plans, speculated};
use pollster::block_on;
use redraft::{
    CancelToken, Engine, EngineOptions, GenerateOptions, Plan, SamplingParams, Speculation, StopReason,
    TokenId,
};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, load_in_f16, tiny, tokens};

fn oracle() -> EngineOptions {
    EngineOptions { oracle: true, ..EngineOptions::default() }
}

/// Parameters that look at history, cut the distribution, or bend it.
fn parameters(temperature: f32, seed: u64) -> Vec<(&'static str, SamplingParams)> {
    let base = SamplingParams { temperature, seed, ..SamplingParams::default() };
    vec![
        ("bare", base.clone()),
        (
            "penalties",
            SamplingParams {
                repetition_penalty: 1.3,
                presence_penalty: 0.4,
                frequency_penalty: 0.2,
                ..base.clone()
            },
        ),
        ("cuts", SamplingParams { top_k: 40, top_p: 0.9, min_p: 0.02, ..base.clone() }),
        ("bias", SamplingParams { logit_bias: vec![(TokenId(7), 2.0), (TokenId(300), -5.0)], ..base }),
    ]
}

fn matrix(name: &str, strict: bool) {
    let file = tiny(&TinyModel::default());
    sample(load(name, &file, EngineOptions { strict, ..oracle() }), &[1, 2, 3]);
}

/// All plans and parameters at each temperature, with these seeds.
fn sample(mut engine: Engine, seeds: &[u64]) {
    let mut accepted = 0;
    for temperature in [0.0, 0.7, 1.0] {
        for &seed in seeds {
            for (what, sampling) in parameters(temperature, seed) {
                let prompt = tokens(seed * 7, 13, 320);
                let options = GenerateOptions { max_tokens: 40, sampling, ..GenerateOptions::default() };
                let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
                let known = entries(&plain.1.ids, 0.2, 320, seed);
                engine.foretell(13, &known).expect("within the context");
                for (plan_name, plan) in plans() {
                    let fast = speculated(&mut engine, &prompt, &options, plan);
                    let what = format!("{plan_name}, T = {temperature}, seed {seed}, {what}");
                    assert_same(&what, &plain, &fast);
                    let stats = fast.1.speculation.as_ref().expect("speculation was on");
                    accepted += stats.accepted;
                    // Tokens a round late are the same tokens.
                    let late = GenerateOptions { read_late: true, ..options.clone() };
                    let late = speculated(&mut engine, &prompt, &late, plan);
                    assert_same(&format!("{what}, late"), &plain, &late);
                    assert_eq!(late.1.speculation, fast.1.speculation, "{what}, late");
                    if plain.1.ids.len() > 10 {
                        assert!(stats.accepted > 0, "{what}: nothing was accepted");
                    }
                }
            }
        }
    }
    assert!(accepted > 334 * seeds.len() as u64, "only {accepted} accepted");
}

#[test]
fn on_equals_off_in_f16() {
    let file = tiny(&TinyModel::default());
    if let Some(engine) = load_in_f16("speculation.matrix.half", &file, oracle()) {
        sample(engine, &[1]);
    }
}

#[test]
fn on_equals_off_in_f16_strictly() {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { strict: true, ..oracle() };
    if let Some(engine) = load_in_f16("speculation.matrix.half.strict", &file, options) {
        sample(engine, &[2]);
    }
}

/// The largest plans, and a few others with every access of a kernel checked.
#[test]
fn the_largest_plans_and_checked_kernels_change_nothing_either() {
    let file = tiny(&TinyModel::default());
    for (name, checked) in [("speculation.largest", false), ("speculation.checked", true)] {
        let mut engine = load(name, &file, EngineOptions { checked, ..oracle() });
        for (temperature, seed) in [(0.0, 1), (1.0, 2)] {
            let prompt = tokens(seed * 11, 7, 320).repeat(2);
            let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
            let options =
                GenerateOptions { max_tokens: 40, ignore_eos: true, sampling, ..GenerateOptions::default() };
            let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
            engine.foretell(14, &entries(&plain.1.ids, 0.1, 320, seed)).expect("within the context");
            let more = if checked { plans() } else { Vec::new() };
            for (name, plan) in largest().into_iter().chain(more) {
                let fast = speculated(&mut engine, &prompt, &options, plan);
                assert_same(&format!("{name}, T = {temperature}, checked: {checked}"), &plain, &fast);
                assert!(fast.1.speculation.expect("it was on").accepted > 0, "{name}");
            }
        }
    }
}

#[test]
fn on_equals_off() {
    matrix("speculation.matrix", false);
}

#[test]
fn on_equals_off_strictly() {
    matrix("speculation.matrix.strict", true);
}

#[test]
fn lookup_needs_no_drafter() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("speculation.lookup", &file, EngineOptions::default());
    let mut accepted = 0;
    for seed in 0..6 {
        // A text that repeats itself: greedy answers of tiny models do as well.
        let prompt = tokens(seed, 9, 320).repeat(3);
        let options = GenerateOptions { max_tokens: 80, ignore_eos: true, ..GenerateOptions::default() };
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        for depth in [1, 4, 16] {
            let fast = speculated(&mut engine, &prompt, &options, Plan::lookup(depth));
            assert_same(&format!("lookup of {depth}, seed {seed}"), &plain, &fast);
            accepted += fast.1.speculation.expect("speculation was on").lookup_hits;
        }
    }
    assert!(accepted > 100, "only {accepted} looked-up tokens were accepted");
}

#[test]
fn prompts_of_one_token_and_a_context_filled_to_its_last_slot() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("speculation.context", &file, EngineOptions { context: Some(96), ..oracle() });
    for (length, temperature) in [1, 50, 90, 95].into_iter().flat_map(|length| [(length, 0.0), (length, 1.0)])
    {
        let prompt = tokens(3, length, 320);
        let sampling = SamplingParams { temperature, seed: 2, ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 500, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        assert_eq!(plain.1.stop_reason, StopReason::ContextFull, "{length} tokens");
        engine
            .foretell(u32::try_from(length).expect("short"), &entries(&plain.1.ids, 0.1, 320, 5))
            .expect("fits");
        for (name, plan) in plans() {
            let fast = speculated(&mut engine, &prompt, &options, plan);
            assert_same(&format!("{name} behind {length} tokens, T = {temperature}"), &plain, &fast);
        }
    }
}

#[test]
fn log_probabilities_are_the_same() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("speculation.log_probs", &file, oracle());
    let prompt = tokens(8, 20, 320);
    let options = GenerateOptions { max_tokens: 24, log_probs: Some(3), ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    engine.foretell(20, &entries(&plain.1.ids, 0.2, 320, 6)).expect("fits");
    for (name, plan) in plans() {
        let fast = speculated(&mut engine, &prompt, &options, plan);
        assert_same(name, &plain, &fast);
    }
}

#[test]
fn a_cancelled_and_continued_conversation() {
    let file = tiny(&TinyModel::default());
    let engine = load("speculation.cancel", &file, oracle());
    cancelled_and_continued(engine, &plans());
}

#[test]
fn a_cancelled_and_continued_conversation_with_a_drafter() {
    let drafter = TinyDrafter { tables: true, ..TinyDrafter::default() };
    let file = tiny(&drafter.target);
    let options = EngineOptions {
        drafter: Some(drafter.to_file().expect("a possible drafter")),
        ..EngineOptions::default()
    };
    cancelled_and_continued(load("speculation.cancel.drafter", &file, options), &plans());
}

/// `engine`: with a drafter, or with an oracle that then knows most of the answer.
fn cancelled_and_continued(mut engine: Engine, plans: &[(&str, Plan)]) {
    for (temperature, seed) in [(0.0, 0), (0.7, 1), (0.7, 2), (0.7, 3)] {
        let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
        cancelled_and_continued_at(&mut engine, plans, &sampling);
    }
}

fn cancelled_and_continued_at(engine: &mut Engine, plans: &[(&str, Plan)], sampling: &SamplingParams) {
    let prompt = tokens(9, 30, 320);
    let at = format!("T = {}, seed {}", sampling.temperature, sampling.seed);
    let long = GenerateOptions {
        max_tokens: 60,
        ignore_eos: true,
        sampling: sampling.clone(),
        ..GenerateOptions::default()
    };
    // Nothing is left of what was asked at another temperature.
    engine.reset();
    let plain = answer(engine, &prompt, long.clone()).expect("an answer").1;
    let oracle = engine.foretell(30, &entries(&plain.ids, 0.1, 320, 7)).is_ok();
    assert!(oracle || engine.has_drafter(), "an oracle or a drafter");
    let mut accepted = 0;
    for (name, plan) in plans {
        let plan = *plan;
        for stop_after in [1usize, 2, 5, 9, 14] {
            let cancel = CancelToken::default();
            let options = GenerateOptions {
                cancel: cancel.clone(),
                speculation: Speculation::Plan(plan),
                ..long.clone()
            };
            let mut stream = engine.generate(&prompt, options).expect("a valid prompt");
            for _ in 0..stop_after {
                block_on(stream.next()).expect("a step").expect("not the end");
            }
            cancel.cancel();
            assert_eq!(block_on(stream.next()).expect("no error"), None, "{name}, {at}: cancelled");
            let cut = stream.finish();
            assert_eq!(cut.stop_reason, StopReason::Cancelled, "{name}, {at}");
            assert_eq!(cut.ids, plain.ids[..stop_after], "{name}, {at}: what was seen");
            assert_eq!(
                engine.position() as usize,
                30 + stop_after - 1,
                "{name}, {at}: the sequence is what was seen"
            );
            accepted += cut.speculation.expect("it was on").accepted;
            // The next turn goes on behind it, and says what it would say without speculation.
            let mut turn = prompt.clone();
            turn.extend_from_slice(&cut.ids);
            turn.extend(tokens(10, 5, 320));
            let short = GenerateOptions { max_tokens: 12, ..long.clone() };
            let on = speculated(engine, &turn, &short, plan);
            engine.reset();
            let off = answer(engine, &turn, short).expect("an answer");
            assert_same(&format!("{name} after {stop_after}, {at}"), &off, &on);
        }
    }
    // A random drafter is hardly ever right; the oracle is, so that answers were cut inside runs.
    assert!(!oracle || accepted > 50, "{at}: {accepted} accepted");
}
