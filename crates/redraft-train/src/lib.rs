//! Training of drafters: from a target model and text to a drafter file with reconsideration.

pub mod calibrate;
pub mod corpus;
pub mod data;
pub mod drafter;
mod error;
pub mod generate;
mod ops;
pub mod prepare;
mod random;
pub mod replay;
pub mod study;
pub mod target;
pub mod train;

pub use corpus::write_atomically;
pub use error::TrainError;
