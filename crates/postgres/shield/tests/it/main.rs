//! Tests of the shield by the library's interface.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod block;
mod classify;
mod common;
mod container;
mod convert;
mod names;
mod real_instance;
mod renames;
mod restored;
mod sealed;
mod stream;
mod zeros;
