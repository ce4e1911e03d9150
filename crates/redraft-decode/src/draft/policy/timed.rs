//! A policy that is told how long steps take.

use super::clock::{Clock, Held, Timed};
use super::{Arm, Costs, MOST_SLOWER, Observation, Policy, PolicyError};
use crate::draft::Plan;

/// Timed rounds of a plan after which one that takes another time is a surprise.
const SURE: f64 = 3.0;
/// Fewest plain tokens in a row behind which the drafter rests for the rest of an answer: what keeping it up to date costs
/// is then saved too.
const SHORTEST_PATIENCE: u32 = 12;
/// Most of them.
pub const LONGEST_PATIENCE: u32 = 48;
/// Share of an answer that the drafter is kept for while it is not wanted.
const KEPT: f64 = 1.0 / 16.0;
/// Steps that the share of those looks back on behind which there was something to look up.
const FOUND: f64 = 64.0;

/// Plain tokens in a row behind which the drafter rests, in an answer that is expected to have `tokens` tokens.
#[must_use]
pub fn patience(tokens: f64) -> u32 {
    let waits = (SHORTEST_PATIENCE..LONGEST_PATIENCE).find(|count| f64::from(*count) >= KEPT * tokens);
    waits.unwrap_or(LONGEST_PATIENCE)
}

impl Policy {
    /// A policy that is told the times of steps: [`Policy::observe_plain_timed`], [`Policy::observe_timed`]. The first
    /// choices are plain, until the time of a plain step is known.
    ///
    /// # Errors
    /// As [`Policy::new`].
    pub fn timed(plans: &[Plan], costs: &Costs) -> Result<Self, PolicyError> {
        let mut policy = Self::new(plans, costs)?;
        policy.clock = Some(Clock::default());
        policy.current = None;
        policy.trial = None;
        policy.history.clear();
        policy.pick();
        Ok(policy)
    }

    /// Seconds that a plain step takes now; `None` before a few of them were timed.
    #[must_use]
    pub fn plain_seconds(&self) -> Option<f64> {
        self.clock.as_ref().and_then(Clock::unit)
    }

