//! The penalty window: which tokens were seen lately, and how often.

use bytemuck::{Pod, Zeroable};

use super::MAX_PENALTY_WINDOW;
use crate::{TokenId, TreeRows};

/// One slot of a penalty window, newest token first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WindowEntry {
    /// The token at this slot; `u32::MAX` where the sequence is shorter than the window.
    pub id: u32,
    /// How often the token occurs in the whole window, given at its newest slot; 0 at its other slots and at empty
    /// ones.
    pub count: u32,
}

impl WindowEntry {
    /// A slot before the start of the sequence.
    pub const EMPTY: Self = Self { id: u32::MAX, count: 0 };
}

/// The window over the last `length` tokens of `history`: `[min(length, MAX_PENALTY_WINDOW)]` slots.
#[must_use]
pub fn window(history: &[TokenId], length: u32) -> Vec<WindowEntry> {
    let length = length.min(MAX_PENALTY_WINDOW) as usize;
    let mut slots: Vec<WindowEntry> =
        history.iter().rev().take(length).map(|token| WindowEntry { id: token.0, count: 0 }).collect();
    let mut newest: Vec<(u32, usize)> =
        slots.iter().enumerate().map(|(slot, entry)| (entry.id, slot)).collect();
    newest.sort_unstable();
    for run in newest.chunk_by(|a, b| a.0 == b.0) {
        if let Some(entry) = run.first().and_then(|&(_, slot)| slots.get_mut(slot)) {
            entry.count = u32::try_from(run.len()).unwrap_or(u32::MAX);
        }
    }
    slots.resize(length, WindowEntry::EMPTY);
    slots
}

/// The window of a tree's `row`: the last `length` tokens of the committed tokens followed by the row's own path.
///
/// `committed` are the tokens before the root, which itself is row 0 of `rows`.
#[must_use]
pub fn window_of_row(committed: &[TokenId], rows: &TreeRows, row: u32, length: u32) -> Vec<WindowEntry> {
    let path = rows.path_tokens(row);
    let keep = (length.min(MAX_PENALTY_WINDOW) as usize).saturating_sub(path.len());
    let mut history = committed.get(committed.len().saturating_sub(keep)..).unwrap_or_default().to_vec();
    history.extend(path);
    window(&history, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Position, Tree};

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn pairs(entries: &[WindowEntry]) -> Vec<(u32, u32)> {
        entries.iter().map(|entry| (entry.id, entry.count)).collect()
    }

    #[test]
    fn counts_stand_at_the_newest_slot() {
        let history = ids(&[9, 4, 5, 4, 6, 4]);
        assert_eq!(pairs(&window(&history, 5)), [(4, 3), (6, 1), (4, 0), (5, 1), (4, 0)], "the last five");
        let short = window(&history[..2], 4);
        assert_eq!(pairs(&short), [(4, 1), (9, 1), (u32::MAX, 0), (u32::MAX, 0)], "padded");
        assert!(window(&history, 0).is_empty(), "off");
        assert_eq!(window(&history, u32::MAX).len(), MAX_PENALTY_WINDOW as usize, "bounded");
    }

    #[test]
    fn rows_see_their_own_path_only() {
        let tree = Tree::from_parents(&[0, 0, 1]).unwrap();
        let rows = TreeRows::new(tree, ids(&[7, 1, 2, 7]), Position(3)).unwrap();
        let committed = ids(&[7, 8, 9]);
        assert_eq!(
            pairs(&window_of_row(&committed, &rows, 3, 4)),
            [(7, 2), (1, 1), (7, 0), (9, 1)],
            "path 0 1 3"
        );
        assert_eq!(pairs(&window_of_row(&committed, &rows, 2, 3)), [(2, 1), (7, 1), (9, 1)], "path 0 2");
        assert_eq!(pairs(&window_of_row(&committed, &rows, 3, 2)), [(7, 1), (1, 1)], "shorter than the path");
    }
}
