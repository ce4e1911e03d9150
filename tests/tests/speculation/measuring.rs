//! What the first automatic answer measures, and how that is told.

use crate::support::assert_same;
use pollster::block_on;
use redraft::{CancelToken, EngineOptions, Error, Extent, GenerateOptions, Speculation, Stage};
use redraft_testing::TinyDrafter;
use redraft_tests::{answer, load, tiny, tokens};

fn options(drafter: &TinyDrafter) -> EngineOptions {
    let drafter = drafter.to_file().expect("a possible drafter");
    EngineOptions { drafter: Some(drafter), ..EngineOptions::default() }
}

fn auto() -> GenerateOptions {
    GenerateOptions {
        max_tokens: 12,
        ignore_eos: true,
        speculation: Speculation::Auto,
        ..GenerateOptions::default()
    }
}

#[test]
fn the_first_automatic_answer_measures_and_says_so() {
    let drafter = TinyDrafter::default();
    let file = tiny(&drafter.target);
    let mut engine = load("speculation.measuring", &file, options(&drafter));
    let prompt = tokens(5, 20, 320);
    let off = GenerateOptions { speculation: Speculation::Off, ..auto() };
    let stream = engine.generate(&prompt, off.clone()).expect("a valid prompt");
    assert_eq!(stream.stage(), Stage::Prompt, "nothing is measured for plain decoding");
    drop(stream);
    let plain = answer(&mut engine, &prompt, off).expect("an answer");
    assert_eq!(plain.1.timings.measuring_s, 0.0, "nor was it");
    for first in [true, false] {
        let mut stream = engine.generate(&prompt, auto()).expect("a valid prompt");
        assert_eq!(stream.stage(), if first { Stage::Measuring } else { Stage::Prompt }, "first: {first}");
        let mut steps = vec![block_on(stream.next()).expect("a step").expect("a token")];
        assert_eq!(stream.stage(), Stage::Answer, "first: {first}");
        while let Some(step) = block_on(stream.next()).expect("a step") {
            steps.push(step);
        }
        assert_eq!(stream.stage(), Stage::Ended, "first: {first}");
        let generation = stream.finish();
        let timings = generation.timings;
        assert_eq!(timings.measuring_s > 0.0, first, "once: {timings:?}");
        assert!(
            timings.prefill_s > timings.measuring_s,
            "it is part of the time to the first token: {timings:?}"
        );
        assert_eq!(timings.prompt_s(), timings.prefill_s - timings.measuring_s, "{timings:?}");
        assert_same("automatic", &plain, &(steps, generation));
    }
}

#[test]
fn costs_are_measured_whole_or_as_far_as_a_choice_needs_them() {
    let drafter = TinyDrafter::default();
    let file = tiny(&drafter.target);
    let mut engine = load("speculation.measuring.extent", &file, options(&drafter));
    for extent in [Extent::Bounded, Extent::Whole] {
        engine.reset();
        let measured = block_on(engine.measure_costs(extent, &CancelToken::default())).expect("costs");
        measured.costs.check_measured(true).expect("costs that can be measured");
        assert_eq!(engine.costs(), Some(&measured.costs), "{extent:?}: they are taken");
        assert!(measured.steps > 5.0 && measured.seconds > 0.0, "{extent:?}: {measured:?}");
        assert_eq!(
            measured.costs.verify.points().last().map(|point| point.0),
            Some(32),
            "{extent:?}: priced"
        );
        assert_eq!(engine.position(), 0, "{extent:?}: the sequence is forgotten");
    }
    assert_eq!(engine.costs().and_then(|costs| costs.draft.points().last()).map(|point| point.0), Some(16));
    let cancel = CancelToken::default();
    cancel.cancel();
    let error = block_on(engine.measure_costs(Extent::Whole, &cancel)).expect_err("cancelled");
    assert!(matches!(error, Error::Cancelled), "{error}");
    let prompt = tokens(5, 20, 320);
    let off = GenerateOptions { speculation: Speculation::Off, ..auto() };
    let plain = answer(&mut engine, &prompt, off).expect("an answer");
    assert_same("behind it", &plain, &answer(&mut engine, &prompt, auto()).expect("an answer"));
}
