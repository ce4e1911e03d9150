//! The shape of a verification batch.
//!
//! Rows are numbered in batch order. Row 0 is the root (the last verified token); every other row names a parent that
//! stands before it. Plain decoding is the tree of one row, a prefill chunk or a chain of drafts is [`Tree::chain`].

mod rows;

pub use rows::{Accepted, TreeRows};

use crate::TokenId;

/// Most rows of a tree; bounds the ancestor table (rows × levels words) at 4 MiB.
pub const MAX_ROWS: usize = 1024;

/// Why a tree was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A tree has at least its root.
    #[error("a tree needs at least its root row; found 0 rows")]
    Empty,
    /// More rows than [`MAX_ROWS`].
    #[error("a tree has at most {MAX_ROWS} rows, found {rows}; cut the batch into chunks")]
    TooManyRows {
        /// Rows asked for.
        rows: usize,
    },
    /// A parent that does not stand before its child.
    #[error(
        "row {row} names parent {parent}; a parent must stand before its child, expected a row below {row}"
    )]
    ParentNotBefore {
        /// The row whose parent is wrong.
        row: usize,
        /// The parent it names.
        parent: u32,
    },
    /// Another number of tokens than rows.
    #[error("a tree of {rows} rows needs {rows} tokens, found {tokens}")]
    TokenCount {
        /// Rows of the tree.
        rows: usize,
        /// Tokens given.
        tokens: usize,
    },
    /// Two children of one row carry the same token, so that an accepted path would not be unique.
    #[error(
        "rows {first} and {second} are children of row {parent} and carry the same token {token}; merge them"
    )]
    DuplicateSibling {
        /// Their parent.
        parent: u32,
        /// The earlier child.
        first: usize,
        /// The later child.
        second: usize,
        /// The token of both.
        token: TokenId,
    },
    /// The deepest row has a position beyond `u32`.
    #[error("root position {base} plus depth {depth} exceeds the largest position")]
    PositionOverflow {
        /// Position of the root.
        base: u32,
        /// Depth of the deepest row.
        depth: u32,
    },
}

/// A rooted tree over batch rows, parents before children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// `[rows]` parent row of each row; the root holds 0, itself.
    parents: Vec<u32>,
    /// `[rows]` number of edges to the root.
    depths: Vec<u32>,
}

impl Tree {
    /// A tree from the parent rows of rows 1, 2, …; the root has none, so `node_parents[i]` is the parent of row
    /// `i + 1` and an empty slice is the tree of the root alone.
    ///
    /// # Errors
    /// [`TreeError::TooManyRows`], or [`TreeError::ParentNotBefore`] where a parent does not stand before its child.
    pub fn from_parents(node_parents: &[u32]) -> Result<Self, TreeError> {
        let rows = node_parents.len().saturating_add(1);
        check_rows(rows)?;
        let mut parents = Vec::with_capacity(rows);
        let mut depths: Vec<u32> = Vec::with_capacity(rows);
        parents.push(0);
        depths.push(0);
        for &parent in node_parents {
            let row = depths.len();
            let depth = usize::try_from(parent).ok().and_then(|index| depths.get(index));
            let Some(depth) = depth else { return Err(TreeError::ParentNotBefore { row, parent }) };
            depths.push(depth + 1);
            parents.push(parent);
        }
        Ok(Self { parents, depths })
    }

    /// The chain of `rows` rows, root included: row `i` is the child of row `i - 1`.
    ///
    /// # Errors
    /// [`TreeError::Empty`] or [`TreeError::TooManyRows`].
    pub fn chain(rows: usize) -> Result<Self, TreeError> {
        let nodes: Vec<u32> = (0..).take(check_rows(rows)? - 1).collect();
        Self::from_parents(&nodes)
    }

    /// A tree of `rows` rows, root included, whose shape is a pure function of `seed`. Made for tests: chains, bushes
    /// and mixtures all occur.
    ///
    /// # Errors
    /// [`TreeError::Empty`] or [`TreeError::TooManyRows`].
    pub fn random(seed: u64, rows: usize) -> Result<Self, TreeError> {
        let rows = check_rows(rows)?;
        let mut state = seed;
        // How far back a parent may lie decides between chain (1) and bush (all rows before).
        let reach = 1 + split_mix(&mut state) % (rows as u64);
        let mut nodes = Vec::with_capacity(rows);
        for row in (1u32..).take(rows - 1) {
            let back = 1 + split_mix(&mut state) % reach.min(u64::from(row));
            nodes.push(row.saturating_sub(u32::try_from(back).unwrap_or(row)));
        }
        Self::from_parents(&nodes)
    }

