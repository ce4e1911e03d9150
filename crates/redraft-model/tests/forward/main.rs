//! The forward pass on the GPU: against the f32 reference, and against itself, bit for bit.

mod dispatches;
mod half;
mod memory;
mod reference;
mod row_exact;
mod split;
mod support;
mod tiles;
