//! Sampling on the GPU: what `redraft_decode::Sampler` does, behind the logits in the same pass.

use crate::batch::batch;
use crate::forward::MAX_ROWS;
use crate::{Batch, LogitRows, Model, ModelError};
use redraft_decode::sampling::{Fma, Stages};
use redraft_decode::{SamplingError, SamplingParams, TokenId};
use redraft_gpu::{Buffer, BufferUse, Dispatch, Gpu, Pass, Slice};
use redraft_shaders::params::SampleParams;
use std::sync::Arc;

/// Invocations of a workgroup in the kernels that walk the vocabulary: `LANES` in `shaders/lib/sampling.wgsl`.
const LANES: u32 = 64;
/// Workgroups that share a row. Few, because `sample_pick` walks their partial results alone.
const GROUPS: u32 = 8;
/// Entries of a level of the radix search: `SUMS` in `shaders/lib/sampling.wgsl`.
const SUMS: u64 = 272;

/// Slots of a penalty window and biases that there is room for from the start.
const CAPACITY: (u32, u32) = (64, 64);

/// Bytes of the storage buffers of a new sampler: those of [`Work`] and [`Bound`].
pub(crate) fn planned_bytes(vocab: u32, context: u32) -> u64 {
    let (rows, vocab, parts) = (u64::from(MAX_ROWS), u64::from(vocab), u64::from(parts(vocab)));
    let (window, biases) = (u64::from(CAPACITY.0), u64::from(CAPACITY.1));
    // Per row: scaled logits, partial results, two buffers of sums, cut, search, two of
    // keys, the token, and the window's slots.
    let per_row = vocab + parts * 2 + 2 * 4 * SUMS * 2 + 2 + 32 + 2 * 2 + 1 + window * 2;
    let history = (u64::from(context) + rows).next_multiple_of(4);
    (rows * per_row + history + biases * 2) * 4
}

/// Draws a token from each row of logits.
///
/// The id at (seed, position) is a pure function of the row's logits, its history and the parameters
/// (`redraft_decode::SamplingParams`), so it does not matter in which batch a row was computed.
#[derive(Debug)]
pub struct Sampler {
    gpu: Arc<Gpu>,
    vocab: u32,
    inputs: Inputs,
    work: Work,
    bound: Bound,
    stages: Stages,
    window: u32,
}

/// What the model's forward pass leaves for sampling.
#[derive(Debug)]
struct Inputs {
    logits: Buffer,
    step: Buffer,
    rows: Buffer,
    slots: Buffer,
}

/// Buffers whose sizes do not depend on the parameters. Rows are `MAX_ROWS`.
#[derive(Debug)]
struct Work {
    /// `[context + MAX_ROWS]` ids by position.
    committed: Buffer,
    /// `[rows][vocab]` f32.
    scaled: Buffer,
    /// `[rows][parts]` (key, id).
    partials: Buffer,
    /// `[rows][4][SUMS]` 64-bit sums, for even and odd passes.
    sums: [Buffer; 2],
    /// `[rows]` (key, id).
    cuts: Buffer,
    /// `[rows][8]` of four words.
    searches: Buffer,
    /// `[rows]` (key of the winner, least key), behind `prepare` and behind `draw`.
    keys: [Buffer; 2],
    /// `[rows]` ids: the result.
    tokens: Buffer,
    /// [`SampleParams`] of the eight passes; level 0 of measure 0 serves the other kernels too.
    params: Vec<Buffer>,
}

/// Dispatches, and the buffers whose sizes depend on the parameters.
#[derive(Debug)]
struct Bound {
    /// Slots of a window and entries of the bias list that fit.
    capacity: (u32, u32),
    bias_list: Buffer,
    window: Dispatch,
    prepare: Dispatch,
    pick: [Dispatch; 2],
    histograms: Vec<Dispatch>,
    cuts: [Dispatch; 2],
    draw: Dispatch,
}

impl Sampler {
    /// A sampler for the logits of `model`.
    ///
    /// # Errors
    /// [`ModelError::Gpu`].
    pub async fn new(model: &Model) -> Result<Self, ModelError> {
        let gpu = Arc::clone(model.gpu());
        let vocab = model.config().vocab;
        let work = Work::new(&gpu, vocab, model.context()).await?;
        let b = &model.buffers;
        let inputs = Inputs {
            logits: b.logits.clone(),
            step: b.head_step.clone(),
            rows: b.rows.clone(),
            slots: b.slots.clone(),
        };
        let defaults = SamplingParams::default();
        let bound = Bound::new(&gpu, &work, &inputs, CAPACITY).await?;
        let stages = defaults.stages(vocab);
        let mut sampler = Self { gpu, vocab, inputs, work, bound, stages, window: 0 };
        sampler.configure(&defaults).await?;
        Ok(sampler)
    }

