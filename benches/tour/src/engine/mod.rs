//! The first part: the TPC-H tables in SQLite, plain and sealed, through the library.
//!
//! Must not: need the `strongroom` command.

mod data;
mod refused;
mod spill;

use std::io::Write as _;

use rusqlite::Connection;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::{Failure, variant};

use crate::checks::Checks;
use crate::place::{OUT, Place, SCALE};

/// What the steps of the first part use.
struct Engine<'a> {
    place: &'a Place,
    checks: &'a mut Checks,
    /// The plain database for everything that is timed: opened before the VFS is registered in this
    /// process, which watches the statements of connections that are opened afterwards (B1 of
    /// `strongroom_benches`).
    plain: Connection,
}

/// Runs the first part in an empty directory. Leaves the plain database, the sealed one, and the
/// file with its key.
///
/// # Errors
/// The databases cannot be made, or a line cannot be printed. A check that fails is no error.
pub fn run(place: &Place, checks: &mut Checks) -> Result<(), Failure> {
    let plain = place.open_plain()?;
    if variant::vfs_is_registered() {
        return Err("the VFS was registered before the plain database was opened".into());
    }
    writeln!(
        std::io::stdout(),
        "Strongroom: the TPC-H tables at scale {SCALE}, plain and sealed, in ./{OUT}"
    )?;
    new_key_file(&place.key_file())?;
    let mut engine = Engine {
        place,
        checks,
        plain,
    };
    data::load(&mut engine)?;
    refused::run(&mut engine)?;
    data::queries(&mut engine)?;
    spill::run(&mut engine)
}
