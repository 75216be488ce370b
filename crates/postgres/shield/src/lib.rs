//! Sealed PostgreSQL: a PostgreSQL instance sealed file by file, under an unmodified PostgreSQL.
//!
//! [`classify`] says what a path of an instance is, [`table`] what is done with each class and why. The bytes are
//! specified in docs/spec/postgres.md, the invariants in docs/internals/shield.md.
//!
//! Must not: export a C symbol. The preload library that interposes the C library's functions is a crate of its own;
//! this one is linked by the command too.

pub mod block;
pub mod classify;
pub mod container;
pub mod container_name;
pub mod convert;
mod damage;
pub mod descriptors;
pub mod discover;
mod fault;
pub mod file_io;
mod header_cache;
pub mod instance;
pub mod keys;
pub mod layout;
mod name_parser;
mod new_log;
pub mod open_instances;
pub mod path;
pub mod real;
pub mod rename;
pub mod resolve;
pub mod restored;
pub mod scratch;
pub mod sealed_file;
pub mod source;
mod status_files;
pub mod stream;
pub mod table;
pub mod transfer;
mod writer_lock;
mod zeros;
