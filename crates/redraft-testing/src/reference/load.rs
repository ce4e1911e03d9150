//! What surrounds the arithmetic of the reference: its errors, and its weights out of a file.

use redraft_gguf::{Gguf, GgufError, PackError, dequantize};

use super::Matrix;

/// Why the reference cannot load a model or run rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The file is not a model that can be run.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tensor that the configuration calls for is not in the file.
    #[error("tensor {0}: missing; the file does not match its metadata")]
    Missing(String),
    /// A tensor's byte range is not inside the bytes given.
    #[error("tensor {name}: bytes {offset}..{offset}+{size} are not in the file of {file} bytes")]
    Range {
        /// Name of the tensor.
        name: String,
        /// First byte, from the start of the file.
        offset: u64,
        /// Number of bytes.
        size: u64,
        /// Length of the file.
        file: usize,
    },
    /// A tensor cannot be dequantised.
    #[error("tensor {name}: {source}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// What is wrong with it.
        source: PackError,
    },
    /// A tensor has another number of values than its use calls for.
    #[error("tensor {name}: expected {expected} values, found {found}")]
    Length {
        /// Name of the tensor.
        name: String,
        /// Values called for.
        expected: usize,
        /// Values in the file.
        found: usize,
    },
    /// A token id is outside the vocabulary.
    #[error("row {row}: token {token} is not below the vocabulary size {vocab}")]
    Token {
        /// Row of the call.
        row: usize,
        /// The token given.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A parent is not an earlier row, or the accepted rows are not a path.
    #[error("row {row}: its parent must be {expected}, found {found:?}")]
    Parent {
        /// Row of the call.
        row: usize,
        /// What was allowed.
        expected: String,
        /// What was given.
        found: Option<usize>,
    },
    /// A row of a drafter attends to a slot that no earlier step has filled.
    #[error("row {row}: slot {slot} is none of {first}..{slots}, the rows of earlier steps")]
    Slot {
        /// Row of the call.
        row: usize,
        /// The slot given.
        slot: usize,
        /// First slot of a step.
        first: usize,
        /// Slots in use.
        slots: usize,
    },
    /// Two slices that belong together differ in length.
    #[error("{tokens} tokens but {parents} parents: one parent a token")]
    Rows {
        /// Tokens given.
        tokens: usize,
        /// Parents given.
        parents: usize,
    },
}

/// Tensors of a file, dequantised on demand.
pub(super) struct Tensors<'a> {
    pub(super) gguf: &'a Gguf,
    pub(super) file: &'a [u8],
}

impl Tensors<'_> {
    pub(super) fn values(&self, name: &str, expected: usize) -> Result<Vec<f32>, ReferenceError> {
        let info = self.gguf.tensor(name).ok_or_else(|| ReferenceError::Missing(name.to_owned()))?;
        let length = info.dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
        let found = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        if found != expected {
            return Err(ReferenceError::Length { name: name.to_owned(), expected, found });
        }
        let start = usize::try_from(info.offset).ok();
        let size = usize::try_from(info.size).ok();
        let bytes = start.and_then(|start| self.file.get(start..)).and_then(|rest| rest.get(..size?));
        let bytes = bytes.ok_or_else(|| ReferenceError::Range {
            name: name.to_owned(),
            offset: info.offset,
            size: info.size,
            file: self.file.len(),
        })?;
        let mut values = vec![0.0; expected];
        let failed = |source| ReferenceError::Tensor { name: name.to_owned(), source };
        dequantize(info.kind, bytes, &mut values).map_err(failed)?;
        Ok(values)
    }

    pub(super) fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix, ReferenceError> {
        let values = self.values(name, rows.saturating_mul(columns))?;
        Ok(Matrix { columns, values })
    }
}
