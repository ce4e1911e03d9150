//! When speculation pays, and with which plan.
//!
//! A plan of τ tokens a round at a cost of c plain steps is τ / c times as fast as plain decoding. Costs are measured
//! once ([`Costs`]), and a policy that is told how long steps take ([`Policy::timed`]) corrects them from then on; τ is a
//! running mean of what rounds emitted, and follows the text. Plain decoding is a choice too: two ledgers bound what a
//! wrong choice may cost.
//!
//! - Against plain decoding: whatever the text, the time spent stays below that of
//!   `tokens · (1 + MOST_SLOWER) + OPENING` plain steps. No round starts whose worst outcome, one token, would break
//!   that; where time is real, one round that takes longer than expected may, and is paid back before the next. What
//!   plain steps would have taken is booked with two standard errors taken off.
//! - Against the current choice: what trying other plans may lose stays below the share [`EXPLORING`] of the time, and
//!   below a third of that while the choice is plain decoding.
//!
//! What is known of a plan fades towards what its kind does in this text, and is dropped when the text changes. A plan
//! is tried while more is hoped for than the current choice gives, and now and then for no reason.
//!
//! A choice is a pure function of what was observed before.

mod chances;
mod clock;
mod cost;
mod decide;
mod estimate;
mod ledger;
mod plans;
mod timed;

pub use cost::{CostError, Costs, Curve};
pub use plans::{automatic_plans, standard_plans};
pub use timed::{LONGEST_PATIENCE, patience};

use super::plan::{Plan, PlanError};
use chances::Chances;
use clock::{Clock, Pace};
use estimate::Estimate;
use ledger::Ledger;
use plans::implied;

/// Share of a token's plain step that speculation may lose.
pub const MOST_SLOWER: f64 = 0.015;
/// Plain steps that speculation may lose beyond that share, over the life of a policy.
pub const OPENING: f64 = 4.0;
/// Share of the time that trying other plans may lose against the current choice.
pub const EXPLORING: f64 = 0.03;
/// The same while the choice is plain decoding.
const EXPLORING_PLAIN: f64 = 0.01;
/// How much faster another choice must look, as a share, before it is taken.
pub const MARGIN: f64 = 0.04;
/// Rounds of its own that a plan must have had to be chosen, and that are still believed after a change.
const EVIDENCE: f64 = 2.0;
/// Least and most tokens between two changes for the better.
const REST: (u64, u64) = (32, 512);
/// Timed rounds that the promised cost of a plan counts for.
const PROMISE: f64 = 1.0;
/// Tokens that the trial of a lookup waits for something to look up.
const WAITING: u32 = 32;

/// Why a policy was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A plan does not validate.
    #[error("plan {index} does not validate")]
    Plan {
        /// Index into the plans given.
        index: usize,
        /// Why.
        source: PlanError,
    },
    /// The costs do not validate.
    #[error("the costs do not validate")]
    Costs(#[from] CostError),
}

/// Why a choice changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The first choice, by the priors.
    Start,
    /// The new choice looks faster.
    Faster,
    /// The plan looks slower than plain decoding.
    Slower,
    /// The plan has lost all that may be lost.
    Exhausted,
}

/// A change of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Tokens observed before it.
    pub tokens: u64,
    /// The choice before; `None` for plain decoding.
    pub from: Option<Plan>,
    /// The choice from here on; `None` for plain decoding.
    pub to: Option<Plan>,
    /// Why.
    pub reason: Reason,
}

/// What a round did, for [`Policy::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation<'a> {
    /// Rows accepted, root included ([`super::Accept::path`]); as many as tokens emitted.
    pub path: &'a [u32],
    /// Whether the answer ended in the round, so that it says little about the plan.
    pub stopped: bool,
}

/// A plan to choose, and what is known of it.
#[derive(Clone, Debug)]
struct Arm {
    plan: Plan,
    /// What a round costs by the measured costs, in plain steps.
    promised: f64,
    /// What it took, in plain steps.
    took: Pace,
    /// What it is taken to cost.
    cost: f64,
    tokens: Estimate,
    /// Tokens observed when the plan was last heard of.
    heard: u64,
}

