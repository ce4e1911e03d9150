//! Drafters with weights: random ones, so that hardly anything is accepted and everything must still be the same.

use crate::support::{assert_same, largest, plans, speculated};
use redraft::{Costs, Curve, EngineOptions, Gate, GenerateOptions, Plan, SamplingParams, Speculation};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};

fn options(drafter: &TinyDrafter) -> EngineOptions {
    let drafter = drafter.to_file().expect("a possible drafter");
    EngineOptions { drafter: Some(drafter), ..EngineOptions::default() }
}

#[test]
fn random_drafters_change_nothing() {
    let plain_drafter = TinyDrafter::default();
    let everything = TinyDrafter::with_everything();
    for (name, drafter) in [("plain", plain_drafter), ("everything", everything)] {
        let file = tiny(&drafter.target);
        let mut engine = load(&format!("speculation.drafter.{name}"), &file, options(&drafter));
        for (temperature, seed) in [(0.0, 1), (1.0, 2)] {
            for length in [1, 20, 150] {
                let prompt = tokens(seed, length, 320);
                let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
                let options = GenerateOptions {
                    max_tokens: 30,
                    ignore_eos: true,
                    sampling,
                    ..GenerateOptions::default()
                };
                let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
                // A gate that reads a table needs a drafter that has one.
                let usable = |plan: &Plan| drafter.tables || plan.gate != Gate::Calibrated;
                for (plan_name, plan) in plans().into_iter().filter(|(_, plan)| usable(plan)) {
                    let fast = speculated(&mut engine, &prompt, &options, plan);
                    let what = format!("{name}, {plan_name}, T = {temperature}, {length} tokens");
                    assert_same(&what, &plain, &fast);
                    assert_eq!(fast.1.warning, None, "{what}");
                    if length != 20 {
                        continue;
                    }
                    let late = GenerateOptions { read_late: true, ..options.clone() };
                    let late = speculated(&mut engine, &prompt, &late, plan);
                    assert_same(&format!("{what}, late"), &plain, &late);
                    assert_eq!(late.1.speculation, fast.1.speculation, "{what}, late");
                    if temperature > 0.0 {
                        let uncoupled = GenerateOptions { coupled: false, ..options.clone() };
                        let uncoupled = speculated(&mut engine, &prompt, &uncoupled, plan);
                        assert_same(&format!("{what}, uncoupled"), &plain, &uncoupled);
                    }
                }
            }
        }
    }
}

/// The drafter's own kernels with every access checked.
#[test]
fn checked_kernels_of_a_drafter_change_nothing() {
    let drafter = TinyDrafter::with_everything();
    let file = tiny(&drafter.target);
    let mut engine =
        load("speculation.drafter.checked", &file, EngineOptions { checked: true, ..options(&drafter) });
    for (temperature, seed) in [(0.0, 1), (0.9, 2)] {
        let prompt = tokens(seed, 70, 320);
        let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 16, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        for (name, plan) in plans().into_iter().chain(largest()) {
            let fast = speculated(&mut engine, &prompt, &options, plan);
            assert_same(&format!("{name}, T = {temperature}"), &plain, &fast);
            assert_eq!(fast.1.warning, None, "{name}");
        }
    }
}

/// Plain tokens behind a long end of the prompt: more features are kept for the drafter than fit at once.
#[test]
fn an_automatic_choice_may_stay_plain_as_long_as_it_likes() {
    let drafter = TinyDrafter::default();
    let file = tiny(&drafter.target);
    let mut engine = load("speculation.drafter.auto", &file, options(&drafter));
    for round in [0.2, 1.2, 3.0, 9.0] {
        let curve = |cost| Curve::new(vec![(1, cost)]).expect("a curve");
        let costs = Costs {
            verify: Curve::new(vec![(1, 1.0), (2, round), (32, round)]).expect("a curve"),
            draft: curve(0.0),
            extend: 0.0,
            overhead: 0.0,
            catch_up: 0.0,
            catch_up_most: 0,
        };
        for length in [1u32, 17, 40, 63, 64, 65, 100] {
            let prompt = tokens(u64::from(length), length as usize, 320);
            engine.set_costs(&costs).expect("good costs");
            let options = GenerateOptions { max_tokens: 90, ignore_eos: true, ..GenerateOptions::default() };
            let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
            let auto = GenerateOptions { speculation: Speculation::Auto, ..options };
            let fast = answer(&mut engine, &prompt, auto).expect("an answer");
            assert_same(&format!("{length} tokens, rounds cost {round}"), &plain, &fast);
        }
    }
}

