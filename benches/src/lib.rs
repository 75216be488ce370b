//! What the benchmarks and the tour share: the TPC-H tables and queries, ways to open a database,
//! PostgreSQL servers, and statistics.
//!
//! Invariants:
//! B1. Every comparison runs on one SQLite library, the bundled one; the peers differ in nothing
//!     but the VFS and, from it, the 32 reserved bytes of a sealed page. The stock peer is timed on
//!     connections that the VFS does not know: in a process without it, or opened before it was
//!     registered.
//! B2. No figure is printed for a piece of work whose result was not compared with its peers'.
//! (B3 and B4 are in `postgres`.)
//!
//! Must not: be published, or be linked into anything that is.

pub mod bytes;
pub mod key_files;
pub mod machine;
pub mod options;
pub mod postgres;
pub mod report;
pub mod splice;
pub mod stats;
pub mod tpch;
pub mod variant;

/// What can go wrong in a benchmark or in the tour: something that the operating system, SQLite or
/// the VFS said.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Writes progress, or what failed, to standard error.
pub fn note(text: &str) {
    use std::io::Write as _;
    // When standard error is closed there is nobody to tell.
    let written = writeln!(std::io::stderr(), "{text}");
    drop(written);
}
