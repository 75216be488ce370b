//! Verifies the write-ahead log and the rollback journal of a sealed database, unit by unit.
//!
//! Must not: write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::journal::{
    JOURNAL_CHUNK, JOURNAL_HEAD, JOURNAL_MARKS, JOURNAL_SHADOW, JournalState, journal_slot_layout,
    journal_slot_offset, journal_slots,
};
use strongroom_format::sqlite::{
    AuxKind, Prologue, WAL_FRAMES, WAL_HEAD, WalGeometry, prologue_layout,
};
use strongroom_keyring::{Error, Purpose};

use super::report::{BadUnit, UnitKind, VerifyReport};
use crate::journal::{JournalHead, follow_segments, open_shadow, open_slot, segment_length};
use crate::seal::unit_key;
use crate::sealed::OpenedHeader;

/// Verifies the write-ahead log at `path` frame by frame, and adds good and bad frames to the
/// report. `anchor` is the generation that counts; a log of another one is only named as not
/// checked. Does nothing if the log does not exist or is empty. Errors are those of reading.
pub(super) fn verify_wal(
    path: &Path,
    opened: &OpenedHeader,
    anchor: Option<[u8; 16]>,
    report: &mut VerifyReport,
) -> Result<(), Error> {
    let Some((file, length)) = open_beside(path)? else {
        return Ok(());
    };
    let failed = |error| Error::io(path.display().to_string(), error);
    let mut head = [0; WAL_HEAD];
    if read_up_to(&file, &mut head, 0).map_err(failed)? < head.len() {
        report.not_checked.push(
            "the write-ahead log is cut short within its header: it holds nothing".to_owned(),
        );
        return Ok(());
    }
    let id = opened.object.object_id();
    let prologue = Prologue::parse(&head[..prologue_layout::SIZE])
        .filter(|prologue| prologue.kind == AuxKind::Wal && prologue.object_id == id);
    let bad_header = BadUnit {
        kind: UnitKind::WalFrame,
        index: 0,
        offset: 0,
        code: &code::WAL_FRAME,
    };
    let Some(prologue) = prologue else {
        report.bad.push(bad_header);
        return Ok(());
    };
    if anchor != Some(prologue.generation()) {
        report.not_checked.push(
            "the write-ahead log belongs to an earlier state (SR-4006): SQLite ignores it"
                .to_owned(),
        );
        return Ok(());
    }
    let key = unit_key(&opened.object, &prologue, Role::WalFrame, Purpose::Wal)?;
    if key
        .open(Role::WalHeader, 0, &mut head[prologue_layout::SIZE..])
        .is_none()
    {
        report.bad.push(bad_header);
        return Ok(());
    }
    let geometry = WalGeometry {
        page_size: prologue.unit,
    };
    let frames = length.saturating_sub(WAL_FRAMES) / geometry.frame_physical();
    let mut failures = Vec::new();
    let mut good_up_to = 0;
    let mut frame = vec![0; usize::try_from(geometry.frame_physical()).unwrap_or(0)];
    for index in 0..frames {
        file.read_exact_at(&mut frame, geometry.frame_offset(index))
            .map_err(failed)?;
        if key.open(Role::WalFrame, index, &mut frame).is_some() {
            report.frames_ok += 1;
            good_up_to = index + 1;
        } else {
            let offset = geometry.frame_offset(index);
            failures.push(BadUnit {
                kind: UnitKind::WalFrame,
                index: index + 1,
                offset,
                code: &code::WAL_FRAME,
            });
        }
        frame.fill(0);
    }
    split_failures(failures, good_up_to, "frame", report);
    Ok(())
}

/// Adds the failures up to unit `good_up_to` to the bad units of the report, and names the rest as
/// not checked. A failure before a good unit is damage. After the last good unit follow units of an
/// earlier log or transaction, or of a write that a power cut interrupted, or damaged units: these
/// cannot be distinguished.
fn split_failures(failures: Vec<BadUnit>, good_up_to: u64, what: &str, report: &mut VerifyReport) {
    let (damaged, trailing): (Vec<BadUnit>, Vec<BadUnit>) = failures
        .into_iter()
        .partition(|bad| bad.index <= good_up_to);
    report.bad.extend(damaged);
    if let Some(first) = trailing.first() {
        report.not_checked.push(format!(
            "{} {what}s from {what} {} on are not of this {what}s' run: left by an earlier one, cut off while being written, or damaged",
            trailing.len(),
            first.index,
        ));
    }
}

