//! Tests of the public surface: container, model shape, dequantisation, packing, hostile files.

mod config;
mod dequant;
mod hostile;
mod pack;
mod random;
mod real_file;
mod valid;
mod writer;
