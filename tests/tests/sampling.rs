//! The sampler on the GPU against its twin on the CPU: the same ids, on logits written from here, for every stage,
//! odd vocabularies, many seeds and positions, chains and trees; and drawn frequencies against the softmax.

use pollster::block_on;
use redraft::{Engine, EngineOptions, GenerateOptions, ModelError, Rows, SamplingParams, TokenId, Want};
use redraft_decode::sampling::{Fma, WindowEntry, window, window_of_row};
use redraft_decode::{Position, Tree, TreeRows};
use redraft_gpu::Readback;
use redraft_model::{Batch, LogitRows, Sampler};
use redraft_testing::{Prng, TinyModel};
use redraft_tests::{answer, load, tiny, tokens};
use std::fmt::Write as _;

/// Tokens before the first row.
const COMMITTED: u32 = 90;

/// A model whose logits are overwritten, and the sampler behind them.
struct Rig {
    engine: Engine,
    sampler: Sampler,
    ids: Readback,
    vocab: u32,
    committed: Vec<TokenId>,
}

/// One drawn token and all that it may depend on.
struct Draw {
    params: SamplingParams,
    logits: Vec<f32>,
    window: Vec<WindowEntry>,
    position: Position,
    found: TokenId,
    what: &'static str,
}

impl Rig {
    fn new(name: &str, vocab: u32, strict: bool) -> Self {
        let model = TinyModel { vocab: vocab as usize, layers: 1, ..TinyModel::default() };
        let options = EngineOptions { strict, ..EngineOptions::default() };
        let engine = load(name, &tiny(&model), options);
        let sampler = block_on(Sampler::new(engine.model())).expect("room for a sampler");
        let ids = block_on(engine.model().gpu().readback("ids", 64 * 4)).expect("room for ids");
        // Few different tokens, so that penalties find them several times.
        let committed = tokens(u64::from(vocab), COMMITTED as usize, 40);
        Self { engine, sampler, ids, vocab, committed }
    }

