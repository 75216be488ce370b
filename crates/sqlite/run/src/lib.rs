//! `libstrongroom_sqlite_run.so`: preloaded into a program by `strongroom sqlite run`, it stands
//! before the three functions of SQLite that open a database. The first call puts the guard,
//! `libstrongroom_sqlite.so`, into the SQLite that the caller is linked to; then SQLite's own
//! function opens the database.
//!
//! It also stands before the functions by which a program starts another: what is started gets the
//! guard too, or it is told that it has none.
//!
//! A program that never opens a database is not touched. How the symbols are found, and what is not
//! seen: docs/internals/sqlite-vfs.md, "Programs that know nothing of the guard".
//!
//! Must not: open a database when the guard could not be put into place; know a key or a byte of a
//! format.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

mod environment;
mod exec;
mod guard;
mod objects;
mod open;
mod own;
mod started;
