//! Environment variables by which `strongroom sqlite run`, the library that it preloads, and the
//! guard talk. The three are separate crates, and this is the only one that all of them use.
//!
//! Must not: name a variable that one crate alone reads.

/// Says where the key of a program's databases is: one parameter to a line, as name, space, value.
pub const DEFAULT_VARIABLE: &str = "STRONGROOM_SQLITE_DEFAULT";

/// `1`: the program is meant to have no guard, and the preloaded library adds none to what is
/// started with this environment.
pub const OUTSIDE_VARIABLE: &str = "STRONGROOM_SQLITE_OUTSIDE";

/// Forbids plain databases, by any value but `0` and the empty one.
pub const NEVER_PLAIN_VARIABLE: &str = "STRONGROOM_SQLITE_NEVER_PLAIN";

/// Whether this value of [`NEVER_PLAIN_VARIABLE`] forbids plain databases.
#[must_use]
pub fn forbids_plain(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0")
}

/// The command, as the guard in a program finds it.
pub const COMMAND_VARIABLE: &str = "STRONGROOM_PROVIDER_COMMAND";
