//! Draft trees as a picture: depth from left to right, one line a node, rounds below each other.

use std::collections::HashMap;
use std::fmt::Write as _;

use redraft::RoundTrace;

use super::{Fate, Words, accepted, fates, pass, quoted, walk};
use crate::speculate::PlanReport;

/// Width of a depth, height of a line and of a box, and the margin, in pixels.
const COLUMN: usize = 190;
const LINE: usize = 26;
const BOX: usize = 20;
const MARGIN: usize = 16;
/// Characters of a token before it is cut.
const CHARACTERS: usize = 18;

const STYLE: &str = "text{font:12px ui-monospace,monospace;fill:#222}.title{font-weight:bold}\
rect{fill:#fff;stroke:#999}path{fill:none;stroke:#bbb}\
.accepted rect{fill:#d8f5dc;stroke:#1a7f37;stroke-width:2}.rescued rect{fill:#f3d9fa;stroke:#9c36b5;stroke-width:2}\
.refined rect{stroke-dasharray:4 2}.looked rect{stroke-dasharray:1 2}\
path.accepted,path.rescued{stroke:#1a7f37;stroke-width:2}";

/// The verified nodes of the rounds.
pub(crate) fn to_svg(traces: &[RoundTrace], words: &Words<'_>) -> String {
    let mut body = String::new();
    let (mut top, mut columns) = (MARGIN, 1);
    for (number, trace) in (1..).zip(traces) {
        let (lines, deepest) = draw(&mut body, number, trace, words, top);
        top += lines * LINE + MARGIN;
        columns = columns.max(deepest);
    }
    let (width, height) = (columns * COLUMN + 2 * MARGIN, top.max(MARGIN + LINE));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>Draft trees</title>\n<style>{STYLE}</style>\n\
         <rect x=\"0\" y=\"0\" width=\"{width}\" height=\"{height}\" style=\"stroke:none\"/>\n{body}</svg>\n"
    )
}

/// Draws a round from `top` on; returns its lines and columns.
fn draw(
    body: &mut String,
    number: usize,
    trace: &RoundTrace,
    words: &Words<'_>,
    top: usize,
) -> (usize, usize) {
    let fates = fates(trace);
    let plan = PlanReport::from(&trace.plan);
    let title = format!("round {number} after {} tokens: {} accepted ({plan})", trace.start, accepted(trace));
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
        top + BOX - 6,
        escaped(&title)
    );
    // A node stands in the line of its first child: each leaf begins a line.
    let walk = walk(trace, |index| fates.get(index).is_some_and(|fate| *fate != Fate::Pruned));
    let root_top = top + LINE;
    if let Some(root) = trace.nodes.first() {
        label(body, "root", MARGIN, root_top, &words(root.token), "the last token that was known");
    }
    let (mut line, mut level, mut columns) = (0, None, 1);
    let mut places: HashMap<usize, (usize, usize)> = HashMap::new();
    for visit in walk {
        let (Some(node), Some(&fate)) = (trace.nodes.get(visit.index), fates.get(visit.index)) else {
            continue;
        };
        if level.is_some_and(|before| visit.level <= before) {
            line += 1;
        }
        level = Some(visit.level);
        columns = columns.max(visit.level + 2);
        let (x, y) = (MARGIN + (visit.level + 1) * COLUMN, root_top + line * LINE);
        places.insert(visit.index, (x, y));
        let above = node.parent.and_then(|parent| places.get(&parent)).copied().unwrap_or((MARGIN, root_top));
        let (from_x, from_y, to_y) = (above.0 + COLUMN - 40, above.1 + BOX / 2, y + BOX / 2);
        let _ = writeln!(
            body,
            "<path class=\"{}\" d=\"M{from_x} {from_y}C{} {from_y} {} {to_y} {x} {to_y}\"/>",
            fate.name(),
            from_x + 20,
            x - 20
        );
        let class = format!("{} {}", fate.name(), pass(node.origin));
        let unsure = node.unsure.map_or_else(String::new, |unsure| format!(", unsure {unsure:.2}"));
        let again = if node.reconsidered { ", reconsidered" } else { "" };
        let row = node.row.map_or_else(String::new, |row| format!(", row {row}"));
        let hint = format!(
            "token {}, depth {}, score {:.3}, {}{row}, {}{unsure}{again}",
            node.token.0,
            node.depth,
            node.score,
            pass(node.origin),
            fate.name()
        );
        label(body, &class, x, y, &words(node.token), &hint);
    }
    (line + 2, columns)
}

/// A box with a token, and what a pointer over it tells.
fn label(body: &mut String, class: &str, x: usize, y: usize, token: &str, hint: &str) {
    let text = quoted(token);
    let text = match text.char_indices().nth(CHARACTERS) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    };
    let _ = writeln!(
        body,
        "<g class=\"{class}\"><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{BOX}\" rx=\"4\"/>\
         <text x=\"{}\" y=\"{}\">{}</text></g>",
        escaped(hint),
        COLUMN - 40,
        x + 6,
        y + BOX - 6,
        escaped(&text)
    );
}

/// Text for XML, in which some characters mean something and control characters may not stand at all.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{trace, words};
    use super::*;

    /// The tags of `svg`, checked to be closed in the order in which they were opened.
    fn tags(svg: &str) -> Vec<String> {
        let (mut open, mut all): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut rest = svg;
        while let Some((_, after)) = rest.split_once('<') {
            let (tag, behind) = after.split_once('>').expect("a tag ends");
            rest = behind;
            let name: String =
                tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closed in order");
            } else {
                assert_eq!(tag.matches('"').count() % 2, 0, "quotes of {tag}");
                all.push(name.clone());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        assert_eq!(open, Vec::<String>::new(), "all are closed");
        all
    }

    #[test]
    fn the_picture_is_well_formed_and_has_every_verified_node() {
        let svg = to_svg(&[trace(), trace()], &words);
        let tags = tags(&svg);
        let count = |name: &str| tags.iter().filter(|tag| *tag == name).count();
        assert_eq!((count("svg"), count("g"), count("path")), (1, 2 * (1 + 5), 2 * 5));
        for words in
            ["class=\"rescued refined\"", "class=\"accepted drafted\"", "looked up", "&lt;&amp;", " w13"]
        {
            assert!(svg.contains(words), "{words:?}");
        }
        assert!(!svg.contains("w14"), "pruned");
        assert!(svg.chars().all(|c| c == '\n' || !c.is_control()), "control characters");
        assert!(to_svg(&[], &words).contains("</svg>"), "nothing to show");
    }

    #[test]
    fn text_for_xml() {
        assert_eq!(escaped("a<b>&\"c\"\u{1}"), "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}");
    }
}
