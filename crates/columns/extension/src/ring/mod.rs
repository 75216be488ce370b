//! The way to the zone: this backend's connection over the ring, what all backends share, and the
//! background worker that reads the write-ahead log to the zone.
//!
//! Must not: see a value.

pub(crate) mod batches;
pub(crate) mod connection;
pub(crate) mod deferred_fault;
pub(crate) mod history;
pub(crate) mod log_end;
pub(crate) mod log_follower;
pub(crate) mod server_generation;
pub(crate) mod settle;
pub(crate) mod shared_memory;
pub(crate) mod standby;
pub(crate) mod zone;
