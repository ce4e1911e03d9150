//! Chat templates, rendered as Hugging Face renders them.

mod bounds;
mod clock;
mod json;

use crate::error::TokenizerError;
use crate::source::{SpecialField, special_text};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use redraft_gguf::Metadata;
use serde::{Deserialize, Serialize};
use std::io;
use thiserror::Error;

/// Longest accepted template; the longest in use are under 100 kB.
const MAX_SOURCE: usize = 1 << 20;
/// Longest text that a template may produce.
const MAX_OUTPUT: usize = 16 << 20;
/// Work allowed to any template, in the engine's units: about one for an instruction and for 64 bytes of data.
const BASE_FUEL: u64 = 1_000_000;
/// Nesting of loops, macros and inclusions; the engine's own bound is 500, which wasm stacks do not hold.
const MAX_DEPTH: usize = 200;
/// Values within one variable, in addition to what the messages hold.
const MAX_VALUES: usize = 20_000;
const NAME: &str = "chat_template";

/// A chat template could not be read or rendered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The file that carries the template is wrong.
    #[error("{0}")]
    Metadata(#[from] TokenizerError),
    /// The source is longer than any real template.
    #[error("tokenizer.chat_template: expected at most {limit} bytes, found {found}; the file is damaged")]
    TooLong {
        /// Upper limit in bytes.
        limit: usize,
        /// Length in bytes.
        found: usize,
    },
    /// The source is no valid template.
    #[error("tokenizer.chat_template: line {line}: {detail}; give another template, or a prompt without one")]
    Syntax {
        /// Line in the source, from 1; 0 when not known.
        line: usize,
        /// What is wrong.
        detail: String,
    },
    /// The template itself refused the messages by `raise_exception`.
    #[error("the chat template refuses these messages: {message}")]
    Raised {
        /// The template's words.
        message: String,
    },
    /// The template did not end in the work allowed to it.
    #[error(
        "the chat template was stopped after {fuel} units of work: it never ends, or makes far too much of {messages} messages"
    )]
    Endless {
        /// The allowance.
        fuel: u64,
        /// Number of messages rendered.
        messages: usize,
    },
    /// The template calls or includes itself too deeply.
    #[error("the chat template nests deeper than {limit} levels: it calls or includes itself without end")]
    Recursion {
        /// The allowance.
        limit: usize,
    },
    /// The text became too long.
    #[error("the chat template makes more than {limit} bytes of text; shorten the messages")]
    OutputTooLarge {
        /// The allowance in bytes.
        limit: usize,
    },
    /// Rendering failed.
    #[error(
        "tokenizer.chat_template: line {line}: {detail}; the template does not fit the messages or options"
    )]
    Render {
        /// Line in the source, from 1; 0 when not known.
        line: usize,
        /// What went wrong.
        detail: String,
    },
}

/// One turn of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Further fields that the template reads, such as `tool_calls` or `name`.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Message {
    /// A turn of any role.
    #[must_use]
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), extra: serde_json::Map::new() }
    }

    /// The instructions that stand before a conversation.
    #[must_use]
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A turn of the user.
    #[must_use]
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// A turn of the model.
    #[must_use]
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// What a template is given besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Whether the text ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Descriptions of tools, as JSON schemas; `none` in the template when there are none.
    pub tools: Vec<serde_json::Value>,
    /// Further variables, such as `enable_thinking`. They do not replace the ones named here.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// The time that `strftime_now` tells, in seconds since 1970 and read as UTC; the system's clock when absent.
    pub now: Option<i64>,
}

