//! The replay against rounds that the reference drafter runs one at a time.

use std::collections::HashMap;

use burn::tensor::{Device, Tensor, TensorData};
use redraft_decode::draft::{self, Draft, DraftError, Gate, NONE, Output, Pass, Step, WIDTH};
use redraft_testing::reference::{DraftRow, Drafter as Reference, Forward};
use redraft_testing::{Prng, TinyDrafter};

use super::evaluate::say;
use super::*;
use crate::corpus::Record;

/// What the two forwards may differ by in a log-probability: other orders of summation of numbers of about one.
const TOLERANCE: f32 = 1e-4;
/// Rounds whose tree another one of this size of noise would change are near-ties: what they accept is kept from
/// depending on the tree.
const NOISE: f32 = 2e-4;

/// The reference, as a drafter of trees.
struct Adapter {
    drafter: Reference,
    ids: Vec<TokenId>,
    /// Of each row id its slot (none for the root's row) and its output.
    rows: HashMap<u32, (Option<usize>, Vec<f32>)>,
    /// What the row of the root read, fused, and its logits.
    fused: Vec<f32>,
    logits: Vec<f32>,
    entropy: bool,
    noise: Option<Prng>,
}

impl Adapter {
    fn output(&mut self, logits: &[f32]) -> Output {
        let mut logits = logits.to_vec();
        if let Some(prng) = &mut self.noise {
            logits.iter_mut().for_each(|logit| *logit += NOISE * prng.signed());
        }
        say(&logits, &self.ids).output(self.entropy)
    }
}

impl draft::Drafter for Adapter {
    type Error = DraftError;

    fn evaluate(&mut self, step: Step<'_>, outputs: &mut [Output]) -> Result<(), DraftError> {
        if step.index == 0 {
            outputs[0] = self.output(&self.logits.clone());
            return Ok(());
        }
        let root = self.drafter.length() - 1;
        let slot = |node: u32| self.rows.get(&step.pool.node(node).row).and_then(|(slot, _)| *slot);
        let chains: Vec<Vec<usize>> = step
            .rows
            .iter()
            .map(|row| {
                let skip = usize::from(row.pass == Pass::First);
                let mut chain: Vec<usize> = step.pool.upward(row.node).skip(skip).filter_map(slot).collect();
                chain.reverse();
                chain
            })
            .collect();
        let rows: Vec<DraftRow<'_>> = step
            .rows
            .iter()
            .zip(&chains)
            .map(|(row, chain)| DraftRow {
                token: row.token.0,
                position: root + row.depth as usize,
                chain,
                second_pass: row.pass == Pass::Second,
                feature: self.rows.get(&row.source).map_or(&self.fused, |(_, hidden)| hidden),
            })
            .collect();
        let results = self.drafter.step(&rows).unwrap();
        for (row, result) in step.rows.iter().zip(results) {
            outputs[row.slot()] = self.output(&result.logits);
            self.rows.insert(row.id, (Some(result.slot), result.hidden));
        }
        Ok(())
    }
}

/// A round as the reference saw it.
struct Seen {
    nodes: Vec<draft::Node>,
    outputs: Outputs,
    /// Whether noise leaves the tree alone.
    firm: bool,
    accepted: u64,
}

/// A text that goes down into its own draft trees, with the rounds of the reference.
struct Script {
    text: Text,
    rounds: Vec<Seen>,
}

fn fused(file: &DrafterFile, feature: &[f32]) -> Vec<f32> {
    let weights = file.tensor("fc.weight").unwrap().to_f32().unwrap();
    weights.chunks_exact(feature.len()).map(|row| row.iter().zip(feature).map(|(a, b)| a * b).sum()).collect()
}

