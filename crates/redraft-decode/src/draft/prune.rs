//! From the pool to the verification batch.
//!
//! Twins of `shaders/tree_prune.wgsl` and `shaders/tree_layout.wgsl`.

use super::node::{ALIVE, LOOKUP, NONE, REFINED};
use super::plan::Plan;
use super::pool::Pool;
use crate::{Position, TokenId, Tree, TreeError, TreeRows};

/// Who proposed a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Origin {
    /// The target itself; also the root and dead rows of a layout.
    #[default]
    Target = 0,
    /// A first pass of the drafter.
    Drafted = 1,
    /// A second pass of the drafter. Accepted, it is a rescue.
    Refined = 2,
    /// The text so far.
    Lookup = 3,
}

impl Origin {
    /// Its number in GPU memory.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The origin with this number.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Target),
            1 => Some(Self::Drafted),
            2 => Some(Self::Refined),
            3 => Some(Self::Lookup),
            _ => None,
        }
    }
}

/// A verification batch of `rows` rows: the root, the nodes kept, and dead rows up to the plan's number of rows.
///
/// Parents stand before children and dead rows last. `rows` is [`Plan::verified_rows`], `levels` the plan's depth + 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `[rows]` token of each row; 0 for a dead row.
    pub tokens: Vec<TokenId>,
    /// `[rows]` edges to the root; 0 for a dead row.
    pub depths: Vec<u32>,
    /// `[rows]` row of the parent; [`NONE`] for the root and for a dead row.
    pub parents: Vec<u32>,
    /// `[rows][levels]` row of the ancestor-or-self at each depth. Behind a row's own depth, and for a dead row, the
    /// row itself.
    pub ancestors: Vec<u32>,
    /// `[rows]` pool index of each row's node; [`NONE`] for a dead row.
    pub nodes: Vec<u32>,
    /// `[rows]` who proposed each row.
    pub origins: Vec<Origin>,
    /// Columns of `ancestors`.
    pub levels: usize,
    /// Rows that are not dead, the root included.
    pub live: usize,
}

impl Layout {
    /// A layout with room for batches of `plan`.
    #[must_use]
    pub fn with_capacity(plan: &Plan) -> Self {
        let rows = plan.verified_rows() as usize;
        let levels = plan.depth as usize + 1;
        Self {
            tokens: Vec::with_capacity(rows),
            depths: Vec::with_capacity(rows),
            parents: Vec::with_capacity(rows),
            ancestors: Vec::with_capacity(rows.saturating_mul(levels)),
            nodes: Vec::with_capacity(rows),
            origins: Vec::with_capacity(rows),
            levels,
            live: 0,
        }
    }

    /// Rows of the batch, dead ones included.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The row of the child of `row` that carries `token`; dead rows are nobody's children.
    #[must_use]
    pub fn child(&self, row: u32, token: TokenId) -> Option<u32> {
        let rows = (0u32..).zip(self.parents.iter().zip(&self.tokens)).skip(1);
        rows.take(self.live.saturating_sub(1)).find(|&(_, (&p, &t))| (p, t) == (row, token)).map(|(at, _)| at)
    }

    /// The live rows as a [`Tree`].
    ///
    /// # Errors
    /// [`TreeError`] where the fields do not make a tree, which those of [`tree_layout`] do.
    pub fn tree(&self) -> Result<Tree, TreeError> {
        let live = self.parents.get(..self.live).unwrap_or(&self.parents);
        let (_, nodes) = live.split_first().ok_or(TreeError::Empty)?;
        Tree::from_parents(nodes)
    }

    /// The live rows as [`TreeRows`] with the root at position `base`.
    ///
    /// # Errors
    /// [`TreeError`], as [`TreeRows::new`].
    pub fn tree_rows(&self, base: Position) -> Result<TreeRows, TreeError> {
        let tokens = self.tokens.iter().take(self.live).copied().collect();
        TreeRows::new(self.tree()?, tokens, base)
    }

    fn push(&mut self, token: TokenId, depth: u32, parent: u32, node: u32, origin: Origin) {
        self.tokens.push(token);
        self.depths.push(depth);
        self.parents.push(parent);
        self.nodes.push(node);
        self.origins.push(origin);
    }
}

/// The nodes that are verified, in row order from row 1: at most the plan's number, closed under parents, parents
/// first, the greedy chain before all others.
pub fn tree_prune(pool: &Pool, selected: &mut Vec<u32>, keys: &mut Vec<u64>) {
    keys.clear();
    for (index, node) in (0u32..).zip(pool.nodes()).skip(1) {
        if node.has(ALIVE) {
            keys.push(node.order(index));
        }
    }
    let nodes = pool.plan().nodes as usize;
    if nodes < keys.len() {
        keys.select_nth_unstable(nodes);
        keys.truncate(nodes);
    }
    keys.sort_unstable();
    selected.clear();
    selected.extend(keys.iter().map(|key| (key & 0xffff) as u32));
}

