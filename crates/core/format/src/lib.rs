//! Every byte that Strongroom puts on disk: layouts, parsing and serialising.
//!
//! Invariants:
//! 1. A layout is stated once, as a [`layout::Field`] table; `docs/spec` is checked against it by
//!    `tests/spec.rs`.
//! 2. All integers are little-endian and of fixed width, except where SQLite's own format rules.
//! 3. Reserved bytes are written as zero and refused when they are not.
//! 4. Parsing never panics, whatever the bytes.
//!
//! Must not: do I/O, name a cryptographic primitive, hold a key.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    expect(
        clippy::indexing_slicing,
        reason = "a test that panics has failed, which is what it is for"
    )
)]

extern crate alloc;

pub mod aad;
mod anchor;
pub mod backup;
pub mod backup_signature;
pub mod certificate;
mod cipher;
pub mod code;
pub mod columns;
pub mod duckdb;
#[doc(hidden)]
pub mod freshness;
pub mod fuzz;
pub mod header;
pub mod hex;
pub mod journal;
pub mod keyring;
pub mod layout;
pub mod postgres;
pub mod run;
pub mod slot;
pub mod sqlite;
pub mod text;

/// The format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;
