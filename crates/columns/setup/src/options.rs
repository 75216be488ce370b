//! What a run is to set up, and where.
//!
//! Must not: check anything.

use std::path::PathBuf;

use strongroom_crypto::SecretBytes;

/// What is to be set up.
pub struct Setup {
    /// The server's socket.
    pub socket: PathBuf,
    /// A superuser of the server.
    pub user: String,
    /// That user's password, when the server asks for one.
    pub password: Option<SecretBytes>,
    /// The database that gets the extension; none unless given.
    pub database: Option<String>,
    /// Name of an example table to be made in that database.
    pub example_table: Option<String>,
    /// Whether nothing is made, and the report says what would be.
    pub dry_run: bool,
}
