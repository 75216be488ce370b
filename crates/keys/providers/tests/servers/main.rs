//! Goal: a keyring whose root key a server seals opens while server and key are what they were, and
//! says what is wrong when they are not, within bounds and without a secret. Method: real servers
//! (`PyKMIP`, moto), and what a transit engine answers; each behind a relay that refuses, hangs,
//! cuts, flips, dribbles and floods.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod aws_kms;
mod kmip;
#[path = "../support/mod.rs"]
mod support;
mod vault;
