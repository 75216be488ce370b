//! Works on DuckDB's encrypted database files from outside, without DuckDB: shows what they are,
//! verifies every unit, replaces the key in place, zeroes unused bytes, and backs up and restores
//! the main header.
//!
//! ```text
//! DatabaseFile::open --> unlock(KeyText) --> verify | rekey | scrub
//! ```
//!
//! Bytes: docs/spec/duckdb.md. Invariants D1 to D10: docs/internals/duckdb.md.
//!
//! Must not: write to a file that DuckDB or another program has open; write a unit that was not
//! read as authentic; show a byte of what it decrypts.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

mod disk;
mod file;
mod header;
mod inspect;
mod key;
mod rekey;
mod scrub;
mod seal;
mod undo;
mod units;
mod verify;

pub use header::{backup_header, restore_header};
pub use inspect::{Inspection, WalInspection, inspect};
pub use key::KeyText;
pub use rekey::{RekeyOptions, RekeyReport, rekey};
pub use scrub::{ScrubReport, scrub};
pub use units::UnitFault;
pub use verify::{BAD_MAX, BadUnit, UnitKind, VerifyReport, verify};

/// Suffix of the file that Strongroom keeps beside a database while its key is replaced.
pub const REKEY_SUFFIX: &str = ".strongroom-rekey";

/// Suffixes of the files that DuckDB keeps beside a database: its write-ahead log, and the files
/// that a checkpoint makes of it.
pub const WAL_SUFFIXES: [&str; 3] = [".wal", ".wal.checkpoint", ".wal.recovery"];
