//! Support for the tests that cross crates.
