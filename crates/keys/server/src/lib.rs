//! The key server: keeps wrapped keys and delivers them over mutual TLS.
//!
//! From the outside in: [`run`] (the process), [`serve`] (connections), [`http`] (the API), [`service`] (operations), [`ledger`]
//! (commits with their rows of the audit log), [`store`] (where records are). [`server`] is sealed or open; [`init`] makes a new one.
//! Invariants: docs/internals/keyserver.md; bytes and wire: docs/spec/keyserver.md.
//!
//! Must not: store or log a key that is not wrapped; serve anything while it is sealed; tell a node of a key that it is not enrolled for.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

pub mod archive;
pub mod audit;
pub mod authority;
pub mod config;
pub mod config_audit;
pub mod connections;
pub mod http;
pub mod init;
mod keeper;
pub mod keys;
pub mod large;
mod ledger;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod names;
mod notify;
pub mod offline;
pub mod page;
pub mod records;
pub mod run;
pub mod serve;
pub mod server;
pub mod service;
pub mod shares;
pub mod store;
mod syslog;
pub mod tls;

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |passed| passed.as_secs())
}
