//! Replaces the key of a database, in place.
//!
//! The steps, each durable before the next:
//!
//! 1. The plan, in the rekey's file.
//! 2. The main header's checksum, inverted: from now on DuckDB does not open the file, whatever key
//!    it gets.
//! 3. Block after block: the old bytes of some of them, in the rekey's file; then these blocks,
//!    under the new key.
//! 4. The two database headers, in the same way.
//! 5. The main header: the new canary, and the right checksum.
//! 6. The rekey's file is removed. Without step 2's mark it means nothing, and a later rekey
//!    replaces it.
//!
//! Invariants: D9, at any time every unit is intact under the old or the new key, or its old bytes
//! are in the rekey's file. Its tag says under which key it is (with CTR, its inner checksum). So a
//! repeated rekey needs no position: it examines each unit. D10, nothing is written before every
//! unit was found good, unless damage was allowed.
//!
//! Must not: write a unit that opened under neither key.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strongroom_format::code;
use strongroom_format::duckdb::{
    DUCKDB_UNDO_UNITS, Format, HeaderState, MainHeader, RekeyPlan, UndoKind,
};
use strongroom_format::layout::is_zero;
use strongroom_keyring::Error;

use crate::disk::{Disk, RekeyStorage};
use crate::file::{Access, DatabaseFile, Geometry, find_opener, main_header, parse_format};
use crate::key::KeyText;
use crate::seal::{Sealer, unused};
use crate::undo::Undo;
use crate::units::{Units, for_each, io_error, threads};
use crate::verify::VerifyCounts;

/// The most bytes whose old state is kept at a time, between two syncs.
const BATCH: usize = 64 << 20;

/// Options of a rekey.
#[derive(Clone, Copy, Debug, Default)]
pub struct RekeyOptions {
    /// Leave units unchanged that open under no key, instead of refusing: they are lost either way.
    pub allow_damaged: bool,
}

/// The result of a rekey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RekeyReport {
    /// Blocks that are under the new key now.
    pub blocks: u64,
    /// Units that this run sealed.
    pub sealed: u64,
    /// Units of zeros, which stay zeros.
    pub zero: u64,
    /// Units left unchanged, because no key opens them.
    pub left: u64,
    /// Units that a crash left half written, and that were restored.
    pub put_back: u64,
    /// Whether this call finished an earlier rekey.
    pub resumed: bool,
}

/// Seals a database under another key in place, or finishes a rekey that was begun. The keys of
/// `old` and of `new` are each tried in order; a rekey that begins now seals for the first of
/// `new`. `progress` gets the bytes done and the bytes in all.
///
/// # Errors
/// SR-1006 when there is no such file; SR-2209 when the database is in use; SR-2210 when it has a
/// write-ahead log; SR-2204 when a key does not fit; SR-2213 when it has the new key already;
/// SR-2200 when it is not of DuckDB, SR-2201 when it is plain, SR-2202 or SR-2203 when its header
/// is damaged or of a format that is not known; before anything is changed, SR-2206, SR-2207,
/// SR-2208 or SR-2216 when a block or header is damaged; SR-2212 when the file of an unfinished
/// rekey is damaged; SR-5001 when the system reports an error. After an error in the middle, the
/// same call finishes the rekey.
pub fn rekey(
    path: &Path,
    old: &[KeyText],
    new: &[KeyText],
    options: RekeyOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RekeyReport, Error> {
    let file = DatabaseFile::open(path, Access::Write)?;
    if let Some(wal) = file.wal() {
        let detail = wal.display().to_string();
        return Err(Error::new(&code::DUCKDB_WAL, detail));
    }
    let shown = file.shown();
    let work = Work {
        site: &file,
        shown: &shown,
        options,
        threads: threads(),
        batch: BATCH,
    };
    work.run(old, new, progress)
}

/// The database and the keys of a rekey.
pub(crate) struct Work<'a> {
    pub(crate) site: &'a dyn RekeyStorage,
    pub(crate) shown: &'a str,
    pub(crate) options: RekeyOptions,
    pub(crate) threads: usize,
    pub(crate) batch: usize,
}

