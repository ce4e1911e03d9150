//! Drafters with weights: random ones, so that hardly anything is accepted and everything must still be the same.

use crate::support::{assert_same, plans, speculated};
use redraft::{EngineOptions, GenerateOptions, SamplingParams};
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
                for (plan_name, plan) in plans() {
                    let fast = speculated(&mut engine, &prompt, &options, plan);
                    let what = format!("{name}, {plan_name}, T = {temperature}, {length} tokens");
                    assert_same(&what, &plain, &fast);
                    assert_eq!(fast.1.warning, None, "{what}");
                }
            }
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
