//! `libstrongroom_sqlite_run.so`, which `strongroom sqlite run` preloads into a program. It
//! replaces the three functions of SQLite that open a database. The first call loads the extension,
//! `libstrongroom_sqlite.so`, into the SQLite that the caller is linked to; then SQLite's own
//! function opens the database.
//!
//! It also replaces the functions by which a program starts another one, so that the started
//! program gets the extension too, or is reported as unprotected.
//!
//! A program that never opens a database is not changed. How the symbols are found, and what cannot
//! be seen: docs/internals/sqlite-vfs.md, "Programs that do not load the extension".
//!
//! Must not: open a database when the extension could not be loaded; know a key or a byte of a
//! format.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

mod environment;
mod exec;
mod install;
mod objects;
mod open;
mod own_sqlite;
mod program_check;
