//! Rounds: what is recorded, in which order, and what comes back.

use super::arena::Arena;
use super::drafter::{Drafter, DrafterOptions};
use super::oracle::{Oracle, OracleEntry};
use super::{memory, phase};
use crate::batch::batch;
use crate::forward::{MAX_ROWS, Shape};
use crate::{MemoryPlan, Model, ModelError, Sampler};
use redraft_decode::draft::{Counters, Origin, Plan, RoundStats, Tables};
use redraft_decode::sampling::key_float;
use redraft_decode::{SamplingParams, TokenId};
use redraft_drafter::DrafterFile;
use redraft_gpu::{Gpu, Pass, Readback, Slice};
use redraft_shaders::params::{Round, Step};
use std::sync::Arc;

/// Who proposes.
#[derive(Debug)]
enum Proposer {
    /// Nobody but lookup.
    None,
    Drafter(Box<Drafter>),
    Oracle(Oracle),
}

/// How speculation is set up.
#[derive(Debug, Default)]
pub struct SpeculatorOptions<'a> {
    /// The drafter; without one only lookup proposes.
    pub drafter: Option<&'a DrafterFile>,
    /// How it is loaded.
    pub drafter_options: DrafterOptions,
    /// Refuse what needs more device memory than this many bytes together with the target.
    pub memory_limit: Option<u64>,
    /// A table in place of a drafter; for tests.
    pub oracle: bool,
}

/// What a round emitted, and how.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoundResult {
    /// Tokens emitted, at least one.
    pub tokens: Vec<TokenId>,
    /// Who proposed each.
    pub origins: Vec<Origin>,
    /// Row of the verified batch that each was drawn from.
    pub rows: Vec<u32>,
    /// Nodes that were verified.
    pub drafted: u32,
    /// Second passes made.
    pub reconsidered: u32,
    /// Refined candidates added.
    pub refined: u32,
    /// Refined candidates that were children already.
    pub duplicates: u32,
    /// Nodes added by lookup.
    pub looked_up: u32,
    /// Rows of the drafter whose logits were not finite: its weights are damaged.
    pub faults: u32,
}

// A constant of a type is evaluated where it is used, one of a module always.
const _: () =
    assert!(RoundResult::BYTES <= 256, "a round that is not looked at reads back at most 256 bytes");

impl RoundResult {
    /// Bytes that one round reads back.
    pub const BYTES: u64 = size_of::<Round>() as u64;

    /// The round as statistics count it. `stopped`: the answer ended in it.
    #[must_use]
    pub fn stats(&self, plan: &Plan, stopped: bool) -> RoundStats<'_> {
        let counters =
            Counters { reconsidered: self.reconsidered, refined: self.refined, duplicates: self.duplicates };
        RoundStats { plan: *plan, drafted: self.drafted, counters, origins: &self.origins, stopped }
    }
}

/// Draft trees over a target, on the GPU.
///
/// Used with the [`Model`] and the [`Sampler`] that it was made for. The order of things for an answer: [`extend`]
/// over the prompt, chunk by chunk; [`begin`]; then one [`round`] after the other.
///
/// [`extend`]: Speculator::extend
/// [`begin`]: Speculator::begin
/// [`round`]: Speculator::round
#[derive(Debug)]
pub struct Speculator {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) arena: Arena,
    proposer: Proposer,
    pub(crate) plan: Plan,
    pub(crate) tables: Tables,
    pub(crate) ends: Vec<TokenId>,
    sampling: SamplingParams,
    /// Of rounds in turn: one may be under way while the one before is read.
    readbacks: [Readback; 2],
    /// Rounds that were submitted and not read: 0 to 2.
    under_way: u32,
    /// Position and greatest logit of the row that computed no number, if one did since the last [`Self::begin`].
    broken: Option<(u32, f32)>,
    /// Rounds submitted, for the turn of the readbacks.
    submitted: usize,
    /// Tokens in the target's cache.
    pub(crate) length: u32,
    /// Rounds whose plan has no drafter keep it up to date all the same.
    follows: bool,
    /// Proposals at a temperature are drawn with the target's noise.
    coupled: bool,
    /// Positions whose keys and values the drafter holds, for the sequence that they were computed for.
    extended: u32,
}