/// Many answers of one engine: whether the drafter takes part is decided for each, and prompts share beginnings.
#[test]
fn automatic_answers_one_behind_the_other() {
    let drafter = TinyDrafter { tables: true, ..TinyDrafter::default() };
    let file = tiny(&drafter.target);
    let mut engine = load("speculation.drafter.answers", &file, options(&drafter));
    let (mut prompt, mut rounds, mut plain_tokens) = (tokens(5, 90, 320), 0, 0);
    for turn in 0..12u64 {
        let sampling = SamplingParams {
            temperature: if turn % 2 == 0 { 0.0 } else { 0.8 },
            seed: turn,
            ..SamplingParams::default()
        };
        let options =
            GenerateOptions { max_tokens: 24, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let auto = GenerateOptions { speculation: Speculation::Auto, ..options.clone() };
        let fast = answer(&mut engine, &prompt, auto).expect("an answer");
        let stats = fast.1.speculation.clone().expect("it was on");
        (rounds, plain_tokens) = (rounds + stats.rounds, plain_tokens + stats.plain);
        assert_eq!(stats.emitted + stats.plain, 23, "turn {turn}: all but the first token: {stats:?}");
        let held = engine.position();
        let plain = answer(&mut engine, &prompt, options).expect("an answer");
        assert_same(&format!("turn {turn}"), &plain, &fast);
        assert_eq!(engine.position(), held, "turn {turn}");
        // The next prompt goes on behind this answer, every third is another one, of which the beginning is held.
        prompt.extend_from_slice(&plain.1.ids);
        prompt.extend(tokens(turn + 50, 4, 320));
        if turn % 3 == 2 {
            prompt.truncate(70);
            prompt.extend(tokens(turn, 9, 320));
        }
    }
    assert!(plain_tokens > 20, "a random drafter does not pay: {rounds} rounds, {plain_tokens} plain tokens");
    assert!(!engine.prices().is_empty(), "rounds have prices");
}

/// Lookups and the drafter in turn: what is behind tokens that were looked up is as if they had been decoded.
#[test]
fn an_automatic_choice_mixes_lookups_and_the_drafter() {
    let drafter = TinyDrafter::default();
    let file = tiny(&drafter.target);
    let mut engine = load("speculation.drafter.mixed", &file, options(&drafter));
    // Rounds cost nothing, so that everything is tried.
    let free = |cost| Curve::new(vec![(1, cost)]).expect("a curve");
    let costs = Costs {
        verify: Curve::new(vec![(1, 1.0), (2, 0.2), (32, 0.2)]).expect("a curve"),
        draft: free(0.0),
        extend: 0.0,
        overhead: 0.0,
        catch_up: 0.0,
        catch_up_most: 0,
    };
    engine.set_costs(&costs).expect("good costs");
    let (mut kinds, mut looked_up) = (std::collections::BTreeSet::new(), 0);
    for seed in 0..10 {
        let prompt = tokens(seed, 9, 320).repeat(3);
        let options = GenerateOptions { max_tokens: 120, ignore_eos: true, ..GenerateOptions::default() };
        let auto = GenerateOptions { speculation: Speculation::Auto, ..options.clone() };
        let fast = answer(&mut engine, &prompt, auto).expect("an answer");
        let plain = answer(&mut engine, &prompt, options).expect("an answer");
        assert_same(&format!("seed {seed}"), &plain, &fast);
        let stats = fast.1.speculation.expect("it was on");
        looked_up += stats.lookup_hits;
        kinds.extend(stats.history.iter().map(|run| run.plan.map(|plan| (plan.drafter, plan.lookup))));
    }
    assert!(kinds.len() >= 3, "several kinds ran: {kinds:?}");
    assert!(looked_up > 0, "and something was found");
}

#[test]
fn a_drafter_of_another_model_is_refused() {
    let drafter = TinyDrafter::default();
    let other = tiny(&TinyModel { vocab: 300, ..drafter.target.clone() });
    let error = pollster::block_on(redraft::Engine::load(&other, options(&drafter), |_| {}))
        .map(|_| ())
        .expect_err("another vocabulary");
    assert!(error.to_string().contains("vocab"), "{error}");
}
