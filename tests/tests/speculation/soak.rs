//! Long runs: one context filled far, and many tokens over every proposer.

use crate::support::{assert_same, entries, plans, speculated};
use redraft::{EngineOptions, GenerateOptions, Plan, SamplingParams};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};

#[test]
fn two_thousand_tokens_in_one_context() {
    let file = tiny(&TinyModel { context: 4096, ..TinyModel::default() });
    let options = EngineOptions { oracle: true, context: Some(2600), ..EngineOptions::default() };
    let mut engine = load("speculation.long", &file, options);
    let prompt = tokens(12, 200, 320);
    let sampling = SamplingParams { temperature: 0.9, seed: 4, ..SamplingParams::default() };
    let options =
        GenerateOptions { max_tokens: 2200, ignore_eos: true, sampling, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    assert_eq!(plain.1.ids.len(), 2200, "a long answer");
    engine.foretell(200, &entries(&plain.1.ids, 0.15, 320, 9)).expect("fits");
    let plan = Plan { lookup: true, ..Plan::reconsider(15, 5, 4, 4, 3, 2) };
    let fast = speculated(&mut engine, &prompt, &options, plan);
    assert_same("2,200 tokens", &plain, &fast);
    let stats = fast.1.speculation.expect("speculation was on");
    assert!(stats.tau().is_some_and(|tau| tau > 2.0), "{stats:?}");
}

/// Tokens of the soak: `REDRAFT_SOAK_TOKENS`, or few.
fn wanted() -> usize {
    match std::env::var("REDRAFT_SOAK_TOKENS") {
        Ok(text) => text.parse().expect("REDRAFT_SOAK_TOKENS is a number of tokens"),
        Err(_) => 4000,
    }
}

#[test]
fn soak() {
    let drafter = TinyDrafter::with_everything();
    let file = tiny(&drafter.target);
    let mut oracle =
        load("speculation.soak.oracle", &file, EngineOptions { oracle: true, ..EngineOptions::default() });
    let mut random = load(
        "speculation.soak.drafter",
        &file,
        EngineOptions {
            drafter: Some(drafter.to_file().expect("a possible drafter")),
            ..EngineOptions::default()
        },
    );
    let mut plans = plans();
    plans.push(("lookup", Plan::lookup(7)));
    let (mut done, mut accepted, mut seed) = (0, 0, 0u64);
    while done < wanted() {
        for (name, plan) in &plans {
            seed += 1;
            let length = 1 + usize::try_from(seed % 90).expect("small");
            let prompt = tokens(seed, length, 320);
            let sampling = SamplingParams {
                temperature: [0.0, 0.7, 1.0][usize::try_from(seed % 3).expect("below 3")],
                top_p: [1.0, 0.9][usize::try_from(seed % 2).expect("below 2")],
                repetition_penalty: [1.0, 1.1][usize::try_from(seed / 2 % 2).expect("below 2")],
                seed,
                ..SamplingParams::default()
            };
            let options = GenerateOptions { max_tokens: 60, sampling, ..GenerateOptions::default() };
            let plain = answer(&mut oracle, &prompt, options.clone()).expect("an answer");
            let first = u32::try_from(length).expect("small");
            oracle.foretell(first, &entries(&plain.1.ids, 0.15, 320, seed)).expect("fits");
            for engine in [&mut oracle, &mut random] {
                let fast = speculated(engine, &prompt, &options, *plan);
                assert_same(&format!("{name}, seed {seed}"), &plain, &fast);
                accepted += fast.1.speculation.expect("speculation was on").accepted;
                done += fast.1.ids.len();
            }
        }
    }
    assert!(accepted > 500, "only {accepted} of {done} tokens were accepted");
    println!("soak: {done} tokens, {accepted} accepted, no difference");
}