/// Lays out the root and the `selected` nodes ([`tree_prune`]) as a batch of the plan's number of rows.
pub fn tree_layout(pool: &Pool, selected: &[u32], layout: &mut Layout) {
    let rows = pool.plan().verified_rows();
    let levels = pool.plan().depth as usize + 1;
    for list in [&mut layout.depths, &mut layout.parents, &mut layout.ancestors, &mut layout.nodes] {
        list.clear();
    }
    layout.tokens.clear();
    layout.origins.clear();
    layout.levels = levels;
    layout.push(pool.node(0).token, 0, NONE, 0, Origin::Target);
    for &index in selected.iter().take(rows as usize - 1) {
        let node = pool.node(index);
        let origin = match node.flags & (REFINED | LOOKUP) {
            0 => Origin::Drafted,
            REFINED => Origin::Refined,
            _ => Origin::Lookup,
        };
        let parent = (0u32..).zip(&layout.nodes).find(|&(_, &other)| other == node.parent);
        let parent = parent.map_or(NONE, |(row, _)| row);
        layout.push(node.token, node.depth, parent, index, origin);
    }
    layout.live = layout.tokens.len();
    while layout.tokens.len() < rows as usize {
        layout.push(TokenId(0), 0, NONE, NONE, Origin::Target);
    }
    for (row, (&parent, &depth)) in (0u32..).zip(layout.parents.iter().zip(&layout.depths)) {
        let start = layout.ancestors.len();
        layout.ancestors.resize(start + levels, row);
        if parent != NONE {
            let from = parent as usize * levels;
            layout.ancestors.copy_within(from..from + (depth as usize).min(levels), start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Outputs, Tables, Top};
    use super::*;

    /// A pool of the root's children 10 (−0.5), 11 (−1) and, below 10, 20 (−2 in all) and 21 (−0.75).
    fn pool(nodes: u32) -> Pool {
        let mut pool = Pool::new(Plan { nodes, ..Plan::tree(1, 2, 1, 2) }).unwrap();
        let mut outputs = Outputs::default();
        let top = |token, log_q| Top { token: TokenId(token), log_q };
        pool.reset(TokenId(9), 3);
        outputs.step_mut(0)[0].tops[..2].copy_from_slice(&[top(10, -0.5), top(11, -1.0)]);
        pool.grow(0, &outputs, &Tables::default());
        pool.rows(1, &outputs, &Tables::default());
        outputs.step_mut(1)[0].tops[..2].copy_from_slice(&[top(20, -1.5), top(21, -0.25)]);
        pool.grow(1, &outputs, &Tables::default());
        pool
    }

    fn selected(pool: &Pool) -> Vec<u32> {
        let (mut selected, mut keys) = (Vec::new(), Vec::new());
        tree_prune(pool, &mut selected, &mut keys);
        selected
    }

    #[test]
    fn the_chain_first_and_then_by_score() {
        assert_eq!(selected(&pool(6)), [1, 3, 4, 2], "all: chain 10, 20, then 21, then 11");
        assert_eq!(selected(&pool(3)), [1, 3, 4], "three");
        assert_eq!(selected(&pool(1)), [1], "one");
    }

    #[test]
    fn a_layout_by_hand() {
        let pool = pool(5);
        let mut layout = Layout::with_capacity(pool.plan());
        tree_layout(&pool, &selected(&pool), &mut layout);
        let tokens: Vec<u32> = layout.tokens.iter().map(|token| token.0).collect();
        assert_eq!(tokens, [9, 10, 20, 21, 11, 0], "tokens");
        assert_eq!(layout.depths, [0, 1, 2, 2, 1, 0], "depths");
        assert_eq!(layout.parents, [NONE, 0, 1, 1, 0, NONE], "parents");
        assert_eq!(layout.nodes, [0, 1, 3, 4, 2, NONE], "nodes");
        let ancestors = [[0, 0, 0], [0, 1, 1], [0, 1, 2], [0, 1, 3], [0, 4, 4], [5, 5, 5]];
        assert_eq!(layout.ancestors, ancestors.concat(), "ancestors");
        assert_eq!((layout.rows(), layout.live, layout.levels), (6, 5, 3), "sizes");
        assert_eq!(layout.child(1, TokenId(21)), Some(3), "a child");
        assert_eq!(layout.child(NONE, TokenId(0)), None, "dead rows are nobody's children");
        let rows = layout.tree_rows(Position(3)).unwrap();
        assert_eq!(rows.tree().depths(), &layout.depths[..5], "as a tree");
        assert_eq!(crate::ancestor_table(rows.tree()), layout.ancestors[..15], "the same table");
        let again = layout.clone();
        tree_layout(&pool, &selected(&pool), &mut layout);
        assert_eq!(layout, again, "reused");
    }

    #[test]
    fn origins_have_numbers() {
        for code in 0..4 {
            assert_eq!(Origin::from_code(code).map(Origin::code), Some(code), "there and back");
        }
        assert_eq!(Origin::from_code(4), None, "no such origin");
    }
}
