//! Speculative decoding as the engine uses it.

use crate::{Engine, Error};
use redraft_decode::draft::{
    Costs, Curve, Gate, MIN_MATCH, Observation, Origin, Plan, Policy, SpeculationStats, find_match,
    standard_plans,
};
use redraft_decode::{SamplingParams, TokenId};
use redraft_model::{
    Batch, ModelError, OracleEntry, RoundResult, RoundTrace, Speculator, SpeculatorOptions, TreeKernel,
};
use std::collections::VecDeque;
use web_time::Instant;

/// Whether and how an answer is drafted ahead. Its tokens are the same whatever is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speculation {
    /// One token a forward pass.
    #[default]
    Off,
    /// Every round with this plan.
    Plan(Plan),
    /// Whatever has been fastest so far, by measured costs and observed acceptance; plain steps are among it.
    Auto,
}

impl Speculation {
    /// Whether a drafter takes part, if there is one.
    pub(crate) fn drafts(self) -> bool {
        match self {
            Self::Off => false,
            Self::Plan(plan) => plan.drafter,
            Self::Auto => true,
        }
    }
}

/// Plain tokens in a row after which an automatic choice stays plain for the rest of the answer: what keeping a drafter
/// up to date costs is then saved too.
const PATIENCE: u32 = 48;

/// Tokens of the shortest context in which costs can be measured; in a shorter one the automatic choice is plain.
pub const LEAST_CONTEXT: u32 = 32;

/// A token that a round emitted and nobody has seen yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Emitted {
    pub(crate) id: TokenId,
    pub(crate) origin: Origin,
    /// Row of logits that it was drawn from.
    pub(crate) row: u32,
}

/// Speculation in an answer.
#[derive(Debug)]
pub(crate) struct Rounds {
    mode: Speculation,
    /// Whether steps keep features for the drafter.
    pub(crate) features: bool,
    /// First position whose row the drafter has not computed.
    pub(crate) unseen: u32,
    /// Whether the tree's root is the last token.
    rooted: bool,
    /// Plain tokens since the last round.
    plain: u32,
    /// Whether the drafter is no longer kept up to date.
    drafter_rests: bool,
    pub(crate) queue: VecDeque<Emitted>,
    /// The round that the queue is of.
    last: Option<(Plan, RoundResult)>,
    pub(crate) stats: SpeculationStats,
    /// The tree of the last round, if it was traced and nobody has seen it.
    pub(crate) trace: Option<RoundTrace>,
    /// Why speculation was given up, if it was.
    pub(crate) given_up: Option<String>,
}

impl Rounds {
    /// `unseen`: tokens of the prompt that are not computed again.
    pub(crate) fn new(mode: Speculation, features: bool, unseen: u32) -> Self {
        Self {
            mode,
            features,
            unseen,
            rooted: false,
            plain: 0,
            drafter_rests: false,
            queue: VecDeque::new(),
            last: None,
            stats: SpeculationStats::default(),
            trace: None,
            given_up: None,
        }
    }

    /// The plan of the next round; `None` for a plain step.
    pub(crate) fn choose(&self, policy: Option<&Policy>) -> Option<Plan> {
        match self.mode {
            Speculation::Off => None,
            Speculation::Plan(plan) => Some(plan),
            Speculation::Auto if self.drafter_rests => None,
            Speculation::Auto => policy.and_then(Policy::choose),
        }
    }

    /// Notes that the next token comes from a plain step.
    pub(crate) fn plain(&mut self, policy: Option<&mut Policy>) {
        self.rooted = false;
        self.plain += 1;
        self.stats.add_plain(1);
        if let Some(policy) = policy {
            policy.observe_plain(1);
        }
        if self.features && self.mode == Speculation::Auto && self.plain >= PATIENCE {
            self.features = false;
            self.drafter_rests = true;
        }
    }

