//! `libstrongroom_shield.so`: the C library's file functions, interposed for PostgreSQL.
//!
//! Each symbol turns its arguments into a call of the core (`crates/postgres/shield`) when a sealed file is concerned, and hands
//! them on untouched when not. The invariants are collected in docs/internals/shield.md.
//!
//! Must not: panic (R3), allocate or lock on the way of a read or write (R4), or hold logic that could be in the core.
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
