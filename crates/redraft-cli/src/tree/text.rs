//! Draft trees as text.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use redraft::{Origin, RoundTrace, TraceNode};

use super::{Fate, Words, accepted, fates, pass, quoted, walk};
use crate::speculate::PlanReport;

/// Columns of tree and token before the numbers begin.
const WIDTH: usize = 44;

/// The tree of a round, the `number`th; with `all` also the nodes that were grown and not verified.
pub(crate) fn to_text(
    number: usize,
    trace: &RoundTrace,
    words: &Words<'_>,
    all: bool,
    colour: bool,
) -> String {
    let bold = if colour { Style::new().bold() } else { Style::new() };
    // Writing to a String cannot fail.
    let mut text = format!(
        "{bold}round {number}{bold:#} after {} tokens: {} accepted ({})\n",
        trace.start,
        accepted(trace),
        PlanReport::from(&trace.plan)
    );
    if let Some(root) = trace.nodes.first() {
        let _ = writeln!(text, "{}{}", quoted(&words(root.token)), notes(root));
    }
    let fates = fates(trace);
    let shown = |index: usize| all || fates.get(index).is_some_and(|fate| *fate != Fate::Pruned);
    // Of each level above whether more siblings follow.
    let mut lines: Vec<bool> = Vec::new();
    for visit in walk(trace, shown) {
        let (Some(node), Some(&fate)) = (trace.nodes.get(visit.index), fates.get(visit.index)) else {
            continue;
        };
        lines.truncate(visit.level);
        let mut branch: String = lines.iter().map(|more| if *more { "│  " } else { "   " }).collect();
        branch.push_str(if visit.last { "└─ " } else { "├─ " });
        lines.push(!visit.last);
        let token = quoted(&words(node.token));
        let used = branch.chars().count() + token.chars().count();
        let row = node.row.map_or_else(|| "-".to_owned(), |row| row.to_string());
        let notes = notes(node);
        let style = if colour { style(fate, node.origin) } else { Style::new() };
        let _ = writeln!(
            text,
            "{branch}{style}{token}{:pad$}  depth {:>2}  score {:>7.3}  {:<9}  row {row:>2}  {:<8}{style:#}{notes}",
            "",
            node.depth,
            node.score,
            pass(node.origin),
            fate.name(),
            pad = WIDTH.saturating_sub(used),
        );
    }
    let pruned = fates.iter().filter(|fate| **fate == Fate::Pruned).count();
    if pruned > 0 && !all {
        let _ = writeln!(text, "({pruned} more were grown and not verified)");
    }
    text
}

/// What the drafter thought of a node.
fn notes(node: &TraceNode) -> String {
    let unsure = node.unsure.map_or_else(String::new, |unsure| format!("  unsure {unsure:.2}"));
    unsure + if node.reconsidered { "  reconsidered" } else { "" }
}

/// How a node looks: by what became of it, and where that was nothing by who proposed it.
fn style(fate: Fate, origin: Origin) -> Style {
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    match (fate, origin) {
        (Fate::Rescued, _) => colour(AnsiColor::Magenta).bold(),
        (Fate::Accepted, _) => colour(AnsiColor::Green).bold(),
        (Fate::Pruned, _) => Style::new().dimmed(),
        (Fate::Rejected, Origin::Refined) => colour(AnsiColor::Cyan),
        (Fate::Rejected, Origin::Lookup) => colour(AnsiColor::Yellow),
        (Fate::Rejected, _) => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{trace, words};
    use super::*;

    #[test]
    fn a_tree_by_hand() {
        let text = to_text(3, &trace(), &words, false, false);
        let lines: Vec<_> = text.lines().collect();
        let title = "round 3 after 7 tokens: 2 accepted (reconsider, nodes 15, depth 5, width 4, reconsider 2 for 2 each \
                     by top1)";
        assert_eq!(lines[..2], [title, "\" the\""]);
        assert!(lines[2].starts_with("├─ \"<&\\\"'>\""), "{}", lines[2]);
        assert!(lines[2].contains("depth  1  score  -0.250  drafted    row  1  accepted"), "{}", lines[2]);
        assert!(lines[2].ends_with("unsure 0.62  reconsidered"), "{}", lines[2]);
        assert!(lines[3].starts_with("│  ├─ \" w12\"") && lines[3].contains("rejected"), "{}", lines[3]);
        assert!(lines[4].starts_with("│  └─ \" w13\"") && lines[4].contains("refined    row  4  rescued"));
        assert!(lines[5].starts_with("├─ \" w15\"") && lines[5].contains("looked up"));
        assert!(lines[6].starts_with("└─ \"\\u{1b}[2J\\n\""), "{}", lines[6]);
        assert_eq!(lines[7..], ["(1 more were grown and not verified)"]);
        assert!(!text.contains('\x1b'), "no colour, and no escape sequence of a token");
    }

    #[test]
    fn pruned_nodes_and_colour_on_request() {
        let text = to_text(1, &trace(), &words, true, true);
        assert!(text.contains("pruned") && !text.contains("more were grown"));
        assert!(text.contains("\x1b[1m\x1b[32m") && text.contains("\x1b[35m"), "{text:?}");
    }
}
