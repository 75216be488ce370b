//! What the steps of the first part use: the plain database, the places of files, the checks.

use rusqlite::Connection;

use crate::checks::Checks;
use crate::place::Place;

/// The plain database, the places of files and the checks of the first part.
pub(super) struct Databases<'a> {
    pub(super) place: &'a Place,
    pub(super) checks: &'a mut Checks,
    /// The plain database for everything that is timed: opened before the VFS is registered in this
    /// process, which watches the statements of connections that are opened afterwards (B1 of
    /// `strongroom_benches`).
    pub(super) plain: Connection,
}