/// A stretch of rounds with another plan than the current choice.
#[derive(Clone, Copy, Debug)]
struct Trial {
    arm: usize,
    rounds: u32,
    /// Tokens that the trial waited for something to look up.
    waited: u32,
    /// Steps gained over the current choice so far.
    gain: f64,
}

impl Trial {
    fn wait(self, tokens: u32) -> Option<Self> {
        let waited = self.waited.saturating_add(tokens);
        (waited <= WAITING).then_some(Self { waited, ..self })
    }
}

/// Chooses the plan of each round.
#[derive(Clone, Debug)]
pub struct Policy {
    arms: Vec<Arm>,
    chances: Chances,
    /// Cost to catch up on a token, and on how many at most.
    catch_up: (f64, u32),
    /// Tokens that the drafter has not seen.
    missed: u64,
    current: Option<usize>,
    trial: Option<Trial>,
    next: Option<usize>,
    /// Times of steps, if the policy is told.
    clock: Option<Clock>,
    /// The next step is plain so that its time is known.
    probing: bool,
    /// Whether a plan needs the drafter, and whether such plans may be chosen.
    drafts: bool,
    drafter: bool,
    /// Whether there is something to look up, and how often there was.
    found: bool,
    found_share: f64,
    /// The choice that needs the drafter, in an answer that the drafter has no part in.
    kept: Option<usize>,
    /// The drafter takes part in the answer as a trial.
    trying: bool,
    /// The most that keeping the drafter up to date was ever expected to add to an answer, in plain steps.
    most_extra: f64,
    /// Seconds to be booked when it is known what they are worth.
    unbooked: f64,
    /// What the ledger held when a plain step was timed last.
    marked: f64,
    safety: Ledger,
    exploring: Ledger,
    tokens: u64,
    rest: u64,
    switched: u64,
    history: Vec<Switch>,
}

impl Policy {
    /// A policy over `plans` and plain decoding; equal plans count once.
    ///
    /// # Errors
    /// [`PolicyError`] for plans or costs that do not validate.
    pub fn new(plans: &[Plan], costs: &Costs) -> Result<Self, PolicyError> {
        let mut policy = Self {
            arms: arms_of(plans)?,
            chances: Chances::default(),
            catch_up: (0.0, 0),
            missed: 0,
            current: None,
            trial: None,
            next: None,
            clock: None,
            probing: false,
            drafts: plans.iter().any(|plan| plan.drafter),
            drafter: true,
            found: true,
            found_share: 0.5,
            kept: None,
            trying: false,
            most_extra: 0.0,
            unbooked: 0.0,
            marked: 0.0,
            safety: Ledger::new(OPENING, OPENING),
            exploring: Ledger::new(OPENING / 2.0, OPENING),
            tokens: 0,
            rest: REST.0,
            switched: 0,
            history: Vec::new(),
        };
        policy.price(costs)?;
        policy.start();
        policy.decide();
        Ok(policy)
    }

    /// Takes other plans. What is known of those that stay is kept, and so is what may still be lost.
    ///
    /// # Errors
    /// As [`Policy::new`]; nothing changes then.
    pub fn set_plans(&mut self, plans: &[Plan], costs: &Costs) -> Result<(), PolicyError> {
        costs.validate()?;
        let mut arms = arms_of(plans)?;
        for arm in &mut arms {
            if let Some(known) = self.arms.iter().find(|known| known.plan == arm.plan) {
                *arm = known.clone();
            }
        }
        let place = |old: Option<usize>| {
            let plan = old.and_then(|old| self.arms.get(old)).map(|arm| arm.plan)?;
            arms.iter().position(|arm| arm.plan == plan)
        };
        (self.current, self.kept, self.trial) = (place(self.current), place(self.kept), None);
        if let Some(clock) = &mut self.clock {
            clock.held = None;
        }
        self.drafts = arms.iter().any(|arm| arm.plan.drafter);
        self.arms = arms;
        self.price(costs)?;
        self.decide();
        Ok(())
    }

