//! Reads the tree's own sources, for the rules that a machine can hold and for the figures in
//! docs/internals/house.md.
//!
//! Must not: change a file.

pub mod circles;
pub mod source;
