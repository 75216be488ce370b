//! `libstrongroom_shield.so`: the C library's file functions, interposed for PostgreSQL.
//!
//! Each exported function calls the core (`crates/postgres/shield`) when its file is sealed, and
//! the C library's function with the same arguments when it is not. docs/internals/shield.md lists
//! the invariants.
//!
//! Must not: panic (R3); allocate or lock in a read or write (R4); contain logic that could be in
//! the core.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

#[macro_use]
mod next;

mod aliases;
mod arguments;
mod close;
mod copy;
mod data;
mod dir;
mod environment;
mod names;
mod open;
mod process;
mod refused;
mod report;
mod sizes;
mod space;
mod start;
mod stdio;
mod vectors;
