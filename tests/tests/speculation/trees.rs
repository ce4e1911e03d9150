//! The trees themselves: kernels against their twins, and what a round leaves behind.

use crate::support::{assert_same, entries, plans, speculated, traced, traces};
use pollster::block_on;
use redraft::{
    Engine, EngineOptions, GenerateOptions, Plan, RoundTrace, SamplingParams, TokenId, TreeKernel,
};
use redraft_gpu::Slice;
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};

#[test]
fn every_kernel_is_its_twin() {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, ..EngineOptions::default() };
    twins(load("speculation.twins", &file, options));
}

#[test]
fn every_kernel_is_its_twin_in_the_strict_tier() {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, strict: true, ..EngineOptions::default() };
    twins(load("speculation.twins.strict", &file, options));
}

#[test]
fn every_kernel_is_its_twin_with_calibrated_tables() {
    let drafter = TinyDrafter { tables: true, ..TinyDrafter::default() };
    let file = tiny(&drafter.target);
    let drafter = drafter.to_file().expect("a possible drafter");
    assert!(drafter.reconsider().settings.calibrated, "scores come from tables");
    let options = EngineOptions { drafter: Some(drafter), ..EngineOptions::default() };
    twins(load("speculation.twins.calibrated", &file, options));
}

/// `engine`: with a drafter, or with an oracle that then knows most of the answer.
fn twins(mut engine: Engine) {
    let prompt = [tokens(2, 6, 320), tokens(2, 6, 320)].concat();
    let sampling = SamplingParams { temperature: 0.8, seed: 3, ..SamplingParams::default() };
    let options =
        GenerateOptions { max_tokens: 30, ignore_eos: true, sampling, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    if engine.foretell(12, &entries(&plain.1.ids, 0.2, 320, 3)).is_err() {
        assert!(engine.has_drafter(), "an oracle or a drafter");
    }
    let mut rounds = 0;
    let mut all: Vec<Vec<TreeKernel>> = TreeKernel::ALL.iter().map(|kernel| vec![*kernel]).collect();
    all.push(TreeKernel::ALL.to_vec());
    for (name, plan) in plans().into_iter().chain([("lookup", Plan::lookup(6))]) {
        let fast = speculated(&mut engine, &prompt, &options, plan);
        let gpu = traced(&mut engine, &prompt, &options, plan, &[]);
        assert_same(name, &plain, &gpu);
        assert_eq!(fast.1.speculation, gpu.1.speculation, "{name}: looking does not change what happens");
        assert!(traces(&fast.0).is_empty(), "{name}: no trace unless asked for");
        let expected = traces(&gpu.0);
        rounds += expected.len();
        for kernels in &all {
            let cpu = traced(&mut engine, &prompt, &options, plan, kernels);
            assert_same(&format!("{name}, {kernels:?}"), &plain, &cpu);
            assert_eq!(cpu.1.speculation, gpu.1.speculation, "{name}, {kernels:?}: statistics");
            let found = traces(&cpu.0);
            assert_eq!(found.len(), expected.len(), "{name}, {kernels:?}: rounds");
            for (round, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{name}, {kernels:?}: tree of round {round}");
            }
        }
    }
    assert!(rounds > 60, "only {rounds} trees");
}

#[test]
fn a_kept_answer_is_as_computed_step_by_step() {
    kept("speculation.cache", false, &[(0.0, 6), (0.7, 7), (1.0, 8)]);
}

#[test]
fn a_kept_answer_is_as_computed_step_by_step_strictly() {
    kept("speculation.cache.strict", true, &[(0.0, 6), (1.0, 9)]);
}

/// Keys and values of accepted rows move up in the cache: bit for bit what plain decoding writes.
fn kept(name: &str, strict: bool, cases: &[(f32, u64)]) {
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, strict, ..EngineOptions::default() };
    let mut engine = load(name, &file, options);
    // Slots of a layer are one behind the other.
    let cache = |engine: &Engine| -> Vec<Vec<u8>> {
        let layers = usize::try_from(engine.config().layers).expect("few");
        (0..layers)
            .flat_map(|layer| {
                let (key, value) = engine.model().key_value(layer, 0).expect("within the cache");
                [key, value].map(|slot| {
                    let size = slot.size * u64::from(engine.position());
                    block_on(engine.model().gpu().fetch(Slice { size, ..slot })).expect("a fetch")
                })
            })
            .collect()
    };
    let mut moved = 0;
    for &(temperature, seed) in cases {
        let prompt = tokens(seed, 10, 320);
        let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 60, ignore_eos: true, sampling, ..GenerateOptions::default() };
        engine.reset();
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        let expected = cache(&engine);
        assert!(expected.iter().all(|layer| layer.iter().any(|byte| *byte != 0)), "a cache that was written");
        engine.foretell(10, &entries(&plain.1.ids, 0.1, 320, seed + 2)).expect("fits");
        for (name, plan) in plans() {
            engine.reset();
            let fast = speculated(&mut engine, &prompt, &options, plan);
            let what = format!("{name}, T = {temperature}, seed {seed}");
            assert_same(&what, &plain, &fast);
            assert_eq!(engine.position(), 69, "{what}");
            assert!(cache(&engine) == expected, "{what}: another cache");
            // The same trees, looked at: a path whose rows are 1, 2, 3 … is in place, every other one was moved.
            engine.reset();
            let looked = traced(&mut engine, &prompt, &options, plan, &[]);
            assert_eq!(looked.1.speculation, fast.1.speculation, "{what}: the same trees");
            assert!(cache(&engine) == expected, "{what}: another cache, kernel by kernel");
            let in_place = |trace: &RoundTrace| {
                (0..).zip(&trace.accepted).all(|(at, node)| trace.nodes[*node].row == Some(at))
            };
            moved += traces(&looked.0).iter().filter(|trace| !in_place(trace)).count();
        }
    }
    assert!(moved > 100, "only {moved} paths had to be moved");
}

