//! Drafters with weights: random ones, so that hardly anything is accepted and everything must still be the same.

use crate::support::{assert_same, largest, plans, speculated};
use redraft::{
    Costs, Curve, EngineOptions, Gate, GenerateOptions, Origin, Plan, SamplingParams, Speculation, TokenId,
};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};
use std::collections::BTreeMap;

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

/// At the greatest temperature noise alone decides, so that a drafter of any weights that shares it is nearly always right,
/// at every depth, and one that does not is right by chance.
#[test]
fn coupled_proposals_share_the_noise_of_the_target() {
    let drafter = TinyDrafter { draft_vocab: 320, ..TinyDrafter::default() };
    let file = tiny(&drafter.target);
    let mut engine = load("speculation.drafter.coupled", &file, options(&drafter));
    for plan in [Plan::chain(3), Plan::reconsider(15, 3, 3, 3, 2, 2)] {
        let mut accepted = |coupled: bool| {
            let (mut accepted, mut rounds) = (0, 0);
            for seed in 0..4 {
                let prompt = tokens(seed, 9, 320);
                let sampling = SamplingParams { temperature: 100.0, seed, ..SamplingParams::default() };
                let options = GenerateOptions {
                    max_tokens: 40,
                    ignore_eos: true,
                    coupled,
                    sampling,
                    ..GenerateOptions::default()
                };
                let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
                let fast = speculated(&mut engine, &prompt, &options, plan);
                assert_same(&format!("{plan:?}, coupled: {coupled}, seed {seed}"), &plain, &fast);
                let stats = fast.1.speculation.expect("speculation was on");
                (accepted, rounds) = (accepted + stats.accepted, rounds + stats.rounds);
            }
            (accepted, rounds)
        };
        let (with, without) = (accepted(true), accepted(false));
        assert!(with.0 > 2 * with.1, "coupled: {} accepted in {} rounds of {plan:?}", with.0, with.1);
        assert!(without.0 * 4 < without.1, "uncoupled: {} in {} of {plan:?}", without.0, without.1);
    }
}

/// What a step's other rows are does not matter to a row: behind the same text, plans of every width and with any number of
/// second passes have the same scores of the tokens that they share, bit for bit.
#[test]
fn a_row_of_the_drafter_is_the_same_in_every_step() {
    let drafter = TinyDrafter { tables: false, ..TinyDrafter::with_everything() };
    let file = tiny(&drafter.target);
    let prompt = tokens(31, 40, 320);
    for strict in [false, true] {
        let mut engine =
            load("speculation.drafter.rows", &file, EngineOptions { strict, ..options(&drafter) });
        // By the tokens on the way to a node: its score, and how unsure its own row was.
        let mut known: BTreeMap<Vec<TokenId>, (u32, Option<u32>)> = BTreeMap::new();
        let (mut scores, mut rows) = (0, 0);
        let widths = (1..=16).map(|width| (width, 0));
        for (width, reconsider) in widths.chain([(1, 15), (2, 3), (4, 4), (5, 6), (4, 12)]) {
            let plan = match reconsider {
                0 => Plan::tree(31, 4, width, 4),
                _ => Plan::reconsider(31, 4, width, 4, reconsider, 2),
            };
            let options = GenerateOptions {
                max_tokens: 2,
                ignore_eos: true,
                trace: true,
                speculation: Speculation::Plan(plan),
                ..GenerateOptions::default()
            };
            let (steps, _) = answer(&mut engine, &prompt, options).expect("an answer");
            let trace = steps.into_iter().find_map(|step| step.trace).expect("a round");
            for (at, node) in trace.nodes.iter().enumerate().skip(1) {
                let upward = |at: &usize| trace.nodes[*at].parent;
                let path: Vec<usize> = std::iter::successors(Some(at), upward).collect();
                // What comes of second passes is another score, and who stands below it has it too.
                if path.iter().any(|at| trace.nodes[*at].origin != Origin::Drafted && *at > 0) {
                    continue;
                }
                let key = path.iter().map(|at| trace.nodes[*at].token).collect();
                let found = (node.score.to_bits(), node.unsure.map(f32::to_bits));
                let what = format!("{width} rows and {reconsider} second passes, strict: {strict}, {key:?}");
                let expected = known.entry(key).or_insert(found);
                if reconsider == 0 {
                    assert_eq!(found.0, expected.0, "score, {what}");
                    scores += 1;
                }
                match (found.1, &mut expected.1) {
                    (Some(found), Some(expected)) => {
                        assert_eq!(found, *expected, "how unsure it was, {what}");
                        rows += 1;
                    }
                    (found @ Some(_), expected) => *expected = found,
                    (None, _) => {}
                }
            }
        }
        assert!(scores > 500 && rows > 100, "{scores} scores and {rows} rows were compared");
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
