//! Zeroes the bytes of units that are not used and that no tag covers.
//!
//! Invariant D6: only certain positions are written: with the key, those that follow from the block
//! size in the database header; without it, those that are the same for every block size. A write
//! has a few bytes within one sector, and changes nothing that is read.
//!
//! Must not: guess a block size.

use std::path::Path;

use strongroom_format::duckdb::Format;
use strongroom_format::layout::is_zero;
use strongroom_keyring::Error;

use crate::disk::{Disk, RekeyStorage as _};
use crate::file::{Access, DatabaseFile, Geometry, find_opener, intact_header};
use crate::key::KeyText;
use crate::seal::unused;
use crate::units::{Units, io_error};

/// The result.
pub struct ScrubReport {
    /// Units that were examined.
    pub units: u64,
    /// Units whose unused bytes were not zero, and are now.
    pub zeroed: u64,
    /// Whether these are all units of the file.
    pub complete: bool,
}

/// Zeroes, durably, the bytes of units that are not used and not authenticated. Without a key
/// (`keys` is empty), only units at positions that every block size has are examined.
///
/// # Errors
/// SR-1006 when there is no such file; SR-2209 when the database is in use; SR-2200 for a file that
/// is no DuckDB database, SR-2201 for a plain one, SR-2202 for a damaged main header, SR-2203 for
/// an unknown format, SR-2208 for a file that is too short, SR-2211 during an unfinished rekey;
/// SR-2204 when none of `keys` opens it, SR-2216 when no database header opens; SR-5001 when the
/// system reports an error.
pub fn scrub(path: &Path, keys: &[KeyText]) -> Result<ScrubReport, Error> {
    let file = DatabaseFile::open(path, Access::Write)?;
    let (shown, disk) = (file.shown(), file.database());
    let (header, format) = intact_header(disk, &shown)?;
    let (blocks, complete) = if keys.is_empty() {
        let len = disk.len().map_err(io_error(&shown))?;
        (Units::certain(len), false)
    } else {
        let key = find_opener(&header, format, keys)?
            .ok_or_else(|| Error::new(&strongroom_format::code::DUCKDB_KEY, shown.as_str()))?;
        (Geometry::read(disk, &[&key], &shown)?.blocks, true)
    };
    let mut report = ScrubReport {
        units: 0,
        zeroed: 0,
        complete,
    };
    for units in [Units::headers(), blocks] {
        zero(disk, units, format, &mut report).map_err(io_error(&shown))?;
    }
    disk.sync().map_err(io_error(&shown))?;
    Ok(report)
}

/// Zeroes in each of `units`, headers or blocks, the bytes that DuckDB leaves unused in every unit,
/// where they are not zero yet. Counts in the report each unit, and each that was written. Does not
/// sync. Errors of reading and writing; the units before are done then.
fn zero(
    disk: &dyn Disk,
    units: Units,
    format: Format,
    report: &mut ScrubReport,
) -> std::io::Result<()> {
    let unused = unused(format);
    let mut bytes = vec![0; unused.len()];
    for number in 0..units.count {
        let offset = units.offset(number).saturating_add(unused.start as u64);
        disk.read_at(&mut bytes, offset)?;
        report.units += 1;
        if !is_zero(&bytes) {
            bytes.fill(0);
            disk.write_at(&bytes, offset)?;
            report.zeroed += 1;
        }
    }
    Ok(())
}
