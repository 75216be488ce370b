//! Checks whether every unit of a database is authentic under a key.
//!
//! Must not: claim that the database is authentic: units are not bound to their positions, nor to a
//! point in time, nor to each other. The report names what was not checked.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_format::code::{self, Code};
use strongroom_format::duckdb::Cipher;
use strongroom_format::layout::is_zero;
use strongroom_keyring::Error;

use crate::disk::{Disk, RekeyStorage as _};
use crate::file::{Access, Opened};
use crate::key::KeyText;
use crate::seal::{Sealer, unused};
use crate::units::{Units, for_each, io_error, threads};

/// The kind of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitKind {
    /// One of the two database headers.
    DatabaseHeader,
    /// A block.
    Block,
}

impl UnitKind {
    /// Returns the name in output: `database-header` or `block`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DatabaseHeader => "database-header",
            Self::Block => "block",
        }
    }
}

/// A unit that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadUnit {
    /// Kind of the unit.
    pub kind: UnitKind,
    /// Its number, from 0.
    pub index: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// SR-2206 for a tag, SR-2207 for an inner checksum, SR-2208 for a block that is not completely
    /// in the file.
    pub number: u16,
}

/// The result of a verification.
pub struct VerifyReport {
    /// Name of the cipher.
    pub cipher: &'static str,
    /// Database headers that are good, of two.
    pub headers_ok: u64,
    /// Blocks that the file has room for.
    pub blocks: u64,
    /// Blocks that are good.
    pub blocks_ok: u64,
    /// Blocks of zeros: free ones that were given back to the file system, or lost ones.
    pub blocks_zero: u64,
    /// Blocks after the last one of the database, from an unfinished checkpoint. They do not count
    /// as bad.
    pub blocks_beyond: u64,
    /// The first bad units, in order, at most [`BAD_MAX`].
    pub bad: Vec<BadUnit>,
    /// The number of bad units, at most [`BAD_MAX`] missing blocks among them.
    pub bad_count: u64,
    /// Units whose unused bytes are not zero.
    pub unused_set: u64,
    /// What was not checked.
    pub not_checked: Vec<String>,
}

/// The most bad units that a report names.
pub const BAD_MAX: usize = 1000;

impl VerifyReport {
    /// Returns the code of the first bad unit. `None` when there is none.
    #[must_use]
    pub fn failure(&self) -> Option<&'static Code> {
        self.bad.first().and_then(|bad| code::by_number(bad.number))
    }
}

/// Checks every unit of a database with the first fitting one of `keys`; bad units are not an error
/// but in the report. Changes nothing. `progress` gets the blocks done and the blocks in all.
///
/// # Errors
/// SR-1006 when there is no such file; SR-2209 when the database is in use; SR-2200 for a file that
/// is no DuckDB database, SR-2201 for a plain one, SR-2202 for a damaged main header, SR-2203 for
/// an unknown format, SR-2208 for a file that is too short, SR-2211 during an unfinished rekey;
/// SR-2204 when no key opens it; SR-2216 when no database header opens; SR-5001 when the system
/// reports an error.
pub fn verify(
    path: &Path,
    keys: &[KeyText],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport, Error> {
    let opened = Opened::open(path, Access::Read, keys)?;
    let shown = opened.file.shown();
    let disk = opened.file.database();
    let geometry = &opened.geometry;
    let tally = VerifyCounts::new(&opened);
    tally.headers(disk, &shown)?;
    tally.blocks(disk, &shown, threads(), progress)?;
    let mut not_checked = not_checked_by_format(opened.format.cipher);
    if geometry.rest > 0 {
        not_checked.push(format!(
            "{} bytes after the last whole block",
            geometry.rest
        ));
    }
    if let Some(wal) = opened.file.wal() {
        not_checked.push(format!("the write-ahead log {}", wal.display()));
    }
    tally.missing(geometry.missing());
    Ok(tally.report(opened.format.cipher.name(), not_checked))
}

/// Lists in words what no reader of this format can check.
fn not_checked_by_format(cipher: Cipher) -> Vec<String> {
    let mut blind = vec![
        "whether each block is in its place: the format does not bind one to it".to_owned(),
        "whether this is the newest state: blocks and headers may be older ones of this database"
            .to_owned(),
        "the main header's fields: nothing authenticates them".to_owned(),
    ];
    if cipher == Cipher::Ctr {
        blind
            .push("forgery: this cipher has no tags, and the inner checksum has no key".to_owned());
    }
    blind
}

/// The counts of a verification, which several threads increment.
pub(crate) struct VerifyCounts<'a> {
    key: &'a Sealer,
    unused: std::ops::Range<usize>,
    units: Units,
    /// The number of blocks of the database.
    in_use: u64,
    headers_ok: AtomicU64,
    ok: AtomicU64,
    zero: AtomicU64,
    beyond: AtomicU64,
    unused_set: AtomicU64,
    bad_count: AtomicU64,
    bad: Mutex<Vec<BadUnit>>,
}