    /// The first choice.
    fn start(&mut self) {
        let cheap = |arm: &Arm| 2.0 * (arm.cost - 1.0) <= OPENING && self.may_run(arm);
        let start = self.fastest(|arm| if cheap(arm) { self.speed_of(arm) } else { 0.0 });
        if let Some((arm, speed)) = start
            && speed > 1.0 + MARGIN
        {
            self.switch(Some(arm), Reason::Start);
        }
    }

    /// Takes over newly measured costs; what is known of the plans stays.
    ///
    /// # Errors
    /// [`CostError`] for costs that do not validate.
    pub fn set_costs(&mut self, costs: &Costs) -> Result<(), CostError> {
        self.price(costs)?;
        self.decide();
        Ok(())
    }

    fn price(&mut self, costs: &Costs) -> Result<(), CostError> {
        costs.validate()?;
        for arm in &mut self.arms {
            arm.promised = costs.round(&arm.plan);
        }
        self.catch_up = (costs.catch_up, costs.catch_up_most);
        self.reprice();
        Ok(())
    }

    /// The costs of the plans, by what was promised and by what was seen.
    fn reprice(&mut self) {
        let mut worst = 0f64;
        for arm in &mut self.arms {
            let cost = match &self.clock {
                None => arm.promised,
                Some(clock) => arm.took.mean(arm.promised * clock.bias(arm.plan.drafter), PROMISE, clock.now),
            };
            // A round that costs nothing would be a measurement gone wrong.
            arm.cost = cost.max(0.1);
            worst = worst.max(arm.cost);
        }
        let behind = self.catch_up.0 * f64::from(self.catch_up.1);
        let unit = self.unit();
        self.safety.set_cap(unit * (2.0 * OPENING).max(3.0 * worst + behind).max(self.most_extra));
        self.exploring.set_cap(unit * OPENING.max(3.0 * worst + behind).max(self.most_extra));
    }

    /// A plain step, as the ledgers count.
    fn unit(&self) -> f64 {
        self.clock.as_ref().and_then(Clock::unit).unwrap_or(1.0)
    }

    /// The plan of the next round; `None` for plain decoding.
    #[must_use]
    pub fn choose(&self) -> Option<Plan> {
        self.next.and_then(|arm| self.arms.get(arm)).map(|arm| arm.plan)
    }

    /// The plan that is preferred now, which [`Policy::choose`] leaves for trials and where it may lose no more.
    #[must_use]
    pub fn preferred(&self) -> Option<Plan> {
        self.current.and_then(|arm| self.arms.get(arm)).map(|arm| arm.plan)
    }

