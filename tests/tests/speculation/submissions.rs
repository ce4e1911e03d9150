//! How often the host turns to the device: a round is one submission, and one readback is mapped.

use crate::support::{largest, plans};
use pollster::block_on;
use redraft::{Engine, EngineOptions, Gate, GenerateOptions, Plan, Speculation, TokenId};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{load, tiny, tokens};

/// Submissions and maps of each call of `next`, and what speculation counted. Asserts that what nobody looks at closer
/// brings at most 256 bytes back.
fn traffic(engine: &mut Engine, prompt: &[TokenId], options: &GenerateOptions) -> (Vec<[u64; 2]>, u64, u64) {
    engine.reset();
    let mut stream = engine.generate(prompt, options.clone()).expect("a valid prompt");
    let mut calls = Vec::new();
    loop {
        let before = stream.engine().model().gpu().traffic();
        let ended = block_on(stream.next()).expect("a step").is_none();
        let after = stream.engine().model().gpu().traffic();
        if ended {
            break;
        }
        let (maps, bytes) = (after.maps - before.maps, after.bytes - before.bytes);
        let closer = options.trace || options.log_probs.is_some();
        assert!(closer || bytes <= 256 * maps, "{bytes} bytes in {maps} readbacks");
        assert_eq!(bytes > 0, maps > 0, "{bytes} bytes in {maps} readbacks");
        calls.push([after.submissions - before.submissions, maps]);
    }
    let stats = stream.finish().speculation.expect("it was on");
    (calls, stats.rounds, stats.plain)
}

/// Asserts what each call of an answer takes, with and without listeners; gives its rounds.
fn counted(engine: &mut Engine, prompt: &[TokenId], max_tokens: u32, plan: Plan, name: &str) -> u64 {
    let options = GenerateOptions {
        max_tokens,
        ignore_eos: true,
        speculation: Speculation::Plan(plan),
        ..GenerateOptions::default()
    };
    let (calls, rounds, plain) = traffic(engine, prompt, &options);
    // The first call computes the prompt. Before the first round the drafter computes what it has not seen of it.
    let first = usize::from(plan.drafter);
    let is = |call: &[u64; 2]| match call {
        [0, 0] => "a token of the round before",
        [1, 1] => "a round",
        // Where nothing was found to look up.
        [1, 2] if !plan.drafter => "a plain step",
        other => panic!("{name}: {other:?} submissions and maps: {calls:?}"),
    };
    let kinds: Vec<&str> = calls.iter().skip(1 + first).map(is).collect();
    let count = |kind: &str| kinds.iter().filter(|found| **found == kind).count() as u64;
    if plan.drafter {
        let opening = calls[1];
        assert_eq!(opening[1], 1, "{name}: {calls:?}");
        assert!((1..=2).contains(&opening[0]), "{name}: {calls:?}");
    }
    assert_eq!(count("a round") + first as u64, rounds, "{name}: {calls:?}");
    assert_eq!(count("a plain step"), plain, "{name}: {calls:?}");

    // Who asks for log-probabilities has one more of each for every token, and for nothing else.
    let listening = GenerateOptions { log_probs: Some(2), ..options.clone() };
    let (heard, again, _) = traffic(engine, prompt, &listening);
    assert_eq!((heard.len(), again), (calls.len(), rounds), "{name}: the same answer");
    for (at, (heard, alone)) in heard.iter().zip(&calls).enumerate().skip(1) {
        assert_eq!(*heard, alone.map(|count| count + 1), "{name}, token {at} with log-probabilities");
    }
    // Who asks for trees looks between the kernels.
    let looking = GenerateOptions { trace: true, ..options.clone() };
    let (looked, again, _) = traffic(engine, prompt, &looking);
    assert_eq!((looked.len(), again), (calls.len(), rounds), "{name}: the same answer");
    for (at, (looked, alone)) in looked.iter().zip(&calls).enumerate().skip(1 + first) {
        let round = *alone == [1, 1];
        assert_eq!(looked[0] > 5, round, "{name}, token {at} with trees: {looked:?}");
        assert!(round || looked == alone, "{name}, token {at} with trees: {looked:?}");
    }
    // A round late it is as many of each, one submission ahead. Lookup runs ahead where it cannot know what it will find.
    if !plan.drafter {
        return rounds;
    }
    let late = GenerateOptions { read_late: true, ..options };
    let (late, again, _) = traffic(engine, prompt, &late);
    assert_eq!((late.len(), again), (calls.len(), rounds), "{name}: the same answer");
    let sum = |calls: &[[u64; 2]], of: usize| calls.iter().skip(1).map(|call| call[of]).sum::<u64>();
    assert_eq!(sum(&late, 1), sum(&calls, 1), "{name}, late: {late:?}");
    let ahead = sum(&late, 0) - sum(&calls, 0);
    assert!(ahead <= 1, "{name}, late: {ahead} more submissions: {late:?}");
    rounds
}

#[test]
fn a_round_is_one_submission_and_one_map() {
    let drafter = TinyDrafter { tables: true, ..TinyDrafter::default() };
    let file = tiny(&drafter.target);
    let options = EngineOptions {
        drafter: Some(drafter.to_file().expect("a possible drafter")),
        ..EngineOptions::default()
    };
    let mut engine = load("speculation.submissions", &file, options);
    let prompt = tokens(6, 9, 320).repeat(3);
    for (name, plan) in plans().into_iter().chain(largest()) {
        let rounds = counted(&mut engine, &prompt, 24, plan, name);
        assert!(rounds > 3, "{name}: {rounds} rounds");
    }
    assert!(plans().iter().any(|(_, plan)| plan.gate == Gate::Calibrated), "with tables, too");
}

#[test]
fn a_lookup_is_one_submission_and_one_map() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("speculation.submissions.lookup", &file, EngineOptions::default());
    for depth in [1, 4, 16] {
        // Greedy answers of tiny models repeat themselves sooner or later.
        let rounds: u64 = (0..4)
            .map(|seed| {
                let prompt = tokens(seed, 9, 320).repeat(3);
                counted(&mut engine, &prompt, 60, Plan::lookup(depth), &format!("lookup of {depth}"))
            })
            .sum();
        assert!(rounds > 10, "lookup of {depth}: {rounds} rounds");
    }
}
