//! The first part: the TPC-H tables in SQLite, plain and sealed, through the library.
//!
//! Must not: need the `strongroom` command.

mod data;
mod databases;
mod refused;
mod spill;

use std::io::Write as _;

use strongroom_benches::key_files::new_key_file;
use strongroom_benches::{Failure, variant};

use self::databases::Databases;
use crate::checks::Checks;
use crate::place::{OUT, Place, SCALE};

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
    let mut databases = Databases {
        place,
        checks,
        plain,
    };
    data::load(&mut databases)?;
    refused::run(&mut databases)?;
    data::queries(&mut databases)?;
    spill::run(&mut databases)
}
