//! What one step computes.

use crate::ModelError;
use redraft_decode::TokenId;

/// Rows whose logits are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitRows {
    /// None: a prefill chunk that is not the last.
    None,
    /// The last row: plain decoding, and the last prefill chunk.
    Last,
    /// All rows: verification of a tree.
    All,
}

/// The rows of one step.
///
/// Row i has a token and a parent: an earlier row of this batch, or the last committed token. Its position is one
/// more than its parent's, and it attends to the committed tokens, its ancestors and itself. Its key and value go to
/// slot `committed + i`; a chain's slots are therefore its positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub(crate) committed: u32,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) parents: Option<Vec<Option<u32>>>,
    pub(crate) logits: LogitRows,
    pub(crate) captures: bool,
}

impl Batch {
    /// Tokens that follow each other after `committed` tokens that are in the KV cache.
    #[must_use]
    pub fn chain(committed: u32, tokens: &[TokenId], logits: LogitRows) -> Self {
        Self { committed, tokens: tokens.to_vec(), parents: None, logits, captures: false }
    }

    /// A tree after `committed` tokens: `parents[i]` is the row that row i follows, `None` for the last committed
    /// token. Logits of all rows.
    #[must_use]
    pub fn tree(committed: u32, tokens: &[TokenId], parents: &[Option<u32>]) -> Self {
        Self {
            committed,
            tokens: tokens.to_vec(),
            parents: Some(parents.to_vec()),
            logits: LogitRows::All,
            captures: false,
        }
    }

    /// The same, with the residual stream captured at the layers that the model was loaded for.
    #[must_use]
    pub fn with_captures(mut self) -> Self {
        self.captures = true;
        self
    }

    /// Tokens before the first row.
    #[must_use]
    pub fn committed(&self) -> u32 {
        self.committed
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    /// Depth of each row below the committed tokens, 0 for the first.
    pub(crate) fn depths(&self) -> Result<Vec<u32>, ModelError> {
        let rows = self.rows();
        let Some(parents) = &self.parents else {
            return Ok((0..rows).collect());
        };
        if parents.len() != self.tokens.len() {
            return Err(batch("number of parents", parents.len() as u64, format!("{rows}, one a token")));
        }
        let mut depths: Vec<u32> = Vec::with_capacity(parents.len());
        for (row, parent) in parents.iter().enumerate() {
            let depth = match parent {
                None => 0,
                Some(parent) => depths.get(*parent as usize).map(|depth| depth + 1).ok_or_else(|| {
                    batch("parent of a row", u64::from(*parent), format!("below {row}, its own number"))
                })?,
            };
            depths.push(depth);
        }
        Ok(depths)
    }

    /// Slot of each row's ancestor-or-self at each depth: `[rows][stride]`.
    pub(crate) fn slots(&self, depths: &[u32], stride: u32) -> Vec<u32> {
        let mut slots = self.ancestors(depths, stride);
        for slot in &mut slots {
            *slot += self.committed;
        }
        slots
    }

    /// Row of each row's ancestor-or-self at each depth: `[rows][stride]`, 0 below the row's own depth.
    pub(crate) fn ancestors(&self, depths: &[u32], stride: u32) -> Vec<u32> {
        let mut rows = vec![0u32; depths.len() * stride as usize];
        for row in 0..depths.len() {
            let mut at = Some(row);
            while let Some(ancestor) = at {
                let depth = depths.get(ancestor).copied().unwrap_or(0);
                if let Some(entry) = rows.get_mut(row * stride as usize + depth as usize) {
                    *entry = u32::try_from(ancestor).unwrap_or(0);
                }
                at = match &self.parents {
                    Some(parents) => parents.get(ancestor).copied().flatten().map(|p| p as usize),
                    None => ancestor.checked_sub(1),
                };
            }
        }
        rows
    }

    /// The tokens, in order of the rows.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }
}

pub(crate) fn batch(what: &'static str, found: u64, expected: String) -> ModelError {
    ModelError::Batch { what, found, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_name_ancestors() {
        // 0 ── 1 ── 3
        //  └── 2
        let batch = Batch::tree(10, &[TokenId(5); 4], &[None, Some(0), Some(0), Some(1)]);
        let depths = batch.depths().expect("a valid tree");
        assert_eq!(depths, [0, 1, 1, 2], "depths");
        let slots = batch.slots(&depths, 4);
        assert_eq!(slots[12..15], [10, 11, 13], "path of row 3");
        assert_eq!(slots[8..10], [10, 12], "path of row 2");
    }

    #[test]
    fn parents_come_first() {
        let batch = Batch::tree(0, &[TokenId(5); 2], &[Some(1), None]);
        let message = batch.depths().expect_err("a forward reference").to_string();
        assert!(message.contains("parent of a row"), "{message}");
    }
}
