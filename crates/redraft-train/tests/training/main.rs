//! The trainer on tiny models: against the reference forward passes, killed and resumed, and on bad text.

mod corpus;
mod forward;
mod learning;
mod support;
