//! Proposers whose acceptance is known, and answers with and without them.

use redraft::{
    Engine, Gate, GenerateOptions, Generation, OracleEntry, Origin, Plan, RoundTrace, Speculation, Step,
    TokenId, TreeKernel,
};
use redraft_testing::Prng;
use redraft_tests::answer;

/// Plans of every kind, by name.
pub(crate) fn plans() -> Vec<(&'static str, Plan)> {
    let reconsider = Plan::reconsider(15, 5, 4, 4, 3, 2);
    vec![
        ("chain of 1", Plan::chain(1)),
        ("chain of 3", Plan::chain(3)),
        ("chain of 7", Plan::chain(7)),
        ("tree of 7", Plan::tree(7, 3, 3, 3)),
        ("tree of 31", Plan::tree(31, 7, 8, 4)),
        ("reconsider", reconsider),
        ("reconsider, expanded", Plan { expand_refined: true, ..reconsider }),
        ("reconsider, random gate", Plan { gate: Gate::Random, ..reconsider }),
        ("reconsider, entropy", Plan { gate: Gate::Entropy, ..reconsider }),
        ("reconsider, no recurrence", Plan { no_recurrence: true, ..reconsider }),
        ("reconsider, calibrated", Plan { gate: Gate::Calibrated, ..reconsider }),
        ("control", Plan { control: true, ..reconsider }),
        ("reconsider and lookup", Plan { lookup: true, ..reconsider }),
    ]
}

/// The largest plans that there are: of nodes, of depth, of rows of a step and of the pool.
pub(crate) fn largest() -> Vec<(&'static str, Plan)> {
    vec![
        ("the longest chain", Plan::chain(16)),
        ("the widest tree", Plan { nodes: 63, ..Plan::tree(63, 8, 16, 8) }),
        (
            "the deepest tree",
            Plan { lookup: true, gate: Gate::Entropy, ..Plan::reconsider(63, 16, 6, 6, 6, 4) },
        ),
    ]
}

/// What an oracle proposes for the tokens of `known`: right more often than not, at a random rank, sometimes only in the
/// second pass, sometimes not at all.
pub(crate) fn entries(known: &[TokenId], wrong: f32, vocab: u32, seed: u64) -> Vec<OracleEntry> {
    let mut prng = Prng::new(seed);
    let mut below = |limit: usize| prng.below(limit);
    known
        .iter()
        .map(|right| {
            let mut pass = |misses: f32| {
                let mut tokens: Vec<TokenId> = Vec::new();
                while tokens.len() < 8 {
                    let token = TokenId(u32::try_from(below(vocab as usize)).expect("below vocab"));
                    if token != *right && !tokens.contains(&token) {
                        tokens.push(token);
                    }
                }
                #[expect(clippy::cast_precision_loss, reason = "a share of a thousand")]
                let hit = below(1000) as f32 >= misses * 1000.0;
                if hit {
                    let rank = [0, 0, 0, 1, 1, 2, 3][below(7)];
                    tokens[rank] = *right;
                }
                tokens
                    .into_iter()
                    .zip([-0.3f32, -1.4, -2.5, -3.5, -4.5, -5.5, -6.5, -7.5])
                    .collect::<Vec<_>>()
            };
            let (first, second) = (pass(wrong), pass(wrong * 0.7));
            #[expect(clippy::cast_precision_loss, reason = "a share of a thousand")]
            let unsure = below(1000) as f32 / 1000.0;
            OracleEntry { first, second, unsure }
        })
        .collect()
}

/// The answer with a plan.
pub(crate) fn speculated(
    engine: &mut Engine,
    prompt: &[TokenId],
    options: &GenerateOptions,
    plan: Plan,
) -> (Vec<Step>, Generation) {
    let options = GenerateOptions { speculation: Speculation::Plan(plan), ..options.clone() };
    answer(engine, prompt, options).expect("an answer")
}

/// Asserts that two answers are the same, timings and statistics aside.
pub(crate) fn assert_same(what: &str, plain: &(Vec<Step>, Generation), fast: &(Vec<Step>, Generation)) {
    assert_eq!(fast.1.ids, plain.1.ids, "{what}: ids");
    assert_eq!(fast.1.text, plain.1.text, "{what}: text");
    assert_eq!(fast.1.stop_reason, plain.1.stop_reason, "{what}: reason");
    for (at, (a, b)) in plain.0.iter().zip(&fast.0).enumerate() {
        assert_eq!((&a.text, &a.log_probs), (&b.text, &b.log_probs), "{what}: step {at}");
    }
}

/// How long the accepted runs of an answer were: tokens in a row that somebody had drafted.
pub(crate) fn runs(steps: &[Step]) -> Vec<usize> {
    let mut runs = Vec::new();
    let mut run = 0;
    for step in steps.iter().skip(1) {
        if step.origin == Origin::Target {
            runs.push(run);
            run = 0;
        } else {
            run += 1;
        }
    }
    runs
}

/// The trees that were asked for.
pub(crate) fn traces(steps: &[Step]) -> Vec<RoundTrace> {
    steps.iter().filter_map(|step| step.trace.clone()).collect()
}

/// The answer with a plan and its trees, kernels of `on_cpu` replaced by their twins.
pub(crate) fn traced(
    engine: &mut Engine,
    prompt: &[TokenId],
    options: &GenerateOptions,
    plan: Plan,
    on_cpu: &[TreeKernel],
) -> (Vec<Step>, Generation) {
    let options = GenerateOptions { trace: true, on_cpu: on_cpu.to_vec(), ..options.clone() };
    speculated(engine, prompt, &options, plan)
}
