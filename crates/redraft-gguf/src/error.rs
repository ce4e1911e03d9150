//! What can be wrong with a source of bytes, with a file, and with the bytes of a tensor.

use crate::types::GgmlType;
use thiserror::Error;

/// A read through [`ReadAt`](crate::ReadAt) failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The range lies outside the source.
    #[error(
        "read of {length} bytes at {offset} passes the end of a source of {size} bytes; the file is cut short"
    )]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        length: u64,
        /// Bytes that the source has.
        size: u64,
    },
    /// The source itself failed. Sources outside this crate report through [`std::io::Error::other`].
    #[error("read of {length} bytes at {offset} failed: {source}")]
    Io {
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        length: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file could not be opened for reading.
    #[error("cannot open {path}: {source}; check that it exists, is a regular file and may be read")]
    Open {
        /// The path as it was given.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A file is not a GGUF file that this crate can use.
///
/// `field` always names the part of the file that is wrong: a metadata key, a tensor, or a part of the header.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The bytes could not be read.
    #[error("reading {field}: {source}")]
    Read {
        /// What was being read.
        field: String,
        /// Why it failed.
        source: ReadError,
    },
    /// The file does not begin with the four bytes of GGUF.
    #[error("magic: expected the bytes \"GGUF\", found {found:02x?}; this is not a GGUF file")]
    NotGguf {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The file is written in big-endian order.
    #[error(
        "version: the file is big-endian, only little-endian files are read; convert it on the writer's side"
    )]
    BigEndian,
    /// The version is none of those that are read.
    #[error("version: expected 2 or 3, found {found}; convert the model again with a current converter")]
    Version {
        /// The version that the file states.
        found: u32,
    },
    /// A length or count promises more bytes than the file has left.
    #[error(
        "{field} at byte {offset}: needs {needed} bytes, the file has {available} left; it is cut short or damaged"
    )]
    Truncated {
        /// What was being read.
        field: String,
        /// Where in the file.
        offset: u64,
        /// Bytes that the field needs, at least.
        needed: u64,
        /// Bytes from `offset` to the end of the file.
        available: u64,
    },
    /// A count or a length is past a limit of this reader.
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
    /// A value is not one that the field may have.
    #[error("{field}: expected {wanted}, found {found}")]
    Invalid {
        /// The metadata key, tensor or header field.
        field: String,
        /// What the field may hold.
        wanted: String,
        /// What it holds.
        found: String,
    },
    /// A name occurs twice.
    #[error("{field}: {name:?} occurs twice; names must be unique, the file is damaged")]
    Duplicate {
        /// "metadata key" or "tensor name".
        field: &'static str,
        /// The name.
        name: String,
    },
    /// A metadata value is of another type than the key calls for.
    #[error(
        "{key}: expected {wanted}, found {found}; the file's metadata is not what its architecture calls for"
    )]
    ValueType {
        /// The metadata key.
        key: String,
        /// The type that was asked for.
        wanted: &'static str,
        /// The type, or the value, that the file holds.
        found: String,
    },
    /// Two tensors share bytes.
    #[error("tensor {second:?} begins at byte {offset}, inside tensor {first:?}; the file is damaged")]
    Overlap {
        /// The tensor that lies first in the file.
        first: String,
        /// The tensor that begins inside it.
        second: String,
        /// Where `second` begins, in bytes from the start of the file.
        offset: u64,
    },
    /// A metadata key or tensor that the model needs is absent.
    #[error("{field}: missing; {hint}")]
    Missing {
        /// The key or the tensor's name.
        field: String,
        /// What the absence usually means.
        hint: &'static str,
    },
    /// A tensor has another shape than the metadata calls for.
    #[error("tensor {tensor:?}: expected dimensions {wanted:?} (columns first), found {found:?}")]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// Dimensions in GGUF order.
        wanted: Vec<u64>,
        /// Dimensions in GGUF order.
        found: Vec<u64>,
    },
    /// A needed tensor is of a type that cannot be repacked.
    #[error("tensor {tensor:?}: {source}")]
    TensorType {
        /// The tensor's name.
        tensor: String,
        /// Which type, and which ones are supported.
        source: PackError,
    },
    /// The model's architecture is not supported.
    #[error("general.architecture: {found:?} is not supported; supported are {supported}")]
    Architecture {
        /// What the file states.
        found: String,
        /// The supported names, comma-separated.
        supported: String,
    },
}

/// Tensor bytes cannot be dequantised or repacked.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackError {
    /// The type is known by name only.
    #[error("unsupported tensor type {kind}; supported are {supported}: use a file quantised to one of them")]
    Unsupported {
        /// The type of the tensor.
        kind: GgmlType,
        /// The supported types, comma-separated.
        supported: String,
    },
    /// A row does not divide into blocks.
    #[error("{kind} rows of {columns} weights: expected a positive multiple of {multiple}")]
    Columns {
        /// The type, or the GPU format, of the rows.
        kind: &'static str,
        /// Weights in a row.
        columns: usize,
        /// What they must be a multiple of.
        multiple: usize,
    },
    /// A buffer has another length than its shape calls for.
    #[error("{what}: expected {wanted} {unit} for {rows} rows of {columns} weights, found {found}")]
    Length {
        /// Which buffer.
        what: &'static str,
        /// The unit of `wanted` and `found`.
        unit: &'static str,
        /// Length called for.
        wanted: usize,
        /// Length found.
        found: usize,
        /// Rows of the matrix.
        rows: usize,
        /// Weights in a row.
        columns: usize,
    },
    /// The shape is so large that its size does not fit the address space.
    #[error(
        "{rows} rows of {columns} weights do not fit in memory on this machine; split the matrix by rows"
    )]
    TooLarge {
        /// Rows of the matrix.
        rows: usize,
        /// Weights in a row.
        columns: usize,
    },
    /// A scale has no equal in the GPU format.
    #[error(
        "row {row}, block {block}: the scale {scale} of {kind} gives a minimum that f16 cannot hold; expected a finite \
         scale of magnitude at most 8188: the file is damaged"
    )]
    Scale {
        /// The type of the tensor.
        kind: GgmlType,
        /// Row within the rows that were passed.
        row: usize,
        /// Block of 32 weights within the row.
        block: usize,
        /// The scale, as text (it may be infinite or not a number).
        scale: String,
    },
}
