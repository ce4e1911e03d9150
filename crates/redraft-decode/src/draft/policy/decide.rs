//! From what is known to the next choice.

use super::{Arm, EVIDENCE, MARGIN, Policy, REST, Reason, Switch, Trial};
use crate::draft::HISTORY;

/// How much slower than plain decoding the current plan may look, as a share, before it is left.
const LEAVE: f64 = 0.02;
/// Most rounds of a trial.
const TRIAL: u32 = 8;

impl Policy {
    /// Changes the choice where that is due, and picks the next round.
    pub(super) fn decide(&mut self) {
        self.reconsider();
        self.next_trial();
        self.pick();
    }

    /// Picks the next round among what was decided.
    pub(super) fn pick(&mut self) {
        let runs =
            |arm: &usize| self.arms.get(*arm).is_some_and(|arm| self.may_run(arm) && self.has_work(arm));
        let trial = self.trial.map(|trial| trial.arm).filter(runs);
        let next = trial.or(self.current).filter(runs).or_else(|| {
            // What is preferred cannot run; what surely pays may take its place.
            self.current?;
            let pays = |arm: &Arm| self.may_run(arm) && self.has_work(arm) && self.may_lose(arm);
            let best = self.fastest(|arm| if pays(arm) { self.sure_speed(arm) } else { 0.0 });
            best.filter(|&(_, speed)| speed > 1.0 + MARGIN).map(|(arm, _)| arm)
        });
        let (speed, cost) =
            next.and_then(|arm| self.arms.get(arm)).map_or((1.0, 1.0), |arm| (self.speed_of(arm), arm.cost));
        self.probing = self.clock.as_ref().is_some_and(|clock| clock.asks_for_plain(speed, cost));
        self.next = next.filter(|_| !self.probing);
    }

    /// Whether plans like this may be chosen in this answer.
    pub(super) fn may_run(&self, arm: &Arm) -> bool {
        self.drafter || !arm.plan.drafter
    }

    /// Whether a round of it would have something to verify.
    fn has_work(&self, arm: &Arm) -> bool {
        self.found || arm.plan.drafter
    }

    /// Whether a trial waits for something to look up.
    pub(super) fn waits(&self, trial: &Trial) -> bool {
        self.arms.get(trial.arm).is_some_and(|arm| !self.has_work(arm))
    }

    /// Whether its worst outcome is not too dear.
    fn may_lose(&self, arm: &Arm) -> bool {
        self.safety.affords(self.unit() * self.worst(arm, 1.0))
    }

    fn reconsider(&mut self) {
        let safe = |arm: &Arm| self.may_run(arm) && self.may_lose(arm);
        let best = self.fastest(|arm| if safe(arm) { self.sure_speed(arm) } else { 0.0 });
        // Left for good: whatever else surely pays, or else plain decoding.
        let left = self.current.and_then(|arm| self.arms.get(arm)).and_then(|arm| {
            let slower = (self.speed_of(arm) < 1.0 - LEAVE).then_some(Reason::Slower);
            // What does not run loses nothing.
            if self.may_lose(arm) || !self.may_run(arm) { slower } else { Some(Reason::Exhausted) }
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
        let other = |arm: &Arm| self.preferred() != Some(arm.plan) && self.may_run(arm);
        let hoped = self.fastest(|arm| if other(arm) { self.hoped_speed(arm) } else { 0.0 });
        let hoped = hoped.filter(|&(_, speed)| speed > self.speed());
        // What is earned and not needed goes to the plan that was not heard of for longest, if it could be faster.
        let idle = || {
            let could = |arm: &Arm| other(arm) && (f64::from(arm.plan.depth) + 1.0) / arm.cost > self.speed();
            self.fastest(|arm| if could(arm) { self.age(arm) } else { -1.0 }).filter(|&(_, age)| age > 0.0)
        };
        let tried = hoped.or_else(|| if self.exploring.is_full() { idle() } else { None });
        self.trial = tried
            .map(|(arm, _)| Trial { arm, rounds: 0, waited: 0, gain: 0.0 })
            .filter(|trial| self.may_try(trial.arm));
    }

    /// Whether both ledgers afford a round of this plan.
    fn may_try(&self, arm: usize) -> bool {
        self.arms.get(arm).is_some_and(|arm| {
            let worst = self.unit() * self.worst(arm, self.speed());
            self.may_run(arm) && self.may_lose(arm) && self.exploring.affords(worst)
        })
    }

    /// Most steps that a round of `arm` may lose against decoding at `speed`: it emits at least one token.
    pub(super) fn worst(&self, arm: &Arm, speed: f64) -> f64 {
        arm.cost + self.behind(arm) - 1.0 / speed
    }

    /// What the drafter would have to catch up on first.
    pub(super) fn behind(&self, arm: &Arm) -> f64 {
        let (cost, most) = self.catch_up;
        if arm.plan.drafter { cost * self.missed.min(u64::from(most)) as f64 } else { 0.0 }
    }

    /// Expected speed of the current choice, where it may run.
    pub(super) fn speed(&self) -> f64 {
        let current = self.current.and_then(|arm| self.arms.get(arm)).filter(|arm| self.may_run(arm));
        current.map_or(1.0, |arm| self.speed_of(arm))
    }

    pub(super) fn speed_of(&self, arm: &Arm) -> f64 {
        let guess = self.chances.tokens(&arm.plan, self.tokens);
        self.speed_at(arm, arm.tokens.mean(guess, self.age(arm)))
    }

    /// The speed if a round emits `tokens` tokens. What only looks up is compared with what the drafter does by what it
    /// gains as a whole: where nothing is found it decodes plainly.
    fn speed_at(&self, arm: &Arm, tokens: f64) -> f64 {
        let share = if arm.plan.drafter || !self.drafter || !self.drafts { 1.0 } else { self.found_share };
        (share * tokens + (1.0 - share)) / (share * arm.cost + (1.0 - share))
    }

    /// The speed as it surely is, about; 0 before there is evidence. A guess can only make it less.
    pub(super) fn sure_speed(&self, arm: &Arm) -> f64 {
        let age = self.age(arm);
        if arm.tokens.known(age) < EVIDENCE {
            return 0.0;
        }
        let guess = self.chances.tokens(&arm.plan, self.tokens);
        let tokens = arm.tokens.mean(guess, age).min(arm.tokens.seen());
        self.speed_at(arm, tokens - arm.tokens.error(age))
    }

    /// The speed as it might be: the less is known, the more is hoped for.
    pub(super) fn hoped_speed(&self, arm: &Arm) -> f64 {
        let (age, guess) = (self.age(arm), self.chances.tokens(&arm.plan, self.tokens));
        self.speed_at(arm, arm.tokens.mean(guess, age) + arm.tokens.error(age))
    }

    pub(super) fn age(&self, arm: &Arm) -> f64 {
        (self.tokens - arm.heard) as f64
    }

    /// The first of the arms with the largest value.
    pub(super) fn fastest(&self, value: impl Fn(&Arm) -> f64) -> Option<(usize, f64)> {
        let mut best = None;
        for (index, arm) in self.arms.iter().enumerate() {
            let value = value(arm);
            if best.is_none_or(|(_, most)| value > most) {
                best = Some((index, value));
            }
        }
        best
    }

    pub(super) fn switch(&mut self, to: Option<usize>, reason: Reason) {
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