/// Verifies the rollback journal at `path` slot by slot, and adds good and bad slots to the report.
/// Returns whether it is to be played back: the database's file is then not its current state.
/// False if there is no journal, or its head does not parse. Errors are those of reading.
pub(super) fn verify_journal(
    path: &Path,
    opened: &OpenedHeader,
    report: &mut VerifyReport,
) -> Result<bool, Error> {
    let Some((file, length)) = open_beside(path)? else {
        return Ok(false);
    };
    let failed = |error| Error::io(path.display().to_string(), error);
    let bad = |index: u64, offset: u64| BadUnit {
        kind: UnitKind::JournalSlot,
        index,
        offset,
        code: &code::JOURNAL,
    };
    let mut bytes = [0; JOURNAL_HEAD];
    let read = read_up_to(&file, &mut bytes, 0).map_err(failed)?;
    let Some(head) = JournalHead::parse(bytes.get(..read).unwrap_or_default(), opened)? else {
        report.bad.push(bad(0, 0));
        return Ok(false);
    };
    if head.mark.is_some() && !head.has_both_copies(&bytes) {
        report.not_checked.push(
            "one copy of the journal's prologue is damaged; the other one is in force".to_owned(),
        );
    }
    if head.mark_lost {
        report.bad.push(bad(0, JOURNAL_MARKS[0] as u64));
    }
    let is = |state| head.mark.is_some_and(|mark| mark.state == state);
    let uncounted = is(JournalState::Uncounted);
    let slots = journal_slots(length);
    let mut slot = vec![0; journal_slot_layout::SIZE];
    let mut open = |index: u64| -> Result<Option<Vec<u8>>, Error> {
        if index >= slots {
            return Ok(None);
        }
        file.read_exact_at(&mut slot, journal_slot_offset(index))
            .map_err(failed)?;
        let chunk = open_slot(&head.key, index, &mut slot);
        Ok(chunk.or_else(|| {
            let shadow = bytes.get(JOURNAL_SHADOW..).filter(|_| uncounted)?;
            open_shadow(&head.key, index, shadow)
        }))
    };
    // Up to this slot, a slot that does not open is damage.
    let mut counted = 0;
    if let Some(mark) = head.mark.filter(|mark| mark.state == JournalState::Counted) {
        let page_size = opened.object.header().unit_size;
        let records = segment_length(mark.newest.records, page_size);
        let end = mark.newest.at.saturating_add(records).max(mark.length);
        counted = end.div_ceil(JOURNAL_CHUNK as u64);
        if let Err(at) = follow_segments(mark.newest, &mut open)? {
            let index = at / JOURNAL_CHUNK as u64;
            if index < slots && open(index)?.is_some() {
                report.bad.push(bad(index + 1, journal_slot_offset(index)));
            }
        }
        if slots < counted {
            report.bad.push(bad(slots + 1, journal_slot_offset(slots)));
        }
    }
    let mut failures = Vec::new();
    let mut good_up_to = counted;
    for index in 0..slots {
        if open(index)?.is_some() {
            report.slots_ok += 1;
            good_up_to = good_up_to.max(index + 1);
        } else {
            failures.push(bad(index + 1, journal_slot_offset(index)));
        }
    }
    split_failures(failures, good_up_to, "journal slot", report);
    Ok(is_to_be_played_back(&head))
}

/// Whether SQLite would play the journal back: it has a mark, which does not say that the
/// transaction has ended.
fn is_to_be_played_back(head: &JournalHead) -> bool {
    head.mark
        .is_some_and(|mark| mark.state != JournalState::Ended)
}

/// Opens a file for reading, and returns it with its length in bytes. `None` when it does not exist
/// or is empty. SR-5001 for other errors.
fn open_beside(path: &Path) -> Result<Option<(File, u64)>, Error> {
    let failed = |error| Error::io(path.display().to_string(), error);
    match File::open(path) {
        Ok(file) => {
            let length = file.metadata().map_err(failed)?.len();
            Ok((length > 0).then_some((file, length)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Fills as much of `out` as the file has from `at` on, and returns the number of bytes. Tries
/// again when a signal interrupts the read. Fails as the system does.
fn read_up_to(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        let rest = out.get_mut(done..).unwrap_or_default();
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
