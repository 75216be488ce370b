//! Tests of backups by the library's interface.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod anew;
mod common;
mod delta;
mod full_disk;
mod hostile;
mod kill_restore;
mod log;
mod media;
mod mirrors;
mod objects;
mod postgres;
mod reader;
mod removal;
mod signature;
