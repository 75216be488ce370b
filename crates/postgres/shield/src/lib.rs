//! Sealed PostgreSQL: seals the files of a PostgreSQL instance below an unmodified PostgreSQL.
//!
//! [`classify`](mod@classify) determines the class of a file from its path, [`table`] states how
//! each class is sealed and why. docs/spec/postgres.md specifies the stored bytes,
//! docs/internals/shield.md lists the invariants.
//!
//! Must not: export a C symbol. The preload library, which interposes the C library's functions, is
//! a crate of its own; the command links this crate too.

pub mod block;
pub mod classify;
pub mod clusters;
pub mod container;
pub mod container_name;
pub mod convert;
mod damage;
pub mod data_directory;
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
pub mod server_settings;
pub mod settings;
pub mod source;
mod status_files;
pub mod stream;
pub mod table;
pub mod transfer;
mod writer_lock;
mod zeros;