impl Speculator {
    /// Sets up what rounds need beside `model` and `sampler`.
    ///
    /// # Errors
    /// [`ModelError::Drafter`], [`ModelError::DrafterShape`], [`ModelError::DrafterCaptures`] if the drafter is not this
    /// model's; [`ModelError::Memory`], [`ModelError::Gpu`].
    pub async fn new(
        model: &Model,
        sampler: &Sampler,
        options: &SpeculatorOptions<'_>,
    ) -> Result<Self, ModelError> {
        memory::check(&memory::plan(model, None)?, options.memory_limit)?;
        let arena = Arena::new(model, sampler).await?;
        let proposer = match options.drafter {
            _ if options.oracle => Proposer::Oracle(Oracle::new(model, &arena.buffers).await?),
            Some(file) => {
                let load =
                    Drafter::load(model, &arena.buffers, file, options.drafter_options, options.memory_limit);
                let drafter = load.await?;
                Proposer::Drafter(Box::new(drafter))
            }
            None => Proposer::None,
        };
        let (plan, tables) = match &proposer {
            Proposer::None => (Plan::lookup(4), Tables::default()),
            Proposer::Drafter(drafter) => (Plan::default(), drafter.tables().clone()),
            Proposer::Oracle(_) => (Plan::default(), Tables::default()),
        };
        let gpu = Arc::clone(model.gpu());
        let readbacks = [
            gpu.readback("draft.round.0", RoundResult::BYTES).await?,
            gpu.readback("draft.round.1", RoundResult::BYTES).await?,
        ];
        let speculator = Self {
            gpu,
            arena,
            proposer,
            plan,
            tables,
            ends: Vec::new(),
            sampling: SamplingParams::default(),
            readbacks,
            under_way: 0,
            broken: None,
            submitted: 0,
            length: 0,
            follows: false,
            coupled: true,
            extended: 0,
        };
        speculator.write_plan();
        Ok(speculator)
    }

    /// Runs rounds of a few plans, for drivers that compile a kernel when it first runs.
    ///
    /// # Errors
    /// [`ModelError::Gpu`].
    pub async fn first_steps(&mut self, model: &Model, sampler: &Sampler) -> Result<(), ModelError> {
        let before = self.plan;
        let tree = Plan { lookup: true, ..Plan::reconsider(7, 2, 6, 2, 2, 2) };
        let plans = match self.has_drafter() {
            true => [Plan::chain(2), Plan::chain(3), tree],
            false => [Plan::lookup(1), Plan::lookup(3), Plan::lookup(7)],
        };
        // Each begins anew, so that there is room in any context that has room for one.
        for plan in plans.iter().filter(|plan| plan.verified_rows() < model.context) {
            self.set_plan(plan)?;
            self.begin(model, sampler, 1, TokenId(0), u32::MAX)?;
            self.round(model, sampler).await?;
        }
        self.rewind(0);
        self.set_plan(&before)
    }

    /// Whether a drafter, or an oracle in its place, proposes.
    #[must_use]
    pub fn has_drafter(&self) -> bool {
        !matches!(self.proposer, Proposer::None)
    }

    /// The drafter.
    #[must_use]
    pub fn drafter(&self) -> Option<&Drafter> {
        match &self.proposer {
            Proposer::Drafter(drafter) => Some(drafter),
            _ => None,
        }
    }

    /// What model, sampler and this take on the device.
    #[must_use]
    pub fn memory(&self, model: &Model) -> MemoryPlan {
        let drafter = self.drafter().map_or(0, Drafter::memory);
        MemoryPlan { drafter, trees: memory::trees(), ..model.memory() }
    }

    /// The plan of the next round.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The tables that edges and gate read.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Takes another plan for the rounds to come.
    ///
    /// # Errors
    /// [`ModelError::Plan`] if the kernels cannot run it, or if it needs a drafter that is not there.
    pub fn set_plan(&mut self, plan: &Plan) -> Result<(), ModelError> {
        plan.validate()?;
        if plan.drafter && !self.has_drafter() {
            return Err(ModelError::NoDrafter);
        }
        if *plan != self.plan {
            self.plan = *plan;
            self.write_plan();
        }
        Ok(())
    }

    /// Whether rounds that only look something up keep the drafter up to date, so that it can go on behind them.
    pub fn follow(&mut self, follows: bool) {
        self.follows = follows;
    }

    /// Takes other tables.
    ///
    /// # Errors
    /// [`ModelError::Tables`] if they are out of range; nothing changes then.
    pub fn set_tables(&mut self, tables: Tables) -> Result<(), ModelError> {
        tables.validate()?;
        self.tables = tables;
        self.write_plan();
        Ok(())
    }

