//! Standard output carries results and nothing else; everything for human eyes goes to standard error.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::error::CliError;

/// Writes `text` to standard output at once, so that an answer is seen as it comes.
pub(crate) fn emit(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// Writes `value` as indented JSON and a line end to standard output.
pub(crate) fn emit_json(value: &impl Serialize) -> Result<(), CliError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| CliError::Output(e.into()))?;
    text.push('\n');
    emit(&text)
}

/// Writes one line for the user to standard error. A closed standard error is not worth stopping for.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a line that begins with a coloured word, as in `error: …`.
pub(crate) fn labelled(label: &str, style: Style, text: impl Display) {
    let style = if colour(&io::stderr()) { style } else { Style::new() };
    note(format_args!("{style}{label}:{style:#} {text}"));
}

/// Writes an error.
pub(crate) fn error(text: impl Display) {
    labelled("error", Style::new().bold().fg_color(Some(AnsiColor::Red.into())), text);
}

/// Writes a warning.
pub(crate) fn warning(text: impl Display) {
    labelled("warning", Style::new().bold().fg_color(Some(AnsiColor::Yellow.into())), text);
}

/// Whether colour is wanted on `stream`: a terminal, no `NO_COLOR`, and not a terminal that cannot show it.
pub(crate) fn colour(stream: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    stream.is_terminal() && !no_color && !dumb
}

/// `bytes` in the unit that reads best, as in "93.8 MiB".
pub(crate) fn bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// `text` for standard output. On a terminal control characters are shown, not obeyed: the text comes from a model or
/// a file and may carry escape sequences.
pub(crate) fn printable(text: &str, terminal: bool) -> Cow<'_, str> {
    let dangerous = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !terminal || !text.contains(dangerous) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if dangerous(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_reach_a_terminal_as_text() {
        assert_eq!(printable("a\x1b[2J\tb\n", true), "a\\u{1b}[2J\tb\n");
        assert_eq!(printable("a\x1b[2J", false), "a\x1b[2J");
        assert!(matches!(printable("é\n", true), Cow::Borrowed(_)));
    }
}
