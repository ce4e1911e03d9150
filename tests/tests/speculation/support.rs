//! Proposers whose acceptance is known, and answers with and without them.

use redraft::{
    Costs, Curve, Engine, Gate, GenerateOptions, Generation, OracleEntry, Origin, Plan, RoundTrace,
    Speculation, Step, TokenId, TreeKernel,
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
        ("reconsider, no gate", Plan { gate: Gate::Off, ..reconsider }),
        ("control", Plan { control: true, ..reconsider }),
        ("reconsider and lookup", Plan { lookup: true, ..reconsider }),
    ]
}

/// Every way to answer that drafts: all plans, lookup alone, and the automatic choice, which mixes them with plain steps.
pub(crate) fn ways() -> Vec<(&'static str, Speculation)> {
    let fixed = plans().into_iter().chain([("lookup", Plan::lookup(4))]);
    fixed.map(|(name, plan)| (name, Speculation::Plan(plan))).chain([("auto", Speculation::Auto)]).collect()
}

/// Those that a drafter without tables can serve: a gate that reads a table needs one.
pub(crate) fn ways_without_tables() -> Vec<(&'static str, Speculation)> {
    let reads = |way: &Speculation| matches!(way, Speculation::Plan(plan) if plan.gate == Gate::Calibrated);
    ways().into_iter().filter(|(_, way)| !reads(way)).collect()
}

/// Whether a drafter proposes in every round.
pub(crate) fn drafts(way: Speculation) -> bool {
    matches!(way, Speculation::Plan(plan) if plan.drafter)
}

/// Costs by which every round is cheap, so that an automatic choice begins with trying everything.
pub(crate) fn free() -> Costs {
    Costs {
        verify: Curve::new(vec![(1, 1.0), (2, 0.2), (32, 0.2)]).expect("a curve"),
        draft: Curve::new(vec![(1, 0.0)]).expect("a curve"),
        extend: 0.0,
        overhead: 0.0,
        catch_up: 0.0,
        catch_up_most: 0,
    }
}

/// What an automatic choice did in many answers: both kinds of steps must be among it.
#[derive(Debug, Default)]
pub(crate) struct Mixed {
    rounds: u64,
    plain: u64,
    accepted: u64,
}

impl Mixed {
    pub(crate) fn count(&mut self, generation: &Generation) {
        let stats = generation.speculation.as_ref().expect("speculation was on");
        self.rounds += stats.rounds;
        self.plain += stats.plain;
        self.accepted += stats.accepted;
    }

    /// Asserts that there were rounds and plain steps.
    pub(crate) fn check(&self, what: &str) {
        assert!(self.rounds > 0 && self.plain > 0, "{what}: the automatic choice did not mix: {self:?}");
    }

    /// The same with an oracle, which is right more often than not.
    pub(crate) fn check_accepted(&self, what: &str) {
        self.check(what);
        assert!(
            self.accepted > 0,
            "{what}: nothing that the automatic choice drafted was accepted: {self:?}"
        );
    }
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
    chosen(engine, prompt, options, Speculation::Plan(plan))
}

/// The answer with a plan or an automatic choice.
pub(crate) fn chosen(
    engine: &mut Engine,
    prompt: &[TokenId],
    options: &GenerateOptions,
    speculation: Speculation,
) -> (Vec<Step>, Generation) {
    let options = GenerateOptions { speculation, ..options.clone() };
    answer(engine, prompt, options).expect("an answer")
}

/// Asserts that the answer to another turn, which goes on behind whatever the last answer left, is that of an engine that
/// has forgotten everything.
pub(crate) fn assert_goes_on(
    what: &str,
    engine: &mut Engine,
    turn: &[TokenId],
    options: &GenerateOptions,
    speculation: Speculation,
) {
    let behind = chosen(engine, turn, options, speculation);
    engine.reset();
    let plain = GenerateOptions { speculation: Speculation::Off, read_late: false, ..options.clone() };
    let fresh = answer(engine, turn, plain).expect("an answer");
    assert_same(&format!("{what}, the turn behind it"), &fresh, &behind);
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
