//! Drafters on the GPU against their references: what is proposed below every node of a tree, all the way down.

use crate::precise::{Precise, entropy, log_softmax};
use crate::support::{traced, traces};
use pollster::block_on;
use redraft::{
    CaptureLayers, DrafterFile, Engine, EngineOptions, Gate, GenerateOptions, KvType, Origin, Plan,
    Quantization, RoundTrace, Rows, TokenId, TreeKernel, Want,
};
use redraft_testing::reference::{self, DraftOutput, DraftRow};
use redraft_testing::{Forward, TinyDrafter};
use redraft_tests::{ids, load, tiny, tokens};

/// What a row of a reference yields.
struct Said {
    slot: usize,
    /// The feature that the row read, and that of the rows after it; `[H]`.
    input: Vec<f64>,
    hidden: Vec<f64>,
    /// Over the draft vocabulary: tokens of the target and their log-probabilities.
    log_q: Vec<(u32, f64)>,
}

impl Said {
    fn of(&self, token: TokenId) -> f64 {
        self.log_q.iter().find(|(id, _)| *id == token.0).expect("a token of the draft vocabulary").1
    }

    fn unsure(&self, gate: Gate) -> f64 {
        let log_q: Vec<f64> = self.log_q.iter().map(|(_, log_q)| *log_q).collect();
        match gate {
            Gate::Entropy => entropy(&log_q),
            _ => 1.0 - log_q.iter().copied().fold(f64::NEG_INFINITY, f64::max).exp(),
        }
    }
}

/// A reference, row by row.
trait Reference {
    /// Rows with true features; says what the last one yields.
    fn extend(&mut self, features: &[f32], tokens: &[u32]) -> Said;

    /// A row that continues from `feature`.
    fn row(
        &mut self,
        token: u32,
        position: usize,
        chain: &[usize],
        feature: &[f64],
        second_pass: bool,
    ) -> Said;
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

impl Reference for reference::Drafter {
    fn extend(&mut self, features: &[f32], tokens: &[u32]) -> Said {
        let mut outputs = self.extend(features, tokens).expect("as many tokens as features");
        said(self, Vec::new(), &outputs.pop().expect("at least one row"))
    }

    fn row(
        &mut self,
        token: u32,
        position: usize,
        chain: &[usize],
        feature: &[f64],
        second_pass: bool,
    ) -> Said {
        #[expect(clippy::cast_possible_truncation, reason = "they were f32")]
        let narrow: Vec<f32> = feature.iter().map(|value| *value as f32).collect();
        let row = DraftRow { token, position, chain, second_pass, feature: &narrow };
        let output = self.step(&[row]).expect("a valid row").pop().expect("one row");
        said(self, feature.to_vec(), &output)
    }
}

fn said(drafter: &reference::Drafter, input: Vec<f64>, output: &DraftOutput) -> Said {
    let token = |at| drafter.token(at).expect("a row of the head");
    let log_q = log_softmax(&wide(&output.logits));
    Said {
        slot: output.slot,
        input,
        hidden: wide(&output.hidden),
        log_q: log_q.into_iter().enumerate().map(|(at, log_q)| (token(at), log_q)).collect(),
    }
}

impl Reference for Precise<'_> {
    fn extend(&mut self, features: &[f32], tokens: &[u32]) -> Said {
        let (input, output) = self.extend(features, tokens);
        precisely(self, input, output)
    }

    fn row(
        &mut self,
        token: u32,
        position: usize,
        chain: &[usize],
        feature: &[f64],
        second_pass: bool,
    ) -> Said {
        let output = self.row(token, position, chain, feature, second_pass);
        precisely(self, feature.to_vec(), output)
    }
}

fn precisely(drafter: &Precise<'_>, input: Vec<f64>, output: crate::precise::Output) -> Said {
    let log_q = log_softmax(&output.logits).into_iter().enumerate();
    Said {
        slot: output.slot,
        input,
        hidden: output.hidden,
        log_q: log_q.map(|(at, log_q)| (drafter.token(at), log_q)).collect(),
    }
}

/// Compares what was proposed below a node with what the reference makes of it, all the way down.
struct Walk<'a> {
    drafter: &'a mut dyn Reference,
    trace: &'a RoundTrace,
    tolerance: Tolerance,
    seen: Seen,
}

/// Most that a score and an uncertainty may be off.
#[derive(Clone, Copy)]
struct Tolerance {
    score: f64,
    unsure: f64,
}

/// What was compared, and the greatest differences.
#[derive(Debug, Default)]
struct Seen {
    nodes: usize,
    second_passes: usize,
    /// Candidates of second passes whose score would be far off if the pass had read the other feature.
    telling: usize,
    /// Rows whose entropy is far from what their first token lacks to certainty.
    apart: usize,
    score: f64,
    unsure: f64,
}

