//! Text in and out of a language model: tokenizers, chat templates, streaming detokenisation, stop strings.
//!
//! A [`Tokenizer`] is built from the metadata of a GGUF file or from a `tokenizer.json`. A [`ChatTemplate`] turns
//! [`Message`]s into the text that the model was trained on, which is then encoded with [`Special::Parse`].
//! On the way back a [`Detokenizer`] turns ids into text in whole characters, and a [`StopMatcher`] ends that text
//! at the first stop string without ever showing a part of it.
//!
//! Vocabularies and templates come from files that anyone may have written. What is wrong with them is a typed
//! error that names the metadata key, the field or the line; templates run under limits of work, memory and depth.
//!
//! ```
//! use redraft_text::{ChatTemplate, Message, RenderOptions};
//!
//! let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}";
//! let template = ChatTemplate::new(source, "<s>", "</s>")?;
//! let text = template.render(&[Message::user("Hi")], RenderOptions::default())?;
//! assert_eq!(text, "<user>Hi</s>");
//! # Ok::<(), redraft_text::TemplateError>(())
//! ```

mod detokenizer;
mod error;
mod json;
mod piece;
mod pipeline;
mod pretokenizer;
mod sentence;
mod source;
mod stop;
mod template;
mod tokenizer;

pub use detokenizer::Detokenizer;
pub use error::TokenizerError;
pub use pipeline::Special;
pub use stop::{StopError, StopMatcher, StopOutput};
pub use template::{ChatTemplate, Message, RenderOptions, TemplateError};
pub use tokenizer::Tokenizer;
