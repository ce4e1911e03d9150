//! What the interactive command is made of: reading lines, `/commands`, settings, and the conversation itself. None of
//! it knows the engine; the conversation asks an [`Answerer`], so that tests can script one.

mod command;
mod conversation;
mod lines;
mod repl;
mod settings;

pub(crate) use self::conversation::{Answer, Answerer, Conversation};
pub(crate) use self::lines::{Lines, PlainLines, TerminalLines};
pub(crate) use self::repl::Repl;
pub(crate) use self::settings::Settings;