#[test]
fn a_tree_behind_accepted_tokens_is_that_behind_a_fresh_prompt() {
    // What the drafter knows of accepted tokens are the target's true features, in their order: the next tree is bit for
    // bit the one that it drafts where the same tokens were a prompt.
    let shape = TinyDrafter { tables: false, ..TinyDrafter::with_everything() };
    let file = tiny(&shape.target);
    let drafter = shape.to_file().expect("a possible drafter");
    let options = EngineOptions { drafter: Some(drafter), ..EngineOptions::default() };
    let mut engine = load("speculation.features", &file, options);
    let plan = Plan { lookup: true, ..Plan::reconsider(15, 4, 3, 4, 3, 2) };
    let (mut compared, mut behind_long_paths) = (0, 0);
    for seed in 0..6 {
        let prompt = tokens(seed, 9, 320).repeat(3);
        let options = GenerateOptions { max_tokens: 60, ignore_eos: true, ..GenerateOptions::default() };
        engine.reset();
        let (steps, generation) = traced(&mut engine, &prompt, &options, plan, &[]);
        let whole: Vec<TokenId> = prompt.iter().chain(&generation.ids).copied().collect();
        for pair in traces(&steps).windows(2) {
            let [before, trace] = pair else { continue };
            // Every tree behind a long path, and some others.
            if before.accepted.len() < 3 && compared % 3 != 0 {
                compared += 1;
                continue;
            }
            engine.reset();
            let short = GenerateOptions { max_tokens: 3, ..options.clone() };
            let start = trace.start as usize;
            let (fresh, _) = traced(&mut engine, &whole[..start], &short, plan, &[]);
            let fresh = traces(&fresh);
            let fresh = fresh.first().expect("a round behind the first token");
            assert_eq!(fresh.start, trace.start, "seed {seed}");
            assert_eq!(fresh.nodes, trace.nodes, "seed {seed}, {start} tokens");
            compared += 1;
            behind_long_paths += usize::from(before.accepted.len() >= 3);
        }
    }
    assert!(
        compared > 60 && behind_long_paths > 10,
        "{compared} trees, {behind_long_paths} behind long paths"
    );
}
