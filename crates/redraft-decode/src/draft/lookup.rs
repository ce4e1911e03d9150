//! Drafts without a drafter: what followed the last time the text ended like this.
//!
//! Twins of `shaders/lookup_scan.wgsl` and `shaders/lookup_grow.wgsl`.

use super::node::{ALIVE, LOOKUP, Node};
use super::pool::Pool;
use super::tables::Tables;
use crate::TokenId;

/// Least length of a match that is followed, in tokens.
pub const MIN_MATCH: u32 = 2;
/// Longest match that is told from longer ones, in tokens.
pub const MAX_MATCH: u32 = 16;

/// An earlier place where the text reads as it does at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the earlier token that equals the last one.
    pub at: u32,
    /// Tokens that are equal, up to and with that one; at most [`MAX_MATCH`].
    pub len: u32,
}

/// The longest match of the end of `ids`, the latest among the longest; `None` below `min_match` tokens.
#[must_use]
pub fn find_match(ids: &[TokenId], min_match: u32) -> Option<Match> {
    let (last, earlier) = ids.split_last()?;
    let mut best: Option<Match> = None;
    for (at, (end, id)) in (0u32..).zip((1..).zip(earlier)) {
        if id != last {
            continue;
        }
        let pairs = ids.iter().rev().zip(ids.get(..end).unwrap_or_default().iter().rev());
        let equal = pairs.take(MAX_MATCH as usize).take_while(|(a, b)| a == b);
        let len = (0..).zip(equal).fold(0, |_, (before, _)| before + 1);
        if len >= min_match.max(best.map_or(0, |best| best.len)) {
            best = Some(Match { at, len });
        }
    }
    best
}

/// Whether the end of `ids` with `last` behind it has a match of at least `min_match` tokens; [`find_match`] finds it.
#[must_use]
pub fn has_match(ids: &[TokenId], last: TokenId, min_match: u32) -> bool {
    let wanted = min_match.saturating_sub(1) as usize;
    let Some(tail) = ids.len().checked_sub(wanted).and_then(|first| ids.get(first..)) else { return false };
    // Where `last` stood before, the tokens before it must be those before it now.
    (0..).zip(ids).any(|(at, id): (usize, _)| {
        *id == last && at.checked_sub(wanted).and_then(|first| ids.get(first..at)) == Some(tail)
    })
}

