//! What can be wrong with a drafter file, and between it and a target.

use redraft_gguf::{GgufError, PackError, QuantizeError};
use safetensors::SafeTensorError;
use thiserror::Error;

/// A file is not a drafter that can be used, or not one for this target.
///
/// The part that is wrong is always named: a tensor, a key of the configuration, or a field of the target.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrafterError {
    /// The container is damaged.
    #[error("safetensors header: {source}; the file is cut short, damaged or not a safetensors file")]
    Container {
        /// What the header does not satisfy.
        source: SafeTensorError,
    },
    /// A text that must be JSON is not.
    #[error("{field}: not valid JSON: {source}")]
    Json {
        /// Which text.
        field: &'static str,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
    /// Something that the drafter needs is absent.
    #[error("{field}: missing; {hint}")]
    Missing {
        /// The key or the tensor.
        field: String,
        /// What the absence usually means.
        hint: &'static str,
    },
    /// A value is not one that the field may have.
    #[error("{field}: expected {wanted}, found {found}")]
    Invalid {
        /// The key, or what is wrong about a tensor.
        field: String,
        /// What it may hold.
        wanted: String,
        /// What it holds.
        found: String,
    },
    /// A number is past a limit of this reader.
    #[error(
        "{field}: {found} is over the limit of {limit}; the file is damaged or not meant for this reader"
    )]
    Limit {
        /// What is too large.
        field: String,
        /// The value found.
        found: u64,
        /// The largest value accepted.
        limit: u64,
    },
    /// A tensor has another shape than the configuration calls for.
    #[error("tensor {tensor:?}: expected shape {wanted:?}, found {found:?}")]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// Dimensions in the order of the file, rows first.
        wanted: Vec<u64>,
        /// Dimensions in the order of the file, rows first.
        found: Vec<u64>,
    },
    /// A tensor is of a type that it may not have.
    #[error("tensor {tensor:?}: expected type {wanted}, found {found}")]
    Type {
        /// The tensor's name.
        tensor: String,
        /// The types that it may have.
        wanted: String,
        /// The type that it has.
        found: String,
    },
    /// A weight is infinite or not a number.
    #[error("tensor {tensor:?}: element {index} is {value}; all weights must be finite, the file is damaged")]
    NotFinite {
        /// The tensor's name.
        tensor: String,
        /// Index of the element, row-major.
        index: usize,
        /// Its value, as text.
        value: String,
    },
    /// A tensor has no part in the forward pass.
    #[error(
        "tensor {tensor:?}: its part in a drafter is not implemented; leaving it out would change the results in silence"
    )]
    Unknown {
        /// The tensor's name.
        tensor: String,
    },
    /// The drafter was trained for another target.
    #[error(
        "target {field}: the drafter is for {expected}, this model has {found}; use the drafter of this model"
    )]
    Target {
        /// The field of [`TargetFingerprint`](crate::TargetFingerprint).
        field: &'static str,
        /// What the drafter was trained for.
        expected: String,
        /// What the model has.
        found: String,
    },
    /// A tensor cannot be rewritten in the type asked for.
    #[error("tensor {tensor:?}: {source}")]
    Quantize {
        /// The tensor's name.
        tensor: String,
        /// Which value, and why.
        source: QuantizeError,
    },
    /// Another engine's format has no place for a part without which results would differ.
    #[error("{format} cannot hold {what}; {hint}")]
    Unrepresentable {
        /// The format.
        format: &'static str,
        /// The part.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// The blocks of a tensor cannot be read.
    #[error("tensor {tensor:?}: {source}")]
    Blocks {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with them.
        source: PackError,
    },
    /// A model file is not one that a fingerprint can be taken of.
    #[error("target: {source}")]
    Gguf {
        /// What is wrong with it.
        #[from]
        source: GgufError,
    },
}

impl DrafterError {
    pub(crate) fn invalid(field: impl Into<String>, wanted: impl Into<String>, found: impl ToString) -> Self {
        Self::Invalid { field: field.into(), wanted: wanted.into(), found: found.to_string() }
    }
}

/// What is suspicious about a drafter and a target, and no reason to refuse them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The drafter was trained on another quantisation of the target.
    Quantization {
        /// What it was trained on.
        expected: String,
        /// What the model has.
        found: String,
    },
    /// The file does not say which target it is for; only sizes could be compared.
    NoFingerprint,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quantization { expected, found } => write!(
                f,
                "the drafter was trained on the {expected} weights of this model, these are {found}: fewer drafts may be \
                 accepted"
            ),
            Self::NoFingerprint => write!(
                f,
                "the drafter does not say which model it is for; its sizes fit this one, but a wrong pair accepts no drafts"
            ),
        }
    }
}
