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
    /// Kernels in f16 were asked for on a device that was opened without f16.
    #[error(
        "the kernels {path} need shader-f16, which the device was opened without; open it with `GpuOptions::f16`, or load the model with precision f32"
    )]
    NoF16 {
        /// The kernel family.
        path: &'static str,
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
    /// The drafter's file cannot be used.
    #[error("drafter: {0}")]
    Drafter(#[from] redraft_drafter::DrafterError),
    /// The drafter has another shape than its target.
    #[error("the drafter's {what} is {found}, but the target's is {expected}; it was made for another model")]
    DrafterShape {
        /// The property.
        what: &'static str,
        /// The drafter's.
        found: u64,
        /// The target's.
        expected: u64,
    },
    /// The drafter reads other layers than those that the model captures.
    #[error(
        "the drafter reads the inputs of layers {expected:?}, but the model was loaded to capture {found:?}"
    )]
    DrafterCaptures {
        /// What it reads.
        expected: Vec<u32>,
        /// What is captured.
        found: Vec<u32>,
    },
    /// A plan drafts, but nothing is there to draft.
    #[error("the plan needs a drafter and none is loaded; give one, or choose lookup or off")]
    NoDrafter,
    /// The gate reads a table that the drafter does not have.
    #[error(
        "the calibrated gate reads a table of gains, and this drafter's file has none; choose top1 or entropy"
    )]
    NoGains,
    /// A plan that the kernels cannot run.
    #[error("speculation: {0}")]
    Plan(#[from] redraft_decode::draft::PlanError),
    /// Tables out of range.
    #[error("speculation: {0}")]
    Tables(#[from] redraft_decode::draft::TablesError),
    /// A tree that is none.
    #[error("speculation: {0}")]
    Tree(redraft_decode::TreeError),
    /// The target computed no number.
    #[error(
        "the greatest logit after {position} tokens is {found}: the weights are damaged, or the adapter computes wrong results; fetch the model again, and run `redraft devices --check`"
    )]
    NotFinite {
        /// Tokens of the sequence before the step.
        position: u32,
        /// The greatest logit.
        found: f32,
    },
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
