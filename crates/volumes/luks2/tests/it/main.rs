//! Tests of LUKS2 in user space.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod common;
mod fuse;
mod header;
mod open;
mod reencrypt;
