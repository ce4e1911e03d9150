//! Drafters with weights: random ones, so that hardly anything is accepted and everything must still be the same.

use crate::support::{assert_same, plans, speculated};
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
                }
            }
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

#[test]
fn a_drafter_of_another_model_is_refused() {
    let drafter = TinyDrafter::default();
    let other = tiny(&TinyModel { vocab: 300, ..drafter.target.clone() });
    let error = pollster::block_on(redraft::Engine::load(&other, options(&drafter), |_| {}))
        .map(|_| ())
        .expect_err("another vocabulary");
    assert!(error.to_string().contains("vocab"), "{error}");
}
