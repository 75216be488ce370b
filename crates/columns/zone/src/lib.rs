//! The privacy zone: the process that holds confidential values and computes on them.
//!
//! Invariants are in docs/internals/columns.md. Must not: know PostgreSQL's structures, write a
//! value in clear anywhere.
mod arena;
mod clock;
pub mod engine;
pub mod key_ledger;
mod policy;
pub mod record;
pub mod sandbox;
pub mod serve;
pub mod session;
pub mod setup;
pub mod store;
