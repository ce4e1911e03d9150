//! Which drafted tokens the target confirms.
//!
//! Twin of `shaders/tree_accept.wgsl`.

use super::prune::{Layout, Origin};
use crate::{TokenId, TreeError};

/// Why a round ended the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stop {
    /// An end-of-sequence token was emitted.
    Eos = 1,
    /// The limit of tokens was reached.
    Limit = 2,
}

/// What a round emits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The row that each token was drawn from: the root and the accepted rows below it.
    pub path: Vec<u32>,
    /// The tokens emitted, as many as `path`; the last one is the next root.
    pub emitted: Vec<TokenId>,
    /// Who proposed each token emitted. The last one is the target's own, unless the answer ends with a drafted token.
    pub origins: Vec<Origin>,
    /// Why the answer ends here; `None` when it goes on.
    pub stop: Option<Stop>,
}

impl Accept {
    /// A: draft tokens accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.origins.iter().filter(|origin| **origin != Origin::Target).count()
    }
}

/// Walks from the root: the target's token at a row is emitted and selects the child that carries it.
///
/// - `target`: `[rows]` the target's own token behind each row.
/// - `eos`: the tokens that end an answer.
/// - `limit`: most tokens that this round may emit, at least 1; 0 never ends a round.
///
/// # Errors
/// [`TreeError::TokenCount`] unless `target` has one token a row.
pub fn tree_accept(
    layout: &Layout,
    target: &[TokenId],
    eos: &[TokenId],
    limit: u32,
) -> Result<Accept, TreeError> {
    if target.len() != layout.rows() {
        return Err(TreeError::TokenCount { rows: layout.rows(), tokens: target.len() });
    }
    let mut accept = Accept::default();
    let mut next = Some(0u32);
    while let Some(row) = next {
        let Some(&token) = target.get(row as usize) else { break };
        accept.path.push(row);
        accept.emitted.push(token);
        let child = layout.child(row, token);
        let drafted = child.and_then(|child| layout.origins.get(child as usize)).copied();
        accept.origins.push(drafted.unwrap_or(Origin::Target));
        accept.stop = if eos.contains(&token) {
            Some(Stop::Eos)
        } else if accept.emitted.len() == limit as usize {
            Some(Stop::Limit)
        } else {
            None
        };
        next = if accept.stop.is_some() { None } else { child };
    }
    Ok(accept)
}

#[cfg(test)]
mod tests {
    use super::super::NONE;
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    /// Root 9 with children 10 (drafted) and 11 (lookup); below 10: 20 (refined); one dead row.
    fn layout() -> Layout {
        Layout {
            tokens: ids(&[9, 10, 11, 20, 0]),
            depths: vec![0, 1, 1, 2, 0],
            parents: vec![NONE, 0, 0, 1, NONE],
            ancestors: Vec::new(),
            nodes: vec![0, 1, 2, 3, NONE],
            origins: vec![Origin::Target, Origin::Drafted, Origin::Lookup, Origin::Refined, Origin::Target],
            levels: 3,
            live: 4,
        }
    }

    #[test]
    fn walks_by_hand() {
        use Origin::{Drafted, Lookup, Refined, Target};
        type Case<'a> = (&'a [u32], u32, &'a [u32], &'a [u32], &'a [Origin], Option<Stop>);
        let cases: [Case<'_>; 8] = [
            (&[10, 20, 0, 7, 0], 9, &[0, 1, 3], &[10, 20, 7], &[Drafted, Refined, Target], None),
            (&[11, 0, 7, 0, 0], 9, &[0, 2], &[11, 7], &[Lookup, Target], None),
            (&[12, 20, 7, 0, 0], 9, &[0], &[12], &[Target], None),
            (&[0, 0, 0, 0, 0], 9, &[0], &[0], &[Target], None),
            (&[10, 20, 0, 7, 0], 2, &[0, 1], &[10, 20], &[Drafted, Refined], Some(Stop::Limit)),
            (&[10, 21, 0, 7, 0], 2, &[0, 1], &[10, 21], &[Drafted, Target], Some(Stop::Limit)),
            (&[10, 20, 0, 7, 0], 3, &[0, 1, 3], &[10, 20, 7], &[Drafted, Refined, Target], Some(Stop::Limit)),
            (&[10, 2, 0, 7, 0], 2, &[0, 1], &[10, 2], &[Drafted, Target], Some(Stop::Eos)),
        ];
        for (target, limit, path, emitted, origins, stop) in cases {
            let got = tree_accept(&layout(), &ids(target), &ids(&[2, 3]), limit).unwrap();
            let expected =
                Accept { path: path.to_vec(), emitted: ids(emitted), origins: origins.to_vec(), stop };
            assert_eq!(got, expected, "target {target:?}, limit {limit}");
            let own = usize::from(origins.last() == Some(&Target));
            assert_eq!(got.accepted() + own, emitted.len(), "the accepted ones and the target's own");
        }
        let got = tree_accept(&layout(), &ids(&[10, 20, 0, 7, 0]), &ids(&[20]), 9).unwrap();
        assert_eq!((got.path.as_slice(), got.stop), ([0, 1].as_slice(), Some(Stop::Eos)), "a drafted end");
        assert_eq!(
            (got.origins.as_slice(), got.accepted()),
            ([Drafted, Refined].as_slice(), 2),
            "is drafted"
        );
        assert!(tree_accept(&layout(), &ids(&[1]), &[], 1).is_err(), "one target token a row");
    }
}
