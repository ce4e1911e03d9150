//! What is refused before anything runs, and what happens when a drafter fails while it runs.

use crate::support::{assert_same, speculated};
use pollster::block_on;
use redraft::{DrafterFile, Engine, EngineOptions, Error, GenerateOptions, ModelError, Plan, Speculation};
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};

#[test]
fn impossible_plans_are_refused_before_anything_runs() {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, ..EngineOptions::default() };
    let mut engine = load("speculation.plans", &file, options);
    let good = Plan::reconsider(15, 5, 4, 4, 3, 2);
    for (plan, name) in [
        (Plan { width: 0, ..good }, "width"),
        (Plan { children: 0, ..good }, "children"),
        (Plan { nodes: 64, ..good }, "nodes"),
        (Plan { nodes: 0, ..good }, "nodes"),
        (Plan { depth: 17, ..good }, "depth"),
        (Plan { width: 14, ..good }, "width + reconsider"),
        (Plan { refined: 5, ..good }, "refined"),
        (Plan { drafter: false, lookup: false, ..good }, "drafter"),
    ] {
        let options = GenerateOptions { speculation: Speculation::Plan(plan), ..GenerateOptions::default() };
        let error = engine.generate(&tokens(1, 4, 320), options).map(|_| ()).expect_err(name);
        assert!(matches!(error, Error::Model(ModelError::Plan(_))), "{name}: {error:?}");
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
    let (_, found) = answer(&mut engine, &tokens(1, 4, 320), GenerateOptions::default()).expect("goes on");
    assert!(!found.ids.is_empty(), "the engine goes on");
}

#[test]
fn a_plan_that_drafts_needs_a_drafter() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("speculation.no_drafter", &file, EngineOptions::default());
    let options =
        GenerateOptions { speculation: Speculation::Plan(Plan::chain(3)), ..GenerateOptions::default() };
    let error = engine.generate(&tokens(1, 4, 320), options).map(|_| ()).expect_err("no drafter");
    assert!(matches!(error, Error::Model(ModelError::NoDrafter)), "{error:?}");
}

fn with_drafter(file: &[u8], drafter: DrafterFile) -> Result<Engine, Error> {
    let options = EngineOptions { drafter: Some(drafter), ..EngineOptions::default() };
    block_on(Engine::load(&file.to_vec(), options, |_| {}))
}

#[test]
fn drafters_of_other_targets_are_refused_by_name() {
    let shape = TinyDrafter::default();
    let drafter = || shape.to_file().expect("a possible drafter");
    for (target, word) in [
        (TinyModel { vocab: 300, ..shape.target.clone() }, "vocab"),
        (TinyModel { hidden: 96, heads: 6, ..shape.target.clone() }, "hidden"),
        (TinyModel { layers: 3, ..shape.target.clone() }, "layers"),
    ] {
        let error = with_drafter(&tiny(&target), drafter()).map(|_| ()).expect_err(word);
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    let engine = with_drafter(&tiny(&shape.target), drafter()).expect("its own target");
    assert!(engine.has_drafter() && engine.warnings().is_empty(), "{:?}", engine.warnings());
}

#[test]
fn a_drafter_that_fails_turns_speculation_off_and_the_answer_goes_on() {
    let shape = TinyDrafter::default();
    let mut parts = shape.to_file().expect("a possible drafter").into_parts();
    let norm = parts.tensors.get_mut("norm.weight").expect("every drafter has it");
    // Finite in the file, not finite in the logits.
    for value in norm.bytes.chunks_exact_mut(4) {
        value.copy_from_slice(&f32::MAX.to_le_bytes());
    }
    let drafter = DrafterFile::new(parts).expect("finite weights");
    let file = tiny(&shape.target);
    let options = EngineOptions { drafter: Some(drafter), ..EngineOptions::default() };
    let mut engine = load("speculation.broken_drafter", &file, options);
    let prompt = tokens(3, 12, 320);
    let options = GenerateOptions { max_tokens: 20, ignore_eos: true, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    for plan in [Plan::chain(3), Plan::reconsider(15, 5, 4, 4, 3, 2)] {
        let fast = speculated(&mut engine, &prompt, &options, plan);
        assert_same("a broken drafter", &plain, &fast);
        let warning = fast.1.warning.expect("somebody is told");
        assert!(warning.contains("drafter"), "{warning}");
        assert_eq!(fast.1.speculation.expect("it was on").rounds, 1, "given up after the first round");
    }
}
