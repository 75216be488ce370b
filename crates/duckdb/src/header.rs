//! Backs up the main header to a file of its own, and restores it. Without its salt and canary a
//! database is lost.
//!
//! Must not: restore a header that does not open the database's own headers, or replace a header
//! that is intact.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use strongroom_format::code;
use strongroom_format::duckdb::{DUCKDB_HEADER_LEN, HeaderState, MainHeader};
use strongroom_keyring::{Error, durable};

use crate::disk::RekeyStorage as _;
use crate::file::{Access, DatabaseFile, Geometry, find_opener, intact_header, parse_format};
use crate::key::KeyText;
use crate::undo::Undo;
use crate::units::io_error;

/// Copies the main header of an encrypted database into a new file, readable by its owner.
///
/// # Errors
/// SR-1002 when there is something at `copy`; SR-1006 when there is no database; SR-2209 when it is
/// in use; SR-2200 for a file that is no DuckDB database, SR-2201 for a plain one, SR-2202 for a
/// damaged main header, SR-2203 for an unknown format, SR-2208 for a file that is too short,
/// SR-2211 during an unfinished rekey; SR-5001 when the system reports an error.
pub fn backup_header(path: &Path, copy: &Path) -> Result<(), Error> {
    let file = DatabaseFile::open(path, Access::Read)?;
    let (header, _) = intact_header(file.database(), &file.shown())?;
    durable::create_new(copy, header.as_bytes(), 0o600).map_err(|error| {
        let shown = copy.display().to_string();
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return Error::new(&code::EXISTS, shown);
        }
        Error::io(shown, error)
    })
}

/// Writes a copied main header back, durably, if one of `keys` opens its canary and, with it, a
/// database header of the file. During an unfinished rekey it is written marked, so that the rekey
/// can be finished.
///
/// # Errors
/// SR-2215 when the copy is not a whole header or does not belong to the file, or the file's own
/// header is whole; SR-2204 when no key opens the copy; SR-2211 when the file's header says that a
/// rekey is unfinished; SR-2201 or SR-2203 when the copy is of a plain database or of a format that
/// is not known; SR-2209 when the database is in use; SR-2212 when the file of an unfinished rekey
/// is damaged or of another database; SR-1006 when there is no such file or copy; SR-5001 when the
/// system reports an error.
pub fn restore_header(path: &Path, copy: &Path, keys: &[KeyText]) -> Result<(), Error> {
    let shown_copy = copy.display().to_string();
    let bytes = read_copy(copy)?;
    let refused = |why: &str| Error::new(&code::DUCKDB_BACKUP, format!("{shown_copy}: {why}"));
    let header = MainHeader::parse(&bytes)
        .filter(|header| bytes.len() == DUCKDB_HEADER_LEN && header.state() == HeaderState::Whole);
    let header = header.ok_or_else(|| refused("it is not a whole main header"))?;
    let format = parse_format(&header, &shown_copy)?;
    let file = DatabaseFile::open(path, Access::Write)?;
    let (shown, disk) = (file.shown(), file.database());
    let mut there = vec![0; DUCKDB_HEADER_LEN];
    disk.read_at(&mut there, 0).map_err(io_error(&shown))?;
    let current = MainHeader::parse(&there);
    match current.as_ref().map(MainHeader::state) {
        Some(HeaderState::Rekeying) => return Err(Error::new(&code::DUCKDB_REKEYING, shown)),
        // An intact header that opens with the key is left unchanged; one that was replaced by
        // another does not open with it.
        Some(HeaderState::Whole) if is_fine(current.as_ref(), keys)? => {
            return Err(refused("the file's own header is whole"));
        }
        _ => {}
    }
    let key = find_opener(&header, format, keys)?
        .ok_or_else(|| Error::new(&code::DUCKDB_KEY, shown_copy.as_str()))?;
    Geometry::read(disk, &[&key], &shown).map_err(|error| {
        if error.code() == &code::DUCKDB_HEADERS {
            return refused("no database header of the file opens with it");
        }
        error
    })?;
    // If it was lost during a rekey, the rekey must still be finished.
    let begun = Undo::open(&file)?.is_some_and(|undo| undo.plan.old_header == header);
    let header = header.in_state(begun);
    let written = disk
        .write_at(header.as_bytes(), 0)
        .and_then(|()| disk.sync());
    written.map_err(io_error(&shown))
}

/// Reads a copied main header, and one byte more where the file is longer. SR-1006 when there is no
/// such file; SR-5001 when the system reports an error.
fn read_copy(copy: &Path) -> Result<Vec<u8>, Error> {
    let limit = DUCKDB_HEADER_LEN as u64 + 1;
    let file = File::open(copy).map_err(|error| Error::opening(copy, error))?;
    let mut bytes = Vec::new();
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| Error::on_path(copy, error))?;
    Ok(bytes)
}

/// Whether the header has only known values and one of `keys` opens its canary. False without a
/// header. SR-5001 when there is no memory for keys.
fn is_fine(header: Option<&MainHeader>, keys: &[KeyText]) -> Result<bool, Error> {
    let Some((header, format)) =
        header.and_then(|header| Some((header, header.supported_format().ok()?)))
    else {
        return Ok(false);
    };
    Ok(find_opener(header, format, keys)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_no_further_than_a_header_goes() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let refused = |copy: &Path| restore_header(&at("app.db"), copy, &[]).unwrap_err();
        assert_eq!(refused(&at("absent")).code(), &code::NOT_FOUND);
        let long = File::create(at("long")).unwrap();
        long.set_len(1 << 40).unwrap();
        assert_eq!(refused(&at("long")).code(), &code::DUCKDB_BACKUP);
    }
}