fn script(tiny: &TinyDrafter, variant: &Variant, rounds: usize, seed: u64) -> Script {
    let file = tiny.to_file().unwrap();
    let model = tiny.target.to_gguf().unwrap();
    let captures = tiny.captures.map(|layer| layer as usize);
    let mut target = Forward::load(&model).unwrap().with_captures(&captures);
    let drafter = Reference::load(&file, &target).unwrap();
    let ids: Vec<TokenId> = file.draft_ids().iter().copied().map(TokenId).collect();
    let mut prng = Prng::new(seed);
    let vocab = tiny.target.vocab;
    let any = |prng: &mut Prng| u32::try_from(prng.below(vocab)).unwrap();
    let prompt = 3 + prng.below(9);
    let mut tokens: Vec<u32> = (0..prompt + 1).map(|_| any(&mut prng)).collect();
    let plan = variant.plan;
    let mut adapter = Adapter {
        drafter,
        ids: ids.clone(),
        rows: HashMap::new(),
        fused: Vec::new(),
        logits: Vec::new(),
        entropy: plan.gate == Gate::Entropy,
        noise: None,
    };
    let mut draft = Draft::new(plan, variant.tables.clone()).unwrap();
    let mut features: Vec<f32> = Vec::new();
    let mut seen = Vec::new();
    while seen.len() < rounds {
        // Stable rows up to the root's, with the true features before it.
        let root = tokens.len() - 1;
        while target.length() < root {
            let at = target.length();
            target.step(tokens[at]).unwrap();
            let row: Vec<f32> = target.captures().iter().flatten().copied().collect();
            let output = adapter.drafter.extend(&row, &tokens[at + 1..at + 2]).unwrap().remove(0);
            adapter.fused = if tiny.fc_norm { Vec::new() } else { fused(&file, &row) };
            adapter.logits = output.logits;
            adapter.rows = HashMap::from([(0, (None, output.hidden))]);
            features.extend(row);
        }
        let text: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        let stable = adapter.drafter.length();
        let run = |adapter: &mut Adapter, draft: &mut Draft| {
            adapter.rows.retain(|&id, _| id == 0);
            draft.run(adapter, &text).unwrap();
            adapter.drafter.truncate(stable);
        };
        let mut firm = true;
        for noise in 0..4 {
            adapter.noise = Some(Prng::new(noise));
            let mut other = draft.clone();
            run(&mut adapter, &mut other);
            adapter.noise = None;
            run(&mut adapter, &mut draft);
            let shape = |draft: &Draft| {
                draft.pool().nodes().iter().map(|n| (n.token, n.parent, n.flags, n.row)).collect::<Vec<_>>()
            };
            firm &= shape(&other) == shape(&draft) && other.layout() == draft.layout();
        }
        // Down into the tree for a while, then away from it.
        let layout = draft.layout();
        let mut row = 0;
        let mut accepted = 0;
        while firm && prng.below(5) > 0 {
            let parents = (0_u32..).zip(&layout.parents).take(layout.live);
            let children: Vec<u32> =
                parents.filter(|(_, parent)| **parent == row).map(|(at, _)| at).collect();
            let Some(&child) = children.get(prng.below(children.len().max(1))) else { break };
            row = child;
            accepted += 1;
            tokens.push(layout.tokens[row as usize].0);
        }
        let away = loop {
            let token = TokenId(any(&mut prng));
            // A near-tie must not meet any token that the drafter proposes.
            if layout.child(row, token).is_none() && (firm || ids.binary_search(&token).is_err()) {
                break token;
            }
        };
        tokens.push(away.0);
        seen.push(Seen {
            nodes: draft.pool().nodes().to_vec(),
            outputs: draft.outputs().clone(),
            firm,
            accepted,
        });
    }
    features.resize(tokens.len() * 3 * tiny.target.hidden, 0.0);
    // What the last round emitted is behind all roots: no round reads its features.
    let count = tokens.len();
    let record = Record { features, hidden: Vec::new(), choice: vec![0; count], certainty: vec![0.0; count] };
    let tokens = tokens.into_iter().map(TokenId).collect();
    let text = Text { set: "scripted".to_owned(), prompt_id: seed, tokens, prompt, record, noise: None };
    Script { text, rounds: seen }
}

