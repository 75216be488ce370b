//! The key server: keeps wrapped keys and delivers them over mutual TLS.
//!
//! Must not: store or log a key that is not wrapped; serve anything while it is sealed; tell a node of a key that it is not enrolled for.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

pub mod page;
pub mod store;
