//! What a file is, without a key: what its header says in clear, how random its bytes are, and what
//! the key server's fleet page shows of it.
//!
//! Invariants:
//! 1. No key is used and nothing is changed. Nothing of what is said is authenticated.
//! 2. One pass over a file, in constant memory.
//!
//! Must not: print; say anything about contents beyond their statistics.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

mod describe;
mod duckdb;
pub mod fleet;
mod luks;
pub mod picture;
pub mod report;
mod scan;
pub mod time;

pub use describe::describe;
pub use scan::{Scan, scan};
