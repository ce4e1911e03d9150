//! What is refused before anything runs, and what happens when a drafter fails while it runs.

use crate::support::{assert_goes_on, assert_same, chosen, entries, free, ways};
use pollster::block_on;
use redraft::{
    DrafterFile, Engine, EngineOptions, Error, GenerateOptions, GgmlType, ModelError, Origin, Plan,
    SamplingParams, Speculation, TokenId,
};
use redraft_testing::{RoleTypes, TinyDrafter, TinyModel};
use redraft_tests::{Parts, answer, load, tiny, tokens};

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
    engine.set_costs(&free()).expect("good costs");
    let bare = SamplingParams::default();
    let warm = SamplingParams {
        temperature: 0.7,
        seed: 4,
        repetition_penalty: 1.3,
        presence_penalty: 0.4,
        ..bare.clone()
    };
    // Nothing but one token is said, which a lookup finds: the round that fails has more tokens than the one after its root.
    let again = TokenId(11);
    let one = SamplingParams { logit_bias: vec![(again, 60.0)], ..warm.clone() };
    let reconsider = Plan::reconsider(15, 5, 4, 4, 3, 2);
    let ways = [
        ("chain", Speculation::Plan(Plan::chain(3))),
        ("reconsider", Speculation::Plan(reconsider)),
        ("reconsider and lookup", Speculation::Plan(Plan { lookup: true, ..reconsider })),
        ("auto", Speculation::Auto),
    ];
    let (mut chosen_by_auto, mut looked_up) = (0, 0);
    for (seed, sampling) in [(3, &bare), (4, &warm), (5, &one)] {
        let mut prompt = tokens(seed, 12, 320).repeat(2);
        if !sampling.logit_bias.is_empty() {
            prompt.extend([again; 6]);
        }
        let options = GenerateOptions {
            max_tokens: 30,
            ignore_eos: true,
            sampling: sampling.clone(),
            ..GenerateOptions::default()
        };
        let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
        for (name, way) in ways {
            // Read late, another round is under way when the first one tells that it is broken.
            for read_late in [false, true] {
                let options = GenerateOptions { read_late, ..options.clone() };
                let fast = chosen(&mut engine, &prompt, &options, way);
                let what = format!("{name}, T = {}, seed {seed}, late: {read_late}", sampling.temperature);
                assert_same(&what, &plain, &fast);
                let stats = fast.1.speculation.expect("it was on");
                let drafted = way != Speculation::Auto || fast.1.warning.is_some();
                if drafted {
                    let warning = fast.1.warning.expect("somebody is told");
                    assert!(warning.contains("the drafter computed"), "{what}: {warning}");
                    chosen_by_auto += u32::from(way == Speculation::Auto);
                }
                if way != Speculation::Auto {
                    assert_eq!(stats.rounds, 1, "{what}: given up after the first round");
                    looked_up += stats.lookup_hits;
                }
                let said = prompt.iter().chain(&plain.1.ids).copied();
                let turn: Vec<_> = said.chain(tokens(seed + 9, 3, 320)).collect();
                let short = GenerateOptions { max_tokens: 8, ..options };
                assert_goes_on(&what, &mut engine, &turn, &short, way);
            }
        }
    }
    assert!(chosen_by_auto > 0, "the automatic choice never tried the drafter");
    assert!(looked_up > 2, "only {looked_up} looked-up tokens were accepted beside broken proposals");
}

/// A model of which one token's embedding is no number: whatever stands behind that token cannot be computed.
fn poisoned(token: TokenId) -> Vec<u8> {
    let types = RoleTypes::all(GgmlType::F32);
    let mut parts = Parts::of(&tiny(&TinyModel { tied: false, types, ..TinyModel::default() }));
    let table = parts
        .tensors
        .iter_mut()
        .find(|tensor| tensor.name == "token_embd.weight")
        .expect("every model has it");
    let row = table.bytes.len() / 320;
    for value in table.bytes[token.0 as usize * row..][..row].chunks_exact_mut(4) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    parts.to_bytes()
}

/// The tokens that come before the error, who proposed the last one, and the error.
fn until_it_fails(
    engine: &mut Engine,
    prompt: &[TokenId],
    options: GenerateOptions,
) -> (Vec<TokenId>, Origin, Option<String>) {
    let mut stream = engine.generate(prompt, options).expect("a valid prompt");
    let (mut ids, mut origin) = (Vec::new(), Origin::Target);
    loop {
        match block_on(stream.next()) {
            Ok(Some(step)) => {
                ids.push(step.id);
                origin = step.origin;
            }
            Ok(None) => return (ids, origin, None),
            Err(error) => {
                assert!(matches!(error, Error::Model(ModelError::NotFinite { .. })), "{error:?}");
                return (ids, origin, Some(error.to_string()));
            }
        }
    }
}

