//! Prompts to measure speculation with: a JSONL file, or a few that are built in.

use redraft::{Engine, Message, TokenId};
use serde::Deserialize;

use crate::error::CliError;
use crate::prompt;

/// What is asked where no file is given: prose, a list, code and arithmetic.
const BUILT_IN: [&str; 4] = [
    "Explain in a few sentences why the sky is blue.",
    "List ten animals that live in the sea, one on each line.",
    "Write a Python function that tells whether a word is a palindrome.",
    "A train leaves at 9:40 and arrives at 12:25. How long does it travel? Think step by step.",
];

/// A prompt and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prompt {
    /// File and line, unless it is built in.
    place: Option<(String, usize)>,
    messages: Vec<Message>,
    /// Without a chat template it may be continued as it is.
    plain: bool,
}

/// A line of the file. Further keys, such as a number or a reference answer, may stand beside these.
#[derive(Debug, Deserialize)]
struct Line {
    prompt: Option<String>,
    turns: Option<Vec<String>>,
    messages: Option<Vec<Message>>,
}

/// The built-in prompts.
pub(super) fn built_in() -> Vec<Prompt> {
    let prompt = |text: &&str| Prompt { place: None, messages: vec![Message::user(*text)], plain: true };
    BUILT_IN.iter().map(prompt).collect()
}

/// The first `limit` prompts of `file` (`-`: standard input).
pub(super) fn read(file: &str, limit: Option<usize>) -> Result<Vec<Prompt>, CliError> {
    let (text, from) = prompt::read_text(file)?;
    parse(&text, &from, limit.unwrap_or(usize::MAX))
}

fn parse(text: &str, from: &str, limit: usize) -> Result<Vec<Prompt>, CliError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let prompts = lines
        .take(limit)
        .map(|(line, text)| match messages(text) {
            Ok((messages, plain)) => Ok(Prompt { place: Some((from.to_owned(), line)), messages, plain }),
            Err(reason) => Err(CliError::Line { file: from.to_owned(), line, reason }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if prompts.is_empty() {
        let reason = "there are no prompts in it; expected JSON objects, one a line".to_owned();
        return Err(CliError::Line { file: from.to_owned(), line: 1, reason });
    }
    Ok(prompts)
}

/// What a line asks, and whether it is a plain text.
fn messages(text: &str) -> Result<(Vec<Message>, bool), String> {
    const EXPECTED: &str = "expected {\"prompt\": \"…\"}, {\"turns\": [\"…\"]} or {\"messages\": [{\"role\": \"user\", \
                            \"content\": \"…\"}]}";
    // Errors of serde count lines from the one that they were given.
    let line: Line = serde_json::from_str(text).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        format!("{reason} at column {}; {EXPECTED}", error.column())
    })?;
    let (messages, plain) = match line {
        Line { prompt: Some(text), turns: None, messages: None } => (vec![Message::user(text)], true),
        // Later turns would need the answers to those before.
        Line { prompt: None, turns: Some(turns), messages: None } => {
            (turns.into_iter().take(1).map(Message::user).collect(), true)
        }
        Line { prompt: None, turns: None, messages: Some(messages) } => (messages, false),
        _ => return Err(format!("it has none or several of the keys; {EXPECTED}")),
    };
    prompt::check_messages(&messages)?;
    Ok((messages, plain))
}

impl Prompt {
    /// Its tokens, which leave room for `room` more.
    pub(super) fn encode(&self, engine: &Engine, room: u32) -> Result<Vec<TokenId>, CliError> {
        let ids = match self.messages.first() {
            Some(only) if self.plain && engine.template().is_none() => engine.encode(&only.content),
            _ => engine.encode_chat(&self.messages),
        };
        let refused = |reason: String| match &self.place {
            Some((file, line)) => CliError::Line { file: file.clone(), line: *line, reason },
            None => CliError::Usage(format!("--speculate: the built-in prompts do not fit: {reason}")),
        };
        let ids = ids.map_err(|error| refused(error.to_string()))?;
        let needed = ids.len() as u64 + u64::from(room);
        if needed > u64::from(engine.context()) {
            return Err(refused(format!(
                "its {} tokens with {room} of an answer need a context of {needed}, there are {}; raise --context, \
                 lower --tokens, or leave the line out",
                ids.len(),
                engine.context()
            )));
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_read() {
        let text = "\u{feff}{\"prompt\": \"a\", \"id\": 1}\n\n{\"turns\": [\"b\", \"c\"], \"category\": \"x\"}\r\n\
                    {\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"d\"}]}";
        let prompts = parse(text, "f", usize::MAX).unwrap();
        let contents: Vec<Vec<_>> =
            prompts.iter().map(|p| p.messages.iter().map(|m| m.content.as_str()).collect()).collect();
        assert_eq!(contents, [vec!["a"], vec!["b"], vec!["s", "d"]]);
        assert_eq!(prompts[1].place, Some(("f".into(), 3)), "lines are counted with the empty ones");
        assert_eq!(parse(text, "f", 2).unwrap().len(), 2);
        // What is not wanted is not looked at.
        assert_eq!(parse("{\"prompt\": \"a\"}\nnonsense", "f", 1).unwrap().len(), 1);
        assert_eq!(built_in().len(), 4);
    }

    #[test]
    fn bad_lines_are_named() {
        for (bad, word) in [
            ("nonsense", "column"),
            ("3", "expected {"),
            ("null", "expected {"),
            ("{}", "none or several"),
            ("{\"prompt\": \"a\", \"turns\": [\"b\"]}", "none or several"),
            ("{\"prompt\": 3}", "expected {"),
            ("{\"prompt\": \" \"}", "empty"),
            ("{\"turns\": []}", "empty"),
            ("{\"turns\": \"a\"}", "expected {"),
            ("{\"messages\": []}", "empty"),
            ("{\"messages\": [{\"role\": \"\", \"content\": \"x\"}]}", "role"),
        ] {
            let error =
                parse(&format!("{{\"prompt\": \"a\"}}\n{bad}\n"), "p.jsonl", 9).expect_err(bad).to_string();
            assert!(error.starts_with("p.jsonl line 2: "), "{error}");
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        assert!(parse("\n \n", "f", 9).is_err());
    }
}