/// Compares each round with the script's.
struct Comparison<'a> {
    what: String,
    scripts: &'a [Script],
    /// Next round of each text.
    at: HashMap<u32, (usize, usize)>,
    compared: usize,
    rows: usize,
    /// Whether scores are read from a table.
    binned: bool,
}

impl Comparison<'_> {
    fn round(&mut self, pool: &Pool, outputs: &Outputs, truth: &[TokenId]) {
        // Which text: the one that ends like this and is as long.
        let found = self.scripts.iter().position(|script| {
            script.text.tokens.len() == pool.committed() as usize + truth.len()
                && script.text.tokens.ends_with(truth)
        });
        let script = found.unwrap();
        let (_, next) = self.at.entry(u32::try_from(script).unwrap()).or_insert((script, 0));
        let seen = &self.scripts[script].rounds[*next];
        *next += 1;
        if !seen.firm {
            return;
        }
        self.compared += 1;
        let what = format!("{}, text {script}, round {next}", self.what);
        for (index, (found, wanted)) in pool.nodes().iter().zip(&seen.nodes).enumerate() {
            let shape = |n: &draft::Node| (n.token, n.parent, n.depth, n.flags, n.source, n.row);
            assert_eq!(shape(found), shape(wanted), "{what}: node {index}");
            // A calibrated edge is one of a few: a bin further it is another.
            let same = (found.score - wanted.score).abs() < 8.0 * TOLERANCE;
            assert!(same || self.binned, "{what}: score of node {index}: {}, {}", found.score, wanted.score);
        }
        for id in 0..WIDTH * (pool.plan().steps() + 1) {
            // What second passes say is not asked for where the control takes the first pass's candidates.
            let unheard = pool.plan().control && id % WIDTH >= pool.plan().width;
            if pool.row_node(id) == NONE || unheard {
                continue;
            }
            self.rows += 1;
            let (found, wanted) = (outputs.row(id), seen.outputs.row(id));
            assert!((found.unsure - wanted.unsure).abs() < TOLERANCE, "{what}: unsure of row {id}");
            for (found, wanted) in found.tops.iter().zip(&wanted.tops) {
                assert!(
                    (found.log_q - wanted.log_q).abs() < TOLERANCE,
                    "{what}: row {id}: {found:?}, {wanted:?}"
                );
            }
        }
    }
}

/// Replays a variant on all texts; one count a text.
fn replay(
    evaluator: &Evaluator,
    texts: &mut [(text::Prepared, Paths)],
    variant: &Variant,
    proposes: &[bool],
    observer: &mut dyn FnMut(&Pool, &Outputs, &[TokenId]),
) -> Vec<Counts> {
    let jobs: Vec<Job<'_>> = (0..texts.len()).map(|text| Job { text, variant }).collect();
    let mut observer = |_, pool: &Pool, outputs: &Outputs, truth: &[TokenId]| observer(pool, outputs, truth);
    rounds::replay(evaluator, texts, &jobs, proposes, &mut observer).unwrap()
}

fn evaluator(tiny: &TinyDrafter, file: &DrafterFile) -> Evaluator {
    let device = Device::flex();
    let (hidden, vocab) = (tiny.target.hidden, tiny.target.vocab);
    let tensor = tiny.target.tensors().into_iter().find(|tensor| tensor.name == "token_embd.weight").unwrap();
    let bytes = redraft_testing::quantize(tensor.kind, &tensor.values).unwrap();
    let mut values = vec![0.0; tensor.values.len()];
    redraft_gguf::dequantize(tensor.kind, &bytes, &mut values).unwrap();
    let embedding = Tensor::from_data(TensorData::new(values, [vocab, hidden]), &device);
    Evaluator::new(file, embedding, 400, &device).unwrap()
}