    /// Takes the parameters that the sampler draws with, and the tokens that end an answer. `coupled`: at a temperature a
    /// drafter's proposals are drawn with the same noise as the target's token, which lifts acceptance.
    pub fn configure(&mut self, sampling: &SamplingParams, ends: &[TokenId], coupled: bool) {
        self.coupled = coupled;
        self.sampling = sampling.clone();
        self.ends = ends.to_vec();
        self.write_plan();
    }

    fn write_plan(&self) {
        self.arena.set_plan(&self.gpu, &self.plan, &self.tables, &self.ends);
        if let Proposer::Drafter(drafter) = &self.proposer {
            drafter.set_plan(&self.gpu, &self.plan, &self.sampling, self.coupled);
        }
    }

    /// What the oracle proposes for the positions from `first` on.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if they do not fit the context; [`ModelError::NoDrafter`] without an oracle.
    pub fn foretell(&self, model: &Model, first: u32, entries: &[OracleEntry]) -> Result<(), ModelError> {
        match &self.proposer {
            Proposer::Oracle(oracle) => oracle.write(model, first, entries),
            _ => Err(ModelError::NoDrafter),
        }
    }

    /// Positions that need not be computed again for a sequence that shares its first `common` tokens with the last one:
    /// the drafter's row at a position also depends on the token behind it.
    #[must_use]
    pub fn reusable(&self, common: u32) -> u32 {
        match &self.proposer {
            Proposer::Drafter(_) => self.extended.min(common.saturating_sub(1)),
            _ => common,
        }
    }

    /// The sequence is now another one behind its first `common` tokens. Rounds that are under way are nobody's.
    pub fn rewind(&mut self, common: u32) {
        self.under_way = 0;
        self.extended = self.extended.min(common.saturating_sub(1));
    }

    /// Whether steps of the target must capture features for [`Self::extend`].
    #[must_use]
    pub fn needs_features(&self) -> bool {
        matches!(self.proposer, Proposer::Drafter(_))
    }

    /// Records that the features of the target's batch, a chain of `rows` rows with captures, are kept as rows `at …` of
    /// what [`Self::extend`] reads. Behind the batch, in its pass.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if they are more than fit.
    pub fn record_features(&self, pass: &mut Pass<'_>, rows: u32, at: u32) -> Result<(), ModelError> {
        let Proposer::Drafter(drafter) = &self.proposer else { return Ok(()) };
        if at + rows > MAX_ROWS {
            return Err(batch("rows of features", u64::from(at + rows), format!("at most {MAX_ROWS}")));
        }
        drafter.record_chain_features(&self.gpu, pass, rows, at)
    }

    /// The drafter computes its rows at positions `first …` from as many rows of kept features. `next` is the token behind
    /// each row. With `propose` it says what it makes of the last one, for [`Self::begin`].
    ///
    /// # Errors
    /// [`ModelError::Batch`] if there are none or more rows than fit; [`ModelError::Gpu`].
    pub fn extend(&mut self, first: u32, next: &[TokenId], propose: bool) -> Result<(), ModelError> {
        let Proposer::Drafter(drafter) = &self.proposer else { return Ok(()) };
        let rows = u32::try_from(next.len()).unwrap_or(u32::MAX);
        if rows == 0 || rows > MAX_ROWS {
            return Err(batch("rows to extend over", u64::from(rows), format!("1 to {MAX_ROWS}")));
        }
        let table: Vec<[u32; 4]> =
            (first..).zip(next).map(|(position, token)| [token.0, position, position, 0]).collect();
        let b = &self.arena.buffers;
        self.gpu.write(b.rows.slice(0, u64::from(rows) * 16), bytemuck::cast_slice(&table));
        let step = Step { rows, source: 0, tree_start: u32::MAX, pad0: 0 };
        let head = Step { rows: 1, source: rows - 1, ..step };
        self.gpu.write(b.step.whole(), bytemuck::bytes_of(&step));
        self.gpu.write(b.head_step.whole(), bytemuck::bytes_of(&head));
        let last = first + rows - 1;
        self.gpu.submit(
            |pass| {
                pass.phase(phase::EXTEND);
                drafter.record_extend(pass, rows, last, propose)
            },
            &[],
        )?;
        self.extended = first + rows;
        Ok(())
    }

    /// Makes `root`, the token behind `length` computed ones, the root of the next round. At most `limit` more tokens are
    /// wanted. Rounds that are under way are nobody's.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if the context is full or nothing is wanted.
    pub fn begin(
        &mut self,
        model: &Model,
        sampler: &Sampler,
        length: u32,
        root: TokenId,
        limit: u32,
    ) -> Result<(), ModelError> {
        let room = model.context.saturating_sub(length);
        if length == 0 || room == 0 || limit == 0 {
            return Err(batch(
                "committed tokens of a round",
                u64::from(length),
                format!("1 to {}, with at least one token wanted", model.context - 1),
            ));
        }
        sampler.commit(length, &[root])?;
        self.arena.set_root(&self.gpu, length, root, limit.min(room));
        self.length = length;
        self.under_way = 0;
        self.broken = None;
        Ok(())
    }

