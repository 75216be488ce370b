//! The encrypting VFS: SQLite files sealed page by page under an unmodified SQLite.
//!
//! The way of a call: SQLite -> `methods` (C entry points) -> a `Body` (`main_file`, `wal`, `journal`, `temp`,
//! `super_journal`, `plain`) -> `seal` -> `lower` (the file of the VFS below). `choose` decides
//! which body a file gets,
//! `connection` closes the traps that SQLite's interface leaves, `rekey` changes the data key of a database in use.
//!
//! The bytes are specified in docs/spec/sqlite.md; the invariants, by letter and number, in each file's header and
//! together in docs/internals/sqlite-vfs.md.
//!
//! Must not: link to an SQLite. Everything goes through the table in `api`, filled by the host.

mod ahead;
mod api;
mod birth;
mod body;
mod choose;
mod connection;
mod databases;
mod defaults;
mod entry;
mod ffi;
mod free;
mod freshness;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod handle;
mod integrity;
mod journal;
mod keys;
mod link;
mod lower;
mod main_file;
mod methods;
mod others;
mod past;
mod peek;
mod pending;
mod plain;
mod pragma;
mod query;
mod rekey;
mod remote;
mod report;
mod seal;
mod sealed;
mod seals;
mod sql;
mod sqlite_code;
mod statement;
mod super_journal;
mod temp;
#[cfg(test)]
mod vectors;
mod verify;
mod vfs;
mod wal;
mod word;

pub use api::ROUTINES;
pub use defaults::{
    DEFAULT_VARIABLE, EXISTING_PLAIN, KEY_FD, KEY_FD_NAME, take_default_from_environment,
};
pub use entry::{enable, entry_point};
pub use ffi::{CONSTANTS, sqlite3};
pub use freshness::{Freshness, settle};
pub use keys::{
    keyring_from_environment, register as register_key, unregister as forget_key, valid_page_size,
};
pub use peek::head;
pub use pending::{forget_seals_warnings, take_warnings};
pub use rekey::{RekeyReport, rekey, rewrap};
pub use remote::{RemoteClient, RemoteFile, asked_by_application, set_client};
pub use report::{last_text, line, take_last, take_last_for, to_stderr, warn};
pub use verify::{Bad, UnitKind, VerifyReport, freshness_of, verify};
pub use vfs::{NAME, absolute};
