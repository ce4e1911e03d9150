//! One module a command: its flags and its `run`.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod devices;
pub(crate) mod drafter;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod pull;
mod question;
pub(crate) mod train;
pub(crate) mod tree;