    /// Each plan with its expected speed-up over plain decoding.
    pub fn speeds(&self) -> impl Iterator<Item = (Plan, f64)> + '_ {
        self.arms.iter().map(|arm| (arm.plan, self.speed_of(arm)))
    }

    /// The changes of choice, oldest first; the latest [`super::HISTORY`].
    #[must_use]
    pub fn history(&self) -> &[Switch] {
        &self.history
    }

    /// Takes note of `tokens` decoded plainly.
    pub fn observe_plain(&mut self, tokens: u32) {
        let time = f64::from(tokens) * self.unit();
        self.tokens += u64::from(tokens);
        self.missed += u64::from(tokens);
        self.safety.book(time * MOST_SLOWER);
        self.marked = self.safety.balance();
        self.exploring.book(time * EXPLORING_PLAIN);
        // Plain where a trial was asked for: it is off.
        self.trial = self.trial.and_then(|trial| match self.waits(&trial) {
            true => trial.wait(tokens),
            false => Some(trial).filter(|_| self.probing),
        });
        self.decide();
    }

    /// Takes note of a round of `plan`, which need not be the plan that was chosen. A plan that the policy does not
    /// know, and a round that emitted nothing, are not counted.
    pub fn observe(&mut self, plan: &Plan, round: &Observation<'_>) {
        let tokens = round.path.len();
        let Some(index) = self.arms.iter().position(|arm| arm.plan == *plan).filter(|_| tokens > 0) else {
            return;
        };
        let cost = self.arms.get(index).map_or(0.0, |arm| arm.cost + self.behind(arm));
        self.book(index, plan, round, cost);
        self.decide();
    }

    /// Books a round of `cost` plain steps, and learns from what it emitted.
    fn book(&mut self, index: usize, plan: &Plan, round: &Observation<'_>, cost: f64) {
        let tokens = round.path.len();
        let (count, speed, unit) = (tokens as f64, self.speed(), self.unit());
        self.tokens += tokens as u64;
        self.missed = if plan.drafter { 0 } else { self.missed + tokens as u64 };
        let sure = self.clock.as_ref().and_then(Clock::sure_unit).unwrap_or(unit);
        self.safety.book(sure * count * (1.0 + MOST_SLOWER) - unit * cost);
        if self.current == Some(index) {
            self.exploring.book(unit * cost * EXPLORING);
        } else {
            self.exploring.book(unit * (count / speed - cost));
        }
        if !round.stopped {
            self.learn(plan, round.path);
        }
        self.trial = self.trial.and_then(|trial| match trial.arm == index {
            true => {
                Some(Trial { rounds: trial.rounds + 1, gain: trial.gain + count / speed - cost, ..trial })
            }
            false if self.waits(&trial) => trial.wait(u32::try_from(tokens).unwrap_or(u32::MAX)),
            false => None,
        });
    }

    /// Counts the round for all plans that it says something of.
    fn learn(&mut self, plan: &Plan, path: &[u32]) {
        let now = self.tokens;
        let accepted = u32::try_from(path.len().saturating_sub(1)).unwrap_or(u32::MAX);
        self.chances.push(plan, accepted, now);
        let mut changed = false;
        for arm in &mut self.arms {
            if let Some(tokens) = implied(plan, path, &arm.plan) {
                let age = (now - arm.heard) as f64;
                changed |= arm.tokens.push(f64::from(tokens), age) && arm.plan == *plan;
                arm.heard = now;
            }
        }
        if changed {
            self.rest = REST.0;
            self.doubt(plan);
        }
    }

    /// Believes little of what is known of all plans but `except`, because the text has changed.
    fn doubt(&mut self, except: &Plan) {
        self.chances.doubt();
        for arm in &mut self.arms {
            if arm.plan != *except {
                arm.tokens.doubt(EVIDENCE);
            }
        }
    }
}

/// One arm for each plan, of which nothing is known.
fn arms_of(plans: &[Plan]) -> Result<Vec<Arm>, PolicyError> {
    let mut arms: Vec<Arm> = Vec::with_capacity(plans.len());
    for (index, plan) in plans.iter().enumerate() {
        plan.validate().map_err(|source| PolicyError::Plan { index, source })?;
        if arms.iter().all(|arm| arm.plan != *plan) {
            arms.push(Arm {
                plan: *plan,
                promised: 0.0,
                took: Pace::default(),
                cost: 0.0,
                tokens: Estimate::UNKNOWN,
                heard: 0,
            });
        }
    }
    Ok(arms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_lost_is_what_was_earned() {
        let curve = |cost| Curve::new(vec![(1, cost), (16, cost)]).unwrap();
        let costs = Costs {
            verify: curve(1.0),
            draft: curve(0.25),
            extend: 0.25,
            overhead: 0.0,
            catch_up: 0.125,
            catch_up_most: 2,
        };
        let chain = Plan::chain(3);
        let mut policy = Policy::new(&[chain], &costs).unwrap();
        // V, extend and two drafter steps cost 1.75 plain steps.
        let mut balance = OPENING;
        for (plain, path) in [(0, &[0][..]), (1, &[0, 1]), (5, &[0]), (0, &[0])] {
            policy.observe_plain(plain);
            balance += f64::from(plain) * MOST_SLOWER;
            let round = Observation { path, stopped: false };
            policy.observe(&chain, &round);
            balance += path.len() as f64 * (1.0 + MOST_SLOWER) - 1.75 - 0.125 * f64::from(plain.min(2));
            assert!(policy.safety.affords(balance - 1e-9), "{balance} after {plain} and {path:?}");
            assert!(!policy.safety.affords(balance + 1e-9), "{balance} after {plain} and {path:?}");
        }
        assert!(balance < OPENING && balance > 0.0, "neither capped nor overdrawn: {balance}");
    }
}
