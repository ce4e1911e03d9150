//! What steps really take: running means of measured times, and when plain decoding is to be timed again.

/// Steps that a mean looks back on.
const MEMORY: f64 = 32.0;
/// Steps after which what is known counts half.
const FADING: f64 = 128.0;
/// No step counts for more than this many times what was expected of it: what takes longer was disturbed.
const CLIP: f64 = 3.0;
/// A step that takes this share more or less than expected says that something has changed.
const SURPRISE: f64 = 0.4;
/// Plain steps that are timed before the first round.
const WARM_UP: usize = 8;
/// Share of the time that timing plain steps between rounds may take.
const PROBING: f64 = 0.0075;
/// Fewest and most rounds between two plain steps that are timed.
const INTERVAL: (f64, f64) = (2.0, 64.0);
/// Fewest rounds between two that are asked for because something has changed.
const PATIENCE: u32 = 4;
/// Plain steps that are timed one behind the other where one surprised.
const AGAIN: u32 = 2;
/// A plain step that keeps features is compared with those that do not, if at least so many are known, and the last is no
/// more than so many steps ago: later the machine may have another speed.
const COMPARED: (f64, u64) = (4.0, 16);
/// What a plain step which keeps features is taken to cost, in plain steps, before that is known, and how many samples
/// that counts for.
const KEEPING: (f64, f64) = (1.03, 8.0);
/// The most that it is taken to cost.
const MOST_KEEPING: f64 = 1.5;

/// A running mean that forgets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    mean: f64,
    weight: f64,
    heard: u64,
}

impl Pace {
    /// Samples that the mean counts for at step `now`.
    pub(super) fn known(&self, now: u64) -> f64 {
        self.weight * FADING / (FADING + now.saturating_sub(self.heard) as f64)
    }

    /// The mean, where `guess` counts for `weight` samples.
    pub(super) fn mean(&self, guess: f64, weight: f64, now: u64) -> f64 {
        let known = self.known(now);
        (self.mean * known + guess * weight) / (known + weight)
    }

    /// Takes a sample.
    pub(super) fn push(&mut self, sample: f64, now: u64) {
        self.weight = (self.known(now) + 1.0).min(MEMORY);
        self.mean += (sample - self.mean) / self.weight;
        self.heard = now;
    }

    /// Counts for `samples` samples at most.
    fn doubt(&mut self, samples: f64) {
        self.weight = self.weight.min(samples);
    }
}

/// A round whose time was a surprise: what it says of its plan shows when a plain step has been timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) arm: usize,
    pub(super) seconds: f64,
}

/// The time of a plain step, and what is known of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    plain: Pace,
    /// Variance of plain steps.
    variance: f64,
    /// The first plain steps, until there are enough of them.
    first: Vec<f64>,
    /// Target forwards so far.
    pub(super) now: u64,
    /// Rounds since a plain step was timed.
    rounds: u32,
    /// Tokens that they emitted, and seconds that they count for.
    open: (f64, f64),
    /// Plain steps that are to be timed whatever else is due.
    wanted: u32,
    pub(super) held: Option<Held>,
    /// What rounds took over what they were expected to take, by whether the drafter ran.
    off: [Pace; 2],
    /// Plain steps that keep features for the drafter, over those that do not.
    keeping: Pace,
    /// Seconds of plain steps that keep none.
    bare: Pace,
}

/// What the time of a plain step says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Timed {
    /// Too little is known yet.
    Early,
    /// The first estimate of a plain step, in seconds.
    First(f64),
    /// Rounds since the last one emitted `tokens` tokens in `seconds`.
    Again { tokens: f64, seconds: f64 },
}

impl Clock {
    /// Seconds of a plain step; `None` while too little is known.
    pub(super) fn unit(&self) -> Option<f64> {
        (self.first.len() >= WARM_UP).then_some(self.plain.mean)
    }

    /// Seconds that a plain step takes at least, as far as is known: two standard errors less than the mean.
    pub(super) fn sure_unit(&self) -> Option<f64> {
        let error = (self.variance / self.plain.known(self.now).max(1.0)).sqrt();
        self.unit().map(|unit| (unit - 2.0 * error).max(unit / 2.0))
    }

    /// What `seconds` count for where `expected` were expected.
    pub(super) fn clip(seconds: f64, expected: f64) -> f64 {
        seconds.clamp(0.0, CLIP * expected)
    }

