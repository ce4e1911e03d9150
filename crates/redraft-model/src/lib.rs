//! Model weights on the GPU and the forward pass as recorded dispatches.
//!
//! - [`Model::load`] reads a GGUF file piece by piece, rewrites its matrices in the planar GPU formats, uploads them,
//!   and prepares every dispatch of a step.
//! - [`Batch`] says which tokens a step computes, at which positions, and for a token tree which rows are whose
//!   ancestors. [`Model::submit`] runs one step in one compute pass; logits, captures, keys and values stay on the GPU
//!   until somebody fetches them.
//! - [`Path`] is the family of kernels. Within a family a row's result does not depend on the batch it is computed
//!   in, bit for bit; [`check`] proves it on the adapter at hand.
//!
//! Shapes are row-major, the last dimension fastest, in f32 unless said otherwise.

mod batch;
mod buffers;
pub mod check;
mod draft;
mod error;
mod forward;
mod kernels;
mod load;
mod matrix;
mod memory;
mod products;
mod range;
mod rope;
mod sampler;
mod warm_up;

pub use batch::{Batch, LogitRows};
pub use draft::{
    Drafter, DrafterOptions, Oracle, OracleEntry, RoundResult, RoundTrace, Speculator, SpeculatorOptions,
    TraceNode, TreeKernel, phase,
};
pub use error::ModelError;
pub use forward::{CaptureLayers, Model};
pub use kernels::{Path, Precision, TileReport, Tiles};
pub use load::{LoadOptions, Phase, Progress};
pub use memory::{KvType, MemoryPlan, Planned};
pub use sampler::Sampler;
