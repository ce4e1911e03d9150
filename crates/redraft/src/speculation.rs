//! Speculative decoding as the engine uses it: rounds, and plain steps between them.

use crate::{Engine, Error};
use redraft_decode::draft::{
    Gate, LONGEST_PATIENCE, MIN_MATCH, Observation, Origin, Plan, Policy, SpeculationStats, has_match,
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
    /// Whether a drafter takes part for sure, if there is one.
    pub(crate) fn drafts(self) -> bool {
        matches!(self, Self::Plan(plan) if plan.drafter)
    }
}

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
    /// Plain tokens since the last round, and how many there may be before the drafter rests.
    plain: u32,
    pub(crate) patience: u32,
    pub(crate) queue: VecDeque<Emitted>,
    /// The round that the queue is of, and the seconds that it took.
    last: Option<(Plan, RoundResult, Option<f64>)>,
    /// Seconds that keeping the drafter up to date took beside rounds, and nobody has booked yet.
    pub(crate) extra: f64,
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
            patience: LONGEST_PATIENCE,
            queue: VecDeque::new(),
            last: None,
            extra: 0.0,
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
            Speculation::Auto => policy.and_then(Policy::choose),
        }
    }

    /// Whether a policy chooses, and is told what came of it.
    pub(crate) fn automatic(&self) -> bool {
        self.mode == Speculation::Auto
    }

    /// Notes that a token came from a plain step of so many seconds.
    pub(crate) fn plain(&mut self, seconds: f64, policy: Option<&mut Policy>) {
        self.rooted = false;
        self.plain += 1;
        self.stats.add_plain(1);
        let automatic = self.automatic();
        let Some(policy) = policy.filter(|_| automatic) else { return };
        policy.book_extra(std::mem::take(&mut self.extra));
        policy.observe_plain_timed(seconds, self.features);
        if self.features && (self.plain >= self.patience || policy.is_exhausted()) {
            self.features = false;
            policy.disengage();
        }
    }

    /// Takes a round's result. `seconds`: what it took, unless it was slowed down to look at it.
    pub(crate) fn take(&mut self, result: RoundResult, plan: Plan, seconds: Option<f64>) {
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
        self.last = Some((plan, result, seconds));
    }

    /// Counts the last round, of which `seen` tokens went into the answer.
    pub(crate) fn count(&mut self, seen: usize, stopped: bool, policy: Option<&mut Policy>) {
        let Some((plan, mut result, seconds)) = self.last.take() else { return };
        if let Some(policy) = policy.filter(|_| self.automatic()) {
            let observation = Observation { path: &result.rows, stopped };
            policy.book_extra(std::mem::take(&mut self.extra));
            match seconds {
                Some(seconds) => policy.observe_timed(&plan, &observation, seconds),
                None => policy.observe(&plan, &observation),
            }
            if self.given_up.is_some() {
                policy.disengage();
            }
        }
        result.origins.truncate(seen);
        self.stats.add(&result.stats(&plan, stopped));
    }

    /// Tokens of the last round that were taken from the queue.
    pub(crate) fn seen(&self) -> usize {
        self.last.as_ref().map_or(0, |(_, result, _)| result.tokens.len()) - self.queue.len()
    }
}

/// The token behind each position from `first` on, `last` behind the last: the drafter pairs each feature with it.
fn behind(sequence: &[TokenId], first: u32, last: TokenId) -> Vec<TokenId> {
    sequence.get(first as usize + 1..).unwrap_or_default().iter().copied().chain([last]).collect()
}

impl Engine {
    /// Makes what speculation needs, if it is not there yet, for answers sampled like this.
    pub(crate) async fn ready(
        &mut self,
        sampling: &SamplingParams,
        ends: &[TokenId],
        coupled: bool,
    ) -> Result<(), Error> {
        if self.speculator.is_none() {
            let options =
                SpeculatorOptions { memory_limit: self.memory_limit, ..SpeculatorOptions::default() };
            self.speculator = Some(Speculator::new(&self.model, &self.sampler, &options).await?);
        }
        if let Some(speculator) = &mut self.speculator {
            speculator.configure(sampling, ends, coupled);
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
        speculator.follow(rounds.features);
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
    pub(crate) async fn make_room(&mut self, rounds: &mut Rounds, batch: &Batch) -> Result<(), Error> {
        let (computed, rows) = (batch.committed(), batch.rows());
        let kept = computed.saturating_sub(rounds.unseen);
        let (Some(speculator), Some(next)) = (&mut self.speculator, batch.tokens().first()) else {
            return Ok(());
        };
        if kept > 0 && kept + rows > self.model.max_rows() {
            let started = Instant::now();
            speculator.extend(rounds.unseen, &behind(&self.sequence, rounds.unseen, *next), false)?;
            self.model.gpu().flush().await?;
            rounds.extra += started.elapsed().as_secs_f64();
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
        has_match(&self.sequence, last, MIN_MATCH)
    }

    pub(crate) fn needs_features(&self) -> bool {
        self.speculator.as_ref().is_some_and(Speculator::needs_features)
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
