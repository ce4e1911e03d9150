//! Speculation on equals speculation off, token for token.

mod answers;
mod coverage;
mod drafters;
mod errors;
mod fitted;
mod measuring;
mod precise;
mod reference;
mod soak;
mod submissions;
mod support;
mod trees;
