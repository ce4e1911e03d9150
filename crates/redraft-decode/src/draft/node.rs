//! Nodes of the pool, and what the drafter says of a row.

use bytemuck::{Pod, Zeroable};

use super::plan::{ROW_IDS, WIDTH};
use crate::TokenId;

/// "None" where an index, a row id or a token is expected.
pub const NONE: u32 = u32::MAX;
/// Candidates that the drafter returns of a row.
pub const TOP: u32 = 8;

/// Flag of a node that exists; the other fields of a node without it mean nothing.
pub const ALIVE: u32 = 1;
/// Flag of a node of the greedy chain, the root included.
pub const CHAIN: u32 = 2;
/// Flag of a node that a second pass proposed.
pub const REFINED: u32 = 4;
/// Flag of a node found in the text so far.
pub const LOOKUP: u32 = 8;

/// A node of the pool, as it lies in GPU memory: 12 words.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    /// The drafted token.
    pub token: TokenId,
    /// Pool index of the parent; [`NONE`] for the root.
    pub parent: u32,
    /// Edges to the root.
    pub depth: u32,
    /// Log of the chance that the path to here is right, at most 0.
    pub score: f32,
    /// [`ALIVE`], [`CHAIN`], [`REFINED`], [`LOOKUP`].
    pub flags: u32,
    /// Row id whose hidden output is the feature that the drafter reads at this node.
    pub source: u32,
    /// Row id of the first pass over this node; [`NONE`] if there was none.
    pub row: u32,
    /// Pool index of its first-pass children; 0 if it has none.
    pub first_child: u32,
    /// Pool index of its refined children; 0 if it has none.
    pub refined_child: u32,
    /// Zeros.
    pub pad: [u32; 3],
}

impl Node {
    /// A slot of the pool without a node.
    pub const DEAD: Self = Self {
        token: TokenId(NONE),
        parent: NONE,
        depth: 0,
        score: 0.0,
        flags: 0,
        source: NONE,
        row: NONE,
        first_child: 0,
        refined_child: 0,
        pad: [0; 3],
    };

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// The order of frontier and verification: the greedy chain by depth, then the others by falling score, then by
    /// index. Smaller comes first; different for different `index`.
    pub(super) const fn order(&self, index: u32) -> u64 {
        if self.has(CHAIN) {
            return (self.depth as u64) << 32 | index as u64;
        }
        // The chain stays below bit 62.
        1 << 62 | falling(self.score, index)
    }
}

/// A key that is smaller for a larger `score`, ties by smaller `index` below 2¹⁶.
pub(super) const fn falling(score: f32, index: u32) -> u64 {
    let bits = score.to_bits();
    // Rising floats as rising integers, and then falling.
    let rising = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    (!rising as u64) << 16 | (index & 0xffff) as u64
}

/// A candidate of a row.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Top {
    /// The token in the target's vocabulary; [`NONE`] for no candidate.
    pub token: TokenId,
    /// Its log-probability under the drafter.
    pub log_q: f32,
}

impl Top {
    /// No candidate.
    pub const EMPTY: Self = Self { token: TokenId(NONE), log_q: f32::NEG_INFINITY };
}

/// What the drafter says of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    /// The candidates, likeliest first, their tokens distinct, the empty ones last.
    pub tops: [Top; TOP as usize],
    /// How unsure the drafter is of them, in [0, 1].
    pub unsure: f32,
}

impl Output {
    /// A row that nothing was said of.
    pub const EMPTY: Self = Self { tops: [Top::EMPTY; TOP as usize], unsure: 0.0 };
}

/// What the drafter says of all rows of a round: `[ROW_IDS]`, by row id.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    rows: Vec<Output>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { rows: vec![Output::EMPTY; ROW_IDS as usize] }
    }
}

impl Outputs {
    /// The output of the row with this id; empty for an id that no round has.
    #[must_use]
    pub fn row(&self, id: u32) -> &Output {
        self.rows.get(id as usize).unwrap_or(&Output::EMPTY)
    }

    /// `[WIDTH]` outputs of `step`, row `i` at `i`, for the drafter to fill; empty for a step that no round has.
    pub fn step_mut(&mut self, step: u32) -> &mut [Output] {
        let start = step.saturating_mul(WIDTH) as usize;
        self.rows.get_mut(start..start.saturating_add(WIDTH as usize)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_chain_then_score_then_index() {
        let node = |flags, depth, score| Node { flags, depth, score, ..Node::DEAD };
        let sorted = [
            (node(ALIVE | CHAIN, 1, -9.0), 700),
            (node(ALIVE | CHAIN, 2, -9.5), 3),
            (node(ALIVE, 1, 0.0), 9),
            (node(ALIVE, 2, -f32::MIN_POSITIVE), 2),
            (node(ALIVE, 1, -0.5), 1023),
            (node(ALIVE | REFINED, 3, -1.5), 1),
            (node(ALIVE, 1, -1.5), 2),
            (node(ALIVE, 1, -1e30), 8),
            (node(ALIVE, 1, f32::NEG_INFINITY), 4),
        ];
        for pair in sorted.windows(2) {
            let [a, b] = [0, 1].map(|i| pair[i].0.order(pair[i].1));
            assert!(a < b, "{pair:?}");
        }
    }

    #[test]
    fn outputs_by_row_id() {
        let mut outputs = Outputs::default();
        outputs.step_mut(2)[3].unsure = 0.5;
        assert_eq!(outputs.row(35).unsure, 0.5, "step 2, row 3");
        assert_eq!(outputs.row(256), &Output::EMPTY, "no such row");
        assert!(outputs.step_mut(16).is_empty() && outputs.step_mut(u32::MAX).is_empty(), "no such step");
        assert_eq!(size_of::<Node>(), 48, "12 words");
    }
}