    /// The tokens drawn from `logits`, `[rows][vocab]`, behind the rows of `batch`.
    fn draw(&mut self, batch: &Batch, logits: &[f32]) -> Vec<TokenId> {
        let model = self.engine.model();
        let gpu = model.gpu();
        // The step tells the kernels how many rows there are; its logits are replaced.
        model.submit(batch, |_| Ok(()), &[]).expect("a valid batch");
        self.sampler.commit(0, &self.committed).expect("within the context");
        let rows = self.sampler.prepare(batch).expect("a valid batch");
        assert_eq!(logits.len(), (rows * self.vocab) as usize, "a row of logits a drawn row");
        let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        gpu.write(model.logits().slice(0, bytes.len() as u64), &bytes);
        let copies = [(self.sampler.tokens(rows), &self.ids)];
        gpu.submit::<ModelError>(|pass| self.sampler.record(pass, rows), &copies).expect("recorded");
        let bytes = block_on(gpu.read(&self.ids, u64::from(rows) * 4)).expect("readable");
        let id = |bytes: &[u8]| TokenId(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        bytes.chunks_exact(4).map(id).collect()
    }

    fn configure(&mut self, params: &SamplingParams) {
        block_on(self.sampler.configure(params)).expect("valid parameters");
    }

    /// Draws behind the last of `rows` tokens, or behind each of them.
    fn chain(&mut self, params: &SamplingParams, seed: u64, rows: u32, wanted: LogitRows) -> Vec<Draw> {
        self.configure(params);
        let input = tokens(seed, rows as usize, 40);
        let first = if wanted == LogitRows::All { 0 } else { rows - 1 };
        let logits = random_logits(seed, self.vocab, rows - first);
        let found = self.draw(&Batch::chain(COMMITTED, &input, wanted), &logits);
        let row = |(row, (found, logits)): (u32, (TokenId, &[f32]))| {
            let path = [&self.committed[..], &input[..=row as usize]].concat();
            Draw {
                params: params.clone(),
                logits: logits.to_vec(),
                window: window(&path, params.penalty_window),
                position: Position(COMMITTED + row + 1),
                found,
                what: "chain",
            }
        };
        (first..).zip(found.into_iter().zip(logits.chunks(self.vocab as usize))).map(row).collect()
    }

    /// Draws behind each row of a random tree.
    fn tree(&mut self, params: &SamplingParams, seed: u64, rows: u32) -> Vec<Draw> {
        self.configure(params);
        let tree = Tree::random(seed, rows as usize).expect("few rows");
        let parents: Vec<_> = (0..rows).map(|row| tree.parent(row)).collect();
        // Siblings differ; a path meets the same tokens again and again.
        let mut children = vec![0; rows as usize];
        let mut input = vec![TokenId(1)];
        for parent in parents.iter().flatten() {
            input.push(TokenId(children[*parent as usize]));
            children[*parent as usize] += 1;
        }
        let logits = random_logits(seed, self.vocab, rows);
        let found = self.draw(&Batch::tree(COMMITTED, &input, &parents), &logits);
        let depths = tree.depths().to_vec();
        let tree = TreeRows::new(tree, input, Position(COMMITTED)).expect("siblings differ");
        let row = |(row, (found, logits)): (u32, (TokenId, &[f32]))| Draw {
            params: params.clone(),
            logits: logits.to_vec(),
            window: window_of_row(&self.committed, &tree, row, params.penalty_window),
            position: Position(COMMITTED + depths[row as usize] + 1),
            found,
            what: "tree",
        };
        (0..).zip(found.into_iter().zip(logits.chunks(self.vocab as usize))).map(row).collect()
    }
}

/// Rows that spread by some units; every third is coarse, so that many logits tie.
fn random_logits(seed: u64, vocab: u32, rows: u32) -> Vec<f32> {
    let mut prng = Prng::named(seed, "logits");
    let mut logits = Vec::new();
    for row in 0..rows {
        let values = prng.signed_values(vocab as usize, 6.0);
        let coarse = (u64::from(row) + seed).is_multiple_of(3);
        logits.extend(values.into_iter().map(|value| if coarse { value.round() * 0.5 } else { value }));
    }
    logits
}

/// Each stage alone, then parameters in all combinations.
fn parameters(vocab: u32) -> Vec<SamplingParams> {
    let some = |change: fn(&mut SamplingParams)| {
        let mut params = SamplingParams::default();
        change(&mut params);
        params
    };
    let mut list = vec![
        some(|_| ()),
        some(|p| p.temperature = 1.0),
        some(|p| (p.temperature, p.top_k) = (1.0, 1)),
        some(|p| (p.temperature, p.top_k) = (0.7, 40)),
        some(|p| (p.temperature, p.top_p) = (1.0, 0.0)),
        some(|p| (p.temperature, p.top_p) = (1.3, 0.9)),
        some(|p| (p.temperature, p.min_p) = (1.0, 0.1)),
        some(|p| (p.temperature, p.min_p) = (1.0, 1.0)),
        some(|p| p.repetition_penalty = 1.3),
        some(|p| (p.presence_penalty, p.frequency_penalty, p.penalty_window) = (1.0, 0.5, 7)),
        some(|p| p.logit_bias = vec![(TokenId(7), 30.0), (TokenId(3), f32::NEG_INFINITY)]),
    ];
    let mut prng = Prng::new(u64::from(vocab));
    for _ in 0..30 {
        let bias: Vec<_> = (0..).step_by(2).map(TokenId).take(prng.below(100)).collect();
        list.push(SamplingParams {
            temperature: 0.05 + 2.0 * prng.signed().abs(),
            top_k: [0, 1, 2, 17, vocab / 2, vocab - 1, vocab, u32::MAX][prng.below(8)],
            top_p: [1.0, 0.999, 0.8, 0.3, 0.01][prng.below(5)],
            min_p: [0.0, 0.001, 0.2][prng.below(3)],
            repetition_penalty: [1.0, 1.2, 0.8][prng.below(3)],
            presence_penalty: [0.0, 0.7, -0.4][prng.below(3)],
            frequency_penalty: [0.0, 0.3][prng.below(2)],
            penalty_window: [0, 1, 64, 65, 100, 300][prng.below(6)],
            logit_bias: bias.into_iter().map(|id| (id, 3.0 * prng.signed())).collect(),
            seed: prng.bits(),
        });
    }
    list
}

/// All draws are the twin's, for one of the two ways in which a device may compute `fma`.
fn assert_twins(name: &str, vocab: u32, draws: &[Draw]) {
    let mut report = String::new();
    for fma in [Fma::Split, Fma::Fused] {
        let differs = |draw: &&Draw| {
            let mut twin =
                redraft_decode::Sampler::new(draw.params.clone(), vocab).expect("valid").with_fma(fma);
            let expected = twin.sample_with_window(&draw.logits, Some(&draw.window), draw.position);
            expected.expect("a whole row") != draw.found
        };
        let wrong: Vec<_> = draws.iter().filter(differs).collect();
        let Some(first) = wrong.first() else { return };
        let Draw { params, position, found, what, .. } = first;
        let count = wrong.len();
        writeln!(report, "{fma:?}: {count} of {} differ; {what} {position} {found} {params:?}", draws.len())
            .expect("a string grows");
    }
    panic!("{name}, vocabulary {vocab}: neither twin agrees\n{report}");
}

fn ids_are_the_twins(name: &str, strict: bool, vocabularies: &[u32]) {
    for &vocab in vocabularies {
        let mut rig = Rig::new(name, vocab, strict);
        let mut draws = Vec::new();
        for (case, params) in (0u32..).zip(parameters(vocab)) {
            let seed = u64::from(case);
            draws.extend(rig.chain(&params, seed, 1, LogitRows::Last));
            draws.extend(rig.chain(&params, seed, 5, LogitRows::Last));
            draws.extend(rig.chain(&params, seed, 3 + case % 9, LogitRows::All));
            draws.extend(rig.tree(&params, seed, 2 + case % 33));
        }
        assert!(draws.len() > 700, "{} draws", draws.len());
        assert_twins(name, vocab, &draws);
    }
}

#[test]
fn ids_are_those_of_the_twin() {
    // One, two and five ids an invocation; a workgroup that is not full; a whole number of workgroups.
    ids_are_the_twins("sampling.twin", false, &[259, 512, 515, 2051]);
}

#[test]
fn ids_are_those_of_the_twin_in_the_strict_tier() {
    ids_are_the_twins("sampling.twin", true, &[515]);
}

#[test]
fn frequencies_are_those_of_the_softmax() {
    let mut rig = Rig::new("sampling.frequencies", 259, false);
    let chosen: [(u32, f32); 8] =
        [(0, 0.0), (9, 1.0), (64, 2.0), (65, 1.5), (130, -1.0), (200, 2.5), (257, 0.5), (258, 1.75)];
    let mut row = vec![-60.0; 259];
    for (id, logit) in chosen {
        row[id as usize] = logit;
    }
    let logits = row.repeat(64);
    let batch = Batch::chain(COMMITTED, &[TokenId(1); 64], LogitRows::All);
    for (temperature, top_p) in [(1.0, 1.0), (1.7, 1.0), (1.0, 0.75)] {
        let mut counts = vec![0u32; 259];
        for seed in 0..100 {
            rig.configure(&SamplingParams { temperature, top_p, seed, ..SamplingParams::default() });
            for id in rig.draw(&batch, &logits) {
                counts[id.0 as usize] += 1;
            }
        }
        let expected = softmax(&chosen, f64::from(temperature), f64::from(top_p));
        let total: u32 = expected.iter().map(|(id, _)| counts[*id as usize]).sum();
        assert_eq!(total, 6400, "only kept tokens are drawn: {counts:?}");
        let square = |(id, p): &(u32, f64)| {
            let wanted = p * 6400.0;
            (f64::from(counts[*id as usize]) - wanted).powi(2) / wanted
        };
        let chi: f64 = expected.iter().map(square).sum();
        // The 99.9 % point by Wilson and Hilferty; the draws are the same on every run.
        let k = expected.len() as f64 - 1.0;
        let limit = k * (1.0 - 2.0 / (9.0 * k) + 3.09 * (2.0 / (9.0 * k)).sqrt()).powi(3);
        assert!(chi < limit, "temperature {temperature}, top-p {top_p}: chi² {chi} over {limit}");
    }
}

/// Probabilities of the kept tokens.
fn softmax(logits: &[(u32, f32)], temperature: f64, top_p: f64) -> Vec<(u32, f64)> {
    let mut list: Vec<_> =
        logits.iter().map(|(id, logit)| (*id, (f64::from(*logit) / temperature).exp())).collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1));
    let total: f64 = list.iter().map(|entry| entry.1).sum();
    let mut mass = 0.0;
    list.retain(|entry| {
        let stays = mass < top_p * total;
        mass += entry.1;
        stays
    });
    let kept: f64 = list.iter().map(|entry| entry.1).sum();
    list.into_iter().map(|(id, p)| (id, p / kept)).collect()
}