/// Plans of all kinds; the threshold lets some rows pass and others not.
fn variants(tiny: &TinyDrafter) -> Vec<(&'static str, Variant)> {
    let again = Plan::reconsider(15, 4, 4, 3, 2, 2);
    let tables = Tables { gate_threshold: 0.6, ..tables_of(&tiny.to_file().unwrap()) };
    let variant = |plan| Variant::new(plan, tables.clone());
    let mut all = vec![
        ("chain", variant(Plan::chain(4))),
        ("tree", variant(Plan::tree(20, 4, 4, 4))),
        ("reconsider", variant(again)),
        ("late expansion", variant(Plan { expand_refined: true, ..again })),
        ("control", variant(Plan { control: true, ..again })),
        ("entropy", variant(Plan { gate: Gate::Entropy, ..again })),
        ("random", variant(Plan { gate: Gate::Random, ..again })),
    ];
    if !tiny.fc_norm {
        all.push(("no recurrence", variant(Plan { no_recurrence: true, ..again })));
    }
    if tiny.tables {
        all.push(("calibrated", variant(Plan { gate: Gate::Calibrated, ..again })));
    }
    all
}

#[test]
fn rounds_are_those_of_the_reference() {
    for tiny in [TinyDrafter::default(), TinyDrafter::with_everything()] {
        let file = tiny.to_file().unwrap();
        let evaluator = evaluator(&tiny, &file);
        let mut proposes = vec![false; tiny.target.vocab];
        file.draft_ids().iter().for_each(|&id| proposes[id as usize] = true);
        for (what, variant) in variants(&tiny) {
            // Texts of different lengths, side by side.
            let scripts: Vec<Script> = [(9, 1), (14, 2), (5, 3)]
                .into_iter()
                .map(|(rounds, seed)| script(&tiny, &variant, rounds, seed))
                .collect();
            let mut texts: Vec<_> = scripts
                .iter()
                .map(|script| {
                    let text = evaluator.extend(script.text.clone()).unwrap();
                    let paths = Paths::new(text.extended.rows);
                    (text, paths)
                })
                .collect();
            // Once as it is, and once with rows of another plan at hand.
            for turn in 0..2 {
                let what = format!("{what}, fc norm {}, turn {turn}", tiny.fc_norm);
                let binned = variant.tables.calibrated;
                let mut comparison =
                    Comparison { what, scripts: &scripts, at: HashMap::new(), compared: 0, rows: 0, binned };
                let mut compare = |pool: &Pool, outputs: &Outputs, truth: &[TokenId]| {
                    comparison.round(pool, outputs, truth);
                };
                let counts = replay(&evaluator, &mut texts, &variant, &proposes, &mut compare);
                let (what, rounds) =
                    (&comparison.what, scripts.iter().map(|s| s.rounds.len()).sum::<usize>());
                assert!(
                    comparison.compared * 4 > rounds * 3,
                    "{what}: {} firm of {rounds}",
                    comparison.compared
                );
                assert!(comparison.rows > comparison.compared, "{what}: rows were compared");
                for (script, counts) in scripts.iter().zip(&counts) {
                    let accepted: u64 = script.rounds.iter().map(|round| round.accepted).sum();
                    let rounds = script.rounds.len() as u64;
                    assert_eq!(counts.rounds, rounds, "{what}: rounds");
                    assert_eq!(counts.emitted, accepted + rounds, "{what}: tokens");
                    assert!(accepted > 0, "{what}: something was accepted");
                }
                texts.iter_mut().for_each(|(_, paths)| paths.clear());
                let other = Variant { plan: Plan::reconsider(15, 4, 4, 3, 3, 2), ..variant.clone() };
                replay(&evaluator, &mut texts, &other, &proposes, &mut |_, _, _| {});
            }
        }
    }
}