impl Walk<'_> {
    /// `chain`: slots of the rows of the node's ancestors, and of its own, but for the root's. `score`: of the node before a second pass of its parent raised it, which is what its first-pass children add to.
    fn node(&mut self, at: usize, said: &Said, chain: &[usize], score: f64) {
        let (trace, plan) = (self.trace, self.trace.plan);
        let node = &trace.nodes[at];
        let off = (f64::from(node.unsure.expect("an evaluated node")) - said.unsure(plan.gate)).abs();
        assert!(off < self.tolerance.unsure, "node {at}: unsure {:?}, {off} off", node.unsure);
        self.seen.unsure = self.seen.unsure.max(off);
        let apart = (said.unsure(Gate::Entropy) - said.unsure(Gate::Top1)).abs();
        self.seen.apart += usize::from(apart > 10.0 * self.tolerance.unsure);
        let children: Vec<usize> =
            (0..trace.nodes.len()).filter(|child| trace.nodes[*child].parent == Some(at)).collect();
        let position = trace.start as usize - 1 + node.depth as usize;
        let (mut refined, mut other) = (None, None);
        if node.reconsidered {
            let (feature, unlike) = match plan.no_recurrence {
                true => (&said.input, &said.hidden),
                false => (&said.hidden, &said.input),
            };
            refined = Some(self.drafter.row(node.token.0, position, chain, feature, true));
            other =
                (!unlike.is_empty()).then(|| self.drafter.row(node.token.0, position, chain, unlike, true));
        }
        let node_score = f64::from(node.score);
        for child in &children {
            let found = f64::from(trace.nodes[*child].score);
            let token = trace.nodes[*child].token;
            let first = score + said.of(token);
            let expected = match (trace.nodes[*child].origin, &refined) {
                (Origin::Refined, Some(again)) => node_score + again.of(token),
                // A second pass may have raised it.
                (Origin::Drafted, Some(again)) if found > first + self.tolerance.score => {
                    node_score + again.of(token)
                }
                (Origin::Drafted, _) => first,
                (origin, _) => panic!("child {child} of {at} is from {origin:?}"),
            };
            let off = (found - expected).abs();
            assert!(off < self.tolerance.score, "child {child} of {at}: {found}, expected {expected}");
            self.seen.score = self.seen.score.max(off);
            if let Some(other) = other.as_ref().filter(|_| trace.nodes[*child].origin == Origin::Refined) {
                let unlike = (found - node_score - other.of(token)).abs();
                self.seen.telling += usize::from(unlike > 10.0 * self.tolerance.score);
            }
        }
        self.seen.nodes += children.len();
        self.seen.second_passes += usize::from(node.reconsidered);
        for child in children {
            let node = &trace.nodes[child];
            if node.unsure.is_none() {
                continue;
            }
            let feature = match (node.origin, &refined) {
                (Origin::Refined, Some(refined)) => &refined.hidden,
                _ => &said.hidden,
            };
            let output = self.drafter.row(node.token.0, position + 1, chain, feature, false);
            let longer: Vec<usize> = chain.iter().copied().chain([output.slot]).collect();
            let own = match node.origin {
                Origin::Refined => f64::from(node.score),
                _ => score + said.of(node.token),
            };
            self.node(child, &output, &longer, own);
        }
    }
}

/// A drafter on the GPU, and how it is held to its reference.
struct Case<'a> {
    name: &'a str,
    shape: TinyDrafter,
    plan: Plan,
    strict: bool,
    quantization: Quantization,
    kv: KvType,
    /// Against the formulas in f64, else against the reference in f32.
    precise: bool,
    on_cpu: &'a [TreeKernel],
    tolerance: Tolerance,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            name: "speculation.reference",
            shape: TinyDrafter::default(),
            plan: Plan { refined: 3, ..Plan::reconsider(20, 4, 3, 4, 3, 2) },
            strict: false,
            quantization: Quantization::F32,
            kv: KvType::F16,
            precise: false,
            on_cpu: &[],
            tolerance: Tolerance { score: 1e-2, unsure: 2e-3 },
        }
    }
}

