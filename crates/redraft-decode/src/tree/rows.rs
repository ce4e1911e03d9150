//! A tree whose rows carry tokens.

use super::{Tree, TreeError};
use crate::{Position, TokenId};

/// A verification batch: the tree, the token of each row and the position of the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRows {
    tree: Tree,
    tokens: Vec<TokenId>,
    base: Position,
}

/// What a target's tokens accept of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Rows from the root down to the last accepted one. Never empty: the root is verified already.
    pub rows: Vec<u32>,
    /// The tokens that this round emits: those of the accepted rows behind the root, then the target's own token at
    /// the last accepted row. As many as `rows`.
    pub tokens: Vec<TokenId>,
}

impl TreeRows {
    /// A batch of `tree` whose row `r` holds `tokens[r]` at position `base + depth(r)`.
    ///
    /// # Errors
    /// [`TreeError::TokenCount`], [`TreeError::PositionOverflow`], or [`TreeError::DuplicateSibling`].
    pub fn new(tree: Tree, tokens: Vec<TokenId>, base: Position) -> Result<Self, TreeError> {
        if tokens.len() != tree.rows() {
            return Err(TreeError::TokenCount { rows: tree.rows(), tokens: tokens.len() });
        }
        let depth = tree.depths.iter().copied().max().unwrap_or(0);
        if base.forward(depth).is_none() {
            return Err(TreeError::PositionOverflow { base: base.0, depth });
        }
        let mut edges: Vec<(u32, TokenId, usize)> =
            tree.parents.iter().zip(&tokens).enumerate().skip(1).map(|(row, (&p, &t))| (p, t, row)).collect();
        edges.sort_unstable();
        for pair in edges.windows(2) {
            if let [(parent, token, first), (parent2, token2, second)] = *pair
                && (parent, token) == (parent2, token2)
            {
                return Err(TreeError::DuplicateSibling { parent, first, second, token });
            }
        }
        Ok(Self { tree, tokens, base })
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// `[rows]` token of each row.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// `[rows]` absolute position of each row's token.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.tree.depths.iter().map(|&depth| Position(self.base.0.saturating_add(depth)))
    }

    /// The tokens from the root down to `row`, both included; empty for a row outside the tree.
    #[must_use]
    pub fn path_tokens(&self, row: u32) -> Vec<TokenId> {
        self.tree.path(row).into_iter().filter_map(|step| self.tokens.get(step as usize).copied()).collect()
    }

    /// Walks from the root: the target's token at a row selects the child that carries it, or ends the walk.
    ///
    /// `target`: `[rows]` the token that the target draws behind each row.
    ///
    /// # Errors
    /// [`TreeError::TokenCount`] unless `target` has one token a row.
    pub fn accept(&self, target: &[TokenId]) -> Result<Accepted, TreeError> {
        if target.len() != self.tree.rows() {
            return Err(TreeError::TokenCount { rows: self.tree.rows(), tokens: target.len() });
        }
        let mut accepted = Accepted { rows: Vec::new(), tokens: Vec::new() };
        let mut next = Some(0u32);
        while let Some(row) = next {
            let Some(&token) = target.get(row as usize) else { break };
            accepted.rows.push(row);
            accepted.tokens.push(token);
            next = self.tree.children(row).find(|&child| self.tokens.get(child as usize) == Some(&token));
        }
        Ok(accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn batch() -> TreeRows {
        let tree = Tree::from_parents(&[0, 0, 1, 1, 2]).unwrap();
        TreeRows::new(tree, ids(&[9, 10, 11, 20, 21, 20]), Position(100)).unwrap()
    }

    #[test]
    fn positions_and_paths() {
        let rows = batch();
        let positions: Vec<u32> = rows.positions().map(|position| position.0).collect();
        assert_eq!(positions, [100, 101, 101, 102, 102, 102], "base and depth");
        assert_eq!(rows.path_tokens(5), ids(&[9, 11, 20]), "path");
    }

    #[test]
    fn the_walk_follows_the_target() {
        let rows = batch();
        let cases: [(&[u32], &[u32], &[u32]); 4] = [
            (&[10, 21, 0, 0, 7, 0], &[0, 1, 4], &[10, 21, 7]),
            (&[11, 0, 20, 0, 0, 8], &[0, 2, 5], &[11, 20, 8]),
            (&[12, 21, 20, 0, 0, 0], &[0], &[12]),
            (&[10, 5, 0, 0, 0, 0], &[0, 1], &[10, 5]),
        ];
        for (target, path, tokens) in cases {
            let got = rows.accept(&ids(target)).unwrap();
            assert_eq!(got, Accepted { rows: path.to_vec(), tokens: ids(tokens) }, "target {target:?}");
        }
    }

    #[test]
    fn bad_rows_are_errors() {
        let tree = Tree::from_parents(&[0, 0]).unwrap();
        let error = TreeRows::new(tree.clone(), ids(&[1]), Position(0)).unwrap_err();
        assert_eq!(error, TreeError::TokenCount { rows: 3, tokens: 1 }, "too few tokens");
        let error = TreeRows::new(tree.clone(), ids(&[1, 4, 4]), Position(0)).unwrap_err();
        let expected = TreeError::DuplicateSibling { parent: 0, first: 1, second: 2, token: TokenId(4) };
        assert_eq!(error, expected, "same token twice");
        let error = TreeRows::new(tree, ids(&[1, 4, 5]), Position(u32::MAX)).unwrap_err();
        assert_eq!(error, TreeError::PositionOverflow { base: u32::MAX, depth: 1 }, "beyond u32");
        assert!(batch().accept(&ids(&[1])).is_err(), "one target token a row");
    }
}