    /// Takes a round's result.
    pub(crate) fn take(&mut self, result: RoundResult, plan: Plan) {
        self.plain = 0;
        self.queue.extend(
            result.tokens.iter().zip(&result.origins).zip(&result.rows).map(|((id, origin), row)| Emitted {
                id: *id,
                origin: *origin,
                row: *row,
            }),
        );
        if result.faults > 0 {
            self.features = false;
            self.given_up = Some(format!(
                "the drafter computed {} rows of logits that are no numbers; its file is damaged, or the adapter computes wrong results",
                result.faults
            ));
        }
        self.last = Some((plan, result));
    }

    /// Counts the last round, of which `seen` tokens went into the answer.
    pub(crate) fn count(&mut self, seen: usize, stopped: bool, policy: Option<&mut Policy>) {
        let Some((plan, mut result)) = self.last.take() else { return };
        if let Some(policy) = policy {
            policy.observe(&plan, &Observation { path: &result.rows, stopped });
        }
        result.origins.truncate(seen);
        self.stats.add(&result.stats(&plan, stopped));
    }

    /// Tokens of the last round that were taken from the queue.
    pub(crate) fn seen(&self) -> usize {
        self.last.as_ref().map_or(0, |(_, result)| result.tokens.len()) - self.queue.len()
    }
}

/// A cost curve from costs at 1, 2, 4, 8, 16, … rows. A batch is computed in whole tiles of the smallest of these sizes that
/// holds it, above eight rows in tiles of eight: rows in between cost what the next larger batch costs.
fn whole_tiles(points: impl Iterator<Item = (u32, f64)>) -> Vec<(u32, f64)> {
    let mut curve: Vec<(u32, f64)> = Vec::new();
    for (rows, cost) in points {
        match curve.last().copied() {
            // Between 16 and 32 there are 24 rows.
            Some((before, below)) if rows > 16 => {
                let middle = (before + rows) / 2;
                let half = f64::midpoint(below, cost);
                curve.extend([(before + 1, half), (middle, half), (middle + 1, cost), (rows, cost)]);
            }
            Some((before, _)) if rows > before + 1 => curve.extend([(before + 1, cost), (rows, cost)]),
            _ => curve.push((rows, cost)),
        }
    }
    curve
}

/// The token behind each position from `first` on, `last` behind the last: the drafter pairs each feature with it.
fn behind(sequence: &[TokenId], first: u32, last: TokenId) -> Vec<TokenId> {
    sequence.get(first as usize + 1..).unwrap_or_default().iter().copied().chain([last]).collect()
}

impl Engine {
    /// Makes what speculation needs, if it is not there yet, for answers sampled like this.
    pub(crate) async fn ready(&mut self, sampling: &SamplingParams, ends: &[TokenId]) -> Result<(), Error> {
        if self.speculator.is_none() {
            let options = SpeculatorOptions::default();
            self.speculator = Some(Speculator::new(&self.model, &self.sampler, &options).await?);
        }
        if let Some(speculator) = &mut self.speculator {
            speculator.configure(sampling, ends);
        }
        Ok(())
    }

    /// One round whose root is `root`, the last token of the answer. `late`: the next one is submitted before it is read.
    pub(crate) async fn round(
        &mut self,
        rounds: &mut Rounds,
        plan: Plan,
        root: TokenId,
        limit: u32,
        stepwise: Option<&[TreeKernel]>,
        late: bool,
    ) -> Result<RoundResult, Error> {
        let length = self.position();
        let Some(speculator) = &mut self.speculator else {
            return Err(ModelError::NoDrafter.into());
        };
        speculator.set_plan(&plan)?;
        if !rounds.rooted {
            if rounds.features {
                speculator.extend(rounds.unseen, &behind(&self.sequence, rounds.unseen, root), true)?;
            }
            speculator.begin(&self.model, &self.sampler, length, root, limit)?;
            rounds.rooted = true;
        }
        let result = match stepwise {
            Some(on_cpu) => {
                let (result, trace) = speculator.round_stepwise(&self.model, &self.sampler, on_cpu).await?;
                rounds.trace = Some(trace);
                result
            }
            None => {
                if speculator.under_way() == 0 {
                    speculator.submit(&self.model, &self.sampler)?;
                }
                if late && speculator.may_run_ahead(&self.model) {
                    speculator.submit(&self.model, &self.sampler)?;
                }
                speculator.read().await?
            }
        };
        rounds.unseen = length + u32::try_from(result.tokens.len()).unwrap_or(0);
        Ok(result)
    }

