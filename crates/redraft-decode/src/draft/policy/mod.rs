//! When speculation pays, and with which plan.
//!
//! A plan of τ tokens a round at a cost of c plain steps is τ / c times as fast as plain decoding. Costs are measured
//! once ([`Costs`]); τ is a running mean of what rounds emitted, and follows the text. Plain decoding is a choice too:
//! two ledgers bound what a wrong choice may cost.
//!
//! - Against plain decoding: whatever the text, the steps spent stay below
//!   `tokens · (1 + MOST_SLOWER) + OPENING`. No round starts whose worst outcome, one token, would break that.
//! - Against the current choice: what trying other plans may lose stays below the share [`EXPLORING`] of the time, and
//!   below a third of that while the choice is plain decoding.
//!
//! What is known of a plan fades towards what its kind does in this text, and is dropped when the text changes. A plan
//! is tried while more is hoped for than the current choice gives, and now and then for no reason.
//!
//! A choice is a pure function of what was observed before.

mod chances;
mod cost;
mod estimate;
mod ledger;
mod plans;

pub use cost::{CostError, Costs, Curve};
pub use plans::standard_plans;

use super::plan::{Plan, PlanError};
use super::stats::HISTORY;
use chances::Chances;
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
/// How much slower than plain decoding the current plan may look, as a share, before it is left.
const LEAVE: f64 = 0.02;
/// Most rounds of a trial.
const TRIAL: u32 = 8;
/// Rounds of its own that a plan must have had to be chosen, and that are still believed after a change.
const EVIDENCE: f64 = 2.0;
/// Least and most tokens between two changes for the better.
const REST: (u64, u64) = (32, 512);

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
    /// Steps gained over the current choice so far.
    gain: f64,
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
        let mut arms: Vec<Arm> = Vec::with_capacity(plans.len());
        for (index, plan) in plans.iter().enumerate() {
            plan.validate().map_err(|source| PolicyError::Plan { index, source })?;
            if arms.iter().all(|arm| arm.plan != *plan) {
                arms.push(Arm { plan: *plan, cost: 0.0, tokens: Estimate::UNKNOWN, heard: 0 });
            }
        }
        let mut policy = Self {
            arms,
            chances: Chances::default(),
            catch_up: (0.0, 0),
            missed: 0,
            current: None,
            trial: None,
            next: None,
            safety: Ledger::new(OPENING, OPENING),
            exploring: Ledger::new(OPENING / 2.0, OPENING),
            tokens: 0,
            rest: REST.0,
            switched: 0,
            history: Vec::new(),
        };
        policy.price(costs)?;
        let start =
            policy.fastest(|arm| if 2.0 * (arm.cost - 1.0) <= OPENING { policy.speed_of(arm) } else { 0.0 });
        if let Some((arm, speed)) = start
            && speed > 1.0 + MARGIN
        {
            policy.switch(Some(arm), Reason::Start);
        }
        policy.decide();
        Ok(policy)
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
        let mut worst = 0f64;
        for arm in &mut self.arms {
            // A round that costs nothing would be a measurement gone wrong.
            arm.cost = costs.round(&arm.plan).max(0.1);
            worst = worst.max(arm.cost);
        }
        self.catch_up = (costs.catch_up, costs.catch_up_most);
        let behind = costs.catch_up * f64::from(costs.catch_up_most);
        self.safety.set_cap((2.0 * OPENING).max(3.0 * worst + behind));
        self.exploring.set_cap(OPENING.max(3.0 * worst + behind));
        Ok(())
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

    /// The changes of choice, oldest first; the latest [`HISTORY`].
    #[must_use]
    pub fn history(&self) -> &[Switch] {
        &self.history
    }

    /// Takes note of `tokens` decoded plainly.
    pub fn observe_plain(&mut self, tokens: u32) {
        let count = f64::from(tokens);
        self.tokens += u64::from(tokens);
        self.missed += u64::from(tokens);
        self.safety.book(count * MOST_SLOWER);
        self.exploring.book(count * EXPLORING_PLAIN);
        // Plain where a trial was asked for: it is off.
        self.trial = None;
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
        let (count, speed) = (tokens as f64, self.speed());
        self.tokens += tokens as u64;
        self.missed = if plan.drafter { 0 } else { self.missed + tokens as u64 };
        self.safety.book(count * (1.0 + MOST_SLOWER) - cost);
        if self.current == Some(index) {
            self.exploring.book(cost * EXPLORING);
        } else {
            self.exploring.book(count / speed - cost);
        }
        if !round.stopped {
            self.learn(plan, round.path);
        }
        self.trial = self.trial.filter(|trial| trial.arm == index).map(|trial| Trial {
            rounds: trial.rounds + 1,
            gain: trial.gain + count / speed - cost,
            ..trial
        });
        self.decide();
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

    /// Changes the choice where that is due, and picks the next round.
    fn decide(&mut self) {
        self.reconsider();
        self.next_trial();
        let trial = self.trial.map(|trial| trial.arm);
        self.next = trial.or(self.current);
    }

    fn reconsider(&mut self) {
        let best = self.fastest(|arm| {
            let safe = self.safety.affords(self.worst(arm, 1.0));
            if safe { self.sure_speed(arm) } else { 0.0 }
        });
        // Left for good: whatever else surely pays, or else plain decoding.
        let left = self.current.and_then(|arm| self.arms.get(arm)).and_then(|arm| {
            let slower = (self.speed_of(arm) < 1.0 - LEAVE).then_some(Reason::Slower);
            if self.safety.affords(self.worst(arm, 1.0)) { slower } else { Some(Reason::Exhausted) }
        });
        if let Some(reason) = left {
            let other = best.filter(|&(arm, speed)| self.current != Some(arm) && speed > 1.0 + MARGIN);
            let other = other.filter(|_| reason == Reason::Slower);
            if let (Reason::Exhausted, Some(plan)) = (reason, self.preferred()) {
                self.doubt(&plan);
            }
            self.switch(other.map(|(arm, _)| arm), reason);
        } else if let Some((arm, speed)) = best
            && self.current != Some(arm)
            && speed > self.speed() * (1.0 + MARGIN)
            && self.tokens >= self.switched + self.rest
        {
            self.switch(Some(arm), Reason::Faster);
        }
    }

    fn next_trial(&mut self) {
        let goes_on = |trial: &Trial| {
            trial.rounds < TRIAL
                && trial.gain >= 0.0
                && self.current != Some(trial.arm)
                && self.may_try(trial.arm)
        };
        if self.trial.as_ref().is_some_and(goes_on) {
            return;
        }
        // A trial that just ended leaves one round to the current choice.
        if self.trial.take().is_some() {
            return;
        }
        let other = |arm: &Arm| self.preferred() != Some(arm.plan);
        let hoped = self.fastest(|arm| if other(arm) { self.hoped_speed(arm) } else { 0.0 });
        let hoped = hoped.filter(|&(_, speed)| speed > self.speed());
        // What is earned and not needed goes to the plan that was not heard of for longest, if it could be faster.
        let idle = || {
            let could = |arm: &Arm| other(arm) && (f64::from(arm.plan.depth) + 1.0) / arm.cost > self.speed();
            self.fastest(|arm| if could(arm) { self.age(arm) } else { -1.0 }).filter(|&(_, age)| age > 0.0)
        };
        let tried = hoped.or_else(|| if self.exploring.is_full() { idle() } else { None });
        self.trial =
            tried.map(|(arm, _)| Trial { arm, rounds: 0, gain: 0.0 }).filter(|trial| self.may_try(trial.arm));
    }

    /// Whether both ledgers afford a round of this plan.
    fn may_try(&self, arm: usize) -> bool {
        self.arms.get(arm).is_some_and(|arm| {
            self.safety.affords(self.worst(arm, 1.0)) && self.exploring.affords(self.worst(arm, self.speed()))
        })
    }

    /// Most steps that a round of `arm` may lose against decoding at `speed`: it emits at least one token.
    fn worst(&self, arm: &Arm, speed: f64) -> f64 {
        arm.cost + self.behind(arm) - 1.0 / speed
    }

    /// What the drafter would have to catch up on first.
    fn behind(&self, arm: &Arm) -> f64 {
        let (cost, most) = self.catch_up;
        if arm.plan.drafter { cost * self.missed.min(u64::from(most)) as f64 } else { 0.0 }
    }

    /// Expected speed of the current choice.
    fn speed(&self) -> f64 {
        self.current.and_then(|arm| self.arms.get(arm)).map_or(1.0, |arm| self.speed_of(arm))
    }

    fn speed_of(&self, arm: &Arm) -> f64 {
        let guess = self.chances.tokens(&arm.plan, self.tokens);
        arm.tokens.mean(guess, self.age(arm)) / arm.cost
    }

    /// The speed as it surely is, about; 0 before there is evidence. A guess can only make it less.
    fn sure_speed(&self, arm: &Arm) -> f64 {
        let age = self.age(arm);
        if arm.tokens.known(age) < EVIDENCE {
            return 0.0;
        }
        let seen = arm.tokens.seen() / arm.cost;
        self.speed_of(arm).min(seen) - arm.tokens.error(age) / arm.cost
    }

    /// The speed as it might be: the less is known, the more is hoped for.
    fn hoped_speed(&self, arm: &Arm) -> f64 {
        self.speed_of(arm) + arm.tokens.error(self.age(arm)) / arm.cost
    }

    fn age(&self, arm: &Arm) -> f64 {
        (self.tokens - arm.heard) as f64
    }

    /// The first of the arms with the largest value.
    fn fastest(&self, value: impl Fn(&Arm) -> f64) -> Option<(usize, f64)> {
        let mut best = None;
        for (index, arm) in self.arms.iter().enumerate() {
            let value = value(arm);
            if best.is_none_or(|(_, most)| value > most) {
                best = Some((index, value));
            }
        }
        best
    }

    fn switch(&mut self, to: Option<usize>, reason: Reason) {
        // Changes in quick succession make the next one wait longer.
        let since = self.tokens - self.switched;
        self.rest = if since < 8 * self.rest { (2 * self.rest).min(REST.1) } else { REST.0 };
        self.switched = self.tokens;
        let from = self.preferred();
        self.current = to;
        self.history.push(Switch { tokens: self.tokens, from, to: self.preferred(), reason });
        let surplus = self.history.len().saturating_sub(HISTORY);
        self.history.drain(..surplus);
    }
}
