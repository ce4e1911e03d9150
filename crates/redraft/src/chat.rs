//! A conversation.

use crate::{Engine, Error, GenerateOptions, Generation, Message, StopReason, TokenStream};

/// The turns of a conversation. The engine reuses the keys and values of what it has seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chat {
    messages: Vec<Message>,
}

impl Chat {
    /// A conversation with an optional system message; without one the template may insert its own.
    #[must_use]
    pub fn new(system: Option<String>) -> Self {
        Self { messages: system.map(Message::system).into_iter().collect() }
    }

    /// A conversation that goes on from these messages.
    #[must_use]
    pub fn from_messages(messages: Vec<Message>) -> Self {
        Self { messages }
    }

    /// All messages so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds a message of the user.
    pub fn push_user(&mut self, content: impl Into<String>) {
        self.messages.push(Message::user(content));
    }

    /// Streams the model's answer to the last message. Give the finished [`Generation`] to [`Chat::record`].
    ///
    /// # Errors
    /// As [`Engine::encode_chat`] and [`Engine::generate`].
    pub fn stream<'e>(
        &self,
        engine: &'e mut Engine,
        options: GenerateOptions,
    ) -> Result<TokenStream<'e>, Error> {
        let prompt = engine.encode_chat(&self.messages)?;
        engine.generate(&prompt, options)
    }

    /// Adds the model's answer. An answer that was cancelled before its first token is not added, and the message it
    /// would have answered is taken back.
    pub fn record(&mut self, generation: &Generation) {
        if generation.ids.is_empty() && generation.stop_reason == StopReason::Cancelled {
            self.pop_user();
        } else {
            self.messages.push(Message::assistant(generation.text.clone()));
        }
    }

    /// Takes the last message back if it is the user's.
    pub fn pop_user(&mut self) -> Option<Message> {
        self.messages.pop_if(|message| message.role == "user")
    }

    /// Takes the last answer back, so that the message before it can be answered again.
    pub fn pop_answer(&mut self) -> Option<Message> {
        self.messages.pop_if(|message| message.role == "assistant")
    }

    /// Forgets the oldest turn: what comes after the system message up to the second message of the user. Returns
    /// whether there was one to forget.
    pub fn forget_oldest_turn(&mut self) -> bool {
        let start = usize::from(self.messages.first().is_some_and(|m| m.role == "system"));
        let next = self.messages.iter().skip(start + 1).position(|m| m.role == "user");
        match next {
            Some(length) => {
                self.messages.drain(start..=start + length);
                true
            }
            None => false,
        }
    }
}
