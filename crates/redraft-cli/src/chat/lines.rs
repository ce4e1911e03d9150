//! Reading messages: with line editing and history on a terminal, plainly otherwise.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};

use crate::error::CliError;

/// Longest line of plain input in bytes.
const LIMIT: u64 = 16 << 20;

/// What came instead of a message, or the message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D or the end of the input.
    End,
}

/// A source of lines.
pub(crate) trait Lines {
    /// The next line without its end. `continued`: it goes on with the message of the line before.
    fn line(&mut self, continued: bool) -> Result<Line, CliError>;
    /// Adds a whole message to the history.
    fn remember(&mut self, _message: &str) {}
}

/// The next message: a line, and those after it while they end with a backslash.
pub(super) fn read_message(lines: &mut dyn Lines) -> Result<Line, CliError> {
    let mut message = String::new();
    let mut continued = false;
    loop {
        match lines.line(continued)? {
            Line::Text(line) => {
                if continued {
                    message.push('\n');
                }
                match line.strip_suffix('\\') {
                    Some(line) => message.push_str(line),
                    None => {
                        message.push_str(&line);
                        break;
                    }
                }
                continued = true;
            }
            Line::End if continued => break,
            other => return Ok(other),
        }
    }
    lines.remember(&message);
    Ok(Line::Text(message))
}

/// Lines of something that is not a terminal.
#[derive(Debug)]
pub(crate) struct PlainLines<R>(pub(crate) R);

impl<R: BufRead> Lines for PlainLines<R> {
    fn line(&mut self, _continued: bool) -> Result<Line, CliError> {
        let mut bytes = Vec::new();
        (&mut self.0).take(LIMIT).read_until(b'\n', &mut bytes).map_err(CliError::Input)?;
        if bytes.is_empty() {
            return Ok(Line::End);
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() as u64 == LIMIT {
            return Err(CliError::Chat(format!(
                "a line is longer than {} MiB; that is no message",
                LIMIT >> 20
            )));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        String::from_utf8(bytes)
            .map(Line::Text)
            .map_err(|_| CliError::Chat("a line of standard input is not UTF-8 text".into()))
    }
}

/// Lines of a terminal.
pub(crate) struct TerminalLines {
    editor: Editor<(), DefaultHistory>,
    history: Option<PathBuf>,
    style: Style,
}

impl TerminalLines {
    /// An editor whose history is kept in `history`.
    pub(crate) fn new(history: Option<PathBuf>, colour: bool) -> Result<Self, CliError> {
        let config =
            Config::builder().max_history_size(1000).map_err(failed)?.auto_add_history(false).build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(())); // Without any helper the prompt is never styled.
        if let Some(file) = &history
            && let Err(error) = editor.load_history(file)
        {
            log::debug!("no history from {}: {error}", file.display());
        }
        let style = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
        Ok(Self { editor, history, style: if colour { style } else { Style::new() } })
    }
}

impl Lines for TerminalLines {
    fn line(&mut self, continued: bool) -> Result<Line, CliError> {
        let plain = if continued { ". " } else { "> " };
        let styled = format!("{}{plain}{:#}", self.style, self.style);
        match self.editor.readline(&(plain, styled.as_str())) {
            Ok(line) => Ok(Line::Text(line)),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(failed(error)),
        }
    }

    fn remember(&mut self, message: &str) {
        if message.trim().is_empty() {
            return;
        }
        let added = self.editor.add_history_entry(message);
        if let (Ok(true), Some(file)) = (added, &self.history) {
            let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            // Losing history is not worth a word in the middle of a conversation.
            if let Err(error) = folder.map_err(Into::into).and_then(|()| self.editor.append_history(file)) {
                log::debug!("cannot keep history in {}: {error}", file.display());
            }
        }
    }
}

fn failed(error: ReadlineError) -> CliError {
    CliError::Input(match error {
        ReadlineError::Io(error) => error,
        other => std::io::Error::other(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(input: &[u8]) -> Vec<Line> {
        let mut lines = PlainLines(input);
        let mut read = Vec::new();
        loop {
            match read_message(&mut lines).unwrap() {
                Line::End => return read,
                other => read.push(other),
            }
        }
    }

    fn text(text: &str) -> Line {
        Line::Text(text.into())
    }

    #[test]
    fn a_backslash_continues_a_message() {
        assert_eq!(messages(b"one\\\ntwo\\\nthree\nfour\n"), [text("one\ntwo\nthree"), text("four")]);
        assert_eq!(messages(b"one\\\n"), [text("one")]);
    }

    #[test]
    fn line_ends_of_every_kind_are_removed() {
        assert_eq!(messages(b"a\r\n\nb"), [text("a"), text(""), text("b")]);
        assert_eq!(messages(b""), []);
    }

    #[test]
    fn lines_that_are_not_text_are_refused() {
        assert!(read_message(&mut PlainLines(&b"\xff\n"[..])).is_err());
    }
}
