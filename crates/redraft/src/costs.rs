//! What rounds cost on this adapter, and the plans that an automatic choice has.

use crate::speculation::PATIENCE;
use crate::{CancelToken, Engine, Error};
use redraft_decode::draft::{Costs, Curve, Plan, Policy, automatic_plans};
use redraft_decode::{SamplingParams, TokenId};
use redraft_model::{ModelError, Speculator};
use web_time::Instant;

/// Runs of a measurement, the first of which may still compile kernels and does not count.
const RUNS: u32 = 5;
/// The fewest runs: on an adapter where they take long, little else disturbs them.
const FEWEST: u32 = 3;

/// Whether another run is made after `runs` of them; beyond the fewest only until `seconds` have passed.
fn again(runs: u32, started: Instant, seconds: f64, cancel: &CancelToken) -> Result<bool, Error> {
    if cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(runs < FEWEST || (runs < RUNS && started.elapsed().as_secs_f64() < seconds))
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

impl Engine {
    /// Measures what steps and rounds cost on this adapter, for [`Speculation::Auto`](crate::Speculation::Auto): five runs of
    /// each size, three on an adapter where they take long; some seconds on a software adapter. The sequence is forgotten.
    ///
    /// # Errors
    /// [`Error::Model`] if a step fails.
    pub async fn measure_costs(&mut self) -> Result<Costs, Error> {
        self.measure_costs_unless(&CancelToken::default()).await
    }

    /// The same, ended by `cancel` with [`Error::Cancelled`]; what was measured until then is forgotten.
    pub(crate) async fn measure_costs_unless(&mut self, cancel: &CancelToken) -> Result<Costs, Error> {
        self.ready(&SamplingParams::default(), &[], true).await?;
        self.sampler.configure(&SamplingParams::default()).await?;
        let position = (self.context() / 4).clamp(1, 128);
        let mut verify = [1, 2, 4, 8, 16, 32].map(|rows| (rows, f64::INFINITY));
        // Interleaved, so that what else the machine does falls on all alike; the first run may still compile kernels.
        let (begun, mut run) = (Instant::now(), 0);
        while again(run, begun, 2.0, cancel)? {
            for (rows, least) in &mut verify {
                if cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                let started = Instant::now();
                self.time_rows(*rows, position).await?;
                if run > 0 {
                    *least = least.min(started.elapsed().as_secs_f64());
                }
            }
            run += 1;
        }
        // More rows never cost less; where they seem to, the smaller step was disturbed, but the larger one is no proof
        // that it is cheap.
        let mut most = 0.0f64;
        for (_, seconds) in &mut verify {
            most = most.max(*seconds);
            *seconds = most;
        }
        let plain = verify.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
        let (draft, extend) = self.drafter_costs(position, cancel).await?;
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
        let round = self.round_seconds(&plan, position, cancel).await? / plain;
        costs.overhead = (round - costs.round(&plan)).clamp(0.0, 1.0);
        self.set_costs(&costs)?;
        Ok(costs)
    }

    /// The least seconds of a few rounds of `plan` behind `position` tokens, whatever they are.
    async fn round_seconds(
        &mut self,
        plan: &Plan,
        position: u32,
        cancel: &CancelToken,
    ) -> Result<f64, Error> {
        self.reset();
        let Some(speculator) = &mut self.speculator else { return Ok(0.0) };
        speculator.set_plan(plan)?;
        let (begun, mut run, mut least) = (Instant::now(), 0, f64::INFINITY);
        while again(run, begun, 0.5, cancel)? {
            // Again from the same place, so that a small context has room.
            speculator.begin(&self.model, &self.sampler, position, TokenId(0), u32::MAX)?;
            let started = Instant::now();
            speculator.round(&self.model, &self.sampler).await?;
            if run > 0 {
                least = least.min(started.elapsed().as_secs_f64());
            }
            run += 1;
        }
        speculator.rewind(0);
        Ok(least)
    }

    /// Seconds of a drafter step by its rows, and of an extend pass.
    async fn drafter_costs(
        &mut self,
        position: u32,
        cancel: &CancelToken,
    ) -> Result<(Vec<(u32, f64)>, f64), Error> {
        let Some(speculator) = self.speculator.as_mut().filter(|s| s.needs_features()) else {
            return Ok((vec![(1, 0.0)], 0.0));
        };
        let mut time = async |rows: u32, extend: bool| -> Result<f64, Error> {
            let (begun, mut run, mut least) = (Instant::now(), 0, f64::INFINITY);
            while again(run, begun, 0.5, cancel)? {
                let started = Instant::now();
                speculator.time_drafter(rows, position, extend).await?;
                if run > 0 {
                    least = least.min(started.elapsed().as_secs_f64());
                }
                run += 1;
            }
            Ok(least)
        };
        let mut draft = Vec::new();
        for rows in [1, 2, 4, 8, 16] {
            draft.push((rows, time(rows, false).await?));
        }
        Ok((draft, time(4, true).await?))
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
        let expected = answer.unwrap_or(128.0).min(f64::from(most));
        policy.engage(f64::from(chunks) * chunk + f64::from(again) * row, expected)
    }
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