    /// Runs every kernel once, for drivers that compile a kernel when it first runs.
    ///
    /// # Errors
    /// [`ModelError::Gpu`].
    pub async fn first_steps(&mut self, model: &Model) -> Result<(), ModelError> {
        let all = SamplingParams {
            temperature: 1.0,
            top_k: 2,
            top_p: 0.5,
            presence_penalty: 0.5,
            ..SamplingParams::default()
        };
        let batch = Batch::chain(0, &[TokenId(0)], LogitRows::Last);
        for params in [all, SamplingParams::default()] {
            self.configure(&params).await?;
            let rows = self.prepare(&batch)?;
            model.submit(&batch, |pass| self.record(pass, rows), &[])?;
            self.gpu.flush().await?;
        }
        Ok(())
    }

    /// Takes new parameters, for all rows drawn from now on.
    ///
    /// # Errors
    /// [`ModelError::Sampling`] if they are out of range (nothing changes then), [`ModelError::Gpu`].
    pub async fn configure(&mut self, params: &SamplingParams) -> Result<(), ModelError> {
        params.validate(self.vocab)?;
        let stages = params.stages(self.vocab);
        let bias = params.sorted_bias();
        let biases = u32::try_from(bias.len()).unwrap_or(u32::MAX);
        let window = if stages.penalties { params.penalty_window } else { 0 };
        let (windows, entries) = self.bound.capacity;
        if window > windows || biases > entries {
            let capacity = (window.max(windows), biases.max(entries));
            self.bound = Bound::new(&self.gpu, &self.work, &self.inputs, capacity).await?;
        }
        let list: Vec<[u32; 2]> = bias.iter().map(|(token, value)| [token.0, value.to_bits()]).collect();
        if !list.is_empty() {
            self.gpu.write(self.bound.bias_list.whole(), bytemuck::cast_slice(&list));
        }
        // The twin's choice between fused and split products does not concern the kernels.
        let numbers = params.coefficients(Fma::Split);
        for (pass, buffer) in (0u32..).zip(&self.work.params) {
            let contents = SampleParams {
                vocab: self.vocab,
                chunk: chunk(self.vocab),
                window,
                levels: MAX_ROWS,
                biases,
                draws: u32::from(stages.draw),
                measure: pass / 4,
                level: pass % 4,
                top_k: params.top_k.clamp(1, self.vocab),
                top_p: numbers.top_p,
                min_p: u32::from(stages.min_p),
                min_p_ln: numbers.min_p_ln,
                inv_temperature: numbers.inv_temperature,
                repetition: numbers.repetition,
                inv_repetition: numbers.inv_repetition,
                presence: numbers.presence,
                frequency: numbers.frequency,
                seed_lo: numbers.seed_lo,
                seed_hi: numbers.seed_hi,
                pad0: 0,
            };
            self.gpu.write(buffer.whole(), bytemuck::bytes_of(&contents));
        }
        self.stages = stages;
        self.window = window;
        Ok(())
    }

    /// Notes which tokens are at positions `at …`: the history that penalties look back on.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if they do not fit the context.
    pub fn commit(&self, at: u32, tokens: &[TokenId]) -> Result<(), ModelError> {
        let end = (u64::from(at) + tokens.len() as u64) * 4;
        if end > self.work.committed.size() {
            return Err(batch("position", end / 4, "within the context".to_owned()));
        }
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        if !ids.is_empty() {
            let slice = self.work.committed.slice(u64::from(at) * 4, ids.len() as u64 * 4);
            self.gpu.write(slice, bytemuck::cast_slice(&ids));
        }
        Ok(())
    }

    /// Checks that `step` can be sampled. Its committed tokens must have been [committed](Self::commit); those of a chain
    /// are committed here. Returns the number of rows that are drawn.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if a tree has more than one root.
    pub fn prepare(&self, step: &Batch) -> Result<u32, ModelError> {
        if step.parents.is_none() {
            self.commit(step.committed, &step.tokens)?;
        } else if let Some(root) = step.depths()?.iter().skip(1).position(|depth| *depth == 0) {
            return Err(batch("second root of a sampled tree", root as u64 + 1, "absent".to_owned()));
        }
        Ok(match step.logits {
            LogitRows::None => 0,
            LogitRows::Last => 1,
            LogitRows::All => step.rows(),
        })
    }

    /// Records the kernels for `rows` rows of logits.
    ///
    /// # Errors
    /// [`ModelError::Gpu`].
    pub fn record(&self, pass: &mut Pass<'_>, rows: u32) -> Result<(), ModelError> {
        if rows == 0 {
            return Ok(());
        }
        let b = &self.bound;
        let walk = [parts(self.vocab) / LANES, rows, 1];
        let alone = [1, rows, 1];
        if self.window > 0 {
            pass.run(&b.window, [self.window.div_ceil(64), rows, 1])?;
        }
        let [best, drawn] = &b.pick;
        pass.run(&b.prepare, walk)?;
        pass.run(best, alone)?;
        if !self.stages.draw {
            return Ok(());
        }
        for (wanted, (passes, cut)) in
            [self.stages.top_k, self.stages.top_p].iter().zip(b.histograms.chunks(4).zip(&b.cuts))
        {
            if *wanted {
                for histogram in passes {
                    pass.run(histogram, walk)?;
                }
                pass.run(cut, alone)?;
            }
        }
        pass.run(&b.draw, walk)?;
        Ok(pass.run(drawn, alone)?)
    }

