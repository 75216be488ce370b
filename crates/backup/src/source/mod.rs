//! What can be backed up. Each source writes its members to a stream.
//!
//! Must not: know a medium, or how the stream is sealed.

mod directory;
mod local;
mod postgres;
mod sqlite;

pub use directory::DirectorySource;
pub use local::{LocalSource, is_connection, refuse_within};
pub use postgres::PostgresSource;
pub use sqlite::SqliteSource;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::Result;
use crate::head::{Description, Kind};
use crate::stream::writer::StreamWriter;

/// Something that can be backed up.
pub trait Source {
    /// The kind of the source.
    fn kind(&self) -> Kind;

    /// The source's name, for the set's description. It must not contain secrets.
    fn shown(&self) -> String;

    /// Opens the source, or checks that its key opens it, before a medium is written to. What
    /// earlier runs left beside it may be removed.
    ///
    /// # Errors
    /// SR-7114 when a directory cannot be opened, SR-7115 when a server cannot be reached or
    /// refuses; for a database those of opening it, such as SR-2002 for a wrong key.
    fn prepare(&mut self) -> Result<()>;

    /// Writes all of it. Called once, after [`Source::prepare`].
    ///
    /// # Errors
    /// Of the source; what the stream's own calls return must be passed on.
    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()>;

    /// Names the counter into which the source puts the total bytes of all files once it knows
    /// them, to show progress. A source that never knows them ignores it.
    fn note_total(&mut self, _total: Arc<AtomicU64>) {}

    /// Adds what only this source knows. Called after [`Source::write`].
    fn describe(&self, description: &mut Description);

    /// The server's manifest, which the set stores as an object of its own; `None` for a source
    /// without one. Called after [`Source::write`].
    fn manifest(&self) -> Option<&[u8]> {
        None
    }
}
