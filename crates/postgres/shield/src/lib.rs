//! Sealed PostgreSQL: a PostgreSQL instance sealed file by file, under an unmodified PostgreSQL.
//!
//! [`classify`] says what a path of an instance is, [`table`] what is done with each class and why. The bytes are
//! specified in docs/spec/postgres.md, the invariants in docs/internals/shield.md.
//!
//! Must not: export a C symbol. The preload library that interposes the C library's functions is a crate of its own;
//! this one is linked by the command too.

pub mod block;
pub mod body;
pub mod classify;
pub mod clusters;
pub mod container;
pub mod convert;
pub mod data_directory;
pub mod discover;
mod fault;
pub mod files;
pub mod install;
pub mod instance;
pub mod keys;
pub mod name;
pub mod path;
pub mod place;
pub mod real;
mod remembered;
pub mod restored;
pub mod roots;
mod scan;
pub mod scratch;
pub mod server_settings;
pub mod settings;
pub mod source;
mod status_files;
pub mod stream;
pub mod table;
pub mod transfer;
mod zeros;
