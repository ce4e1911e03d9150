//! The phases of a round, as their times are told.

/// The drafter computes the rows that were accepted.
pub const EXTEND: &str = "extend";
/// Steps of the drafter, growing the tree, lookup.
pub const DRAFT: &str = "draft";
/// Pruning the tree and laying it out.
pub const TREE: &str = "tree";
/// The target's forward pass.
pub const VERIFY: &str = "verify";
/// The target's own token at every row.
pub const SAMPLE: &str = "sample";
/// Walking the tree, moving keys and values, gathering features, the next root.
pub const ACCEPT: &str = "accept";
/// All of them, in the order of a round.
pub const ALL: [&str; 6] = [EXTEND, DRAFT, TREE, VERIFY, SAMPLE, ACCEPT];