    /// Each plan with what a round of it is taken to cost, in plain steps.
    pub fn costs(&self) -> impl Iterator<Item = (Plan, f64)> + '_ {
        self.arms.iter().map(|arm| (arm.plan, arm.cost))
    }

    /// Takes note of one token decoded plainly in `seconds`. For a policy that is [`Policy::timed`]. `kept`: the step kept
    /// features for the drafter, and what it took longer for that is a loss.
    pub fn observe_plain_timed(&mut self, seconds: f64, kept: bool) {
        match self.clock.as_mut().map(|clock| clock.plain(seconds, kept)) {
            Some(Timed::First(unit)) => {
                // What was booked so far was in plain steps.
                self.safety.convert(unit);
                self.exploring.convert(unit);
                self.reprice();
                self.book_extra(0.0);
                self.start();
            }
            Some(Timed::Again { tokens, seconds }) => {
                // Rounds since were booked by what was known of a plain step before them; now more is known.
                let unit = self.clock.as_ref().and_then(Clock::sure_unit).unwrap_or(1.0);
                self.safety.settle(self.marked, tokens * (1.0 + MOST_SLOWER) * unit - seconds);
                if let Some(Held { arm, seconds }) = self.clock.as_mut().and_then(|clock| clock.held.take()) {
                    self.believe(arm, seconds);
                }
                self.reprice();
            }
            Some(Timed::Early) | None => {}
        }
        // Before the first estimate nothing says how many seconds that is.
        if let Some(unit) = self.plain_seconds().filter(|_| kept) {
            self.book_extra(self.keeping() * unit);
        }
        self.observe_plain(1);
    }

    /// Plain steps that keeping features for the drafter adds to one.
    fn keeping(&self) -> f64 {
        self.clock.as_ref().map_or(0.0, |clock| clock.keeping() - 1.0)
    }

    /// Whether all that may be lost is lost, so that even keeping features is too much.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        !self.safety.affords(0.0)
    }

    /// As [`Policy::observe`] for a round that took `seconds`, catching up included. What takes more than three times as
    /// long as expected was disturbed, and counts for three times.
    pub fn observe_timed(&mut self, plan: &Plan, round: &Observation<'_>, seconds: f64) {
        let Some(unit) = self.plain_seconds().filter(|_| !round.path.is_empty()) else {
            return self.observe(plan, round);
        };
        let Some(index) = self.arms.iter().position(|arm| arm.plan == *plan) else { return };
        let Some(arm) = self.arms.get(index) else { return };
        let behind = self.behind(arm);
        let expected = (arm.cost + behind) * unit;
        let counted = Clock::clip(seconds, expected);
        // What catching up takes is not the plan's.
        let usual = behind == 0.0 && (!plan.drafter || self.missed == 0);
        if let Some(clock) = &mut self.clock {
            let sure = usual && arm.took.known(clock.now) >= SURE;
            if clock.round(seconds, expected, sure, round.path.len() as f64) {
                clock.held = Some(Held { arm: index, seconds: counted });
            } else if usual {
                self.believe(index, counted);
            }
        }
        self.book(index, plan, round, counted / unit);
        self.reprice();
        self.decide();
    }

    /// Counts the time of a round for what its plan costs.
    fn believe(&mut self, arm: usize, seconds: f64) {
        let Some(unit) = self.plain_seconds() else { return };
        let (Some(clock), Some(arm)) = (&mut self.clock, self.arms.get_mut(arm)) else { return };
        arm.took.push(seconds / unit, clock.now);
        if arm.promised > 0.0 {
            clock.learn(arm.plan.drafter, seconds / unit / arm.promised);
        }
    }

    /// Says whether there is something to look up behind the last token; without, plans that only look up do not run.
    pub fn set_found(&mut self, found: bool) {
        self.found_share += (f64::from(u8::from(found)) - self.found_share) / FOUND;
        if self.found != found {
            self.found = found;
            self.pick();
        }
    }

    /// Whether the policy has plans that look something up and do nothing else.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        self.arms.iter().any(|arm| !arm.plan.drafter)
    }

    /// Decides at the beginning of an answer whether the drafter takes part in it. Keeping it up to date adds about
    /// `extra` plain steps to the prompt, and some to the plain steps until it rests ([`patience`]); the answer is expected
    /// to have `tokens` tokens.
    ///
    /// It takes part where a plan of it is preferred and gains more than that, or is to be tried; and where the ledgers
    /// afford it.
    pub fn engage(&mut self, extra: f64, tokens: f64) -> bool {
        self.drafter = true;
        self.current = self.kept.take().or(self.current);
        let extra = extra.max(0.0) + self.keeping() * f64::from(patience(tokens)).min(tokens);
        self.most_extra = self.most_extra.max(2.0 * extra);
        self.reprice();
        let drafts = |arm: &Arm| arm.plan.drafter;
        let preferred = self.current.and_then(|index| Some((index, self.arms.get(index)?)));
        let preferred =
            preferred.filter(|(_, arm)| drafts(arm)).map(|(index, arm)| (index, self.speed_of(arm)));
        let sure = self.fastest(|arm| if drafts(arm) { self.sure_speed(arm) } else { 0.0 });
        let hoped = self.fastest(|arm| if drafts(arm) { self.hoped_speed(arm) } else { 0.0 });
        let gains = |speed: f64| speed > 1.0 && tokens * (1.0 - 1.0 / speed) > extra;
        let cost = |index: usize| {
            let worst = self.arms.get(index).map_or(0.0, |arm| self.worst(arm, 1.0));
            self.unit() * (extra + worst.max(0.0))
        };
        let known = preferred.or(sure.filter(|(_, speed)| *speed > self.speed()));
        let known = known.is_some_and(|(index, speed)| gains(speed) && self.safety.affords(cost(index)));
        let hoped = hoped.filter(|(_, speed)| *speed > 0.0).is_some_and(|(index, speed)| {
            let wanted = gains(speed) || self.exploring.is_full();
            wanted && self.safety.affords(cost(index)) && self.exploring.affords(cost(index))
        });
        self.trying = !known;
        match known || hoped {
            true => self.pick(),
            false => self.disengage(),
        }
        self.drafter
    }

    /// The drafter takes no part in the rest of the answer.
    pub fn disengage(&mut self) {
        self.drafter = false;
        let drafts = |arm: usize| self.arms.get(arm).is_some_and(|arm| arm.plan.drafter);
        self.trial = self.trial.filter(|trial| !drafts(trial.arm));
        self.kept = self.current.filter(|arm| drafts(*arm)).or(self.kept);
        self.current = self.current.filter(|arm| !drafts(*arm));
        self.pick();
    }

    /// Books `seconds` that an answer took longer because the drafter took part, rounds aside.
    pub fn book_extra(&mut self, seconds: f64) {
        self.unbooked += seconds;
        if self.clock.is_none() || self.plain_seconds().is_some() {
            self.safety.book(-self.unbooked);
            self.marked -= self.unbooked;
            if self.trying {
                self.exploring.book(-self.unbooked);
            }
            self.unbooked = 0.0;
        }
    }
}
