//! The trees themselves: kernels against their twins, drafters against their reference.

use crate::support::{assert_same, entries, plans, speculated};
use pollster::block_on;
use redraft::{
    CaptureLayers, Engine, EngineOptions, GenerateOptions, Generation, Origin, Plan, Quantization,
    RoundTrace, Rows, SamplingParams, Speculation, Step, TokenId, TreeKernel, Want,
};
use redraft_testing::reference::{self, DraftOutput, DraftRow, KvType};
use redraft_testing::{Forward, TinyDrafter, TinyModel};
use redraft_tests::{answer, ids, load, tiny, tokens};

fn traces(steps: &[Step]) -> Vec<RoundTrace> {
    steps.iter().filter_map(|step| step.trace.clone()).collect()
}

fn traced(
    engine: &mut Engine,
    prompt: &[TokenId],
    options: &GenerateOptions,
    plan: Plan,
    on_cpu: &[TreeKernel],
) -> (Vec<Step>, Generation) {
    let options = GenerateOptions { trace: true, on_cpu: on_cpu.to_vec(), ..options.clone() };
    speculated(engine, prompt, &options, plan)
}

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

/// Log-probabilities of the target's tokens under draft logits.
struct Said(Vec<(u32, f32)>);

impl Said {
    fn new(drafter: &reference::Drafter, output: &DraftOutput) -> Self {
        let greatest = output.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = output.logits.iter().map(|l| (l - greatest).exp()).sum();
        let token = |at| drafter.token(at).expect("a row of the head");
        Self(output.logits.iter().enumerate().map(|(at, l)| (token(at), l - greatest - sum.ln())).collect())
    }

    fn of(&self, token: TokenId) -> f32 {
        self.0.iter().find(|(id, _)| *id == token.0).expect("a token of the draft vocabulary").1
    }

    fn best(&self) -> f32 {
        self.0.iter().map(|(_, log_q)| *log_q).fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Compares what was proposed below a node with what the reference makes of it, all the way down.
struct Walk<'a> {
    drafter: reference::Drafter,
    trace: &'a RoundTrace,
    compared: usize,
    second_passes: usize,
}

impl Walk<'_> {
    /// `score`: of the node before a second pass of its parent raised it, which is what its first-pass children add to.
    fn node(&mut self, at: usize, output: &DraftOutput, chain: &[usize], score: f32) {
        let node = &self.trace.nodes[at];
        let said = Said::new(&self.drafter, output);
        let unsure = node.unsure.expect("an evaluated node");
        assert!((unsure - (1.0 - said.best().exp())).abs() < 2e-3, "node {at}: {unsure}");
        let children: Vec<usize> =
            (0..self.trace.nodes.len()).filter(|child| self.trace.nodes[*child].parent == Some(at)).collect();
        let close = |child: usize, expected: f32| {
            let found = self.trace.nodes[child].score;
            assert!((found - expected).abs() < 1e-2, "child {child} of {at}: {found}, expected {expected}");
        };
        let position = self.trace.start as usize - 1 + node.depth as usize;
        let mut refined = None;
        if node.reconsidered {
            let row =
                DraftRow { token: node.token.0, position, chain, second_pass: true, feature: &output.hidden };
            refined = self.drafter.step(&[row]).expect("a valid row").pop();
        }
        let again = refined.as_ref().map(|output| Said::new(&self.drafter, output));
        let mut compared = 0;
        for child in &children {
            let token = self.trace.nodes[*child].token;
            let first = score + said.of(token);
            match (self.trace.nodes[*child].origin, &again) {
                (Origin::Refined, Some(again)) => close(*child, node.score + again.of(token)),
                // A second pass may have raised it.
                (Origin::Drafted, Some(again)) if self.trace.nodes[*child].score > first + 1e-2 => {
                    close(*child, node.score + again.of(token));
                }
                (Origin::Drafted, _) => close(*child, first),
                (origin, _) => panic!("child {child} of {at} is from {origin:?}"),
            }
            compared += 1;
        }
        self.compared += compared;
        self.second_passes += usize::from(node.reconsidered);
        for child in children {
            let node = &self.trace.nodes[child];
            if node.unsure.is_some() {
                let row = DraftRow {
                    token: node.token.0,
                    position: position + 1,
                    chain,
                    second_pass: false,
                    feature: match (node.origin, &refined) {
                        (Origin::Refined, Some(refined)) => &refined.hidden,
                        _ => &output.hidden,
                    },
                };
                let output = self.drafter.step(&[row]).expect("a valid row").pop().expect("one row");
                let longer: Vec<usize> = chain.iter().copied().chain([output.slot]).collect();
                let own = match (node.origin, &again) {
                    (Origin::Refined, _) => node.score,
                    _ => score + said.of(node.token),
                };
                self.node(child, &output, &longer, own);
            }
        }
    }
}

