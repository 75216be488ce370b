//! What both programs of the tour share: the list of checks, the places of files, and the first
//! part, which needs nothing but the SQLite library with the VFS in it.
//!
//! Invariants:
//! 1. Every numbered line is a check that can fail.
//! 2. Everything is made in ./demo-out. The keys in it are made for the tour.
//!
//! Must not: run the `strongroom` command, which may still be being built; touch a file outside
//! ./demo-out; use a key or a keyring of the user's.

pub mod checks;
pub mod damage;
pub mod engine;
pub mod place;
