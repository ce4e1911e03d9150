//! What can go wrong while a model is loaded or run.

use redraft_gguf::{GgufError, PackError, ReadError};
use redraft_gpu::GpuError;

/// An error of the model crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file is not a model that redraft can run.
    #[error(transparent)]
    File(#[from] GgufError),
    /// Reading the file failed.
    #[error("reading tensor {tensor}: {source}")]
    Read {
        /// The tensor.
        tensor: String,
        /// The cause.
        source: ReadError,
    },
    /// A tensor cannot be rewritten in a GPU format.
    #[error("tensor {tensor}: {source}")]
    Pack {
        /// The tensor.
        tensor: String,
        /// The cause.
        source: PackError,
    },
    /// The GPU layer failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The model has a shape that no kernel covers.
    #[error("{what} is {found}, but must be {expected}")]
    Shape {
        /// The property, by its metadata key where it has one.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What the kernels cover.
        expected: &'static str,
    },
    /// More memory is needed than allowed.
    #[error(
        "the model needs {needed} bytes of GPU memory ({plan}), the limit is {limit} bytes; choose a smaller context or model"
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        limit: u64,
        /// What they are for.
        plan: String,
    },
    /// Sampling parameters out of range.
    #[error("sampling: {0}")]
    Sampling(redraft_decode::SamplingError),
    /// A batch that does not fit the loaded model.
    #[error("{what} is {found}, but must be {expected}")]
    Batch {
        /// The property.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What is allowed.
        expected: String,
    },
}
