//! Shows what a DuckDB file says without a key.
//!
//! Must not: change anything, take a lock, or trust what it reads: nothing of it is authenticated.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use strongroom_format::duckdb::{
    DUCKDB_BLOCK_MAX, DUCKDB_BLOCKS_AT, HeaderState, MainHeader, Refusal, WalHead, WalVersion,
};
use strongroom_format::layout::is_zero;
use strongroom_keyring::Error;

use crate::REKEY_SUFFIX;
use crate::disk::Disk;
use crate::file::{main_header, with_suffix};
use crate::seal::unused;
use crate::units::{Units, io_error};

/// The result of an inspection.
pub struct Inspection {
    /// The main header.
    pub header: MainHeader,
    /// Whether its checksum is right.
    pub state: HeaderState,
    /// An unknown field. `None` when the database is plain, or all fields are known.
    pub refusal: Option<(&'static str, u64)>,
    /// Units whose position is the same for every block size.
    pub units: u64,
    /// The number of these whose unused bytes are not zero.
    pub unused_set: u64,
    /// Whether the file may consist of blocks of the usual 262144 bytes, so that these are all
    /// units.
    pub usual_blocks_fit: bool,
    /// The write-ahead log.
    pub wal: Option<WalInspection>,
    /// The file of an unfinished rekey, if there is one.
    pub rekey_file: Option<PathBuf>,
}

/// The content of the first record of a write-ahead log.
pub struct WalInspection {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// `encrypted`, `plain`, `unknown`.
    pub kind: &'static str,
    /// Whether it names this database; `None` when it names none.
    pub belongs: Option<bool>,
    /// The iteration of the checkpoint that it follows.
    pub iteration: Option<u64>,
}

/// Reads what a DuckDB database, encrypted or not, says of itself without a key. Nothing is
/// authenticated, locked or changed.
///
/// # Errors
/// SR-1006 when there is no such file; SR-2200 when it is no DuckDB database; SR-2208 when it is
/// too short; SR-5001 when the system reports an error.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    let shown = path.display().to_string();
    let file = File::open(path).map_err(|error| Error::opening(path, error))?;
    let header = main_header(&file, &shown)?;
    let gate = header.supported_format();
    let (mut units, mut unused_set) = (0, 0);
    let len = Disk::len(&file).map_err(io_error(&shown))?;
    let body = len.saturating_sub(DUCKDB_BLOCKS_AT);
    if let Ok(format) = gate {
        for kind in [Units::headers(), Units::certain(len)] {
            units += kind.count;
            unused_set += count_nonzero(&file, kind, unused(format)).map_err(io_error(&shown))?;
        }
    }
    let rekey_file = with_suffix(path, REKEY_SUFFIX);
    Ok(Inspection {
        state: header.state(),
        refusal: match gate {
            Err(Refusal::Unknown(field, value)) => Some((field, value)),
            _ => None,
        },
        units,
        unused_set,
        usual_blocks_fit: body.is_multiple_of(DUCKDB_BLOCK_MAX),
        wal: wal(path, &header).map_err(io_error(&shown))?,
        rekey_file: rekey_file.exists().then_some(rekey_file),
        header,
    })
}

/// Counts the units (the two headers, or blocks) of which the bytes `unused`, counted from the
/// unit's start, are not all zero. Reads the file only; the errors are those of reading, also for a
/// file that ends within a unit.
fn count_nonzero(file: &File, units: Units, unused: std::ops::Range<usize>) -> io::Result<u64> {
    let mut bytes = vec![0; unused.len()];
    let mut found = 0;
    for number in 0..units.count {
        let offset = units.offset(number).saturating_add(unused.start as u64);
        Disk::read_at(file, &mut bytes, offset)?;
        found += u64::from(!is_zero(&bytes));
    }
    Ok(found)
}

/// Reads the length and the first record of the write-ahead log beside `path`, a database with this
/// `header`. `None` when there is no log, or it is empty. An error when it cannot be read.
fn wal(path: &Path, header: &MainHeader) -> io::Result<Option<WalInspection>> {
    /// Longer than any first record.
    const RECORD_MAX: u64 = 128;
    let Some(path) = crate::file::wal_beside(path) else {
        return Ok(None);
    };
    let file = File::open(&path)?;
    let len = Disk::len(&file)?;
    let mut head = Vec::new();
    file.take(RECORD_MAX).read_to_end(&mut head)?;
    let head = WalHead::parse(&head);
    Ok(Some(WalInspection {
        len,
        kind: match head.map(|head| head.version) {
            Some(WalVersion::Plain) => "plain",
            Some(WalVersion::Encrypted) => "encrypted",
            Some(WalVersion::Other(_)) | None => "unknown",
        },
        belongs: head
            .and_then(|head| head.identifier)
            .map(|identifier| identifier == header.identifier()),
        iteration: head.and_then(|head| head.iteration),
        path,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_format::code;

    #[test]
    fn a_file_that_is_missing_is_not_found() {
        let place = tempfile::tempdir().unwrap();
        let missing = inspect(&place.path().join("absent")).err().unwrap();
        assert_eq!(missing.code(), &code::NOT_FOUND);
        let other = inspect(place.path()).err().unwrap();
        assert_eq!(other.code(), &code::IO);
    }
}
