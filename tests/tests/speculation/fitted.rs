//! A drafter with weights that is right now and then: a random body whose head is fitted to what the target says.
//!
//! The head is a linear classifier on the body's outputs; a few hundred steps of gradient descent on the tiny target's own
//! greedy answers fit it, the same on every run. So tokens are accepted, and rescued, that come out of the kernels.

use crate::support::{assert_same, speculated};
use pollster::block_on;
use redraft::{
    CaptureLayers, DrafterFile, Engine, EngineOptions, GenerateOptions, Plan, Quantization, Rows,
    SamplingParams, TokenId, Want,
};
use redraft_testing::reference::Drafter;
use redraft_testing::{Forward, TinyDrafter};
use redraft_tests::{answer, ids, load, tiny, tokens};

/// Tokens of a prompt, and of an answer.
const PROMPT: usize = 12;
const ANSWER: u32 = 48;
/// Passes over all examples.
const PASSES: usize = 120;

/// The body: its output is normed, which is what the head reads, and it may propose every token.
fn body() -> TinyDrafter {
    TinyDrafter { norm_output: true, draft_vocab: 320, pass_embedding: true, ..TinyDrafter::default() }
}

/// What the body makes of greedy answers, and the token that comes next.
fn examples(file: &Vec<u8>, drafter: &DrafterFile, seeds: std::ops::Range<u64>) -> Vec<(Vec<f32>, usize)> {
    let shape = body();
    let captures = CaptureLayers::At(shape.captures.to_vec());
    let mut engine =
        load("speculation.fitted.examples", file, EngineOptions { captures, ..EngineOptions::default() });
    let target = Forward::load(file).expect("a valid file");
    let width = shape.target.hidden;
    let mut examples = Vec::new();
    for seed in seeds {
        let prompt = tokens(seed, PROMPT, 320);
        let greedy = GenerateOptions { max_tokens: ANSWER, ignore_eos: true, ..GenerateOptions::default() };
        let found = answer(&mut engine, &prompt, greedy).expect("an answer").1;
        let whole: Vec<TokenId> = prompt.iter().chain(&found.ids).copied().collect();
        engine.reset();
        let rows = whole.len() - 1;
        let want = Want { logits: Rows::None, captures: true };
        let captured = block_on(engine.forward(&whole[..rows], want)).expect("fits").captures;
        let row = |row: usize| {
            let captured = &captured;
            (0..3).flat_map(move |layer| captured[(layer * rows + row) * width..][..width].iter().copied())
        };
        let features: Vec<f32> = (0..rows).flat_map(row).collect();
        let mut reference = Drafter::load(drafter, &target).expect("a valid drafter");
        let outputs = reference.extend(&features, &ids(&whole[1..])).expect("as many tokens as rows");
        // Row t reads token t + 1 and is asked for token t + 2, of which the answer's are the target's own.
        for (output, next) in outputs.into_iter().zip(&whole[2..]).skip(PROMPT - 2) {
            examples.push((output.hidden, next.0 as usize));
        }
    }
    examples
}

/// The drafter with a head that gradient descent on the cross-entropy fitted to the examples.
fn fitted(drafter: &DrafterFile, examples: &[(Vec<f32>, usize)]) -> DrafterFile {
    let columns = body().hidden;
    assert_eq!(drafter.draft_ids(), (0..320).collect::<Vec<u32>>(), "rows of the head are tokens");
    let mut head = vec![0.0f32; 320 * columns];
    for pass in 0..PASSES {
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let rate = 0.2 / (1.0 + pass as f32 / 20.0);
        for (x, right) in examples {
            let logits: Vec<f32> =
                head.chunks_exact(columns).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
            let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = logits.iter().map(|logit| (logit - greatest).exp()).collect();
            let sum: f32 = weights.iter().sum();
            for ((token, row), weight) in head.chunks_exact_mut(columns).enumerate().zip(&weights) {
                let step = rate * (f32::from(u8::from(token == *right)) - weight / sum);
                row.iter_mut().zip(x).for_each(|(w, x)| *w += step * x);
            }
        }
    }
    let mut parts = drafter.clone().into_parts();
    let tensor = parts.tensors.get_mut("lm_head.weight").expect("every drafter has it");
    tensor.bytes = head.iter().flat_map(|value| value.to_le_bytes()).collect();
    DrafterFile::new(parts).expect("finite weights")
}

/// The shape, and a drafter of that shape which is fitted to the greedy answers to the first ten prompts.
pub(crate) fn fitted_drafter() -> (TinyDrafter, DrafterFile) {
    let shape = body();
    let random = shape.to_file().expect("a possible drafter");
    let drafter = fitted(&random, &examples(&tiny(&shape.target), &random, 0..10));
    (shape, drafter)
}

#[test]
fn a_fitted_drafter_is_accepted_and_its_second_passes_rescue() {
    let (shape, drafter) = fitted_drafter();
    let file = tiny(&shape.target);
    let options = EngineOptions {
        drafter: Some(drafter),
        drafter_quantization: Some(Quantization::F32),
        ..EngineOptions::default()
    };
    let mut engine: Engine = load("speculation.fitted", &file, options);
    let reconsider = Plan::reconsider(15, 4, 3, 2, 3, 4);
    let plans = [
        ("chain of 1", Plan::chain(1)),
        ("chain of 3", Plan::chain(3)),
        ("tree", Plan::tree(15, 4, 3, 3)),
        ("reconsider", reconsider),
        ("reconsider, few children", Plan { children: 1, ..reconsider }),
        ("reconsider, expanded", Plan { children: 1, expand_refined: true, ..reconsider }),
        ("control", Plan { control: true, ..reconsider }),
    ];
    let (mut rescues, mut deeper) = (0, 0);
    for (name, plan) in plans {
        let (mut accepted, mut rounds, mut unseen) = (0, 0, 0);
        // Prompts that the head was fitted on, prompts that it was not, and one at a temperature.
        for (seed, temperature) in (0..14).map(|seed| (seed, 0.0)).chain([(3, 0.5)]) {
            let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
            let options = GenerateOptions {
                max_tokens: ANSWER,
                ignore_eos: true,
                sampling,
                ..GenerateOptions::default()
            };
            let prompt = tokens(seed, PROMPT, 320);
            let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
            let fast = speculated(&mut engine, &prompt, &options, plan);
            assert_same(&format!("{name}, seed {seed}, T = {temperature}"), &plain, &fast);
            let stats = fast.1.speculation.expect("speculation was on");
            (accepted, rounds) = (accepted + stats.accepted, rounds + stats.rounds);
            unseen += if seed >= 10 { stats.accepted } else { 0 };
            deeper += stats.by_depth.iter().skip(1).map(|depth| depth.accepted).sum::<u64>();
            rescues += if plan.control { 0 } else { stats.rescues };
        }
        println!(
            "{name}: {accepted} accepted in {rounds} rounds, {unseen} of them in texts it was not fitted on"
        );
        assert!(accepted * 4 > rounds, "{name}: only {accepted} tokens were accepted in {rounds} rounds");
    }
    assert!(deeper > 50, "only {deeper} tokens below the first level were accepted");
    assert!(rescues > 0, "no second pass rescued a token");
}
