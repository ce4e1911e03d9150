//! The matrix: plans × temperatures × parameters, mostly with an oracle in place of a drafter.

use crate::fitted::fitted_drafter;
use crate::support::{
    Mixed, assert_goes_on, assert_same, chosen, drafts, entries, free, largest, plans, speculated, ways,
    ways_without_tables,
};
use pollster::block_on;
use redraft::{
    CancelToken, DrafterFile, Engine, EngineOptions, GenerateOptions, Origin, Plan, Quantization,
    SamplingParams, Speculation, StopReason, TokenId,
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

/// All ways and parameters at each temperature, with these seeds and an oracle.
fn sample(mut engine: Engine, seeds: &[u64]) {
    let ways = ways();
    let accepted = same_in_every_way(&mut engine, &ways, ways.len(), seeds, 40);
    assert!(accepted > 334 * seeds.len() as u64, "only {accepted} accepted");
}

/// Each temperature, seed and set of parameters with `at_once` of the ways, which take turns; all of them if those are as
/// many. `engine`: with a drafter, or with an oracle that then knows most of the answer. Returns how many tokens of fixed
/// plans were accepted.
pub(crate) fn same_in_every_way(
    engine: &mut Engine,
    ways: &[(&str, Speculation)],
    at_once: usize,
    seeds: &[u64],
    max_tokens: u32,
) -> u64 {
    engine.set_costs(&free()).expect("good costs");
    let (mut accepted, mut mixed) = (0, Mixed::default());
    let mut turns = ways.iter().cycle();
    for temperature in [0.0, 0.7, 1.0] {
        for &seed in seeds {
            for (what, sampling) in parameters(temperature, seed) {
                let prompt = tokens(seed * 7, 13, 320);
                let options = GenerateOptions { max_tokens, sampling, ..GenerateOptions::default() };
                let plain = answer(engine, &prompt, options.clone()).expect("an answer");
                let oracle = engine.foretell(13, &entries(&plain.1.ids, 0.2, 320, seed)).is_ok();
                assert!(oracle || engine.has_drafter(), "an oracle or a drafter");
                for &(name, way) in turns.by_ref().take(at_once) {
                    let fast = chosen(engine, &prompt, &options, way);
                    let what = format!("{name}, T = {temperature}, seed {seed}, {what}");
                    assert_same(&what, &plain, &fast);
                    assert_eq!(fast.1.warning, None, "{what}");
                    if way == Speculation::Auto {
                        mixed.count(&fast.1);
                        continue;
                    }
                    // Tokens a round late are the same tokens.
                    let late = GenerateOptions { read_late: true, ..options.clone() };
                    let late = chosen(engine, &prompt, &late, way);
                    assert_same(&format!("{what}, late"), &plain, &late);
                    let stats = fast.1.speculation.as_ref().expect("speculation was on");
                    accepted += stats.accepted;
                    if !drafts(way) {
                        // A lookup that runs ahead does not know what it will find.
                        continue;
                    }
                    assert_eq!(late.1.speculation, fast.1.speculation, "{what}, late");
                    if oracle && plain.1.ids.len() > 10 {
                        assert!(stats.accepted > 0, "{what}: nothing was accepted");
                    }
                }
            }
        }
    }
    mixed.check("the matrix");
    accepted
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

/// With weights that are right by chance, and with fitted ones, whose proposals come out of the kernels and are accepted.
#[test]
fn on_equals_off_with_a_random_drafter() {
    let drafter = TinyDrafter::with_everything();
    for (name, strict, at_once) in
        [("speculation.matrix.random", false, 2), ("speculation.matrix.random.strict", true, 1)]
    {
        let mut engine = weighted(name, &drafter, drafter.to_file().expect("a possible drafter"), strict);
        same_in_every_way(&mut engine, &ways(), at_once, &[1, 2, 3], 24);
    }
}

#[test]
fn on_equals_off_with_a_fitted_drafter() {
    let (shape, drafter) = fitted_drafter();
    for (name, strict, at_once) in
        [("speculation.matrix.fitted", false, 2), ("speculation.matrix.fitted.strict", true, 1)]
    {
        let mut engine = weighted(name, &shape, drafter.clone(), strict);
        let accepted = same_in_every_way(&mut engine, &ways_without_tables(), at_once, &[1, 2, 3], 24);
        assert!(accepted > 10, "only {accepted} accepted, strict: {strict}");
    }
}

fn weighted(name: &str, shape: &TinyDrafter, drafter: DrafterFile, strict: bool) -> Engine {
    let options = EngineOptions {
        drafter: Some(drafter),
        drafter_quantization: Some(Quantization::F32),
        strict,
        ..EngineOptions::default()
    };
    load(name, &tiny(&shape.target), options)
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
    filled("speculation.context", false, None);
}

/// The drafter's own keys and values end where the target's do.
#[test]
fn a_context_filled_to_its_last_slot_with_a_drafter() {
    filled("speculation.context.drafter", false, Some(&TinyDrafter::with_everything()));
}

#[test]
fn a_context_filled_to_its_last_slot_strictly() {
    filled("speculation.context.strict", true, None);
}

fn filled(name: &str, strict: bool, drafter: Option<&TinyDrafter>) {
    let file = tiny(&drafter.map_or_else(TinyModel::default, |drafter| drafter.target.clone()));
    let proposer = match drafter {
        Some(drafter) => EngineOptions {
            drafter: Some(drafter.to_file().expect("a possible drafter")),
            ..EngineOptions::default()
        },
        None => oracle(),
    };
    let mut engine = load(name, &file, EngineOptions { strict, context: Some(96), ..proposer });
    engine.set_costs(&free()).expect("good costs");
    let mut mixed = Mixed::default();
    for (length, temperature) in [1, 50, 90, 95].into_iter().flat_map(|length| [(length, 0.0), (length, 1.0)])
    {
        let prompt = tokens(3, length, 320);
        let sampling = SamplingParams { temperature, seed: 2, ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 500, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        assert_eq!(plain.1.stop_reason, StopReason::ContextFull, "{length} tokens");
        let known = entries(&plain.1.ids, 0.1, 320, 5);
        let foretold = engine.foretell(u32::try_from(length).expect("short"), &known);
        assert_eq!(foretold.is_ok(), drafter.is_none(), "an oracle, or a drafter");
        // The context is full: another turn goes on behind the first half of it.
        let half = prompt.iter().chain(&plain.1.ids).copied().take(48);
        let turn: Vec<_> = half.chain(tokens(4, 3, 320)).collect();
        for (name, way) in ways() {
            for read_late in [false, true] {
                let options = GenerateOptions { read_late, ..options.clone() };
                let fast = chosen(&mut engine, &prompt, &options, way);
                let what = format!("{name} behind {length} tokens, T = {temperature}, late: {read_late}");
                assert_same(&what, &plain, &fast);
                if way == Speculation::Auto {
                    mixed.count(&fast.1);
                }
                if read_late {
                    let short = GenerateOptions { max_tokens: 6, ..options };
                    assert_goes_on(&what, &mut engine, &turn, &short, way);
                }
            }
        }
    }
    match drafter {
        Some(_) => mixed.check(name),
        None => mixed.check_accepted(name),
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
    for (name, way) in ways() {
        let fast = chosen(&mut engine, &prompt, &options, way);
        assert_same(name, &plain, &fast);
    }
}

#[test]
fn a_cancelled_and_continued_conversation() {
    let file = tiny(&TinyModel::default());
    cancelled_and_continued(load("speculation.cancel", &file, oracle()), 4);
}

#[test]
fn a_cancelled_and_continued_conversation_strictly() {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { strict: true, ..oracle() };
    cancelled_and_continued(load("speculation.cancel.strict", &file, options), 2);
}

#[test]
fn a_cancelled_and_continued_conversation_with_a_drafter() {
    let drafter = TinyDrafter { tables: true, ..TinyDrafter::default() };
    let file = tiny(&drafter.target);
    for (name, strict, samplings) in
        [("speculation.cancel.drafter", false, 2), ("speculation.cancel.drafter.strict", true, 2)]
    {
        let options = EngineOptions {
            drafter: Some(drafter.to_file().expect("a possible drafter")),
            strict,
            ..EngineOptions::default()
        };
        cancelled_and_continued(load(name, &file, options), samplings);
    }
}

/// `engine`: with a drafter, or with an oracle that then knows most of the answer.
fn cancelled_and_continued(mut engine: Engine, samplings: usize) {
    engine.set_costs(&free()).expect("good costs");
    let mut mixed = Mixed::default();
    for (temperature, seed) in [(0.0, 0), (0.7, 1), (0.7, 2), (0.7, 3)].into_iter().take(samplings) {
        let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
        cancelled_and_continued_at(&mut engine, &sampling, &mut mixed);
    }
    mixed.check("cancelled and continued");
}

fn cancelled_and_continued_at(engine: &mut Engine, sampling: &SamplingParams, mixed: &mut Mixed) {
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
    let mut accepted = [0, 0];
    for (number, (name, way)) in ways().into_iter().enumerate() {
        for (count, stop_after) in [1usize, 2, 5, 9, 14].into_iter().enumerate() {
            // Read late, a round is under way when the answer is cut; every way meets both within two seeds.
            let read_late = (number + count + usize::try_from(sampling.seed).expect("small")) % 2 == 1;
            let what = format!("{name} after {stop_after}, {at}, late: {read_late}");
            let cancel = CancelToken::default();
            let options =
                GenerateOptions { cancel: cancel.clone(), speculation: way, read_late, ..long.clone() };
            let mut stream = engine.generate(&prompt, options).expect("a valid prompt");
            for _ in 0..stop_after {
                block_on(stream.next()).expect("a step").expect("not the end");
            }
            cancel.cancel();
            assert_eq!(block_on(stream.next()).expect("no error"), None, "{what}: cancelled");
            let cut = stream.finish();
            assert_eq!(cut.stop_reason, StopReason::Cancelled, "{what}");
            assert_eq!(cut.ids, plain.ids[..stop_after], "{what}: what was seen");
            assert_eq!(
                engine.position() as usize,
                30 + stop_after - 1,
                "{what}: the sequence is what was seen"
            );
            accepted[usize::from(read_late)] += cut.speculation.as_ref().expect("it was on").accepted;
            if way == Speculation::Auto {
                mixed.count(&cut);
            }
            // The next turn goes on behind it, and says what it would say without speculation.
            let mut turn = prompt.clone();
            turn.extend_from_slice(&cut.ids);
            turn.extend(tokens(10, 5, 320));
            let short = GenerateOptions { max_tokens: 12, read_late, ..long.clone() };
            assert_goes_on(&what, engine, &turn, &short, way);
        }
    }
    // A random drafter is hardly ever right; the oracle is, so that answers were cut inside runs.
    assert!(!oracle || accepted.iter().all(|count| *count > 25), "{at}: {accepted:?} accepted");
}

/// A round that an answer left under way belongs to nobody: the next answer decides anew whether there is something to
/// look up.
#[test]
fn a_round_under_way_is_not_the_next_answers() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("speculation.left_under_way", &file, EngineOptions::default());
    let lookup = Speculation::Plan(Plan::lookup(4));
    // Nothing comes twice in it, and the answer ends before anything does.
    let prompt: Vec<_> = (10..20).map(TokenId).collect();
    let short = GenerateOptions { max_tokens: 3, ignore_eos: true, ..GenerateOptions::default() };
    let fresh = chosen(&mut engine, &prompt, &short, lookup);
    let stats = fresh.1.speculation.clone().expect("it was on");
    assert_eq!((stats.rounds, stats.plain), (0, 2), "there is nothing to look up: {stats:?}");
    let repeated = tokens(1, 9, 320).repeat(3);
    let late = GenerateOptions { max_tokens: 60, read_late: true, speculation: lookup, ..short.clone() };
    let mut stream = engine.generate(&repeated, late).expect("a valid prompt");
    // With the first looked-up token a round has been read, and the one behind it is under way.
    while block_on(stream.next()).expect("a step").expect("something is found").origin == Origin::Target {}
    drop(stream);
    let again = chosen(&mut engine, &prompt, &short, lookup);
    assert_same("behind a round under way", &fresh, &again);
    assert_eq!(again.1.speculation, fresh.1.speculation, "behind a round under way");
}
