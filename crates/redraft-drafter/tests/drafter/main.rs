//! Drafter files: what is written and read, what is refused, and what the GPU gets.

mod checkpoints;
mod fingerprint;
mod hostile;
mod interchange;
mod model;
mod round_trip;
mod writer;