#[test]
fn answers_are_what_the_twin_draws_from_their_logits() {
    let file = tiny(&TinyModel::default());
    let mut engine = load("sampling.answers", &file, EngineOptions::default());
    let prompt = tokens(5, 70, 320);
    for seed in 0..4 {
        let sampling = SamplingParams {
            temperature: 0.9,
            top_k: 50,
            top_p: 0.95,
            min_p: 0.02,
            repetition_penalty: 1.1,
            presence_penalty: 0.3,
            frequency_penalty: 0.1,
            penalty_window: 100,
            logit_bias: vec![(TokenId(2), f32::NEG_INFINITY), (TokenId(80), 1.0)],
            seed,
        };
        // Token 2 is banned, but the tokenizer has another token that ends an answer.
        let options = GenerateOptions {
            max_tokens: 24,
            sampling: sampling.clone(),
            ignore_eos: true,
            ..Default::default()
        };
        let (_, generation) = answer(&mut engine, &prompt, options).expect("an answer");
        engine.reset();
        let (mut history, mut next) = (Vec::new(), prompt.clone());
        let mut draws = Vec::new();
        for found in &generation.ids {
            let want = Want { logits: Rows::Last, captures: false };
            let logits = block_on(engine.forward(&next, want)).expect("a valid batch").logits;
            history.extend_from_slice(&next);
            let position = Position(u32::try_from(history.len()).expect("few"));
            let window = window(&history, sampling.penalty_window);
            draws.push(Draw {
                params: sampling.clone(),
                logits,
                window,
                position,
                found: *found,
                what: "answer",
            });
            next = vec![*found];
        }
        assert_eq!(draws.len(), 24, "as many as asked for");
        assert!(draws.iter().all(|draw| draw.found != TokenId(2)), "token 2 is banned");
        assert_twins("sampling.answers", 320, &draws);
    }
}
