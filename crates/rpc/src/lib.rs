//! The ring between one PostgreSQL backend and the zone, and the words that both speak over it.
//!
//! Invariants R1 to R6 are in docs/internals/columns.md. The shared memory is written by an adversary: the zone's end
//! copies what it reads, once. Must not: know what a value means, or anything of PostgreSQL.

pub mod fault;
pub mod function;
pub mod layout;
pub mod op;

pub use fault::Fault;
pub use op::Op;
