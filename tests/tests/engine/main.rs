//! The engine from end to end, on tiny random models: seconds on a software adapter.
//!
//! A module a theme, few tests with many cases each: what takes time is compiling kernels for an engine.

mod answers;
mod ends;
mod errors;
mod rows;
mod tokenizer_json;
