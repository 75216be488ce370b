//! The encrypting VFS: SQLite files sealed page by page under an unmodified SQLite.
//!
//! A call goes from SQLite to `methods` (the C entry points), to an `OpenFile` (`main_file`, `wal`,
//! `journal`, `temp`, `super_journal` or `plain`), to `seal`, and to `lower` (the file of the VFS
//! below). `choose` decides of which kind a file is, `connection` handles statements that would
//! bypass encryption, and `rekey` changes the data key of a database in use.
//!
//! The bytes are specified in docs/spec/sqlite.md. The invariants stand by letter and number in
//! each file's header, and together in docs/internals/sqlite-vfs.md.
//!
//! Must not: link to an SQLite. The host fills the table of functions in `api`, and every call of
//! SQLite goes through it.

mod api;
mod big_endian;
mod bypass;
mod capabilities;
mod choose;
mod connection;
mod connection_list;
mod database_key;
mod databases;
mod defaults;
mod entry;
mod ffi;
mod foreign_words;
mod free_list;
mod freshness;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod handle;
mod header_creation;
mod hooks;
mod integrity;
mod io_methods;
mod journal;
mod key_options;
mod lower;
mod main_file;
mod methods;
mod new_database;
mod open_file;
mod page_tail;
mod plain;
mod pragma;
mod query;
mod read_ahead;
mod read_only_file;
mod registration;
mod rekey;
mod remote;
mod report;
mod seal;
mod sealed;
mod seals;
mod shared_state;
mod sql;
mod sql_result;
mod sqlite_code;
mod sqlite_text;
mod statement;
mod super_journal;
mod synthetic_header;
mod temp;
#[cfg(test)]
mod vectors;
mod verify;
mod vfs;
mod wal;
mod warnings;

pub use api::ROUTINES;
pub use database_key::{register as register_key, unregister as forget_key};
pub use defaults::{
    DEFAULT_VARIABLE, EXISTING_PLAIN, KEY_FD, KEY_FD_NAME, take_default_from_environment,
};
pub use entry::{enable, entry_point};
pub use ffi::{CONSTANTS, sqlite3};
pub use freshness::{Freshness, settle};
pub use key_options::{keyring_from_environment, valid_page_size};
pub use read_only_file::head;
pub use registration::{NAME, absolute};
pub use rekey::{RekeyReport, rekey, rewrap};
pub use remote::{RemoteClient, RemoteFile, asked_by_application, set_client};
pub use report::{last_text, line, take_last, take_last_for, to_stderr, warn};
pub use verify::{BadUnit, UnitKind, VerifyReport, freshness_of, verify};
pub use warnings::{forget_seals_warnings, take_warnings};
