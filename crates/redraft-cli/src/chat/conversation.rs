//! The conversation: its messages, and the policy for a full context.

use std::fs;

use redraft::{Message, StopReason};

use super::settings::Settings;
use crate::error::CliError;
use crate::prompt;

/// What answers: the engine, or a script in tests.
pub(crate) trait Answerer {
    /// Tokens that `messages` take in the context, with what introduces the answer.
    fn tokens(&self, messages: &[Message]) -> Result<u32, CliError>;
    /// Tokens that the context holds.
    fn context(&self) -> u32;
    /// Answers `messages`, showing the text as it comes.
    fn answer(
        &mut self,
        messages: &[Message],
        settings: &Settings,
        show: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<Answer, CliError>;
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) stop: StopReason,
    /// What there is to tell of its speed.
    pub(crate) summary: String,
}

/// The messages so far, the system message (if any) first.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
}

impl Conversation {
    pub(crate) fn new(system: Option<&str>) -> Self {
        let mut conversation = Self::default();
        conversation.set_system(system.unwrap_or_default());
        conversation
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The system message.
    pub(super) fn system(&self) -> Option<&str> {
        self.messages.first().filter(|m| m.role == "system").map(|m| m.content.as_str())
    }

    /// Replaces the system message; an empty one removes it.
    pub(super) fn set_system(&mut self, text: &str) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        if !text.is_empty() {
            self.messages.insert(0, Message::system(text));
        }
    }

    /// Forgets everything but the system message.
    pub(super) fn reset(&mut self) {
        self.messages.truncate(self.first_turn());
    }

    fn first_turn(&self) -> usize {
        usize::from(self.system().is_some())
    }

    /// Asks `text` and records the answer. If there is no answer the question is forgotten too.
    pub(super) fn ask(
        &mut self,
        text: &str,
        answerer: &mut dyn Answerer,
        settings: &Settings,
        show: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<Asked, CliError> {
        self.messages.push(Message::user(text));
        let asked = self.answer(answerer, settings, show);
        if self.messages.last().is_some_and(|m| m.role == "user") {
            self.messages.pop();
        }
        asked
    }

    /// Takes back the last answer and the question before it, which is returned.
    pub(super) fn take_back(&mut self) -> Option<String> {
        let last = self.messages.iter().rposition(|m| m.role == "user")?;
        let question = self.messages.get(last)?.content.clone();
        self.messages.truncate(last);
        Some(question)
    }

    fn answer(
        &mut self,
        answerer: &mut dyn Answerer,
        settings: &Settings,
        show: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<Asked, CliError> {
        let dropped = self.fit(answerer, settings.max_tokens)?;
        let answer = answerer.answer(&self.messages, settings, show)?;
        if !answer.text.is_empty() || answer.stop != StopReason::Cancelled {
            self.messages.push(Message::assistant(answer.text.as_str()));
        }
        Ok(Asked { answer, dropped })
    }

    /// Drops the oldest turns, whole, until the conversation leaves room for an answer: `max_tokens`, but never more
    /// than a quarter of the context. The system message and the last question stay. Returns how many turns went.
    fn fit(&mut self, answerer: &dyn Answerer, max_tokens: u32) -> Result<u32, CliError> {
        let context = answerer.context();
        let room = max_tokens.min(context / 4).max(1);
        let mut dropped = 0;
        loop {
            let used = answerer.tokens(&self.messages)?;
            if used.saturating_add(room) <= context {
                return Ok(dropped);
            }
            let start = self.first_turn();
            let turns = self.messages.get(start..).unwrap_or_default();
            match turns.iter().skip(1).position(|m| m.role == "user") {
                Some(next) => {
                    self.messages.drain(start..=start + next);
                    dropped += 1;
                }
                None if used < context => return Ok(dropped),
                None => {
                    return Err(CliError::Chat(format!(
                        "this message takes {used} tokens with the system message, the context holds {context}; \
                         shorten it or start again with a larger --context"
                    )));
                }
            }
        }
    }

    /// Writes the messages as JSON, the form that `generate --messages` reads.
    pub(super) fn save(&self, file: &str) -> Result<(), CliError> {
        let failed = |source| CliError::File { action: "write", path: file.into(), source };
        let mut text = serde_json::to_string_pretty(&self.messages).map_err(|e| failed(e.into()))?;
        text.push('\n');
        fs::write(file, text).map_err(failed)
    }

    /// Replaces the messages by those of `file`.
    pub(super) fn load(&mut self, file: &str) -> Result<(), CliError> {
        self.messages = prompt::messages(file)?;
        Ok(())
    }
}

/// An answer and what had to go for it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) answer: Answer,
    /// Turns that were dropped because the context was full.
    pub(super) dropped: u32,
}