    /// Plain steps that one costs which keeps features for the drafter.
    pub(super) fn keeping(&self) -> f64 {
        self.keeping.mean(KEEPING.0, KEEPING.1, self.keeping.heard).clamp(1.0, MOST_KEEPING)
    }

    /// Takes the time of a plain step. `kept`: it kept features for the drafter, and counts for what it had taken without.
    pub(super) fn plain(&mut self, seconds: f64, kept: bool) -> Timed {
        self.now += 1;
        let seconds = match (kept, self.unit()) {
            (false, unit) => {
                self.bare.push(unit.map_or(seconds, |unit| Self::clip(seconds, unit)), self.now);
                seconds
            }
            (true, None) => seconds,
            (true, Some(unit)) => {
                if self.bare.weight >= COMPARED.0 && self.now - self.bare.heard <= COMPARED.1 {
                    self.keeping.push(Self::clip(seconds, unit) / self.bare.mean, self.now);
                }
                seconds / self.keeping()
            }
        };
        self.wanted = self.wanted.saturating_sub(1);
        let Some(before) = self.unit() else {
            // A time of nothing is that of a clock too coarse.
            self.first.push(seconds.max(1e-9));
            if self.first.len() < WARM_UP {
                return Timed::Early;
            }
            let mut sorted = self.first.clone();
            sorted.sort_by(f64::total_cmp);
            let median = sorted.get(sorted.len() / 2).copied().unwrap_or(seconds);
            self.plain = Pace { mean: median, weight: WARM_UP as f64, heard: self.now };
            let off = self.first.iter().map(|seconds| (Self::clip(*seconds, median) - median).powi(2));
            self.variance = off.sum::<f64>() / WARM_UP as f64;
            return Timed::First(median);
        };
        if surprises(seconds, before) {
            // Once is chance; what stays is believed soon.
            if self.wanted == 0 && self.plain.weight > 1.0 {
                self.wanted = AGAIN;
            }
            self.plain.doubt(2.0);
        }
        let counted = Self::clip(seconds, before).max(1e-9);
        self.plain.push(counted, self.now);
        self.variance += ((counted - before).powi(2) - self.variance) / self.plain.weight.max(WARM_UP as f64);
        self.rounds = 0;
        let (tokens, seconds) = std::mem::take(&mut self.open);
        Timed::Again { tokens, seconds }
    }

    /// Takes the time of a round that emitted `tokens`; `expected` seconds were expected. Says whether it surprises, so
    /// that a plain step is to be timed before it is believed.
    pub(super) fn round(&mut self, seconds: f64, expected: f64, sure: bool, tokens: f64) -> bool {
        self.now += 1;
        self.open = (self.open.0 + tokens, self.open.1 + Self::clip(seconds, expected));
        let strange = sure && self.rounds >= PATIENCE && surprises(seconds, expected);
        self.rounds += 1;
        if strange {
            self.wanted = self.wanted.max(1);
        }
        strange
    }

    /// Takes note that a round took `share` times what the costs promised.
    pub(super) fn learn(&mut self, drafter: bool, share: f64) {
        let [plain, drafted] = &mut self.off;
        let off = if drafter { drafted } else { plain };
        off.push(share, self.now);
    }

    /// What rounds take over what the costs promise.
    pub(super) fn bias(&self, drafter: bool) -> f64 {
        let [plain, drafted] = &self.off;
        let off = if drafter { drafted } else { plain };
        off.mean(1.0, 1.0, self.now)
    }

    /// Whether a plain step is to be timed before the next round, where rounds of `cost` plain steps are `speed` times as
    /// fast as plain decoding.
    pub(super) fn asks_for_plain(&self, speed: f64, cost: f64) -> bool {
        let loss = (1.0 - 1.0 / speed.max(1.0)) / cost;
        let interval = (loss / PROBING).clamp(INTERVAL.0, INTERVAL.1);
        self.unit().is_none() || self.wanted > 0 || f64::from(self.rounds) >= interval
    }
}