/// A chat template in the dialect of Jinja that Hugging Face uses.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the tokens that begin and end a sequence; empty when
    /// the model has none.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`] with the line, or [`TemplateError::TooLong`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE {
            return Err(TemplateError::TooLong { limit: MAX_SOURCE, found: source.len() });
        }
        let syntax = |error: &minijinja::Error| TemplateError::Syntax {
            line: error.line().unwrap_or(0),
            detail: describe(error),
        };
        let mut environment = Environment::new();
        let whitespace = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(whitespace.map_err(|error| syntax(&error))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_recursion_limit(MAX_DEPTH);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", json::tojson);
        environment.add_template_owned(NAME, bounds::rewrite(source)).map_err(|error| syntax(&error))?;
        Ok(Self { environment, source: source.to_owned(), bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Compiles the template that a GGUF file carries in `tokenizer.chat_template`; `Ok(None)` when there is none,
    /// as in base models.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`TemplateError::Metadata`] when the key or those of the special tokens are
    /// wrong.
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>, TemplateError> {
        let Some(source) = metadata.str("tokenizer.chat_template").map_err(TokenizerError::from)? else {
            return Ok(None);
        };
        let bos = special_text(metadata, SpecialField::Bos)?.unwrap_or_default();
        let eos = special_text(metadata, SpecialField::Eos)?.unwrap_or_default();
        Self::new(source, bos, eos).map(Some)
    }

    /// The source of the template.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a conversation, to be encoded with [`Special::Parse`](crate::Special::Parse).
    ///
    /// # Errors
    ///
    /// [`TemplateError::Raised`] when the template refuses the messages; [`TemplateError::Endless`],
    /// [`TemplateError::Recursion`] and [`TemplateError::OutputTooLarge`] when it passes its limits;
    /// [`TemplateError::Render`] for everything else.
    pub fn render(&self, messages: &[Message], options: RenderOptions) -> Result<String, TemplateError> {
        let fuel = allowance(messages, &options);
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        bounds::register(&mut environment, MAX_VALUES + 64 * messages.len());
        let now = options.now;
        environment.add_function("strftime_now", move |format: &str| clock::strftime(format, now));

        let context = self.context(messages, options);
        let mut output = Limited { text: Vec::new(), overflow: false };
        let template =
            environment.get_template(NAME).map_err(|error| render_error(&error, fuel, messages.len()))?;
        let result = template.render_captured_to(context, &mut output).map(|_| ());
        if output.overflow {
            return Err(TemplateError::OutputTooLarge { limit: MAX_OUTPUT });
        }
        result.map_err(|error| render_error(&error, fuel, messages.len()))?;
        String::from_utf8(output.text)
            .map_err(|error| TemplateError::Render { line: 0, detail: error.utf8_error().to_string() })
    }

    fn context(&self, messages: &[Message], options: RenderOptions) -> Value {
        let tools = (!options.tools.is_empty()).then_some(options.tools);
        let mut variables: Vec<(String, Value)> = vec![("documents".to_owned(), Value::from(()))];
        variables.extend(options.extra.into_iter().map(|(name, value)| (name, Value::from(Serde(value)))));
        variables.extend([
            ("messages".to_owned(), Value::from(Serde(messages))),
            ("tools".to_owned(), Value::from(Serde(tools))),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
            ("bos_token".to_owned(), Value::from(self.bos.as_str())),
            ("eos_token".to_owned(), Value::from(self.eos.as_str())),
        ]);
        Value::from_pairs(variables)
    }
}

/// Fuel that an honest template cannot use up: it grows with the conversation, and so does honest work.
fn allowance(messages: &[Message], options: &RenderOptions) -> u64 {
    let bytes = messages.iter().map(|message| message.content.len()).sum::<usize>();
    let items = messages.len() + options.tools.len();
    BASE_FUEL.saturating_add(bytes as u64).saturating_add(2_000 * items as u64)
}

/// An error that `raise_exception` makes; the type is what tells it from the engine's own.
#[derive(Debug, Error)]
#[error("{0}")]
struct Exception(String);

fn raise_exception(message: &Value) -> Result<Value, minijinja::Error> {
    let exception = Exception(message.to_string());
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(exception))
}

fn render_error(error: &minijinja::Error, fuel: u64, messages: usize) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(exception) = current.downcast_ref::<Exception>() {
            return TemplateError::Raised { message: exception.0.clone() };
        }
        if let Some(inner) = current.downcast_ref::<minijinja::Error>() {
            if inner.kind() == ErrorKind::OutOfFuel {
                return TemplateError::Endless { fuel, messages };
            }
            if inner.detail().is_some_and(|detail| detail.contains("recursion limit")) {
                return TemplateError::Recursion { limit: MAX_DEPTH };
            }
        }
        cause = current.source();
    }
    TemplateError::Render { line: error.line().unwrap_or(0), detail: describe(error) }
}

/// The engine's words without the place, which the error carries in a field.
fn describe(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// A text that refuses to grow beyond the limit.
struct Limited {
    text: Vec<u8>,
    overflow: bool,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len().saturating_add(bytes.len()) > MAX_OUTPUT {
            self.overflow = true;
            return Err(io::Error::other("text limit"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
