//! Environment variables through which `strongroom sqlite run`, the library that it preloads, and
//! the VFS exchange settings. The three are separate crates, and this is the only one that all of
//! them use.
//!
//! Must not: name a variable that one crate alone reads.

/// Says where the key of a program's databases is: one parameter to a line, as name, space, value.
pub const DEFAULT_VARIABLE: &str = "STRONGROOM_SQLITE_DEFAULT";

/// `1`: the program is meant to run without the VFS, and the preloaded library does not add it to a
/// program that is started with this environment.
pub const OUTSIDE_VARIABLE: &str = "STRONGROOM_SQLITE_OUTSIDE";

/// Forbids plain databases, by any value but `0` and the empty one.
pub const NEVER_PLAIN_VARIABLE: &str = "STRONGROOM_SQLITE_NEVER_PLAIN";

/// Whether this value of [`NEVER_PLAIN_VARIABLE`] forbids plain databases.
#[must_use]
pub fn forbids_plain(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0")
}

/// The absolute path of the `strongroom` command, which the VFS and the shield ask for a root key
/// whose provider they do not have.
pub const COMMAND_VARIABLE: &str = "STRONGROOM_PROVIDER_COMMAND";
