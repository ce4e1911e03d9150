//! Draft trees to look at: as text, as JSON and as a picture.
//!
//! The renderers take the trace of a round and the text of each token and never fail, whatever the parents and numbers
//! in it are.

mod json;
mod svg;
mod text;

pub(crate) use self::json::{RoundReport, to_json};
pub(crate) use self::svg::to_svg;
pub(crate) use self::text::to_text;

use redraft::{Origin, RoundTrace, TokenId};

/// Gives the text of a token.
pub(crate) type Words<'a> = dyn Fn(TokenId) -> String + 'a;

/// What became of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Not verified.
    Pruned,
    /// Verified, and not what the target says.
    Rejected,
    /// What the target says.
    Accepted,
    /// What the target says, and proposed by a second pass alone.
    Rescued,
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Self::Pruned => "pruned",
            Self::Rejected => "rejected",
            Self::Accepted => "accepted",
            Self::Rescued => "rescued",
        }
    }
}

/// What became of each node.
fn fates(trace: &RoundTrace) -> Vec<Fate> {
    let mut fates: Vec<_> = trace
        .nodes
        .iter()
        .map(|node| if node.row.is_some() { Fate::Rejected } else { Fate::Pruned })
        .collect();
    for &index in &trace.accepted {
        if let (Some(fate), Some(node)) = (fates.get_mut(index), trace.nodes.get(index)) {
            *fate = if node.origin == Origin::Refined { Fate::Rescued } else { Fate::Accepted };
        }
    }
    fates
}

/// Drafted tokens that were accepted: the path without its root.
fn accepted(trace: &RoundTrace) -> usize {
    trace.accepted.len().saturating_sub(1)
}

/// The nodes below the root to show, in the order of a walk. Nodes that hang on nothing are left out.
fn walk(trace: &RoundTrace, shown: impl Fn(usize) -> bool) -> Vec<Visit> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); trace.nodes.len()];
    for (index, node) in trace.nodes.iter().enumerate().skip(1).filter(|(index, _)| shown(*index)) {
        if let Some(list) = node.parent.and_then(|parent| children.get_mut(parent)) {
            list.push(index);
        }
    }
    let score = |index: &usize| trace.nodes.get(*index).map_or(f32::NEG_INFINITY, |node| node.score);
    for list in &mut children {
        list.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
    }
    let mut order = Vec::new();
    let mut open: Vec<Visit> = Vec::new();
    let push = |of: usize, level: usize, open: &mut Vec<Visit>| {
        let list = children.get(of).map(Vec::as_slice).unwrap_or_default();
        for (place, &index) in list.iter().enumerate().rev() {
            open.push(Visit { index, level, last: place + 1 == list.len() });
        }
    };
    push(0, 0, &mut open);
    while let Some(visit) = open.pop() {
        order.push(visit);
        push(visit.index, visit.level + 1, &mut open);
    }
    order
}

/// A node met on a walk: its distance from the root (0 below it), and whether it is the last of its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Visit {
    index: usize,
    level: usize,
    last: bool,
}

/// Who proposed a node, as in the library's method: by a first pass, a second pass, or from the text so far.
fn pass(origin: Origin) -> &'static str {
    match origin {
        Origin::Target => "target",
        Origin::Drafted => "drafted",
        Origin::Refined => "refined",
        Origin::Lookup => "looked up",
    }
}

/// A token's text in quotes, with what cannot be seen written out.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use redraft::{Plan, TraceNode};

    use super::*;

    /// A root and six nodes by hand: a chain of two accepted ones of which the second is a rescue, rejected siblings, a
    /// looked-up one, and one that was pruned.
    pub(super) fn trace() -> RoundTrace {
        let node = |token, parent, depth, score, origin, row| TraceNode {
            token: TokenId(token),
            parent,
            depth,
            score,
            origin,
            unsure: None,
            reconsidered: false,
            row,
        };
        let mut nodes = vec![
            node(9, None, 0, 0.0, Origin::Target, Some(0)),
            node(10, Some(0), 1, -0.25, Origin::Drafted, Some(1)),
            node(11, Some(0), 1, -1.5, Origin::Drafted, Some(2)),
            node(12, Some(1), 2, -0.75, Origin::Drafted, Some(3)),
            node(13, Some(1), 2, -2.0, Origin::Refined, Some(4)),
            node(14, Some(2), 2, -3.0, Origin::Drafted, None),
            node(15, Some(0), 1, -1.0, Origin::Lookup, Some(5)),
        ];
        nodes[1].unsure = Some(0.625);
        nodes[1].reconsidered = true;
        RoundTrace { plan: Plan::default(), start: 7, nodes, accepted: vec![0, 1, 4] }
    }

    /// The text of tokens by their numbers; some need care.
    pub(super) fn words(token: TokenId) -> String {
        match token.0 {
            9 => " the".into(),
            10 => "<&\"'>".into(),
            11 => "\u{1b}[2J\n".into(),
            other => format!(" w{other}"),
        }
    }

    #[test]
    fn walks_go_down_before_they_go_on_and_best_first() {
        let trace = trace();
        let order = |all: bool| -> Vec<(usize, usize, bool)> {
            let walk = walk(&trace, |index| all || trace.nodes[index].row.is_some());
            walk.into_iter().map(|visit| (visit.index, visit.level, visit.last)).collect()
        };
        assert_eq!(order(false), [(1, 0, false), (3, 1, false), (4, 1, true), (6, 0, false), (2, 0, true)]);
        assert_eq!(order(true).last(), Some(&(5, 1, true)));
        let expected = [
            Fate::Accepted,
            Fate::Accepted,
            Fate::Rejected,
            Fate::Rejected,
            Fate::Rescued,
            Fate::Pruned,
            Fate::Rejected,
        ];
        assert_eq!(fates(&trace), expected);
        assert_eq!(accepted(&trace), 2);
    }

    #[test]
    fn nonsense_does_no_harm() {
        let mut odd = trace();
        odd.nodes[1].parent = Some(3);
        odd.nodes[2].parent = Some(99);
        odd.nodes[6].score = f32::NAN;
        odd.accepted = vec![99, 0];
        assert_eq!(walk(&odd, |_| true).len(), 1, "a ring and a node without a parent hang on nothing");
        let empty = RoundTrace { nodes: Vec::new(), accepted: Vec::new(), ..trace() };
        for trace in [odd, empty] {
            assert!(!to_text(1, &trace, &words, true, true).is_empty());
            assert!(!to_svg(std::slice::from_ref(&trace), &words).is_empty());
            assert!(!to_json(&[trace], &words).is_empty());
        }
    }
}
