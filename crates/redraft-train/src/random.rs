//! Random numbers from a seed, the same on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The high half of a product: even to 2⁻⁶⁴, which nothing here shows. It is below `bound`.
        #[expect(clippy::cast_possible_truncation, reason = "below a usize")]
        let below = ((u128::from(self.bits()) * bound as u128) >> 64) as usize;
        below
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        let wanted = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423_u64];
        assert_eq!([random.bits(), random.bits(), random.bits()], wanted, "seed 1234567");
    }

    #[test]
    fn numbers_stay_in_their_range_and_orders_keep_all_items() {
        let mut random = Random::new(7);
        let below: Vec<usize> = (0..300).map(|_| random.below(3)).collect();
        assert!((0..3).all(|value| below.iter().filter(|&&found| found == value).count() > 60), "{below:?}");
        assert!(below.iter().all(|&value| value < 3), "below three");
        assert!((0..300).all(|_| (0.0..1.0).contains(&random.unit())), "in [0, 1)");
        let mut items: Vec<u32> = (0..50).collect();
        random.shuffle(&mut items);
        assert!(!items.is_sorted(), "another order");
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..50), "of the same items");
    }
}