impl<'a> VerifyCounts<'a> {
    /// Starts the counts of a database, all zero.
    pub(crate) fn new(opened: &'a Opened) -> Self {
        Self::of(
            &opened.key,
            unused(opened.format),
            opened.geometry.blocks,
            opened.geometry.active.block_count,
        )
    }

    /// Starts counts for `units` blocks, of which the database has `in_use`. `unused` is the range
    /// of unused bytes of a unit.
    pub(crate) fn of(
        key: &'a Sealer,
        unused: std::ops::Range<usize>,
        units: Units,
        in_use: u64,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            key,
            unused,
            units,
            in_use,
            headers_ok: zero(),
            ok: zero(),
            zero: zero(),
            beyond: zero(),
            unused_set: zero(),
            bad_count: zero(),
            bad: Mutex::new(Vec::new()),
        }
    }

    /// Checks and counts both database headers. SR-5001 when reading fails.
    pub(crate) fn headers(&self, disk: &dyn Disk, shown: &str) -> Result<(), Error> {
        let units = Units::headers();
        for number in 0..units.count {
            let mut unit = vec![0; units.len];
            let offset = units.offset(number);
            disk.read_at(&mut unit, offset).map_err(io_error(shown))?;
            self.check_unused(&unit);
            match self.key.open(&mut unit) {
                Ok(()) => count(&self.headers_ok),
                Err(fault) => {
                    self.report_bad(UnitKind::DatabaseHeader, number, offset, fault.code());
                }
            }
        }
        Ok(())
    }

    /// Checks and counts every block that is completely in the file. SR-5001 when reading fails.
    /// `progress` gets the blocks done and the blocks in all.
    pub(crate) fn blocks(
        &self,
        disk: &dyn Disk,
        shown: &str,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let all = self.units.count;
        for_each(
            0..all,
            threads,
            || vec![0_u8; self.units.len],
            |unit, number| {
                let offset = self.units.offset(number);
                disk.read_at(unit, offset).map_err(io_error(shown))?;
                self.block(unit, number, offset);
                Ok(())
            },
            &mut |done| progress(done, all),
        )
    }

    /// Checks and counts one block: as zeros, good, beyond the database's end, or bad. Decrypts it
    /// in place.
    fn block(&self, unit: &mut [u8], number: u64, offset: u64) {
        if is_zero(unit) {
            return count(&self.zero);
        }
        self.check_unused(unit);
        match self.key.open(unit) {
            Ok(()) => count(&self.ok),
            Err(_) if number >= self.in_use => count(&self.beyond),
            Err(fault) => self.report_bad(UnitKind::Block, number, offset, fault.code()),
        }
    }

    /// Counts and reports as bad, with SR-2208, the blocks that the database has and the file does
    /// not, at most [`BAD_MAX`] of them.
    fn missing(&self, blocks: u64) {
        for number in 0..blocks.min(BAD_MAX as u64) {
            let number = self.units.count.saturating_add(number);
            let offset = self.units.offset(number);
            self.report_bad(UnitKind::Block, number, offset, &code::DUCKDB_TRUNCATED);
        }
    }

    /// Counts the unit if its unused bytes are not zero.
    fn check_unused(&self, unit: &[u8]) {
        let unused = unit.get(self.unused.clone());
        if !unused.is_none_or(is_zero) {
            count(&self.unused_set);
        }
    }

    /// Counts a bad unit, and keeps it for the report unless that names [`BAD_MAX`] already.
    fn report_bad(&self, kind: UnitKind, index: u64, offset: u64, code: &Code) {
        count(&self.bad_count);
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        if bad.len() < BAD_MAX {
            bad.push(BadUnit {
                kind,
                index,
                offset,
                number: code.number,
            });
        }
    }

    /// Makes the report, with the bad units in the order of kind and number.
    pub(crate) fn report(self, cipher: &'static str, not_checked: Vec<String>) -> VerifyReport {
        let mut bad = self
            .bad
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        bad.sort_unstable();
        VerifyReport {
            cipher,
            headers_ok: self.headers_ok.into_inner(),
            blocks: self.units.count,
            blocks_ok: self.ok.into_inner(),
            blocks_zero: self.zero.into_inner(),
            blocks_beyond: self.beyond.into_inner(),
            bad,
            bad_count: self.bad_count.into_inner(),
            unused_set: self.unused_set.into_inner(),
            not_checked,
        }
    }
}

/// Adds one to a counter.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
