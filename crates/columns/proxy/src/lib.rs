//! The data owner's side of confidential columns: envelopes, the channel to the zone, the
//! PostgreSQL proxy.
#![forbid(unsafe_code)]

pub mod channel;
pub mod conversion;
mod envelope;
pub mod keys;
mod locked_file;
pub mod owner;
pub mod proxy;
pub mod relations;
mod results;
pub mod server;
pub mod sql;
pub mod zone_status;
pub mod zones;