/// A rekey that can continue: the plan is durable, and the file is marked.
struct RekeyInProgress {
    undo: Undo,
    /// The key of the units that are not yet under `to`.
    from: Sealer,
    to: Sealer,
    /// The main header after the rekey.
    header: MainHeader,
    /// Whether some units may be under `to` already.
    resumed: bool,
}

/// Counts of units, which several threads increment.
#[derive(Default)]
struct Counts {
    sealed: AtomicU64,
    zero: AtomicU64,
    left: AtomicU64,
}

type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Work<'_> {
    /// Begins a rekey or finishes one that was begun, and seals every unit for the new key. The
    /// same errors as [`rekey`].
    pub(crate) fn run(
        &self,
        old: &[KeyText],
        new: &[KeyText],
        progress: Progress<'_>,
    ) -> Result<RekeyReport, Error> {
        let mut header = main_header(self.database(), self.shown)?;
        let state = header.state();
        if state == HeaderState::Damaged {
            header = self.restore_half_written_header(&header)?;
        }
        let format = parse_format(&header, self.shown)?;
        let mut report = RekeyReport::default();
        let begun = if state == HeaderState::Whole {
            self.begin(&header, format, [old, new], progress)?
        } else {
            self.resume(&header, format, [old, new], &mut report, progress)?
        };
        let counts = Counts::default();
        self.reseal_all(&begun, &counts, progress)?;
        self.finish(&begun)?;
        report.blocks = begun.undo.plan.blocks;
        report.resumed = begun.resumed;
        report.sealed = counts.sealed.into_inner();
        report.zero = counts.zero.into_inner();
        report.left = counts.left.into_inner();
        Ok(report)
    }

    /// Returns the open database file.
    fn database(&self) -> &dyn Disk {
        self.site.database()
    }

    /// Begins a rekey: checks that every unit is good, writes the plan, durably, to the rekey's
    /// file, and marks the main header, so that DuckDB does not open the file. SR-2204 when no key
    /// of `old` opens the database, or `new` is empty; SR-2213 when the new key is the old one; as
    /// `check`.
    fn begin(
        &self,
        header: &MainHeader,
        format: Format,
        [old, new]: [&[KeyText]; 2],
        progress: Progress<'_>,
    ) -> Result<RekeyInProgress, Error> {
        let from = find_opener(header, format, old)?
            .ok_or_else(|| Error::new(&code::DUCKDB_KEY, self.shown))?;
        let new = new.first().ok_or_else(|| wrong_keys(self.shown))?;
        let to = Sealer::new(new, format)?;
        if from.is_same_key(&to) {
            return Err(Error::new(&code::DUCKDB_SAME_KEY, self.shown));
        }
        let geometry = Geometry::read(self.database(), &[&from], self.shown)?;
        self.check(&from, format, &geometry, progress)?;
        let plan = RekeyPlan {
            block_size: geometry.block_size,
            blocks: geometry.blocks.count,
            old_header: header.clone(),
            new_header: to.with_canary(header)?,
            digest: [0; 32],
        };
        let header = plan.new_header.clone();
        let begun = RekeyInProgress {
            undo: Undo::create(self.site, plan)?,
            from,
            to,
            header,
            resumed: false,
        };
        self.mark(&begun.undo.plan.old_header)?;
        Ok(begun)
    }

    /// Checks that every unit (block or database header) opens, or consists of zeros, or is after
    /// the last one of the database. SR-2206, SR-2207 or SR-2208 when one does not, unless damage
    /// is allowed; SR-5001 when one cannot be read.
    fn check(
        &self,
        key: &Sealer,
        format: Format,
        geometry: &Geometry,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let (units, in_use) = (geometry.blocks, geometry.active.block_count);
        let tally = VerifyCounts::of(key, unused(format), units, in_use);
        let all = total(units);
        tally.headers(self.database(), self.shown)?;
        let mut half = |done: u64, _: u64| progress(done.saturating_mul(units.len as u64) / 2, all);
        tally.blocks(self.database(), self.shown, self.threads, &mut half)?;
        let found = tally.report("", Vec::new());
        let Some(bad) = found.bad.first() else {
            if geometry.missing() == 0 || self.options.allow_damaged {
                return Ok(());
            }
            let detail = format!("{}: {} blocks are missing", self.shown, geometry.missing());
            return Err(Error::new(&code::DUCKDB_TRUNCATED, detail));
        };
        if self.options.allow_damaged {
            return Ok(());
        }
        let code = found.failure().unwrap_or(&code::DUCKDB_UNIT);
        let (count, kind) = (found.bad_count, bad.kind.name());
        let detail = format!(
            "{}: {count} bad, the first is {kind} {}; nothing was changed",
            self.shown, bad.index
        );
        Err(Error::new(code, detail))
    }

    /// Finds out which keys open the old and the new header of an unfinished rekey, and restores
    /// the units that were half written. SR-2212 when the rekey's file is of another state; SR-2204
    /// when a key is missing.
    fn resume(
        &self,
        header: &MainHeader,
        format: Format,
        keys: [&[KeyText]; 2],
        report: &mut RekeyReport,
        progress: Progress<'_>,
    ) -> Result<RekeyInProgress, Error> {
        let before = header.in_state(false);
        let Some(undo) = Undo::open(self.site)? else {
            return self.resume_without_undo(&before, format, keys, progress);
        };
        if undo.plan.old_header != before {
            let detail = format!(
                "{}: it belongs to another state or another database",
                self.shown
            );
            return Err(Error::new(&code::DUCKDB_REKEY_FILE, detail));
        }
        let plan = &undo.plan;
        parse_format(&plan.new_header, self.shown)?;
        let [old, new] = keys;
        // The rekey continues in the direction in which it was begun, or, when the caller exchanged
        // the keys, back.
        let ways = [
            (&plan.old_header, &plan.new_header),
            (&plan.new_header, &plan.old_header),
        ];
        let mut found = None;
        for (from_header, to_header) in ways {
            let from = find_opener(from_header, format, old)?;
            let to = find_opener(to_header, format, new)?;
            if let (None, Some(from), Some(to)) = (&found, from, to) {
                found = Some((from, to, to_header.clone()));
            }
        }
        let (from, to, header) = found.ok_or_else(|| wrong_keys(self.shown))?;
        report.put_back = undo.restore(self.database(), &[&from, &to])?;
        Ok(RekeyInProgress {
            from,
            to,
            header,
            undo,
            resumed: true,
        })
    }

    /// Resumes a rekey whose file is lost: every unit must be intact, unless damage is allowed.
    /// Writes a new plan. SR-2204 when a key is missing; SR-2206 for a unit that is not intact.
    fn resume_without_undo(
        &self,
        before: &MainHeader,
        format: Format,
        [old, new]: [&[KeyText]; 2],
        progress: Progress<'_>,
    ) -> Result<RekeyInProgress, Error> {
        let first = |keys: &[KeyText]| keys.first().map(|key| Sealer::new(key, format)).transpose();
        let (from, to, header) = match (
            find_opener(before, format, old)?,
            find_opener(before, format, new)?,
        ) {
            (Some(from), _) => {
                let to = first(new)?.ok_or_else(|| wrong_keys(self.shown))?;
                let header = to.with_canary(before)?;
                (from, to, header)
            }
            (None, Some(to)) => {
                let from = first(old)?.ok_or_else(|| wrong_keys(self.shown))?;
                (from, to, before.clone())
            }
            (None, None) => return Err(wrong_keys(self.shown)),
        };
        let geometry = Geometry::read(self.database(), &[&from, &to], self.shown)?;
        if !self.options.allow_damaged {
            self.check_all_units(&[&from, &to], &geometry, progress)?;
        }
        let plan = RekeyPlan {
            block_size: geometry.block_size,
            blocks: geometry.blocks.count,
            old_header: before.clone(),
            new_header: if header == *before {
                from.with_canary(before)?
            } else {
                header.clone()
            },
            digest: [0; 32],
        };
        Ok(RekeyInProgress {
            undo: Undo::create(self.site, plan)?,
            from,
            to,
            header,
            resumed: true,
        })
    }

    /// Checks that every unit (block or database header) that the database uses opens under one of
    /// the keys, or consists of zeros. SR-2206 for one that does not; SR-5001 when one cannot be
    /// read.
    fn check_all_units(
        &self,
        keys: &[&Sealer],
        geometry: &Geometry,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let all = total(geometry.blocks);
        for units in [Units::headers(), geometry.blocks] {
            let in_use = match units.kind {
                UndoKind::Blocks => geometry.active.block_count,
                UndoKind::DatabaseHeaders => units.count,
            };
            for_each(
                0..units.count.min(in_use),
                self.threads,
                || vec![0_u8; units.len],
                |unit, number| {
                    let read = self.database().read_at(unit, units.offset(number));
                    read.map_err(io_error(self.shown))?;
                    match is_zero(unit) || crate::undo::opens(keys, unit) {
                        true => Ok(()),
                        false => Err(self.lost(units, number)),
                    }
                },
                &mut |done| progress(done.saturating_mul(units.len as u64) / 2, all),
            )?;
        }
        Ok(())
    }

    /// Returns the marked header of the plan for a main header that is neither marked nor intact,
    /// if that header is the plan's one, half replaced by the final one. SR-2202 otherwise.
    fn restore_half_written_header(&self, header: &MainHeader) -> Result<MainHeader, Error> {
        let damaged = || Error::new(&code::DUCKDB_HEADER, self.shown);
        let undo = Undo::open(self.site)?.ok_or_else(damaged)?;
        let marked = undo.plan.old_header.in_state(true);
        let old = undo.plan.old_header.as_bytes();
        let mut three = marked
            .as_bytes()
            .iter()
            .zip(undo.plan.new_header.as_bytes());
        let mixed = header.as_bytes().iter().zip(old).all(|(found, old)| {
            let ends = three.next();
            found == old || ends.is_some_and(|(marked, new)| found == marked || found == new)
        });
        mixed.then_some(marked).ok_or_else(damaged)
    }

    /// Inverts the checksum of the main header, durably, so that DuckDB does not open the file,
    /// whatever key it gets. These 8 bytes are within one sector. SR-5001 when the system reports
    /// an error.
    fn mark(&self, header: &MainHeader) -> Result<(), Error> {
        let marked = header.in_state(true);
        let checksum = strongroom_format::duckdb::duckdb_main_layout::CHECKSUM;
        let bytes = marked.as_bytes().get(..checksum.len).unwrap_or_default();
        let disk = self.database();
        let written = disk.write_at(bytes, 0).and_then(|()| disk.sync());
        written.map_err(io_error(self.shown))
    }

    /// Seals all blocks and then both database headers for the new key, in batches whose old bytes
    /// are saved first. A resumed rekey leaves out batches that are done. SR-2206 for a block or
    /// header that opens under no key, unless damage is allowed; SR-5001 when the system reports an
    /// error.
    fn reseal_all(
        &self,
        begun: &RekeyInProgress,
        counts: &Counts,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let plan = &begun.undo.plan;
        let blocks = Units::blocks(plan.block_size, plan.blocks);
        let all = total(blocks);
        for units in [blocks, Units::headers()] {
            let most = (self.batch / units.len).clamp(1, DUCKDB_UNDO_UNITS);
            let mut first = 0;
            while first < units.count {
                let rest = usize::try_from(units.count - first).unwrap_or(usize::MAX);
                let count = rest.min(most);
                if !begun.resumed || self.has_units_left(begun, units, first, count)? {
                    self.reseal(begun, counts, units, first, count)?;
                }
                first += count as u64;
                let done = first.saturating_mul(units.len as u64);
                progress((all / 2).saturating_add(done / 2).min(all), all);
            }
        }
        Ok(())
    }

    /// Whether one of `count` units (blocks or headers) from number `first` on is neither under the
    /// new key nor zeros. SR-5001 when one cannot be read.
    fn has_units_left(
        &self,
        begun: &RekeyInProgress,
        units: Units,
        first: u64,
        count: usize,
    ) -> Result<bool, Error> {
        let left = AtomicBool::new(false);
        for_each(
            first..first.saturating_add(count as u64),
            self.threads,
            || vec![0_u8; units.len],
            |unit, number| {
                let read = self.database().read_at(unit, units.offset(number));
                read.map_err(io_error(self.shown))?;
                if !is_zero(unit) && begun.to.open(unit).is_err() {
                    left.store(true, Ordering::Relaxed);
                }
                Ok(())
            },
            &mut |_| {},
        )?;
        Ok(left.into_inner())
    }

    /// Saves the old bytes of `count` units from number `first` on in the rekey's file, then seals
    /// the units for the new key, both durably. A unit that opens under no key stays as it is if
    /// damage is allowed or it is after the database's last block; otherwise SR-2206. SR-5001 when
    /// the system reports an error.
    fn reseal(
        &self,
        begun: &RekeyInProgress,
        counts: &Counts,
        units: Units,
        first: u64,
        count: usize,
    ) -> Result<(), Error> {
        let kept = begun.undo.save(self.database(), units, first, count);
        kept.map_err(io_error("the rekey's file"))?;
        for_each(
            first..first.saturating_add(count as u64),
            self.threads,
            || [vec![0_u8; units.len], vec![0_u8; units.len]],
            |[sealed, unit], number| {
                let offset = units.offset(number);
                let read = self.database().read_at(sealed, offset);
                read.map_err(io_error(self.shown))?;
                if is_zero(sealed) {
                    return count_one(&counts.zero);
                }
                unit.copy_from_slice(sealed);
                if begun.from.open(unit).is_ok() {
                    begun.to.seal(unit)?;
                    let written = self.database().write_at(unit, offset);
                    written.map_err(io_error(self.shown))?;
                    return count_one(&counts.sealed);
                }
                if begun.resumed && begun.to.open(sealed).is_ok() {
                    return Ok(());
                }
                self.leave(begun, units, number)?;
                count_one(&counts.left)
            },
            &mut |_| {},
        )?;
        self.database().sync().map_err(io_error(self.shown))
    }

    /// Checks that a unit which opens under no key may stay as it is: the caller allowed damage, or
    /// it is after the last block of the database. SR-2206 otherwise.
    fn leave(&self, begun: &RekeyInProgress, units: Units, number: u64) -> Result<(), Error> {
        if self.options.allow_damaged {
            return Ok(());
        }
        let geometry = Geometry::read(self.database(), &[&begun.from, &begun.to], self.shown)?;
        let beyond = units.kind == UndoKind::Blocks && number >= geometry.active.block_count;
        if beyond {
            return Ok(());
        }
        Err(self.lost(units, number))
    }

    /// Returns the error SR-2206 for a unit that opens under neither key.
    fn lost(&self, units: Units, number: u64) -> Error {
        let what = match units.kind {
            UndoKind::Blocks => "block",
            UndoKind::DatabaseHeaders => "database header",
        };
        let detail = format!("{}: {what} {number} opens under neither key", self.shown);
        Error::new(&code::DUCKDB_UNIT, detail)
    }

    /// Writes the main header of the new key, durably, and removes the rekey's file. SR-5001 when
    /// the system reports an error.
    fn finish(&self, begun: &RekeyInProgress) -> Result<(), Error> {
        let disk = self.database();
        let written = disk
            .write_at(begun.header.as_bytes(), 0)
            .and_then(|()| disk.sync());
        written.map_err(io_error(self.shown))?;
        self.site
            .remove_undo()
            .map_err(io_error("removing the rekey's file"))
    }
}

/// Returns the length of all blocks together, in bytes.
fn total(blocks: Units) -> u64 {
    blocks.count.saturating_mul(blocks.len as u64)
}

/// Adds one to a counter. Never fails: it returns a result so that it can be the last expression of
/// a unit's work.
fn count_one(counter: &AtomicU64) -> Result<(), Error> {
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Returns the error SR-2204 for keys of which one does not belong to the database.
fn wrong_keys(shown: &str) -> Error {
    let detail = format!("{shown}: a rekey needs the key that the database has, and the new one");
    Error::new(&code::DUCKDB_KEY, detail)
}

#[cfg(test)]
#[path = "rekey/tests.rs"]
mod tests;