/// Rows that were evaluated for one plan serve another: the second time nothing is left to evaluate.
#[test]
fn evaluated_rows_are_kept() {
    let tiny = TinyDrafter::default();
    let evaluator = evaluator(&tiny, &tiny.to_file().unwrap());
    let proposes = vec![true; tiny.target.vocab];
    let variant = Variant::new(Plan::reconsider(15, 4, 4, 3, 2, 2), Tables::default());
    let text = evaluator.extend(script(&tiny, &variant, 6, 4).text).unwrap();
    let rows = text.extended.rows;
    let mut texts = [(text, Paths::new(rows))];
    let mut once = || {
        let counts = replay(&evaluator, &mut texts, &variant, &proposes, &mut |_, _, _| {});
        (counts, texts[0].1.len())
    };
    let (first, evaluated) = once();
    assert!(evaluated > 6 * 4, "{evaluated} rows");
    assert_eq!(once(), (first, evaluated), "the same counts from the same rows");
}

#[test]
fn an_oracle_is_a_ceiling_and_ablations_change_what_they_say() {
    let tiny = TinyDrafter::default();
    let evaluator = evaluator(&tiny, &tiny.to_file().unwrap());
    let proposes = vec![true; tiny.target.vocab];
    let tables = Tables { gate_threshold: 0.0, ..Tables::default() };
    let variant = Variant::new(Plan { expand_refined: true, ..Plan::reconsider(15, 4, 4, 3, 2, 2) }, tables);
    // A text that the drafter knows nothing of, and a target that is sure of every second token.
    let mut text = script(&tiny, &variant, 20, 5).text;
    let (count, width) = (text.tokens.len(), 3 * tiny.target.hidden);
    text.record.features = Prng::new(6).signed_values(count * width, 2.0);
    text.record.choice = text.tokens[1..].iter().map(|token| token.0).chain([0]).collect();
    text.record.certainty = (0..count).map(|at| if at % 2 == 0 { 0.9 } else { 0.1 }).collect();
    let run = |variant: &Variant| {
        let text = evaluator.extend(text.clone()).unwrap();
        let paths = Paths::new(text.extended.rows);
        replay(&evaluator, &mut [(text, paths)], variant, &proposes, &mut |_, _, _| {}).remove(0)
    };
    let alone = run(&variant);
    let first = run(&Variant { oracle: Oracle::First, ..variant.clone() });
    let second = run(&Variant { oracle: Oracle::Second, ..variant.clone() });
    assert!(
        first.tau() > alone.tau() && second.tau() > alone.tau(),
        "ceilings: {alone:?}, {first:?}, {second:?}"
    );
    assert!(second.rescues > alone.rescues, "by second passes");
    let sum = |counts: &Counts, of: fn(&Rejections) -> u64| counts.rejections.iter().map(of).sum::<u64>();
    assert!(sum(&first, |r| r.both) < sum(&alone, |r| r.both), "what was unsure and decisive is answered");
    let none = run(&Variant { deepest: 0, ..variant.clone() });
    assert!(none.reconsidered > 0 && none.reconsidered <= none.rounds, "only roots: {none:?}");
    assert!(alone.reconsidered > alone.rounds, "and others otherwise: {alone:?}");
    let blind = run(&Variant { blind: true, ..variant.clone() });
    assert_ne!(blind, alone, "a second pass that does not see the first says something else");
}

