//! Tests of a node's side of the key server.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod common;
mod hostile;
mod node;
