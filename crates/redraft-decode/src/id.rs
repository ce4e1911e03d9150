//! The two numbers that must not be mixed up: which token, and where.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// The id of a token in the target's vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct TokenId(pub u32);

/// An absolute position in the sequence, prompt included: the first token of the prompt has position 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Position(pub u32);

impl Position {
    /// The position `count` places further on, or `None` past the largest `u32`.
    #[must_use]
    pub fn forward(self, count: u32) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }
}

impl From<u32> for TokenId {
    fn from(id: u32) -> Self {
        Self(id)
    }
}

impl From<u32> for Position {
    fn from(position: u32) -> Self {
        Self(position)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