    /// Ids by position: `[context + rows]`.
    pub(crate) fn committed(&self) -> &Buffer {
        &self.work.committed
    }

    /// The drawn ids, and the keys of the greatest scaled logits as in [`Self::greatest`], one a row.
    pub(crate) fn results(&self) -> (&Buffer, &Buffer) {
        let [maxima, _] = &self.work.keys;
        (&self.work.tokens, maxima)
    }

    /// Keys of the greatest scaled logit of the first `rows` rows: two words a row, the first of them the key, which
    /// `redraft_decode::sampling::key_float` turns back. What is not finite there is a broken model, not an answer.
    #[must_use]
    pub fn greatest(&self, rows: u32) -> Slice<'_> {
        let [maxima, _] = &self.work.keys;
        maxima.slice(0, u64::from(rows.min(MAX_ROWS)) * 8)
    }

    /// The drawn ids of the first `rows` rows, u32.
    #[must_use]
    pub fn tokens(&self, rows: u32) -> Slice<'_> {
        self.work.tokens.slice(0, u64::from(rows.min(MAX_ROWS)) * 4)
    }
}

fn chunk(vocab: u32) -> u32 {
    vocab.div_ceil(LANES * GROUPS)
}

fn parts(vocab: u32) -> u32 {
    vocab.div_ceil(LANES * chunk(vocab)) * LANES
}

impl Work {
    async fn new(gpu: &Gpu, vocab: u32, context: u32) -> Result<Self, ModelError> {
        let rows = u64::from(MAX_ROWS);
        let storage = async |label: &str, words: u64| gpu.buffer(label, words * 4, BufferUse::Storage).await;
        let sums = rows * 4 * SUMS * 2;
        let mut params = Vec::new();
        for _ in 0..8 {
            let blank: SampleParams = bytemuck::Zeroable::zeroed();
            params.push(gpu.uniform("sample.params", &blank).await?);
        }
        Ok(Self {
            committed: storage("sample.committed", u64::from(context) + rows).await?,
            scaled: storage("sample.scaled", rows * u64::from(vocab)).await?,
            partials: storage("sample.partials", rows * u64::from(parts(vocab)) * 2).await?,
            sums: [storage("sample.even_sums", sums).await?, storage("sample.odd_sums", sums).await?],
            cuts: storage("sample.cuts", rows * 2).await?,
            searches: storage("sample.searches", rows * 32).await?,
            keys: [storage("sample.maxima", rows * 2).await?, storage("sample.drawn", rows * 2).await?],
            tokens: storage("sample.tokens", rows).await?,
            params,
        })
    }
}

impl Bound {
    async fn new(gpu: &Gpu, work: &Work, inputs: &Inputs, capacity: (u32, u32)) -> Result<Self, ModelError> {
        let windows = u64::from(MAX_ROWS) * u64::from(capacity.0) * 8;
        let windows = gpu.buffer("sample.windows", windows, BufferUse::Storage).await?;
        let bias_list = gpu.buffer("sample.bias", u64::from(capacity.1) * 8, BufferUse::Storage).await?;
        let Inputs { logits, step, rows, slots } = inputs;
        let [even, odd] = &work.sums;
        let [maxima, drawn] = &work.keys;
        let bind = async |name: &str, pass: usize, rest: &[&Buffer]| {
            let pipeline = gpu.kernel(name, &[]).await?;
            let params = work.params.get(pass).unwrap_or(step);
            let slices: Vec<_> = [params, step].iter().chain(rest).map(|buffer| buffer.whole()).collect();
            gpu.bind(&pipeline, &slices).await
        };
        let w = work;
        let mut histograms = Vec::new();
        for pass in 0..8 {
            let (previous, sums) = if pass % 2 == 0 { (odd, even) } else { (even, odd) };
            let rest = [&w.scaled, maxima, &w.cuts, previous, sums, &w.searches];
            histograms.push(bind("sample_histogram", pass, &rest).await?);
        }
        let cut = [&w.scaled, maxima, &w.searches, odd, &w.cuts];
        let prepare = [logits, &windows, &bias_list, &w.scaled, &w.partials, even, odd, &w.cuts];
        let seen = [&w.committed, rows, slots, &windows];
        Ok(Self {
            capacity,
            window: bind("sample_window", 0, &seen).await?,
            prepare: bind("sample_prepare", 0, &prepare).await?,
            pick: [
                bind("sample_pick", 0, &[&w.partials, maxima, &w.tokens]).await?,
                bind("sample_pick", 0, &[&w.partials, drawn, &w.tokens]).await?,
            ],
            histograms,
            cuts: [bind("sample_cut", 3, &cut).await?, bind("sample_cut", 7, &cut).await?],
            draw: bind("sample_draw", 0, &[&w.scaled, maxima, &w.cuts, rows, &w.partials]).await?,
            bias_list,
        })
    }
}

impl From<SamplingError> for ModelError {
    fn from(error: SamplingError) -> Self {
        Self::Sampling(error)
    }
}
