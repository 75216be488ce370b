//! Tables: the access method, promotion of values before rows are written, partitions of the
//! mapping store, and the sweep that finds values which no row holds any more.
//!
//! Must not: change how heap keeps rows.

pub(crate) mod access_method;
mod logical_slots;
mod marking;
pub(crate) mod orphans;
pub(crate) mod partition;
pub(crate) mod pending;
pub(crate) mod promotion;
mod retired;
pub(crate) mod storage_id;
mod sweep;
pub(crate) mod sweep_workers;
pub(crate) mod transaction_end;