/// Adds the tokens behind the longest match of at least `min_match` tokens to the tree, one below the other from the
/// root down to the depth of the plan. Runs once, behind the last [`Pool::grow`].
///
/// Where the tree has such a child already, the child is kept and only its score may rise. Behind the last token the
/// tokens since the match repeat. Does nothing unless the plan looks up.
///
/// - `ids`: the text so far, the root last.
///
/// Returns the match.
pub fn draft_lookup(pool: &mut Pool, ids: &[TokenId], tables: &Tables, min_match: u32) -> Option<Match> {
    if !pool.plan().lookup {
        return None;
    }
    let found = find_match(ids, min_match)?;
    let behind = ids.get(found.at as usize + 1..)?;
    let edge = tables.lookup(found.len);
    let (block, depth) = (pool.plan().lookup_block(), pool.plan().depth);
    let mut parent = 0;
    for (d, &token) in (1..=depth).zip(behind.iter().cycle()) {
        let score = pool.node(parent).score + edge;
        parent = if let Some(child) = pool.child(parent, token) {
            pool.raise(child, score);
            child
        } else {
            let index = block + d - 1;
            let node = Node { token, parent, depth: d, score, flags: ALIVE | LOOKUP, ..Node::DEAD };
            pool.set_node(index, node);
            index
        };
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::{NONE, Outputs, Plan, Top};
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn the_longest_and_then_the_latest_match() {
        let found = |text: &[u32], min| find_match(&ids(text), min).map(|found| (found.at, found.len));
        assert_eq!(found(&[], 1), None, "no text");
        assert_eq!(found(&[5], 1), None, "the root alone");
        assert_eq!(found(&[1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 2), Some((2, 3)), "longer beats later");
        assert_eq!(found(&[4, 2, 3, 9, 2, 3, 8, 1, 2, 3], 2), Some((5, 2)), "later beats earlier");
        assert_eq!(found(&[1, 9, 2, 9], 2), None, "too short");
        assert_eq!(found(&[1, 9, 2, 9], 1), Some((1, 1)), "short enough");
        assert_eq!(found(&[7; 4], 2), Some((2, 3)), "overlapping");
        assert_eq!(found(&[7; 40], 2), Some((38, 16)), "capped, so the latest wins");
    }

    #[test]
    fn that_there_is_a_match_is_known_without_finding_it() {
        let mut state = 7u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        let mut counts = [0, 0];
        for _ in 0..3000 {
            let length = next(12);
            let text: Vec<TokenId> = (0..length).map(|_| TokenId(next(3))).collect();
            let (last, min) = (TokenId(next(3)), 1 + next(4));
            let whole: Vec<_> = text.iter().copied().chain([last]).collect();
            let found = find_match(&whole, min).is_some();
            assert_eq!(has_match(&text, last, min), found, "{text:?} and {last:?}, {min} tokens");
            counts[usize::from(found)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 300), "both happen: {counts:?}");
    }

    #[test]
    fn the_continuation_repeats() {
        let mut pool = Pool::new(Plan::lookup(5)).unwrap();
        let text = ids(&[1, 2, 8, 9, 1, 2]);
        pool.reset(TokenId(2), 5);
        let found = draft_lookup(&mut pool, &text, &Tables::default(), MIN_MATCH);
        assert_eq!(found, Some(Match { at: 1, len: 2 }), "match");
        let tokens: Vec<u32> = pool.nodes().iter().map(|node| node.token.0).collect();
        assert_eq!(tokens, [2, 8, 9, 1, 2, 8], "cyclic");
        let edge = Tables::default().lookup_edge[2];
        for (index, node) in (0u8..).zip(pool.nodes()).skip(1) {
            assert_eq!((node.parent, node.depth), (u32::from(index) - 1, u32::from(index)), "a chain");
            assert!((node.score - edge * f32::from(index)).abs() < 1e-5, "score {}", node.score);
            assert_eq!((node.flags, node.source, node.row), (ALIVE | LOOKUP, NONE, NONE), "not evaluated");
        }
        pool.reset(TokenId(2), 5);
        assert_eq!(draft_lookup(&mut pool, &text, &Tables::default(), 3), None, "too short");
        assert!(pool.nodes().iter().skip(1).all(|node| node.flags == 0), "dead");
    }

    #[test]
    fn children_that_are_there_are_kept_and_raised() {
        let mut pool = Pool::new(Plan { lookup: true, ..Plan::tree(3, 2, 1, 2) }).unwrap();
        let mut outputs = Outputs::default();
        let top = |token, log_q| Top { token: TokenId(token), log_q };
        let tables = Tables::default();
        let text = ids(&[1, 2, 8, 9, 1, 2]);
        for (log_q, raised) in [(-5.0, tables.lookup_edge[2]), (-0.25, -0.25)] {
            pool.reset(TokenId(2), 5);
            outputs.step_mut(0)[0].tops[..2].copy_from_slice(&[top(4, -0.125), top(8, log_q)]);
            pool.grow(0, &outputs, &tables);
            draft_lookup(&mut pool, &text, &tables, MIN_MATCH);
            assert_eq!(pool.node(2).score, raised, "the larger score");
            assert_eq!(pool.node(2).flags, ALIVE, "still the drafter's");
            let [first, second] = [0, 1].map(|i| *pool.node(pool.plan().lookup_block() + i));
            assert_eq!(first.flags, 0, "the slot of depth 1 stays dead");
            assert_eq!((second.token, second.parent, second.depth), (TokenId(9), 2, 2), "goes on below it");
            assert_eq!(second.score, raised + tables.lookup_edge[2], "from the raised score");
        }
    }
}