impl Case<'_> {
    /// Walks the first trees of an answer along the reference of the drafter as it is computed with.
    fn check(&self) -> Seen {
        let Self { name, shape, plan, strict, quantization, kv, on_cpu, tolerance, .. } = self;
        let file = tiny(&shape.target);
        let drafter = shape.to_file().expect("a possible drafter");
        let options = EngineOptions {
            drafter: Some(drafter.clone()),
            drafter_quantization: Some(*quantization),
            strict: *strict,
            kv: *kv,
            ..EngineOptions::default()
        };
        let mut engine = load(name, &file, options);
        let layers = CaptureLayers::At(shape.captures.to_vec());
        let options = EngineOptions { captures: layers, kv: *kv, ..EngineOptions::default() };
        let mut features = block_on(Engine::load(&file, options, |_| {})).expect("a loadable model");
        let target = Forward::load(&file).expect("a valid file");
        let computed = drafter.quantized(*quantization).expect("values that can be written");
        let prompt = tokens(4, 70, 320);
        let options = GenerateOptions { max_tokens: 8, ignore_eos: true, ..GenerateOptions::default() };
        let (steps, generation) = traced(&mut engine, &prompt, &options, *plan, on_cpu);
        let whole: Vec<TokenId> = prompt.iter().chain(&generation.ids).copied().collect();
        let mut seen = Seen::default();
        for trace in traces(&steps).iter().take(3) {
            let start = trace.start as usize;
            assert_eq!(trace.nodes[0].token, whole[start], "the root is the token behind the committed ones");
            features.reset();
            let want = Want { logits: Rows::None, captures: true };
            let captured = block_on(features.forward(&whole[..start], want)).expect("fits").captures;
            let width = shape.target.hidden;
            let row = |row: usize| {
                let captured = &captured;
                (0..3)
                    .flat_map(move |layer| captured[(layer * start + row) * width..][..width].iter().copied())
            };
            let rows: Vec<f32> = (0..start).flat_map(row).collect();
            let mut reference = self.reference(&computed, &target);
            let last = reference.extend(&rows, &ids(&whole[1..=start]));
            let mut walk = Walk { drafter: &mut *reference, trace, tolerance: *tolerance, seen };
            walk.node(0, &last, &[], 0.0);
            seen = walk.seen;
        }
        println!("{name}, {plan:?}, {quantization:?}, strict: {strict}, on the CPU: {on_cpu:?}: {seen:?}");
        assert!(seen.nodes > 12, "{name}: only {} nodes were compared", seen.nodes);
        assert!(plan.reconsider == 0 || seen.second_passes > 3, "{name}: {seen:?}");
        seen
    }

    fn reference<'f>(&self, computed: &'f DrafterFile, target: &Forward) -> Box<dyn Reference + 'f> {
        if self.precise {
            return Box::new(Precise::new(computed));
        }
        let kv = match self.kv {
            KvType::F16 => reference::KvType::F16,
            KvType::F32 => reference::KvType::F32,
        };
        Box::new(reference::Drafter::load(computed, target).expect("a valid drafter").with_kv(kv))
    }
}

fn everything() -> TinyDrafter {
    TinyDrafter { tables: false, ..TinyDrafter::with_everything() }
}

#[test]
fn drafters_compute_what_their_reference_does() {
    let plan = Case::default().plan;
    Case { name: "speculation.reference.plain", ..Case::default() }.check();
    Case { name: "speculation.reference.everything", shape: everything(), ..Case::default() }.check();
    let expanded = Plan { expand_refined: true, ..plan };
    for (name, plan) in
        [("speculation.reference.expanded", expanded), ("speculation.reference.chain", Plan::chain(5))]
    {
        Case { name, shape: everything(), plan, strict: true, ..Case::default() }.check();
    }
}

/// Matrices in quantised blocks, against the reference that computes with what is in the blocks.
#[test]
fn quantised_drafters_compute_what_their_reference_does() {
    for quantization in [Quantization::Q4_0, Quantization::Q8_0] {
        for (shape, strict) in [(TinyDrafter::default(), false), (everything(), true), (everything(), false)]
        {
            let name = "speculation.reference.quantised";
            let tolerance = Tolerance { score: 3e-3, unsure: 5e-4 };
            Case { name, shape, strict, quantization, tolerance, ..Case::default() }.check();
        }
    }
}

/// In f64, with keys and values as they are, little is left to chance.
fn precise(name: &'static str) -> Case<'static> {
    Case {
        name,
        shape: TinyDrafter {
            own_embedding: true,
            adapter_rank: Some(32),
            norm_output: true,
            ..TinyDrafter::default()
        },
        kv: KvType::F32,
        precise: true,
        tolerance: Tolerance { score: 1e-4, unsure: 2e-5 },
        ..Case::default()
    }
}

/// The control without recurrence: a second pass reads what the first one read, at the root the fused features, and sees
/// the first one's row all the same.
#[test]
fn a_second_pass_without_recurrence_reads_what_the_first_one_read() {
    without_recurrence("speculation.no_recurrence", &[]);
}

#[test]
fn the_twin_of_a_second_pass_without_recurrence_reads_the_same() {
    without_recurrence("speculation.no_recurrence.twin", &[TreeKernel::Rows]);
}

fn without_recurrence(name: &'static str, on_cpu: &[TreeKernel]) {
    for no_recurrence in [false, true] {
        for expand_refined in [false, true] {
            let case = Case { on_cpu, ..precise(name) };
            let plan = Plan { no_recurrence, expand_refined, ..case.plan };
            let seen = Case { plan, ..case }.check();
            assert!(seen.telling > 3, "no recurrence: {no_recurrence}: {seen:?}");
        }
    }
}

/// How unsure a row is by the entropy of its top tokens, the rest being one more.
#[test]
fn the_entropy_of_a_row_is_that_of_its_distribution() {
    for strict in [false, true] {
        let case = precise("speculation.entropy");
        let plan = Plan { gate: Gate::Entropy, ..case.plan };
        let seen = Case { plan, strict, ..case }.check();
        assert!(seen.apart > 10, "strict: {strict}: {seen:?}");
    }
}
