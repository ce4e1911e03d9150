//! Prompts and conversations as they come in: text, JSON files, standard input.

use std::fs::File;
use std::io::{self, Read};

use redraft::Message;

/// Longest prompt or conversation file in bytes. Far above any context; it stops `generate < /dev/zero`.
const LIMIT: u64 = 16 << 20;

/// Why a prompt cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PromptError {
    /// A file or standard input cannot be read.
    #[error("cannot read {from}: {source}")]
    Read {
        /// File name or "standard input".
        from: String,
        /// Why not.
        source: io::Error,
    },
    /// Too much of it.
    #[error("{from} is longer than {} MiB; that is no prompt", LIMIT >> 20)]
    TooLong {
        /// File name or "standard input".
        from: String,
    },
    /// Not text.
    #[error("{from} is not UTF-8 text (byte {position} and following)")]
    NotText {
        /// File name or "standard input".
        from: String,
        /// First bad byte.
        position: usize,
    },
    /// Not a conversation.
    #[error(
        "{from} is not a conversation: {reason}; expected [{{\"role\": \"user\", \"content\": \"…\"}}, …]"
    )]
    NotMessages {
        /// File name or "standard input".
        from: String,
        /// What is wrong, with line and column.
        reason: String,
    },
}

/// The whole of `file`, or of standard input if it is `-`, as text, and what to call it.
pub(crate) fn read_text(file: &str) -> Result<(String, String), PromptError> {
    let from = if file == "-" { "standard input".to_owned() } else { file.to_owned() };
    let read = |source: &mut dyn Read| {
        let mut bytes = Vec::new();
        source.take(LIMIT + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = if file == "-" {
        read(&mut io::stdin().lock())
    } else {
        File::open(file).and_then(|mut file| read(&mut file))
    };
    let bytes = bytes.map_err(|source| PromptError::Read { from: from.clone(), source })?;
    if bytes.len() as u64 > LIMIT {
        return Err(PromptError::TooLong { from });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, from)),
        Err(error) => Err(PromptError::NotText { from, position: error.utf8_error().valid_up_to() }),
    }
}

/// Standard input as a prompt. The line end that `echo` and editors add is not part of it.
pub(crate) fn from_stdin() -> Result<String, PromptError> {
    let (mut text, _) = read_text("-")?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The conversation in `file` (`-`: standard input).
pub(crate) fn messages(file: &str) -> Result<Vec<Message>, PromptError> {
    let (text, from) = read_text(file)?;
    parse_messages(&text).map_err(|reason| PromptError::NotMessages { from, reason })
}

fn parse_messages(text: &str) -> Result<Vec<Message>, String> {
    // Some editors begin files with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let messages: Vec<Message> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    check_messages(&messages)?;
    Ok(messages)
}

/// Whether there is something to answer, or why not.
pub(crate) fn check_messages(messages: &[Message]) -> Result<(), String> {
    if messages.is_empty() {
        return Err("it is empty".into());
    }
    if let Some(at) = messages.iter().position(|m| m.role.is_empty()) {
        return Err(format!("message {at} has an empty role"));
    }
    if messages.last().is_some_and(|last| last.role == "user" && last.content.trim().is_empty()) {
        return Err("its last message is empty: there is nothing to answer".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_read() {
        let read = parse_messages("\u{feff}[{\"role\":\"user\",\"content\":\"hé\"}]").unwrap();
        assert_eq!((read[0].role.as_str(), read[0].content.as_str()), ("user", "hé"));
    }

    #[test]
    fn what_is_not_a_conversation_is_refused_with_a_reason() {
        let deep = "[".repeat(100_000);
        for bad in [
            "",
            "null",
            "[]",
            "{}",
            "3",
            "[3]",
            "[null]",
            "[{}]",
            "[{\"role\":\"user\"}]",
            "[{\"content\":\"x\"}]",
            "[{\"role\":1,\"content\":\"x\"}]",
            "[{\"role\":\"user\",\"content\":null}]",
            "[{\"role\":\"user\",\"content\":[1]}]",
            "[{\"role\":\"\",\"content\":\"x\"}]",
            "[{\"role\":\"user\",\"content\":\" \\n\"}]",
            "[{\"role\":\"user\",\"content\":\"x\"}",
            "[{\"role\":\"user\",\"content\":\"\\ud800\"}]",
            &deep,
        ] {
            let reason = parse_messages(bad).expect_err(bad);
            assert!(!reason.is_empty());
        }
    }
}
