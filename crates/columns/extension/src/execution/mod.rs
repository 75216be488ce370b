//! A statement while it runs: when it is over, and how its rows are sealed on their way to the
//! client.
//!
//! Must not: know what a table access method or a function does.

pub(crate) mod activity;
pub(crate) mod row_sealing;
pub(crate) mod slot;
pub(crate) mod statement;