#[test]
fn a_row_that_is_no_number_inside_a_run_fails_where_plain_decoding_does() {
    let poison = TokenId(200);
    let options = EngineOptions { oracle: true, ..EngineOptions::default() };
    let mut engine = load("speculation.poison", &poisoned(poison), options);
    engine.set_costs(&free()).expect("good costs");
    let bias = vec![(TokenId(11), 40.0), (TokenId(90), 40.0), (TokenId(301), 40.0), (poison, 39.0)];
    let (mut failed, mut inside) = (0, 0);
    for seed in 0..24u64 {
        let prompt: Vec<_> = tokens(seed, 6, 320).into_iter().filter(|token| *token != poison).collect();
        let sampling =
            SamplingParams { temperature: 3.0, seed, logit_bias: bias.clone(), ..SamplingParams::default() };
        let options =
            GenerateOptions { max_tokens: 30, ignore_eos: true, sampling, ..GenerateOptions::default() };
        let plain = until_it_fails(&mut engine, &prompt, options.clone());
        if plain.2.is_none() {
            continue;
        }
        assert_eq!(plain.0.last(), Some(&poison), "it fails behind the token");
        failed += 1;
        // The oracle goes on behind it.
        let known: Vec<_> = plain.0.iter().copied().chain(tokens(seed, 8, 320)).collect();
        let first = u32::try_from(prompt.len()).expect("short");
        engine.foretell(first, &entries(&known, 0.05, 320, seed)).expect("fits");
        for (name, speculation) in ways() {
            for read_late in [false, true] {
                let options = GenerateOptions { speculation, read_late, ..options.clone() };
                let fast = until_it_fails(&mut engine, &prompt, options);
                assert_eq!(fast.0, plain.0, "{name}, seed {seed}: the tokens before it");
                assert_eq!(fast.2, plain.2, "{name}, seed {seed}: the error");
                inside += usize::from(fast.1 != Origin::Target);
            }
        }
        // The engine goes on.
        let harmless = GenerateOptions { max_tokens: 5, ..GenerateOptions::default() };
        let before = answer(&mut engine, &prompt, harmless.clone());
        engine.reset();
        let after = answer(&mut engine, &prompt, harmless);
        assert_eq!(before.map(|found| found.1.ids).ok(), after.map(|found| found.1.ids).ok(), "seed {seed}");
    }
    assert!(failed >= 8 && inside > 50, "{failed} answers failed, {inside} of them inside a run");
}

#[test]
fn speculation_that_cannot_be_set_up_is_left_out_with_a_warning() {
    let file = tiny(&TinyModel::default());
    let needed = load("speculation.no_room.size", &file, EngineOptions::default()).memory().total();
    // Room for the model and for nothing else.
    let options = EngineOptions { memory_limit: Some(needed), ..EngineOptions::default() };
    let mut engine = load("speculation.no_room", &file, options);
    let prompt = tokens(3, 9, 320).repeat(2);
    let options = GenerateOptions { max_tokens: 20, ignore_eos: true, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    for speculation in [Speculation::Plan(Plan::lookup(4)), Speculation::Auto] {
        let options = GenerateOptions { speculation, ..options.clone() };
        let found = answer(&mut engine, &prompt, options).expect("an answer");
        assert_same("no room to speculate", &plain, &found);
        let warning = found.1.warning.expect("somebody is told");
        assert!(warning.contains("could not be set up") && warning.contains("draft trees"), "{warning}");
        assert_eq!(found.1.speculation.expect("it was asked for").rounds, 0, "and nothing was drafted");
    }
}

#[test]
fn a_memory_limit_counts_the_drafter() {
    let shape = TinyDrafter::default();
    let file = tiny(&shape.target);
    let with = |limit: Option<u64>| {
        let drafter = Some(shape.to_file().expect("a possible drafter"));
        let options = EngineOptions { drafter, memory_limit: limit, ..EngineOptions::default() };
        block_on(Engine::load(&file, options, |_| {}))
    };
    let memory = with(None).expect("its own target").memory();
    assert!(memory.drafter > 100_000 && memory.trees > 50_000, "{memory}");
    assert!(with(Some(memory.total())).is_ok(), "just enough");
    let error = with(Some(memory.total() - 1)).map(|_| ()).expect_err("a byte too few");
    assert!(matches!(error, Error::Model(ModelError::Memory { .. })), "{error:?}");
    assert!(error.to_string().contains(&format!("drafter {}", memory.drafter)), "{error}");
}