fn against_the_reference(name: &str, shape: &TinyDrafter, plan: Plan, strict: bool) {
    let file = tiny(&shape.target);
    let drafter = shape.to_file().expect("a possible drafter");
    let options = EngineOptions {
        drafter: Some(drafter.clone()),
        drafter_quantization: Some(Quantization::F32),
        strict,
        ..EngineOptions::default()
    };
    let mut engine = load(name, &file, options);
    let layers = CaptureLayers::At(shape.captures.to_vec());
    let mut features =
        block_on(Engine::load(&file, EngineOptions { captures: layers, ..EngineOptions::default() }, |_| {}))
            .expect("a loadable model");
    let target = Forward::load(&file).expect("a valid file");
    let prompt = tokens(4, 70, 320);
    let options = GenerateOptions { max_tokens: 8, ignore_eos: true, ..GenerateOptions::default() };
    let (steps, generation) = traced(&mut engine, &prompt, &options, plan, &[]);
    let whole: Vec<TokenId> = prompt.iter().chain(&generation.ids).copied().collect();
    let (mut compared, mut second_passes) = (0, 0);
    for trace in traces(&steps).iter().take(3) {
        let start = trace.start as usize;
        assert_eq!(trace.nodes[0].token, whole[start], "the root is the token behind the committed ones");
        features.reset();
        let want = Want { logits: Rows::None, captures: true };
        let captured = block_on(features.forward(&whole[..start], want)).expect("fits").captures;
        let width = shape.target.hidden;
        let rows: Vec<f32> = (0..start)
            .flat_map(|row| {
                let captured = &captured;
                (0..3)
                    .flat_map(move |layer| captured[(layer * start + row) * width..][..width].iter().copied())
            })
            .collect();
        let mut reference =
            reference::Drafter::load(&drafter, &target).expect("a valid drafter").with_kv(KvType::F16);
        let last = reference
            .extend(&rows, &ids(&whole[1..=start]))
            .expect("as many tokens as features")
            .pop()
            .expect("at least one row");
        let mut walk = Walk { drafter: reference, trace, compared: 0, second_passes: 0 };
        walk.node(0, &last, &[], 0.0);
        compared += walk.compared;
        second_passes += walk.second_passes;
    }
    assert!(compared > 12, "only {compared} nodes were compared");
    assert!(plan.reconsider == 0 || second_passes > 3, "only {second_passes} second passes");
}

#[test]
fn drafters_compute_what_their_reference_does() {
    let plan = Plan { refined: 3, ..Plan::reconsider(20, 4, 3, 4, 3, 2) };
    let everything = TinyDrafter { tables: false, ..TinyDrafter::with_everything() };
    against_the_reference("speculation.reference.plain", &TinyDrafter::default(), plan, false);
    against_the_reference("speculation.reference.everything", &everything, plan, false);
    let expanded = Plan { expand_refined: true, ..plan };
    against_the_reference("speculation.reference.expanded", &everything, expanded, true);
    against_the_reference("speculation.reference.chain", &everything, Plan::chain(5), true);
}

#[test]
fn a_kept_answer_is_as_computed_step_by_step() {
    // Keys and values of accepted rows move up in the cache: bit for bit what plain decoding writes.
    let file = tiny(&TinyModel::default());
    let options = EngineOptions { oracle: true, ..EngineOptions::default() };
    let mut engine = load("speculation.cache", &file, options);
    let prompt = tokens(6, 10, 320);
    let options = GenerateOptions { max_tokens: 60, ignore_eos: true, ..GenerateOptions::default() };
    let plain = answer(&mut engine, &prompt, options.clone()).expect("an answer");
    let cache = |engine: &Engine| -> Vec<Vec<u8>> {
        let layers = usize::try_from(engine.config().layers).expect("few");
        (0..layers)
            .flat_map(|layer| (0..engine.position()).map(move |slot| (layer, slot)))
            .flat_map(|(layer, slot)| {
                let (key, value) = engine.model().key_value(layer, slot).expect("within the cache");
                [key, value].map(|slice| block_on(engine.model().gpu().fetch(slice)).expect("a fetch"))
            })
            .collect()
    };
    let expected = cache(&engine);
    assert!(expected.iter().flatten().any(|byte| *byte != 0), "a cache that was written");
    engine.foretell(10, &entries(&plain.1.ids, 0.1, 320, 8)).expect("fits");
    for (name, plan) in plans() {
        engine.reset();
        let options = GenerateOptions { speculation: Speculation::Plan(plan), ..options.clone() };
        answer(&mut engine, &prompt, options).expect("an answer");
        assert_eq!(engine.position(), 69, "{name}");
        assert!(cache(&engine) == expected, "{name}: another cache");
    }
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
