//! The ring between one PostgreSQL backend and the zone: shared memory, operations, faults.
//!
//! [`Host`] is the backend's end, [`Server`] the zone's. Invariants R1 to R6 are in
//! docs/internals/columns.md. The shared memory is written by an adversary: the zone's end copies
//! what it reads, once. Must not: know what a value means, or anything of PostgreSQL.

mod doorbell;
pub mod fault;
pub mod function;
mod host;
#[cfg(test)]
mod hostile;
pub mod layout;
mod memory;
pub mod op;
pub mod program;
mod ring;
mod socket;
mod zone;

pub use doorbell::SLEEP_MAX;
pub use fault::Fault;
pub use host::{Broken, ConnectError, Host, Interrupted};
pub use op::Op;
pub use program::Program;
pub use ring::{ANSWER_HALF, AREA_SIZE, Answer, Area, Descriptor, ENTRIES};
pub use socket::Peer;
pub use zone::{Handler, Server, Stopper};