    /// Has the drafter compute the rows whose features are kept for it, where those of `batch` would not fit behind them.
    pub(crate) fn make_room(&mut self, rounds: &mut Rounds, batch: &Batch) -> Result<(), Error> {
        let (computed, rows) = (batch.committed(), batch.rows());
        let kept = computed.saturating_sub(rounds.unseen);
        let (Some(speculator), Some(next)) = (&mut self.speculator, batch.tokens().first()) else {
            return Ok(());
        };
        if kept > 0 && kept + rows > self.model.max_rows() {
            speculator.extend(rounds.unseen, &behind(&self.sequence, rounds.unseen, *next), false)?;
            rounds.unseen = computed;
        }
        Ok(())
    }

    /// A gate that reads a table needs a drafter that has one.
    pub(crate) fn check_gate(&self, plan: &Plan) -> Result<(), Error> {
        let table = self
            .speculator
            .as_ref()
            .is_none_or(|speculator| speculator.tables().calibrated || speculator.drafter().is_none());
        match plan.gate {
            Gate::Calibrated if plan.reconsider > 0 && !table => Err(ModelError::NoGains.into()),
            _ => Ok(()),
        }
    }

    /// Whether a round behind `last` has something to look up, or is under way already.
    pub(crate) fn finds(&self, last: TokenId) -> bool {
        if self.speculator.as_ref().is_some_and(|speculator| speculator.under_way() > 0) {
            return true;
        }
        let ids: Vec<_> = self.sequence.iter().copied().chain([last]).collect();
        find_match(&ids, MIN_MATCH).is_some()
    }

    pub(crate) fn needs_features(&self) -> bool {
        self.speculator.as_ref().is_some_and(Speculator::needs_features)
    }

    /// Measures what steps and rounds cost on this adapter, for [`Speculation::Auto`]: five runs of each size, some
    /// seconds on a software adapter. The sequence is forgotten.
    ///
    /// # Errors
    /// [`Error::Model`] if a step fails.
    pub async fn measure_costs(&mut self) -> Result<Costs, Error> {
        self.ready(&SamplingParams::default(), &[]).await?;
        self.sampler.configure(&SamplingParams::default()).await?;
        let position = (self.context() / 4).clamp(1, 128);
        let mut verify = [1, 2, 4, 8, 16, 32].map(|rows| (rows, f64::INFINITY));
        // Interleaved, so that what else the machine does falls on all alike; the first run may still compile kernels.
        for run in 0..5 {
            for (rows, least) in &mut verify {
                let started = Instant::now();
                self.time_rows(*rows, position).await?;
                if run > 0 {
                    *least = least.min(started.elapsed().as_secs_f64());
                }
            }
        }
        // More rows never cost less; where they seem to, the smaller step was disturbed, but the larger one is no proof
        // that it is cheap.
        let mut most = 0.0f64;
        for (_, seconds) in &mut verify {
            most = most.max(*seconds);
            *seconds = most;
        }
        let plain = verify.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
        let (draft, extend) = self.drafter_costs(position)?;
        let relative = |points: &[(u32, f64)]| {
            Curve::new(whole_tiles(points.iter().map(|(rows, seconds)| (*rows, seconds / plain))))
        };
        let mut costs = Costs {
            verify: relative(&verify)?,
            draft: relative(&draft)?,
            extend: extend / plain,
            overhead: 0.0,
            catch_up: extend / plain / 4.0,
            catch_up_most: PATIENCE,
        };
        // What a round takes beyond its forwards: the kernels of the tree and the host.
        let plan = if self.has_drafter() { Plan::chain(1) } else { Plan::lookup(1) };
        let round = self.round_seconds(&plan, position).await? / plain;
        costs.overhead = (round - costs.round(&plan)).clamp(0.0, 1.0);
        self.set_costs(&costs)?;
        Ok(costs)
    }