    /// One round: draft, verify, accept, extend.
    ///
    /// # Errors
    /// [`ModelError::NotFinite`] if the target computed no number; [`ModelError::Gpu`].
    pub async fn round(&mut self, model: &Model, sampler: &Sampler) -> Result<RoundResult, ModelError> {
        self.submit(model, sampler)?;
        self.read().await
    }

    /// Submits a round without waiting for it; [`Self::read`] waits. One more may be submitted before the first is read, so
    /// that the device need not wait for the host: it begins where the first one ends, and what it emits behind the end
    /// of an answer is to be dropped.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if two are under way or the context has no room; [`ModelError::Gpu`].
    pub fn submit(&mut self, model: &Model, sampler: &Sampler) -> Result<(), ModelError> {
        self.check_room(model)?;
        if self.under_way > 1 {
            return Err(batch("rounds under way", u64::from(self.under_way), "at most 1".to_owned()));
        }
        let whole = self.arena.buffers.round.whole();
        self.gpu.submit(
            |pass| self.record(pass, model, sampler),
            &[(Slice { size: RoundResult::BYTES, ..whole }, self.readback(self.submitted))],
        )?;
        self.submitted += 1;
        self.under_way += 1;
        Ok(())
    }

    fn readback(&self, round: usize) -> &Readback {
        let [even, odd] = &self.readbacks;
        if round.is_multiple_of(2) { even } else { odd }
    }

    /// Whether another round may be submitted before the one under way is read: it fits the context whatever that one
    /// accepts.
    #[must_use]
    pub fn may_run_ahead(&self, model: &Model) -> bool {
        self.under_way == 1 && self.length + 2 * (self.plan.depth + 1) < model.context
    }

    /// Rounds that were submitted and not read.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Waits for the oldest round that was submitted and not read.
    ///
    /// # Errors
    /// [`ModelError::Batch`] if there is none; as [`Self::round`].
    pub async fn read(&mut self) -> Result<RoundResult, ModelError> {
        self.check_whole()?;
        if self.under_way == 0 {
            return Err(batch("rounds under way", 0, "at least 1".to_owned()));
        }
        let readback = self.readback(self.submitted - self.under_way as usize);
        let bytes = self.gpu.read(readback, RoundResult::BYTES).await?;
        self.under_way -= 1;
        self.finish(&bytemuck::pod_read_unaligned(&bytes))
    }

    /// Refuses to go on behind a row that computed no number.
    fn check_whole(&self) -> Result<(), ModelError> {
        match self.broken {
            Some((position, found)) => Err(ModelError::NotFinite { position, found }),
            None => Ok(()),
        }
    }

    pub(crate) fn check_room(&self, model: &Model) -> Result<(), ModelError> {
        self.check_whole()?;
        if self.length < model.context {
            return Ok(());
        }
        let expected = format!("below the context of {}", model.context);
        Err(batch("committed tokens of a round", u64::from(self.length), expected))
    }

    /// Takes note of what a round left behind.
    pub(crate) fn finish(&mut self, round: &Round) -> Result<RoundResult, ModelError> {
        if round.stop == 3 {
            // The rows before it are as good as plain steps would have been; what comes behind is not.
            let broken = (round.start + round.emitted, key_float(round.greatest));
            self.broken = Some(broken);
            if round.emitted == 0 {
                self.check_whole()?;
            }
        }
        self.length = round.length;
        if self.extends() {
            self.extended = round.length;
        }
        let emitted = round.emitted as usize;
        let take = |list: &[u32; 17]| list.iter().copied().take(emitted).collect::<Vec<_>>();
        Ok(RoundResult {
            tokens: take(&round.tokens).into_iter().map(TokenId).collect(),
            origins: take(&round.origins)
                .into_iter()
                .map(|code| Origin::from_code(code).unwrap_or_default())
                .collect(),
            rows: take(&round.path),
            drafted: round.drafted,
            reconsidered: round.reconsidered,
            refined: round.refined,
            duplicates: round.duplicates,
            looked_up: round.looked_up,
            faults: round.faults,
        })
    }

