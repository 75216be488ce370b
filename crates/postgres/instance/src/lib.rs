//! Sealed PostgreSQL instances from outside: making, starting, converting, verifying and describing
//! them, without being loaded into PostgreSQL.
//!
//! A [`Directory`](directory::Directory) is a data directory; a [`ChosenKey`](chosen::ChosenKey)
//! says where its key comes from; [`Shielded`](shielded::Shielded) starts a program of PostgreSQL's
//! with both in its environment.
//!
//! Invariants:
//! 1. Keys are tried before anything is started or written, so a refusal leaves everything
//!    unchanged.
//! 2. A program that is started gets the name of the key's source or, for a key that was typed, an
//!    inherited descriptor; never the key as an argument.
//!
//! Must not: print; read or write a sealed file but through strongroom-postgres-shield or a program
//! under the shield.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used)]

pub mod chosen;
mod clusters;
pub mod contents;
pub mod control_data;
pub mod conversion;
pub mod creation;
pub mod directory;
pub mod facts;
pub mod outside;
pub mod programs;
pub mod restored;
pub mod sealed_log;
pub mod server;
pub mod service;
pub mod shielded;
pub mod status;
pub mod unsealed;
pub mod verify;
