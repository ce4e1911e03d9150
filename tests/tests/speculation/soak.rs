//! Long runs: one context filled far, and many tokens over every proposer.

use crate::support::{Mixed, assert_same, chosen, entries, free, ways};
use redraft::{EngineOptions, GenerateOptions, Plan, SamplingParams, Speculation, StopReason, TokenId};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};

#[test]
fn two_thousand_tokens_in_one_context() {
    long("speculation.long", false, 2200);
}

#[test]
fn a_thousand_tokens_in_one_context_strictly() {
    long("speculation.long.strict", true, 1100);
}

fn long(name: &str, strict: bool, count: u32) {
    let file = tiny(&TinyModel { context: 4096, ..TinyModel::default() });
    let options =
        EngineOptions { oracle: true, strict, context: Some(count + 400), ..EngineOptions::default() };
    let mut engine = load(name, &file, options);
    let prompt = tokens(12, 200, 320);
    let sampling = SamplingParams { temperature: 0.9, seed: 4, ..SamplingParams::default() };
    let options =
        GenerateOptions { max_tokens: count, ignore_eos: true, sampling, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    assert_eq!(plain.1.ids.len(), count as usize, "a long answer");
    engine.foretell(200, &entries(&plain.1.ids, 0.15, 320, 9)).expect("fits");
    engine.set_costs(&free()).expect("good costs");
    let reconsider = Plan { lookup: true, ..Plan::reconsider(15, 5, 4, 4, 3, 2) };
    let ways = [
        ("reconsider and lookup", Speculation::Plan(reconsider), 2.0),
        ("chain of 3", Speculation::Plan(Plan::chain(3)), 1.5),
        ("auto", Speculation::Auto, 1.5),
        // What is drawn at this temperature seldom repeats itself.
        ("lookup", Speculation::Plan(Plan::lookup(4)), 1.0),
    ];
    for (name, way, least) in ways.into_iter().take(if strict { 1 } else { ways.len() }) {
        let fast = chosen(&mut engine, &prompt, &options, way);
        assert_same(&format!("{name}, {count} tokens"), &plain, &fast);
        let stats = fast.1.speculation.expect("speculation was on");
        assert!(stats.tau().is_some_and(|tau| tau > least), "{name}: {stats:?}");
    }
}

/// The drafter's own keys and values go as far as the target's.
#[test]
fn two_thousand_tokens_with_a_drafter() {
    let everything = TinyDrafter::with_everything();
    let target = TinyModel { context: 4096, ..everything.target.clone() };
    let drafter = TinyDrafter { target, ..everything };
    let options = EngineOptions {
        drafter: Some(drafter.to_file().expect("a possible drafter")),
        context: Some(2600),
        ..EngineOptions::default()
    };
    let mut engine = load("speculation.long.drafter", &tiny(&drafter.target), options);
    let prompt = tokens(12, 200, 320);
    let options = GenerateOptions { max_tokens: 2200, ignore_eos: true, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    let way = Speculation::Plan(Plan::reconsider(7, 4, 3, 3, 2, 2));
    let fast = chosen(&mut engine, &prompt, &GenerateOptions { read_late: true, ..options }, way);
    assert_same("2200 tokens, late", &plain, &fast);
    let stats = fast.1.speculation.expect("speculation was on");
    assert!(stats.accepted > 0, "{stats:?}");
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
    for engine in [&mut oracle, &mut random] {
        engine.set_costs(&free()).expect("good costs");
    }
    let (mut done, mut accepted, mut stopped, mut seed) = (0, 0, 0, 0u64);
    let mut mixed = Mixed::default();
    while done < wanted() {
        for (name, way) in ways() {
            seed += 1;
            // Each kind by a digit of the seed, so that all of their combinations come.
            let digit = |below: u64, of: u64| usize::try_from(seed / of % below).expect("small");
            let length = 1 + digit(90, 1);
            let prompt = tokens(seed, length, 320);
            let bias = vec![(TokenId(7), 2.0), (TokenId(300), -5.0)];
            let sampling = SamplingParams {
                temperature: [0.0, 0.7, 1.0][digit(3, 1)],
                top_p: [1.0, 0.9][digit(2, 1)],
                repetition_penalty: [1.0, 1.1][digit(2, 2)],
                logit_bias: [Vec::new(), bias][digit(2, 4)].clone(),
                seed,
                ..SamplingParams::default()
            };
            let mut options = GenerateOptions {
                max_tokens: 60,
                sampling,
                read_late: digit(2, 8) == 1,
                ..GenerateOptions::default()
            };
            let mut plain = answer(&mut oracle, &prompt, options.clone()).expect("an answer");
            let first = u32::try_from(length).expect("small");
            // The oracle sees past a stop string.
            oracle.foretell(first, &entries(&plain.1.ids, 0.15, 320, seed)).expect("fits");
            let stop: String = plain.0.iter().skip(17).take(2).map(|step| step.text.as_str()).collect();
            if digit(3, 2) == 0 && !stop.is_empty() {
                options.stop = vec![stop];
                plain = answer(&mut oracle, &prompt, options.clone()).expect("an answer");
                stopped += u32::from(plain.1.stop_reason == StopReason::StopString);
            }
            for engine in [&mut oracle, &mut random] {
                let fast = chosen(engine, &prompt, &options, way);
                assert_same(&format!("{name}, seed {seed}, late: {}", options.read_late), &plain, &fast);
                accepted += fast.1.speculation.as_ref().expect("speculation was on").accepted;
                if way == Speculation::Auto {
                    mixed.count(&fast.1);
                }
                done += fast.1.ids.len();
            }
        }
    }
    assert!(accepted > 500, "only {accepted} of {done} tokens were accepted");
    assert!(stopped > 5, "only {stopped} answers ended with a stop string");
    mixed.check_accepted("soak");
    println!("soak: {done} tokens, {accepted} accepted, {stopped} stop strings, no difference");
}
