//! What is known of a plan: a running mean that forgets, and that notices when what it averages has changed.

/// Rounds that the mean looks back on.
const MEMORY: f64 = 128.0;
/// Rounds that the recent mean looks back on.
const RECENT: f64 = 8.0;
/// Distance of the two means that counts as a change, in standard deviations of the recent one.
const CHANGE: f64 = 3.5;
/// Rounds that a guess counts for.
const GUESS: f64 = 4.0;
/// Tokens after which what is known counts half.
pub(super) const FADING: f64 = 256.0;

/// Tokens that a round of a plan emits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    mean: f64,
    variance: f64,
    /// Rounds behind the mean.
    weight: f64,
    recent: f64,
    /// Rounds behind the recent mean.
    recent_weight: f64,
}

impl Estimate {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self =
        Self { mean: 0.0, variance: 1.0, weight: 0.0, recent: 0.0, recent_weight: 0.0 };

    /// Rounds that what is known counts for, `age` tokens after the last.
    pub(super) fn known(&self, age: f64) -> f64 {
        self.weight * FADING / (FADING + age)
    }

    /// Tokens expected of a round, `age` tokens after the last, where `guess` would be expected if nothing were known.
    pub(super) fn mean(&self, guess: f64, age: f64) -> f64 {
        let known = self.known(age);
        (self.mean * known + guess * GUESS) / (known + GUESS)
    }

    /// Tokens that rounds emitted on average, guesses aside.
    pub(super) fn seen(&self) -> f64 {
        self.mean
    }

    /// Standard error of the mean, `age` tokens after the last round.
    pub(super) fn error(&self, age: f64) -> f64 {
        (self.variance / (self.known(age) + 1.0)).sqrt()
    }

    /// Counts a round, `age` tokens after the last. Returns whether recent rounds are unlike those before them, which
    /// are forgotten then.
    pub(super) fn push(&mut self, tokens: f64, age: f64) -> bool {
        self.weight = self.known(age);
        self.recent_weight = self.recent_weight.min(self.weight);
        let off = if self.weight > 0.0 { tokens - self.mean } else { 0.0 };
        self.weight = (self.weight + 1.0).min(MEMORY);
        self.mean += (tokens - self.mean) / self.weight;
        self.variance += (off * off - self.variance) / self.weight.max(2.0 * RECENT);
        self.recent_weight = (self.recent_weight + 1.0).min(RECENT);
        self.recent += (tokens - self.recent) / self.recent_weight;
        // The variance of a mean that forgets at rate 1/n is 1/(2n - 1) of that of a round.
        let recent_error = ((self.variance + 0.05) / (2.0 * RECENT - 1.0)).sqrt();
        let changed = self.recent_weight >= RECENT
            && self.weight > RECENT
            && (self.recent - self.mean).abs() > CHANGE * recent_error;
        if changed {
            self.mean = self.recent;
            self.weight = RECENT;
        }
        changed
    }

    /// Counts for `rounds` rounds at most, because the text has changed.
    pub(super) fn doubt(&mut self, rounds: f64) {
        self.weight = self.weight.min(rounds);
        self.recent_weight = self.recent_weight.min(rounds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guess_gives_way() {
        let mut estimate = Estimate::UNKNOWN;
        assert_eq!((estimate.mean(2.0, 0.0), estimate.error(0.0)), (2.0, 1.0), "a guess");
        estimate.push(4.5, 7.0);
        assert_eq!(estimate.seen(), 4.5, "what was seen");
        assert_eq!(estimate.mean(2.0, 0.0), 2.5, "the guess counts for four rounds");
        for _ in 0..1000 {
            estimate.push(3.0, 0.0);
        }
        assert!((estimate.mean(1.0, 0.0) - 3.0).abs() < 0.07, "sure: {}", estimate.mean(1.0, 0.0));
        assert!(estimate.error(0.0) < 0.05, "and certain: {}", estimate.error(0.0));
    }

    #[test]
    fn a_change_is_noticed_within_a_dozen_rounds() {
        let mut estimate = Estimate::UNKNOWN;
        for round in 0..1000 {
            assert!(!estimate.push(if round % 2 == 0 { 3.0 } else { 4.0 }, 2.0), "steady, round {round}");
        }
        let noticed: Vec<bool> = (0..12).map(|_| estimate.push(1.0, 2.0)).collect();
        assert!(noticed.contains(&true), "{noticed:?}");
        assert!(estimate.mean(1.0, 0.0) < 2.0, "dropped to {}", estimate.mean(1.0, 0.0));
        let mut steady = Estimate::UNKNOWN;
        for round in 0..1000 {
            // Runs of three and three.
            assert!(
                !steady.push(if round % 6 < 3 { 3.0 } else { 4.0 }, 2.0),
                "noise is no change, round {round}"
            );
        }
    }

    #[test]
    fn old_knowledge_fades() {
        let mut estimate = Estimate::UNKNOWN;
        for _ in 0..60 {
            estimate.push(2.0, 0.0);
        }
        assert_eq!(estimate.known(3.0 * FADING), 15.0, "a quarter");
        assert!(estimate.error(3.0 * FADING) > 1.9 * estimate.error(0.0), "about twice the error");
        assert!(estimate.mean(5.0, 1e9) > 4.9, "in the end the guess is as good");
        estimate.doubt(4.0);
        assert_eq!((estimate.known(0.0), estimate.mean(4.0, 0.0)), (4.0, 3.0), "half known, half guessed");
    }
}
