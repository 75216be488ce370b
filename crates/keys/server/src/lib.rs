//! The key server: it keeps wrapped keys and delivers them over mutual TLS.
//!
//! From the outside in: [`run`] (the process), [`serve`] (connections), [`http`] (the API and the
//! fleet page), [`service`] (the operations), `ledger` (commits with their rows of the audit log),
//! [`store`] (records in SQLite or etcd). [`server`] is the state, sealed or open; [`init`] creates
//! a new server. The invariants are explained in docs/internals/keyserver.md; bytes and messages
//! are specified in docs/spec/keyserver.md.
//!
//! Must not: store or log a key that is not wrapped; deliver anything while the server is sealed;
//! reveal to a node that a key exists which is not granted to it.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

pub mod archive;
pub mod audit;
pub mod audit_check;
pub mod authority;
mod certificate_keeper;
pub mod config;
pub mod config_audit;
pub mod connections;
mod disk_space;
pub mod header_memory;
pub mod http;
pub mod init;
pub mod keys;
mod ledger;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod names;
mod notify;
pub mod offline;
pub mod page;
pub mod paths;
pub mod records;
pub mod rules;
pub mod run;
pub mod serve;
pub mod server;
pub mod service;
pub mod shares;
pub mod store;
mod syslog;
pub mod tls;

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the present time, in seconds since the Unix epoch; 0 for a clock before it.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |passed| passed.as_secs())
}
