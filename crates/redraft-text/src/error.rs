//! What can be wrong with a vocabulary and with what is asked of it.

use redraft_gguf::GgufError;
use thiserror::Error;

/// A tokenizer could not be built, or could not do what it was asked.
///
/// Errors of a GGUF file name the metadata key, those of a `tokenizer.json` the field.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A metadata value has the wrong type.
    #[error("{0}")]
    Metadata(#[from] GgufError),
    /// A part of the vocabulary is absent or empty.
    #[error(
        "{field}: expected {expected}, found nothing; the file carries no usable tokenizer, convert it again"
    )]
    Missing {
        /// Metadata key or JSON field.
        field: &'static str,
        /// What should be there.
        expected: &'static str,
    },
    /// A part names something that this crate does not implement.
    #[error("{field}: {found:?} is not supported; supported: {supported}")]
    Unsupported {
        /// Metadata key or JSON field.
        field: &'static str,
        /// What the file says.
        found: String,
        /// What would be understood, separated by commas.
        supported: &'static str,
    },
    /// Two lists that describe the same tokens differ in length.
    #[error("{field}: expected {expected} entries, one for each token, found {found}; the file is damaged")]
    Length {
        /// Metadata key.
        field: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Length of the list.
        found: usize,
    },
    /// The vocabulary is larger, or its ids are sparser, than any real one.
    #[error("{field}: expected at most {limit} token ids, found {found}; the file is damaged")]
    TooMany {
        /// Metadata key or JSON field.
        field: &'static str,
        /// Upper limit.
        limit: usize,
        /// What the file asks for.
        found: usize,
    },
    /// Two tokens have the same text.
    #[error(
        "{field}: expected every token once, found {token:?} as token {first} and again as token {second}; the file is damaged"
    )]
    Duplicate {
        /// Metadata key or JSON field.
        field: &'static str,
        /// The text.
        token: String,
        /// The smaller id.
        first: u32,
        /// The larger id.
        second: u32,
    },
    /// One entry of a list is not what the list holds.
    #[error("{field}: expected {expected}, found {found} at index {index}; the file is damaged")]
    Entry {
        /// Metadata key or JSON field.
        field: &'static str,
        /// Position in the list.
        index: usize,
        /// What an entry looks like.
        expected: &'static str,
        /// What this one is.
        found: String,
    },
    /// A special token's id lies outside the vocabulary.
    #[error("{field}: expected a token id below {len}, found {id}; the file is damaged")]
    SpecialOutOfRange {
        /// Metadata key or JSON field.
        field: &'static str,
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        len: usize,
    },
    /// A `tokenizer.json` cannot be read.
    #[error("tokenizer.json: {detail}; expected the format that the tokenizers library writes")]
    Json {
        /// What the reader said.
        detail: String,
    },
    /// A token id to be decoded lies outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {len} tokens; the ids come from another tokenizer")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        len: usize,
    },
    /// The vocabulary has no tokens for a piece of text.
    #[error(
        "the vocabulary has no token for {text:?}, nor the byte tokens to spell it; the model cannot read this text"
    )]
    Unencodable {
        /// The piece.
        text: String,
    },
    /// A text is too long to be one prompt.
    #[error("expected a text of at most {limit} bytes, found {found}; split it")]
    TextTooLong {
        /// Upper limit in bytes.
        limit: usize,
        /// Length in bytes.
        found: usize,
    },
    /// The tokenizers library refused a component.
    #[error("the {component} failed: {detail}")]
    Component {
        /// Which stage.
        component: &'static str,
        /// What the library said.
        detail: String,
    },
}

impl TokenizerError {
    /// Wraps an error of the tokenizers library, whose type is opaque.
    pub(crate) fn component(component: &'static str, error: &dyn std::fmt::Display) -> Self {
        Self::Component { component, detail: error.to_string() }
    }
}
