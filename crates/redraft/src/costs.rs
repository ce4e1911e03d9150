//! What rounds cost on this adapter, and the plans that an automatic choice has.

use crate::{CancelToken, Engine, Error};
use redraft_decode::draft::{
    Costs, Extent, LONGEST_PATIENCE, Plan, Policy, Probe, Survey, automatic_plans, patience,
};
use redraft_decode::{SamplingParams, TokenId};
use redraft_model::{ModelError, Speculator};
use web_time::Instant;

/// Measured costs, and what measuring them took.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The costs.
    pub costs: Costs,
    /// Seconds from the beginning to the end.
    pub seconds: f64,
    /// Those in which something was timed, in plain steps.
    pub steps: f64,
}

impl Engine {
    /// Measures what steps and rounds cost on this adapter, for [`Speculation::Auto`](crate::Speculation::Auto), which does
    /// so by itself with the first answer of an engine that has no costs yet: [`Extent::Bounded`], about twenty plain
    /// steps. The sequence is forgotten.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `cancel` ends it; what was measured until then is forgotten. [`Error::Model`] if a step fails.
    pub async fn measure_costs(&mut self, extent: Extent, cancel: &CancelToken) -> Result<Measured, Error> {
        let begun = Instant::now();
        self.ready(&SamplingParams::default(), &[], true).await?;
        self.sampler.configure(&SamplingParams::default()).await?;
        let position = (self.context() / 4).clamp(1, 128);
        // What a round takes beyond its forwards: the kernels of the tree and the host.
        let round = if self.has_drafter() { Plan::chain(1) } else { Plan::lookup(1) };
        let mut survey = Survey::new(extent, &self.plans(), round, self.needs_features());
        while let Some(probe) = survey.next_probe() {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let seconds = self.time_probe(&probe, position).await?;
            survey.take(&probe, seconds);
        }
        self.reset();
        let costs = survey.costs(LONGEST_PATIENCE)?;
        self.set_costs(&costs)?;
        Ok(Measured { costs, seconds: begun.elapsed().as_secs_f64(), steps: survey.steps() })
    }

    /// Seconds of one run behind `position` tokens, whatever they are.
    async fn time_probe(&mut self, probe: &Probe, position: u32) -> Result<f64, Error> {
        if let Probe::Verify(rows) = *probe {
            let started = Instant::now();
            self.time_rows(rows, position).await?;
            return Ok(started.elapsed().as_secs_f64());
        }
        let Some(speculator) = &mut self.speculator else { return Ok(0.0) };
        if let Probe::Round(plan) = probe {
            speculator.set_plan(plan)?;
            // Again from the same place, so that a small context has room.
            speculator.begin(&self.model, &self.sampler, position, TokenId(0), u32::MAX)?;
        }
        let started = Instant::now();
        match *probe {
            Probe::Verify(_) => {}
            Probe::Draft(rows) => speculator.time_drafter(rows, position, false).await?,
            // Where a round usually leaves something to extend over, it is a few rows.
            Probe::Extend => speculator.time_drafter(4, position, true).await?,
            Probe::Round(_) => {
                speculator.round(&self.model, &self.sampler).await?;
            }
        }
        Ok(started.elapsed().as_secs_f64())
    }

    /// The costs that were measured or taken last, if there are any.
    #[must_use]
    pub fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// Takes costs that were measured on this adapter with this model earlier. What is known of plans, and what may still
    /// be lost, stays.
    ///
    /// # Errors
    /// [`Error::Costs`] if they are no costs.
    pub fn set_costs(&mut self, costs: &Costs) -> Result<(), Error> {
        costs.validate()?;
        match &mut self.policy {
            Some(policy) => policy.set_costs(costs)?,
            None => self.policy = Some(Policy::timed(&self.plans(), costs)?),
        }
        self.costs = Some(costs.clone());
        Ok(())
    }

