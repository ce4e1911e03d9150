//! How likely a depth is accepted in this text: what to guess of plans that did not run lately.

use super::estimate::FADING;
use crate::draft::Plan;

/// Tries that a chance looks back on.
const MEMORY: f64 = 48.0;
/// Tries that a guess counts for.
const GUESS: f64 = 8.0;
/// A depth of a tree is accepted as if a chain had this many tries.
const TREE: f64 = 1.35;

/// The kinds of plans that share a chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chain,
    Tree,
    Lookup,
}

impl Kind {
    fn of(plan: &Plan) -> Self {
        match (plan.drafter, plan.nodes > plan.depth) {
            (false, _) => Self::Lookup,
            (true, false) => Self::Chain,
            (true, true) => Self::Tree,
        }
    }
}

impl Kind {
    /// The chance before the first round.
    fn guess(self) -> f64 {
        match self {
            Self::Chain => 0.6,
            Self::Tree => 0.7,
            Self::Lookup => 0.3,
        }
    }
}

/// A running share of accepted tries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    mean: f64,
    weight: f64,
    heard: u64,
}

impl Share {
    fn known(&self, now: u64) -> f64 {
        self.weight * FADING / (FADING + now.saturating_sub(self.heard) as f64)
    }

    fn push(&mut self, accepted: bool, now: u64) {
        self.weight = (self.known(now) + 1.0).min(MEMORY);
        self.mean += (f64::from(u8::from(accepted)) - self.mean) / self.weight;
        self.heard = now;
    }
}

/// The chance that a depth is accepted, by kind of plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Chances {
    chain: Share,
    tree: Share,
    lookup: Share,
}

impl Chances {
    /// Counts a round of `plan` that accepted `accepted` nodes.
    pub(super) fn push(&mut self, plan: &Plan, accepted: u32, now: u64) {
        let share = match Kind::of(plan) {
            Kind::Chain => &mut self.chain,
            Kind::Tree => &mut self.tree,
            Kind::Lookup => &mut self.lookup,
        };
        for _ in 0..accepted {
            share.push(true, now);
        }
        if accepted < plan.depth.min(plan.nodes) {
            share.push(false, now);
        }
    }

    /// Counts little from here on, because the text has changed.
    pub(super) fn doubt(&mut self) {
        for share in [&mut self.chain, &mut self.tree, &mut self.lookup] {
            share.weight = share.weight.min(GUESS);
        }
    }

    /// Tokens that a round of `plan` emits, going by the chances.
    pub(super) fn tokens(&self, plan: &Plan, now: u64) -> f64 {
        let [chain, tree, lookup] = [self.chain, self.tree, self.lookup].map(|share| share.known(now));
        // What is known of the other kind counts for half.
        let (own, known, other, hint) = match Kind::of(plan) {
            Kind::Chain => {
                (self.chain.mean, chain, 1.0 - (1.0 - self.tree.mean).powf(1.0 / TREE), 0.5 * tree)
            }
            Kind::Tree => (self.tree.mean, tree, 1.0 - (1.0 - self.chain.mean).powf(TREE), 0.5 * chain),
            Kind::Lookup => (self.lookup.mean, lookup, 0.0, 0.0),
        };
        let guess = Kind::of(plan).guess();
        let chance = (own * known + other * hint + guess * GUESS) / (known + hint + GUESS);
        let (mut tokens, mut reached) = (1.0, 1.0);
        for _ in 0..plan.depth.min(plan.nodes) {
            reached *= chance;
            tokens += reached;
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_before_the_first_round() {
        let chances = Chances::default();
        let tokens = |plan| chances.tokens(&plan, 0);
        assert!((tokens(Plan::chain(1)) - 1.6).abs() < 0.01, "chain {}", tokens(Plan::chain(1)));
        assert!((tokens(Plan::tree(7, 1, 1, 7)) - 1.7).abs() < 0.01, "tree");
        assert!((tokens(Plan::lookup(2)) - 1.39).abs() < 1e-9, "lookup");
        assert!(tokens(Plan::chain(7)) > tokens(Plan::chain(3)), "deeper is more");
    }

    #[test]
    fn a_kind_is_known_by_its_rounds_and_hints_at_the_other() {
        let mut chances = Chances::default();
        let (chain, tree) = (Plan::chain(3), Plan::tree(7, 3, 2, 3));
        let before = chances.tokens(&tree, 0);
        for _ in 0..100 {
            chances.push(&chain, 3, 0);
        }
        assert!(chances.tokens(&chain, 0) > 3.6, "nearly all: {}", chances.tokens(&chain, 0));
        assert!(chances.tokens(&tree, 0) > before, "trees may do well too");
        assert!(chances.tokens(&chain, 1_000_000) < 2.5, "long ago");
        chances.doubt();
        assert!(chances.tokens(&chain, 0) < 3.5, "another text");
        for _ in 0..100 {
            chances.push(&chain, 0, 0);
        }
        assert!(chances.tokens(&chain, 0) < 1.2, "nearly none: {}", chances.tokens(&chain, 0));
    }

    #[test]
    fn a_round_tries_one_depth_more_than_it_accepts() {
        let (mut full, mut short) = (Chances::default(), Chances::default());
        full.push(&Plan::chain(2), 2, 0);
        short.push(&Plan::chain(3), 2, 0);
        assert_eq!((full.chain.weight, full.chain.mean), (2.0, 1.0), "two of two");
        assert_eq!(short.chain.weight, 3.0, "three tries");
        assert!((short.chain.mean - 2.0 / 3.0).abs() < 1e-12, "two of three: {}", short.chain.mean);
    }
}
