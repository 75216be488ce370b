//! Environment variables by which `strongroom sqlite run`, the library that it preloads, and the
//! guard talk. Each is of another crate, and they share no other.
//!
//! Must not: name a variable that one crate alone reads.

/// Says where the key of a program's databases is: one parameter to a line, as name, space, value.
pub const DEFAULT_VARIABLE: &str = "STRONGROOM_SQLITE_DEFAULT";

/// With the value `1`, what is started with it is meant to be without the guard: the preloaded
/// library then leaves the environment of what it starts as it is.
pub const OUTSIDE_VARIABLE: &str = "STRONGROOM_SQLITE_OUTSIDE";

/// Forbids plain databases, by any value but `0` and the empty one.
pub const NEVER_PLAIN_VARIABLE: &str = "STRONGROOM_SQLITE_NEVER_PLAIN";

/// The command, as the guard in a program finds it.
pub const COMMAND_VARIABLE: &str = "STRONGROOM_PROVIDER_COMMAND";