    /// The plans that [`Speculation::Auto`](crate::Speculation::Auto) chooses among, besides plain steps: chains, trees
    /// made after [`Engine::plan_template`], lookups, and some of both.
    #[must_use]
    pub fn plans(&self) -> Vec<Plan> {
        automatic_plans(&self.plan_template())
    }

    /// What the trees of an automatic choice reconsider, and how. By default what suits the drafter: second passes for
    /// one that was trained for them.
    #[must_use]
    pub fn plan_template(&self) -> Plan {
        let drafter = self.speculator.as_ref().and_then(Speculator::drafter);
        self.plan_template.unwrap_or(match drafter {
            Some(drafter) if !drafter.reconsiders() => Plan::tree(15, 5, 4, 4),
            _ if self.has_drafter() => Plan::default(),
            _ => Plan::lookup(3),
        })
    }

    /// Takes another template. Of it count what is reconsidered and how, and whether all plans look up; numbers of nodes
    /// and levels are those of the standard plans.
    ///
    /// # Errors
    /// [`Error::Model`] if it is no plan, needs a drafter that is not there, or reads a table that the drafter has not.
    pub fn set_plan_template(&mut self, template: &Plan) -> Result<(), Error> {
        template.validate().map_err(ModelError::from)?;
        if template.drafter && !self.has_drafter() {
            return Err(ModelError::NoDrafter.into());
        }
        self.check_gate(template)?;
        self.plan_template = Some(*template);
        let plans = self.plans();
        if let (Some(policy), Some(costs)) = (&mut self.policy, &self.costs) {
            policy.set_plans(&plans, costs)?;
        }
        Ok(())
    }

    /// What an automatic choice takes a round of each plan to cost by now, in plain steps; empty before there are costs.
    #[must_use]
    pub fn prices(&self) -> Vec<(Plan, f64)> {
        self.policy.as_ref().map(|policy| policy.costs().collect()).unwrap_or_default()
    }

    /// Whether the drafter takes part in an automatic answer of at most `most` tokens, `left` of whose prompt tokens are to
    /// be computed behind `reused` ones; `reusable`: those that it need not compute again either.
    pub(crate) fn engage(&mut self, left: u32, reused: u32, reusable: u32, most: u32) -> bool {
        let again = reused.saturating_sub(reusable);
        let chunks = (left + again).div_ceil(self.model.max_rows()).saturating_sub(1);
        let (Some(policy), Some(costs)) = (&mut self.policy, &self.costs) else { return false };
        let Habits { chunk, row, answer } = self.habits;
        let in_steps = |seconds: Option<f64>, guess: f64| match (seconds, policy.plain_seconds()) {
            (Some(seconds), Some(unit)) => seconds / unit,
            _ => guess,
        };
        // An extend pass was measured at four rows, a chunk has sixteen times as many.
        let chunk = in_steps(chunk, 4.0 * costs.extend);
        let row = in_steps(row, costs.verify.at(32) / 32.0);
        policy.engage(f64::from(chunks) * chunk + f64::from(again) * row, expected(answer, most))
    }

    /// Plain tokens in a row behind which the drafter rests in an answer of at most `most` tokens.
    pub(crate) fn patience(&self, most: u32) -> u32 {
        patience(expected(self.habits.answer, most))
    }
}

/// Tokens that an answer of at most `most` will have, by what answers had so far.
fn expected(answer: Option<f64>, most: u32) -> f64 {
    answer.unwrap_or(128.0).min(f64::from(most))
}

/// What prompts and answers were like so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Habits {
    /// Seconds that the drafter takes for a chunk of a prompt.
    pub(crate) chunk: Option<f64>,
    /// Seconds that the target takes for a token of one.
    pub(crate) row: Option<f64>,
    /// Tokens of an answer.
    pub(crate) answer: Option<f64>,
}

impl Habits {
    /// Takes a sample into one of the means.
    pub(crate) fn learn(mean: &mut Option<f64>, sample: f64) {
        *mean = Some(mean.map_or(sample, |mean| mean + (sample - mean) / 4.0));
    }
}
