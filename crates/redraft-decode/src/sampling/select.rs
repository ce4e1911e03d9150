//! Thresholds of top-k and top-p by radix search.
//!
//! Both keep a prefix of the tokens in the order "larger logit first, ties by lower id": top-k the first k, top-p the
//! shortest prefix whose mass reaches its target. So one search serves both. It walks the 32 bits of the key in
//! [`LEVELS`] levels of 8: sum what falls into each of the [`BINS`] bins under the prefix found so far (`histogram`), find
//! the bin in which the running sum from above reaches the target, go on inside it. What remains is a single key and
//! how much of its ties must stay (`cut`). Sums are 64-bit integers; masses are fixed-point weights of 2³⁰ at the maximum.

use super::{Fma, exp_weight, float_key, key_float};

/// Levels of the search.
pub const LEVELS: u32 = 4;
/// Bins of a level.
pub const BINS: usize = 256;

/// What stays of a row: tokens above `key`, and those at `key` whose id is at most `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// [`float_key`] of the threshold.
    pub key: u32,
    /// Largest id kept among the ties at the threshold.
    pub id: u32,
}

impl Cut {
    /// Everything stays.
    pub const ALL: Self = Self { key: 0, id: u32::MAX };

    /// Whether the token `id` with `key` stays.
    #[must_use]
    pub fn keeps(self, key: u32, id: u32) -> bool {
        key > self.key || (key == self.key && id <= self.id)
    }
}

/// What a prefix of the ordered tokens is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Number of tokens; the target is `k`.
    Count {
        /// Tokens to keep, at least 1 and at most the number there are.
        k: u32,
    },
    /// Fixed-point mass relative to the maximum; the target is a fraction of the mass of what stayed so far.
    Mass {
        /// The fraction, of 2³².
        fraction: u32,
        /// [`float_key`] of the row's maximum.
        max_key: u32,
        /// How the twin computes `fma`.
        fma: Fma,
    },
}

impl Measure {
    /// What a token of this key adds.
    #[must_use]
    pub fn weight(self, key: u32) -> u32 {
        match self {
            Self::Count { .. } => 1,
            // Equal keys first: infinity minus infinity is no number.
            Self::Mass { max_key, .. } if key == max_key => super::WEIGHT_ONE,
            Self::Mass { max_key, fma, .. } => exp_weight(key_float(key) - key_float(max_key), fma),
        }
    }

    /// The least sum that the kept prefix must reach, given the sum over all that stayed so far.
    #[must_use]
    pub fn target(self, total: u64) -> u64 {
        match self {
            Self::Count { k } => u64::from(k),
            Self::Mass { fraction, .. } => {
                let product = u128::from(total) * u128::from(fraction);
                u64::try_from(product.div_ceil(1 << 32)).unwrap_or(total).max(1)
            }
        }
    }
}

/// How far a search has come: the leading bits of the threshold and what must still be reached below them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The leading `8 · level` bits of the threshold key, the others 0.
    pub prefix: u32,
    /// The sum that the tokens with this prefix must still reach; unset before level 1.
    pub rest: u64,
}

/// One level's sums; twin of `sample_histogram` without its first half, which is [`Search::descend`].
///
/// Tokens that `kept` dropped are passed over, as are those that do not share the search's prefix.
#[must_use]
pub fn histogram(scaled: &[f32], kept: Cut, measure: Measure, search: Search, level: u32) -> [u64; BINS] {
    let mut bins = [0u64; BINS];
    let shift = 24 - 8 * level.min(LEVELS - 1);
    // The bits above this level's digit; at level 0 there are none.
    let known = u32::MAX.checked_shl(shift + 8).unwrap_or(0);
    for (id, &logit) in (0u32..).zip(scaled) {
        let key = float_key(logit);
        if key & known == search.prefix && kept.keeps(key, id) {
            let [digit, ..] = (key << (24 - shift)).to_be_bytes();
            if let Some(bin) = bins.get_mut(usize::from(digit)) {
                *bin += u64::from(measure.weight(key));
            }
        }
    }
    bins
}

impl Search {
    /// Goes into the bin in which the sum from above reaches the target. Returns the new state and that bin's sum.
    #[must_use]
    pub fn descend(self, bins: &[u64; BINS], measure: Measure, level: u32) -> (Self, u64) {
        let mut rest = if level == 0 { measure.target(bins.iter().sum()) } else { self.rest };
        let shift = 24 - 8 * level.min(LEVELS - 1);
        for (digit, &sum) in (0u32..256).zip(bins).rev() {
            if rest <= sum {
                return (Self { prefix: self.prefix | digit << shift, rest }, sum);
            }
            rest -= sum;
        }
        // Not reached while the target is at most the total; then everything stays.
        (Self { prefix: self.prefix, rest: 0 }, 0)
    }
}

/// The threshold of a finished search; twin of `sample_cut`.
///
/// - `found`: the state behind level 3, whose prefix is the threshold key.
/// - `sum`: the sum of its bin, that is of all ties at the threshold.
///
/// Ties carry equal weights, so as many of them stay, lowest ids first, as the rest needs.
#[must_use]
pub fn cut(scaled: &[f32], kept: Cut, measure: Measure, found: Search, sum: u64) -> Cut {
    let key = found.prefix;
    let weight = u64::from(measure.weight(key));
    // The usual case: without the last tie the rest is not reached, so all that stayed until now stay on.
    if sum.saturating_sub(found.rest) < weight {
        return Cut { key, id: if key == kept.key { kept.id } else { u32::MAX } };
    }
    let mut rest = found.rest;
    for (id, &logit) in (0u32..).zip(scaled) {
        if float_key(logit) == key && kept.keeps(key, id) {
            if rest <= weight {
                return Cut { key, id };
            }
            rest -= weight;
        }
    }
    kept
}
