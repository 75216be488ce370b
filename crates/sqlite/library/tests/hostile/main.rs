//! Goal: no byte that somebody changed, moved or put back in a sealed database, its log or its
//! journal makes the sealing VFS crash or serve rows that were never committed together; each case
//! has its error code.
//!
//! Method: databases are made with the bundled SQLite, copied together with their log or journal,
//! changed as files, and opened again. What an older copy can do that nothing finds is asserted
//! too, so that the documents can say it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]
// Helpers with arithmetic on test sizes: nothing here comes from outside.
#![expect(clippy::cast_possible_truncation, reason = "sizes of small test files")]

mod ahead;
mod freshness;
mod header;
mod journal;
mod keys;
mod mapped;
mod pages;
mod support;
mod threads;
mod wal;