fn surprises(seconds: f64, expected: f64) -> bool {
    (seconds - expected).abs() > SURPRISE * expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_give_a_median_and_later_ones_a_mean() {
        let mut clock = Clock::default();
        for seconds in [9.0, 1.0, 1.5, 1.25, 1.0, 2.0, 1.5] {
            assert_eq!(clock.plain(seconds, false), Timed::Early, "a first step compiles things");
        }
        assert_eq!((clock.unit(), clock.asks_for_plain(2.0, 1.0)), (None, true), "nothing yet");
        assert_eq!(clock.plain(1.5, false), Timed::First(1.5), "the median of eight");
        assert_eq!(clock.plain(1.9, false), Timed::Again { tokens: 0.0, seconds: 0.0 }, "no rounds");
        let unit = clock.unit().expect("known");
        assert!((unit - 1.5 - 0.4 / 9.0).abs() < 0.005, "a ninth of the way: {unit}");
        let sure = clock.sure_unit().expect("known");
        assert!(sure < unit - 0.1 && sure > 0.5 * unit, "{sure} at least");
        for _ in 0..200 {
            clock.plain(1.5, false);
        }
        assert!(clock.sure_unit().is_some_and(|sure| sure > 1.48), "{:?}: now it is sure", clock.sure_unit());
        assert!(!clock.asks_for_plain(1.0, 1.5), "known");
    }

    #[test]
    fn a_step_that_was_disturbed_counts_for_three_and_one_that_stays_is_believed() {
        let mut clock = Clock::default();
        for _ in 0..100 {
            clock.plain(1.0, false);
        }
        clock.plain(1000.0, false);
        assert!(clock.unit().is_some_and(|unit| unit < 1.7), "{:?}", clock.unit());
        assert!(clock.asks_for_plain(2.0, 1.0), "look again");
        for _ in 0..5 {
            clock.plain(1.0, false);
        }
        assert!(clock.unit().is_some_and(|unit| unit < 1.3), "{:?}", clock.unit());
        for _ in 0..5 {
            clock.plain(2.0, false);
        }
        assert!(
            clock.unit().is_some_and(|unit| unit > 1.6),
            "a machine that slowed down: {:?}",
            clock.unit()
        );
    }

    #[test]
    fn plain_steps_are_timed_now_and_then_and_after_a_surprise() {
        let mut clock = Clock::default();
        for _ in 0..20 {
            clock.plain(1.0, false);
        }
        let mut asked = 0;
        for _ in 0..1000 {
            assert!(!clock.round(1.5, 1.5, true, 3.0), "as expected");
            if clock.asks_for_plain(2.0, 1.5) {
                asked += 1;
                let Timed::Again { tokens, seconds } = clock.plain(1.0, false) else { panic!("known") };
                assert!(tokens > 20.0 && seconds == tokens / 2.0, "{tokens} tokens in {seconds} s");
            }
        }
        assert!((15..=25).contains(&asked), "{asked} of 1000");
        for _ in 0..5 {
            clock.round(1.5, 1.5, true, 1.0);
        }
        assert!(!clock.asks_for_plain(2.0, 1.5), "not yet");
        assert!(clock.round(3.0, 1.5, true, 1.0), "a surprise");
        assert!(clock.asks_for_plain(2.0, 1.5), "so look");
        assert!(!clock.round(3.0, 1.5, false, 1.0), "none where nothing sure was expected");
    }

    #[test]
    fn what_keeping_features_costs_is_no_plain_steps() {
        let mut clock = Clock::default();
        let answer = |clock: &mut Clock, pace: f64| {
            for (kept, seconds) in [(false, 1.0), (true, 1.1)] {
                for _ in 0..12 {
                    clock.plain(pace * seconds, kept);
                }
            }
        };
        for _ in 0..8 {
            answer(&mut clock, 1.0);
        }
        let (keeping, unit) = (clock.keeping(), clock.unit().expect("known"));
        assert!((keeping - 1.1).abs() < 0.03 && (unit - 1.0).abs() < 0.03, "{keeping}, {unit}");
        // The machine slows down, and nothing tells by how much features do.
        for _ in 0..24 {
            clock.round(4.0, 2.0, false, 2.0);
        }
        for _ in 0..24 {
            clock.plain(2.2, true);
        }
        let (keeping, unit) = (clock.keeping(), clock.unit().expect("known"));
        assert!((keeping - 1.1).abs() < 0.03 && (unit - 2.0).abs() < 0.1, "{keeping}, {unit}");
        for _ in 0..100 {
            clock.plain(2.0, false);
            clock.plain(1.0, true);
        }
        assert_eq!(clock.keeping(), 1.0, "never a gain");
    }

    #[test]
    fn costs_that_are_off_are_known_by_kind() {
        let mut clock = Clock::default();
        for _ in 0..20 {
            clock.plain(1.0, false);
            clock.learn(true, 2.0);
        }
        assert!(clock.bias(true) > 1.9 && clock.bias(false) == 1.0, "{}", clock.bias(true));
    }
}
