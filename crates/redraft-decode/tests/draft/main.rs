//! Whole draft rounds with scripted drafters and targets: the shape of the tree, and that what is generated is what the
//! target alone would generate. Everything is a pure function of seeds, so the counts of what was covered are too.

mod exact;
mod script;
mod structure;
