//! Speculative decoding: whole rounds on the GPU.
//!
//! A round drafts a tree, verifies it with one forward pass of the target, accepts what the target itself would have
//! said, and extends the drafter over it. [`Speculator::submit`] records all of it into one compute pass; the host learns
//! what was emitted from one readback of [`RoundResult::BYTES`] bytes.
//!
//! - [`Speculator`] owns the tree's buffers (the arena) and knows the order of the kernels;
//! - [`Drafter`] is the drafter's forward pass, made by `load` with its weights and cache;
//! - [`Oracle`] stands in for a drafter in tests: it proposes from a table.
//!
//! The rules of the tree are `redraft_decode::draft`, whose functions are the CPU twins of the kernels here.

mod arena;
mod drafter;
mod load;
mod memory;
mod oracle;
pub mod phase;
mod round;
mod stepwise;

pub use drafter::{Drafter, DrafterOptions};
pub use oracle::{Oracle, OracleEntry};
pub use round::{RoundResult, Speculator, SpeculatorOptions};
pub use stepwise::{RoundTrace, TraceNode, TreeKernel};
