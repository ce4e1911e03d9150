//! The prompt of one answer: the flags that give it, and its tokens.

use std::io::{IsTerminal, stdin};

use clap::Args;
use redraft::{Engine, Message, TokenId};

use crate::args::Ids;
use crate::error::CliError;
use crate::prompt;

/// Flags that give a prompt.
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// The prompt; without any of PROMPT, --prompt, --messages and --ids it is read from standard input
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt", "messages", "ids"])]
    pub(crate) text: Option<String>,
    /// The prompt
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["messages", "ids"])]
    pub(crate) prompt: Option<String>,
    /// A conversation: JSON list of {"role", "content"}; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ids", "raw", "system"])]
    pub(crate) messages: Option<String>,
    /// Token ids to continue, as in 1,2,3: no template and no tokenizer
    #[arg(long, value_name = "IDS", allow_hyphen_values = true, conflicts_with = "system")]
    pub(crate) ids: Option<Ids>,
    /// Continue the text as it is: no chat template
    #[arg(long, conflicts_with = "system")]
    pub(crate) raw: bool,
    /// System message
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
}

/// What to continue.
#[derive(Debug)]
pub(crate) enum Prompt {
    Ids(Vec<u32>),
    Raw(String),
    Chat(Vec<Message>),
}

impl PromptArgs {
    /// Reads the prompt.
    pub(crate) fn read(&self) -> Result<Prompt, CliError> {
        if let Some(Ids(ids)) = &self.ids {
            return Ok(Prompt::Ids(ids.clone()));
        }
        if let Some(file) = &self.messages {
            return Ok(Prompt::Chat(prompt::messages(file)?));
        }
        let text = match self.prompt.as_deref().or(self.text.as_deref()) {
            Some(text) if text != "-" => text.to_owned(),
            None if stdin().is_terminal() => {
                return Err(CliError::Usage(
                    "no prompt: give PROMPT, --prompt, --messages or --ids, or pipe text into standard input"
                        .into(),
                ));
            }
            _ => prompt::from_stdin()?,
        };
        if self.raw {
            return Ok(Prompt::Raw(text));
        }
        if text.trim().is_empty() {
            return Err(CliError::Usage(
            "the prompt is empty, which a chat template has no answer to; give some text, or --raw to begin from \
             nothing"
                .into(),
        ));
        }
        let system = self.system.iter().map(Message::system);
        Ok(Prompt::Chat(system.chain([Message::user(text)]).collect()))
    }
}

impl Prompt {
    /// Its tokens.
    pub(crate) fn encode(self, engine: &Engine) -> Result<Vec<TokenId>, CliError> {
        match self {
            Self::Ids(ids) => Ok(ids.into_iter().map(TokenId).collect()),
            Self::Raw(text) => Ok(engine.encode(&text)?),
            Self::Chat(messages) => Ok(engine.encode_chat(&messages)?),
        }
    }
}