/// Where the kernels can have the control too, both say the same; where they cannot, its candidates come from behind the
/// eighth and below.
#[test]
fn the_control_of_the_replay_is_that_of_the_kernels() {
    let tiny = TinyDrafter::default();
    let evaluator = evaluator(&tiny, &tiny.to_file().unwrap());
    let proposes = vec![true; tiny.target.vocab];
    let tables = Tables { gate_threshold: 0.0, ..Tables::default() };
    let plan = |children| Plan { expand_refined: true, ..Plan::reconsider(40, 4, 4, children, 2, 4) };
    let text = script(&tiny, &Variant::new(plan(3), tables.clone()), 20, 7).text;
    type Child = (TokenId, u32, u32, f32, u32);
    let run = |variant: &Variant| {
        let text = evaluator.extend(text.clone()).unwrap();
        let paths = Paths::new(text.extended.rows);
        let mut refined: Vec<Vec<Child>> = Vec::new();
        let counts = replay(&evaluator, &mut [(text, paths)], variant, &proposes, &mut |pool, outputs, _| {
            let nodes = pool.nodes().iter().filter(|node| node.has(draft::REFINED));
            refined.push(nodes.map(|n| (n.token, n.parent, n.depth, n.score, n.flags)).collect());
            for node in pool.nodes().iter().filter(|node| node.has(draft::REFINED)) {
                let tops = &outputs.row(pool.node(node.parent).row).tops;
                let children = pool.plan().children as usize;
                assert!(tops[..children].iter().all(|top| top.token != node.token), "no child again");
                let next = tops[children..].iter().any(|top| top.token == node.token);
                assert!(next || children + 4 > tops.len(), "one of the next");
            }
        });
        (counts, refined)
    };
    for children in [3, 4] {
        let control = Variant::new(Plan { control: true, ..plan(children) }, tables.clone());
        let beyond = Variant { beyond: true, ..Variant::new(plan(children), tables.clone()) };
        let (by_kernels, by_replay) = (run(&control), run(&beyond));
        assert!(by_kernels.1.iter().any(|nodes| !nodes.is_empty()), "c = {children}: candidates were added");
        assert_eq!(by_kernels, by_replay, "c = {children}");
    }
    let beyond = Variant { beyond: true, ..Variant::new(plan(8), tables.clone()) };
    let (counts, refined) = run(&beyond);
    assert!(refined.iter().any(|nodes| !nodes.is_empty()), "behind the eighth: {counts:?}");
}

/// Texts and plans that run side by side come to what each comes to alone, and noise is for coupled plans only.
#[test]
fn jobs_do_not_disturb_each_other() {
    let tiny = TinyDrafter::default();
    let evaluator = evaluator(&tiny, &tiny.to_file().unwrap());
    let proposes = vec![true; tiny.target.vocab];
    let again = Plan { expand_refined: true, ..Plan::reconsider(15, 4, 4, 3, 2, 2) };
    let tables = Tables { gate_threshold: 0.0, ..Tables::default() };
    let variants: Vec<Variant> = [
        Plan::chain(3),
        again,
        Plan { control: true, ..again },
        Plan { no_recurrence: true, lookup: true, ..again },
        Plan::lookup(3),
    ]
    .map(|plan| Variant::new(plan, tables.clone()))
    .to_vec();
    let noise = Noise { seed: 5, inv_temperature: 1.5 };
    let texts: Vec<Text> = [(None, 6), (Some(noise), 7)]
        .map(|(noise, seed)| Text { noise, ..script(&tiny, &variants[1], 7, seed).text })
        .to_vec();
    let prepare = |text: &Text| {
        let text = evaluator.extend(text.clone()).unwrap();
        let paths = Paths::new(text.extended.rows);
        (text, paths)
    };
    let alone = |text: &Text, variant: &Variant| {
        replay(&evaluator, &mut [prepare(text)], variant, &proposes, &mut |_, _, _| {}).remove(0)
    };
    let jobs: Vec<Job<'_>> =
        variants.iter().flat_map(|variant| [1, 0].map(|text| Job { text, variant })).collect();
    let mut together: Vec<_> = texts.iter().map(prepare).collect();
    let mut seen = vec![0; jobs.len()];
    let mut count = |job: usize, _: &Pool, _: &Outputs, _: &[TokenId]| seen[job] += 1;
    let counts = rounds::replay(&evaluator, &mut together, &jobs, &proposes, &mut count).unwrap();
    for ((job, counts), seen) in jobs.iter().zip(&counts).zip(&seen) {
        assert_eq!(*counts, alone(&texts[job.text], job.variant), "{:?}", job.variant.plan);
        assert_eq!(counts.rounds, *seen, "every round is shown");
    }
    let plain = Variant { coupled: false, ..variants[1].clone() };
    assert_eq!(alone(&texts[0], &plain), alone(&texts[0], &variants[1]), "no noise, nothing to couple to");
    assert_ne!(
        alone(&texts[1], &plain),
        alone(&texts[1], &variants[1]),
        "with noise other tokens are proposed"
    );
}
