//! Every row that was evaluated behind a text, by the way that leads to it: another plan that takes the same way need
//! not evaluate it again.

use std::collections::HashMap;

use redraft_decode::TokenId;
use redraft_decode::draft::NONE;

use super::evaluate::{Said, State};

/// A place in the trees behind a text: a stable row, or an evaluated row of some step behind the stable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(u32);

/// Which evaluation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The first pass, continuing from the first pass of the parent.
    First,
    /// The first pass, continuing from the second pass at this place.
    Late(Place),
    /// The second pass of the node, from its own output.
    Second,
    /// The second pass of the node, from what its first pass read.
    Unlike,
    /// [`Kind::Second`] that does not see the row of its first pass.
    Blind,
}

/// How a row is found: behind its parent's first pass, or for second passes behind its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) from: Place,
    pub(super) token: TokenId,
    pub(super) kind: Kind,
}

impl Key {
    /// The first pass of `token` behind the node at `from`.
    pub(super) fn first(from: Place, token: TokenId, late: Option<Place>) -> Self {
        Self { from, token, kind: late.map_or(Kind::First, Kind::Late) }
    }

    /// A second pass of the node at `from`.
    pub(super) fn second(from: Place, kind: Kind) -> Self {
        Self { from, token: TokenId(NONE), kind }
    }
}

/// The evaluated rows of a text.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    stable: u32,
    places: HashMap<Key, Place>,
    rows: Vec<(State, Said)>,
}

impl Paths {
    /// For a text of `stable` stable rows.
    pub(super) fn new(stable: usize) -> Self {
        Self { stable: u32::try_from(stable).unwrap_or(u32::MAX), places: HashMap::new(), rows: Vec::new() }
    }

    /// The place of a stable row.
    pub(super) fn root(row: usize) -> Place {
        Place(u32::try_from(row).unwrap_or(u32::MAX))
    }

    pub(super) fn find(&self, key: &Key) -> Option<Place> {
        self.places.get(key).copied()
    }

    pub(super) fn insert(&mut self, key: Key, row: (State, Said)) -> Place {
        let place = Place(self.stable + u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        self.rows.push(row);
        self.places.insert(key, place);
        place
    }

    /// The row at a place; `None` for a stable row.
    pub(super) fn row(&self, place: Place) -> Option<&(State, Said)> {
        self.rows.get(place.0.checked_sub(self.stable)? as usize)
    }

    /// Rows that were evaluated.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.rows.clear();
    }
}