    /// Computes one drafter step of `rows` rows (an extend pass if `extend`) after `position` tokens and waits for it. For
    /// measurements: what the drafter holds is forgotten. Without a drafter nothing happens.
    ///
    /// # Errors
    /// [`ModelError::Gpu`].
    pub async fn time_drafter(&mut self, rows: u32, position: u32, extend: bool) -> Result<(), ModelError> {
        self.extended = 0;
        if extend {
            self.extend(position, &vec![TokenId(0); rows as usize], true)?;
            self.extended = 0;
        } else if let Proposer::Drafter(drafter) = &self.proposer {
            let plan = Plan::tree(rows, 2, rows, 1);
            let table: Vec<[u32; 4]> =
                (0..rows).map(|row| [0, position, self.arena.first_scratch() + row, 0]).collect();
            let b = &self.arena.buffers;
            self.gpu.write(b.rows.slice(0, u64::from(rows) * 16), bytemuck::cast_slice(&table));
            let step = Step { rows, source: 0, tree_start: u32::MAX, pad0: 0 };
            self.gpu.write(b.step.whole(), bytemuck::bytes_of(&step));
            self.gpu.write(b.head_step.whole(), bytemuck::bytes_of(&step));
            self.gpu.submit(|pass| drafter.record_step(pass, &plan, 1, position), &[])?;
        }
        Ok(self.gpu.flush().await?)
    }

    fn record(&self, pass: &mut Pass<'_>, model: &Model, sampler: &Sampler) -> Result<(), ModelError> {
        let plan = &self.plan;
        pass.phase(phase::DRAFT);
        for step in (0..=plan.steps()).filter(|_| plan.drafter) {
            if step > 0 {
                self.record_rows(pass, step)?;
            }
            self.record_outputs(pass, step)?;
            self.arena.record_grow(pass, plan, step)?;
        }
        self.arena.record_lookup(pass, plan)?;
        pass.phase(phase::TREE);
        self.arena.record_prune(pass, plan)?;
        self.arena.record_layout(pass)?;
        self.record_verify(pass, model, sampler)?;
        pass.phase(phase::ACCEPT);
        self.arena.record_accept(pass)?;
        self.record_keep(pass)
    }

    /// No row of target or drafter attends past this key.
    fn last_key(&self) -> u32 {
        // Rounds under way may accept as many tokens each.
        self.length + (self.under_way + 1) * (self.plan.depth + 1)
    }

    /// The rows of step `step`, 1 or more.
    pub(crate) fn record_rows(&self, pass: &mut Pass<'_>, step: u32) -> Result<(), ModelError> {
        self.arena.record_rows(pass, &self.plan, step)
    }

    /// What the proposer says of the rows of a step. A drafter said of the root what it had to say in the extend pass.
    pub(crate) fn record_outputs(&self, pass: &mut Pass<'_>, step: u32) -> Result<(), ModelError> {
        if step == 1 {
            self.arena.record_steps(pass)?;
        }
        match &self.proposer {
            Proposer::Drafter(drafter) if step > 0 => {
                drafter.record_step(pass, &self.plan, step, self.last_key())
            }
            Proposer::Oracle(oracle) => oracle.record_step(pass, step),
            _ => Ok(()),
        }
    }

    /// The target's forward pass over the tree, and its own token at every row.
    pub(crate) fn record_verify(
        &self,
        pass: &mut Pass<'_>,
        model: &Model,
        sampler: &Sampler,
    ) -> Result<(), ModelError> {
        let rows = self.plan.verified_rows();
        let captures = self.extends();
        pass.phase(phase::VERIFY);
        model.record(pass, &Shape { rows, last: self.last_key(), logits: rows, captures })?;
        pass.phase(phase::SAMPLE);
        sampler.record(pass, rows)
    }

    /// Keeps what was accepted: the target's cache, and the drafter's rows for it.
    pub(crate) fn record_keep(&self, pass: &mut Pass<'_>) -> Result<(), ModelError> {
        pass.phase(phase::ACCEPT);
        self.arena.record_compact(pass, &self.plan)?;
        let rows = self.plan.depth + 1;
        match &self.proposer {
            Proposer::Drafter(drafter) if self.extends() => {
                drafter.record_path_features(pass, rows)?;
                self.arena.record_root(pass)?;
                pass.phase(phase::EXTEND);
                drafter.record_extend(pass, rows, self.last_key(), true)
            }
            _ => self.arena.record_root(pass),
        }
    }

    /// Whether rounds of this plan keep the drafter's cache up to date.
    fn extends(&self) -> bool {
        (self.plan.drafter || self.follows) && self.needs_features()
    }
}