    /// The least seconds of a few rounds of `plan` behind `position` tokens, whatever they are.
    async fn round_seconds(&mut self, plan: &Plan, position: u32) -> Result<f64, Error> {
        self.reset();
        let Some(speculator) = &mut self.speculator else { return Ok(0.0) };
        speculator.set_plan(plan)?;
        let mut least = f64::INFINITY;
        for run in 0..5 {
            // Again from the same place, so that a small context has room.
            speculator.begin(&self.model, &self.sampler, position, TokenId(0), u32::MAX)?;
            let started = Instant::now();
            speculator.round(&self.model, &self.sampler).await?;
            if run > 0 {
                least = least.min(started.elapsed().as_secs_f64());
            }
        }
        speculator.rewind(0);
        Ok(least)
    }

    /// Seconds of a drafter step by its rows, and of an extend pass.
    fn drafter_costs(&mut self, position: u32) -> Result<(Vec<(u32, f64)>, f64), Error> {
        let Some(speculator) = self.speculator.as_mut().filter(|s| s.needs_features()) else {
            return Ok((vec![(1, 0.0)], 0.0));
        };
        let mut time = |rows: u32, extend: bool| -> Result<f64, Error> {
            let mut least = f64::INFINITY;
            for run in 0..5 {
                let started = Instant::now();
                speculator.time_drafter(rows, position, extend)?;
                if run > 0 {
                    least = least.min(started.elapsed().as_secs_f64());
                }
            }
            Ok(least)
        };
        let mut draft = Vec::new();
        for rows in [1, 2, 4, 8, 16] {
            draft.push((rows, time(rows, false)?));
        }
        Ok((draft, time(4, true)?))
    }

    /// Takes costs that were measured on this adapter with this model earlier.
    ///
    /// # Errors
    /// [`Error::Costs`] if they are no costs.
    pub fn set_costs(&mut self, costs: &Costs) -> Result<(), Error> {
        costs.validate()?;
        let plans = self.plans();
        self.policy = Some(Policy::new(&plans, costs)?);
        Ok(())
    }

    /// The plans that [`Speculation::Auto`] chooses among, besides plain steps.
    #[must_use]
    pub fn plans(&self) -> Vec<Plan> {
        let drafter = self.speculator.as_ref().and_then(Speculator::drafter);
        let template = match drafter {
            Some(drafter) if !drafter.reconsiders() => Plan::tree(15, 5, 4, 4),
            _ if self.has_drafter() => Plan::default(),
            _ => Plan::lookup(3),
        };
        standard_plans(&template)
    }

    /// Whether a drafter is loaded.
    #[must_use]
    pub fn has_drafter(&self) -> bool {
        self.speculator.as_ref().is_some_and(Speculator::has_drafter)
    }

    /// What was noticed while loading and answering that is no error: a drafter made on another quantisation of the model.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the oracle proposes for the positions from `first` on; for tests, with `EngineOptions::oracle`.
    ///
    /// # Errors
    /// [`Error::Model`] if there is no oracle or the entries do not fit the context.
    pub fn foretell(&self, first: u32, entries: &[OracleEntry]) -> Result<(), Error> {
        match &self.speculator {
            Some(speculator) => Ok(speculator.foretell(&self.model, first, entries)?),
            None => Err(Error::Model(ModelError::NoDrafter)),
        }
    }
}