    /// Number of rows, root included.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.parents.len()
    }

    /// Number of levels: the largest depth plus one.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.depths.iter().max().map_or(0, |&depth| depth as usize + 1)
    }

    /// `[rows]` depth of each row; the root has 0.
    #[must_use]
    pub fn depths(&self) -> &[u32] {
        &self.depths
    }

    /// The parent of `row`; `None` for the root and for a row outside the tree.
    #[must_use]
    pub fn parent(&self, row: u32) -> Option<u32> {
        if row == 0 { None } else { self.parents.get(row as usize).copied() }
    }

    /// The children of `row`, in row order.
    pub fn children(&self, row: u32) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.parents).skip(1).filter(move |&(_, &parent)| parent == row).map(|(child, _)| child)
    }

    /// Whether `ancestor` lies on the way from `row` to the root, `row` itself included. `false` for rows outside.
    #[must_use]
    pub fn is_ancestor_or_self(&self, ancestor: u32, row: u32) -> bool {
        self.upward(row).any(|step| step == ancestor)
    }

    /// The rows from the root down to `row`, both included; empty for a row outside the tree.
    #[must_use]
    pub fn path(&self, row: u32) -> Vec<u32> {
        let mut path: Vec<u32> = self.upward(row).collect();
        path.reverse();
        path
    }

    /// The rows from `row` up to the root, both included; empty for a row outside the tree.
    pub fn upward(&self, row: u32) -> impl Iterator<Item = u32> + '_ {
        let start = ((row as usize) < self.rows()).then_some(row);
        std::iter::successors(start, |&step| self.parent(step))
    }
}

/// For each row, the row of its ancestor at each depth: `[rows][levels]`, row-major, `levels` as [`Tree::levels`].
///
/// Entry `[r][d]` is the ancestor of `r`, or `r` itself, at depth `d`. Behind a row's own depth the table repeats the
/// row, so that every entry is a valid row; kernels never use those.
#[must_use]
pub fn ancestor_table(tree: &Tree) -> Vec<u32> {
    let levels = tree.levels();
    let mut table = Vec::with_capacity(tree.rows() * levels);
    for row in (0u32..).take(tree.rows()) {
        let mut path = tree.path(row);
        path.resize(levels, row);
        table.extend(path);
    }
    table
}

fn check_rows(rows: usize) -> Result<usize, TreeError> {
    match rows {
        0 => Err(TreeError::Empty),
        rows if rows > MAX_ROWS => Err(TreeError::TooManyRows { rows }),
        rows => Ok(rows),
    }
}

/// One step of the `SplitMix64` generator, for [`Tree::random`].
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_tree_by_hand() {
        //      0
        //     / \
        //    1   2
        //   / \    \
        //  3   4    5
        let tree = Tree::from_parents(&[0, 0, 1, 1, 2]).unwrap();
        assert_eq!(tree.depths(), [0, 1, 1, 2, 2, 2], "depths");
        assert_eq!(tree.levels(), 3, "levels");
        assert_eq!(tree.path(4), [0, 1, 4], "path");
        assert!(tree.path(6).is_empty(), "no such row");
        assert_eq!(tree.children(1).collect::<Vec<_>>(), [3, 4], "children");
        assert_eq!(tree.children(0).collect::<Vec<_>>(), [1, 2], "the root is no child of its own");
        assert!(tree.is_ancestor_or_self(2, 5) && tree.is_ancestor_or_self(5, 5), "ancestors");
        assert!(!tree.is_ancestor_or_self(1, 5) && !tree.is_ancestor_or_self(0, 9), "strangers");
        let expected = [[0, 0, 0], [0, 1, 1], [0, 2, 2], [0, 1, 3], [0, 1, 4], [0, 2, 5]];
        assert_eq!(ancestor_table(&tree), expected.concat(), "table");
    }

    #[test]
    fn chains() {
        let chain = Tree::chain(4).unwrap();
        assert_eq!(chain.depths(), [0, 1, 2, 3], "a chain");
        assert_eq!(ancestor_table(&Tree::chain(1).unwrap()), [0], "plain decoding");
        assert_eq!(Tree::chain(MAX_ROWS).unwrap().levels(), MAX_ROWS, "the longest");
    }

    #[test]
    fn bad_trees_are_errors() {
        assert_eq!(Tree::chain(0), Err(TreeError::Empty), "no root");
        assert_eq!(Tree::random(1, MAX_ROWS + 1), Err(TreeError::TooManyRows { rows: 1025 }), "too many");
        assert_eq!(
            Tree::from_parents(&[0, 2]),
            Err(TreeError::ParentNotBefore { row: 2, parent: 2 }),
            "itself"
        );
        assert_eq!(Tree::from_parents(&[7]), Err(TreeError::ParentNotBefore { row: 1, parent: 7 }), "later");
        let many = vec![0; MAX_ROWS];
        assert_eq!(Tree::from_parents(&many), Err(TreeError::TooManyRows { rows: 1025 }), "too many");
    }

    #[test]
    fn random_trees_are_deterministic_valid_and_varied() {
        let mut levels = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let tree = Tree::random(seed, 12).unwrap();
            assert_eq!(tree, Tree::random(seed, 12).unwrap(), "seed {seed}");
            levels.insert(tree.levels());
            let table = ancestor_table(&tree);
            for row in 0..12u32 {
                let depth = tree.depths()[row as usize] as usize;
                let entries = &table[row as usize * tree.levels()..][..tree.levels()];
                assert_eq!(entries[depth], row, "own entry");
                for d in 1..=depth {
                    assert_eq!(tree.parent(entries[d]), Some(entries[d - 1]), "seed {seed} row {row}");
                }
                for other in 0..12 {
                    let listed = entries[..=depth].contains(&other);
                    assert_eq!(
                        tree.is_ancestor_or_self(other, row),
                        listed,
                        "seed {seed}: {other} over {row}"
                    );
                }
            }
        }
        assert!(levels.len() >= 5 && levels.contains(&12), "chains and bushes: {levels:?}");
    }
}
