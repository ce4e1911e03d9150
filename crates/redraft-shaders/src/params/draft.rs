//! Parameters and shared structs of a draft round.

use bytemuck::{Pod, Zeroable};

/// Parameters of the kernels that grow, prune and lay out a tree. One round needs a copy for each step, which differ in
/// `step`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct DraftParams {
    /// Which drafter forward of the round: 0 the extend pass, then 1 ….
    pub step: u32,
    /// Frontier rows of a step.
    pub width: u32,
    /// Children kept of a first pass.
    pub children: u32,
    /// Second-pass rows of a step.
    pub reconsider: u32,
    /// Candidates taken of a second pass.
    pub refined: u32,
    /// Depth of the deepest node.
    pub depth: u32,
    /// Nodes that are verified.
    pub nodes: u32,
    /// 0 off, 1 by the table of gains, 2 random.
    pub gate: u32,
    /// 1 lets refined nodes enter the next frontier.
    pub expand_refined: u32,
    /// 1 takes candidates from the first pass instead.
    pub control: u32,
    /// 1 takes edges from the table.
    pub calibrated: u32,
    /// Added to a refined candidate's log-probability where they do not come from the table.
    pub refined_offset: f32,
    /// Least uncertainty of a hesitant node.
    pub gate_threshold: f32,
    /// Shortest suffix that lookup continues; 0 for no lookup.
    pub min_match: u32,
    /// First node of the lookup block.
    pub lookup_block: u32,
    /// Nodes of the pool.
    pub pool: u32,
    /// First slot of the drafter's cache for the rows of steps.
    pub scratch: u32,
    /// 1: a second pass reads what the first one read, not what it said.
    pub no_recurrence: u32,
    /// Slot of the target's cache that padding rows write.
    pub spare_slot: u32,
    /// Padding.
    pub pad0: u32,
}

/// A node of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    /// Token of the target's vocabulary.
    pub token: u32,
    /// Its parent's index; `u32::MAX` for the root.
    pub parent: u32,
    /// Edges to the root.
    pub depth: u32,
    /// Sum of the edges' log-probabilities.
    pub score: f32,
    /// 1 alive, 2 on the greedy chain, 4 refined, 8 from lookup.
    pub flags: u32,
    /// Row id whose output is its feature.
    pub source: u32,
    /// Row id of its own first pass; `u32::MAX` before it.
    pub row: u32,
    /// First node of its first-pass candidates, 0 before there are any.
    pub first_child: u32,
    /// First node of its second-pass candidates, 0 before there are any.
    pub refined_child: u32,
}

/// What a round leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Round {
    /// Tokens in the target's cache.
    pub length: u32,
    /// The token after them.
    pub root: u32,
    /// Tokens that the answer may still emit.
    pub limit: u32,
    /// 0 goes on, 1 end of sequence, 2 limit, 3 a logit that is not finite.
    pub stop: u32,
    /// `length` before the round.
    pub start: u32,
    /// Tokens emitted.
    pub emitted: u32,
    /// Nodes verified.
    pub drafted: u32,
    /// Second passes made.
    pub reconsidered: u32,
    /// Refined candidates added.
    pub refined: u32,
    /// Refined candidates that were children already.
    pub duplicates: u32,
    /// Nodes added by lookup.
    pub looked_up: u32,
    /// Key of the greatest logit where it was not finite.
    pub greatest: u32,
    /// Rows of the drafter whose logits were not finite.
    pub faults: u32,
    /// Accepted rows, the root's first.
    pub path: [u32; 17],
    /// Tokens emitted.
    pub tokens: [u32; 17],
    /// Origin of each: 0 the target's own, 1 drafted, 2 refined, 3 looked up.
    pub origins: [u32; 17],
}

/// Parameters of `draft_scan` and `draft_merge`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct TopParams {
    /// Entries of a row: the draft vocabulary.
    pub vocab: u32,
    /// Row id of row 0.
    pub first: u32,
    /// 1 couples proposals to the target's draw.
    pub coupled: u32,
    /// 1 / temperature.
    pub inv_temperature: f32,
    /// Low half of the seed.
    pub seed_lo: u32,
    /// High half of the seed.
    pub seed_hi: u32,
    /// 1 takes the entropy as uncertainty, 0 what the first token lacks to certainty.
    pub entropy: u32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `draft_gather`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct GatherParams {
    /// Columns of a row.
    pub columns: u32,
    /// Rows.
    pub rows: u32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
}

/// Parameters of `second_pass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SecondPassParams {
    /// Columns of a row: the rank of the adapter.
    pub columns: u32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
    /// Padding.
    pub pad2: u32,
}

/// Parameters of `draft_store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StoreParams {
    /// Columns of a row.
    pub columns: u32,
    /// Row id of row 0.
    pub first: u32,
    /// 1: the input is the normalised output, which begins at the head's first row.
    pub normed: u32,
    /// Padding.
    pub pad0: u32,
}

/// Parameters of `tree_accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AcceptParams {
    /// Verified rows.
    pub rows: u32,
    /// Number of end-of-sequence tokens.
    pub ends: u32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
    /// End-of-sequence tokens.
    pub end_tokens: [[u32; 4]; 4],
}

/// Parameters of `kv_compact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CompactParams {
    /// 32-bit words of a slot.
    pub words: u32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
    /// Padding.
    pub pad2: u32,
}

/// Parameters of `feature_gather`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FeatureParams {
    /// Columns of a capture.
    pub columns: u32,
    /// Captures.
    pub layers: u32,
    /// Rows of the dispatch.
    pub rows: u32,
    /// Row of the features that row 0 goes to.
    pub first: u32,
    /// 1: rows follow each other; 0: they are the accepted path.
    pub chain: u32,
    /// Rows between captures.
    pub stride: u32,
    /// Padding.
    pub pad0: u32,
    /// Padding.
    pub pad1: u32,
}
