//! Rollback journals: head, marks, segments, slots, shadow; read as SQLite reads a hot one, and
//! then begun anew.
//!
//! Must not: know what is right for a journal that nobody changed; the other tests do.

use std::collections::BTreeSet;
use std::sync::Arc;

use strongroom_format::aad::Role;
use strongroom_format::header::HEADER_LEN;
use strongroom_format::journal::{
    JOURNAL_CHUNK, JOURNAL_HEAD, JOURNAL_LINK, JOURNAL_MARKS, JOURNAL_SHADOW, JournalMark,
    JournalState, Segment, journal_slot_layout,
};
use strongroom_format::sqlite::{AuxKind, Prologue};
use strongroom_keyring::Purpose;

use super::memory::MemoryFile;
use super::{Choices, PAGE, damage, database};
use crate::io_methods::IoMethods as _;
use crate::journal::head::seal_mark;
use crate::journal::slot::{seal_slot, shadow_of};
use crate::journal::{JournalFile, JournalOwner, open_slot};
use crate::page_tail::TAIL;
use crate::seal::{UnitKey, unit_key};
use crate::sealed::SealedDatabase;
use crate::shared_state::SharedState;

/// The content of the chunks. It differs from every byte that SQLite writes over headers.
const FILLING: u8 = 0x5e;
/// SQLite's own part of a segment's header.
const HEADER: usize = 28;

fn prologue(choices: &mut Choices<'_>, sealed: &SealedDatabase, page1: &[u8]) -> Prologue {
    let opened = sealed.opened_header();
    let flags = choices.byte();
    let mut page1_before = [0; TAIL];
    if flags & 3 != 3 {
        page1_before.copy_from_slice(&page1[PAGE - TAIL..]);
    }
    Prologue {
        kind: if flags & 0x70 == 0x70 {
            AuxKind::Wal
        } else {
            AuxKind::Journal
        },
        unit: if flags & 0x0c == 0x0c { 4096 } else { 512 },
        epoch: opened.object.epoch() + u32::from(flags & 0x83 == 0x83),
        object_id: opened.object.object_id(),
        salt: [flags; 32],
        page1_before,
        page1_nonce: [0; 12],
    }
}

fn mark(choices: &mut Choices<'_>) -> JournalMark {
    let state = match choices.byte() % 3 {
        0 => JournalState::Counted,
        1 => JournalState::Uncounted,
        _ => JournalState::Ended,
    };
    JournalMark {
        sequence: choices.number(),
        state,
        newest: Segment {
            at: choices.number().wrapping_mul(JOURNAL_CHUNK as u64)
                / (1 + u64::from(choices.byte() & 1)),
            records: u32::try_from(choices.number()).unwrap_or(u32::MAX),
        },
        length: choices.number(),
    }
}

/// A journal's file, the number of its slots, and whether there is a shadow of one.
fn file(
    choices: &mut Choices<'_>,
    key: &UnitKey,
    prologue: &Prologue,
) -> Option<(Vec<u8>, usize, bool)> {
    let mut out = vec![0; JOURNAL_HEAD];
    for at in [0, 512] {
        if choices.byte() & 7 != 7 {
            let bytes = prologue.to_bytes();
            out[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
    let slots = usize::from(choices.byte() % 12);
    let mut links = BTreeSet::new();
    for index in 0..slots {
        let len = match choices.byte() {
            kind if kind < 200 => JOURNAL_CHUNK,
            _ => choices.below(JOURNAL_CHUNK + 1),
        };
        let mut chunk = vec![FILLING; len];
        let link = Segment {
            at: choices.number().wrapping_mul(JOURNAL_CHUNK as u64),
            records: u32::try_from(choices.number()).unwrap_or(0),
        };
        let place = JOURNAL_LINK..JOURNAL_LINK + link.to_link().len();
        if choices.byte() & 1 == 0
            && let Some(place) = chunk.get_mut(place)
        {
            place.copy_from_slice(&link.to_link());
            links.insert(index);
        }
        // Sometimes another's place.
        let sealed_for = index as u64 + u64::from(choices.byte() == 255);
        seal_slot(key, sealed_for, &chunk, &mut out).ok()?;
    }
    for _ in 0..choices.byte() % 3 {
        let mark = mark(choices);
        let at = JOURNAL_MARKS[mark.pair()];
        out[at..at + 1024].copy_from_slice(&seal_mark(key, &mark).ok()?);
    }
    let has_shadow = choices.byte() & 3 == 1 && slots > 0;
    if has_shadow {
        let index = choices.below(slots);
        let at = JOURNAL_HEAD + index * journal_slot_layout::SIZE;
        let former = shadow_of(index as u64, &out[at..at + journal_slot_layout::SIZE]);
        out[JOURNAL_SHADOW..JOURNAL_SHADOW + former.len()].copy_from_slice(&former);
    }
    Some((out, slots, has_shadow))
}

/// A journal that the input describes, found in a file.
pub fn journal(input: &[u8]) {
    let choices = &mut Choices(input);
    let (header, sealed) = database();
    let mut main = header;
    main.resize(HEADER_LEN, 0);
    let mut page1 = vec![3; PAGE];
    page1[PAGE - TAIL..].fill(9);
    main.extend_from_slice(&page1);
    let prologue = prologue(choices, &sealed, &page1);
    let object = &sealed.opened_header().object;
    let Ok(key) = unit_key(object, &prologue, Role::Journal, Purpose::Journal) else {
        return;
    };
    let Some((mut bytes, slots, has_shadow)) = file(choices, &key, &prologue) else {
        return;
    };
    damage(choices, &mut bytes);
    // Chunks that can be opened where they stand; of all others no byte may be seen.
    let good: BTreeSet<usize> = (0..slots)
        .filter(|index| {
            let at = JOURNAL_HEAD + index * journal_slot_layout::SIZE;
            let slot = bytes
                .get(at..at + journal_slot_layout::SIZE)
                .map(<[u8]>::to_vec);
            slot.is_some_and(|mut slot| open_slot(&key, *index as u64, &mut slot).is_some())
        })
        .collect();
    let (mut main, mut below) = (MemoryFile::new(main), MemoryFile::new(bytes));
    let of = JournalOwner {
        sealed,
        main: main.lower(),
        shared: Arc::new(SharedState::default()),
    };
    let mut found = JournalFile::new(below.lower(), of);
    let mut out = [0; 1];
    let _probed = found.read(&mut out, 0);
    // SQLite asks for the size before anything else, and goes no further when that is refused.
    let Ok(size) = found.size() else {
        return;
    };
    assert!(
        size <= (slots * JOURNAL_CHUNK) as u64,
        "no more than there is"
    );
    for _ in 0..16 {
        let at = match choices.byte() & 3 {
            0 => choices.number(),
            1 => choices.number().wrapping_mul(JOURNAL_CHUNK as u64),
            2 => size.saturating_sub(choices.number()),
            _ => choices.number().wrapping_add(HEADER as u64),
        };
        let len = [1, 4, 8, 12, 20, PAGE, PAGE + 8, 512][usize::from(choices.byte() & 7)];
        let mut out = vec![0xee; len];
        if found.read(&mut out, at).is_err() {
            continue;
        }
        assert!(
            at.saturating_add(len as u64) <= size,
            "a read beyond the end"
        );
        for (at, byte) in (at..).zip(&out) {
            let index = usize::try_from(at).unwrap_or(0) / JOURNAL_CHUNK;
            let is_filling = *byte == FILLING && !has_shadow;
            assert!(
                !is_filling || good.contains(&index),
                "a chunk that is not authentic, at {at}"
            );
        }
    }
    write_on(choices, &mut found);
    let _closed = found.before_close();
}

/// SQLite begins its own transaction, in whatever was there.
fn write_on(choices: &mut Choices<'_>, found: &mut JournalFile) {
    let mut at = 0_u64;
    for _ in 0..choices.byte() % 8 {
        let kind = choices.byte() % 6;
        let done = match kind {
            0 => found.write(
                &[0; JOURNAL_CHUNK],
                at.next_multiple_of(JOURNAL_CHUNK as u64),
            ),
            1 => found.write(&[FILLING; PAGE + 8], at),
            2 => found.sync(2),
            3 => found.truncate(choices.number() & 0xffff),
            4 => found.write(&[0; HEADER], 0),
            _ => found.read(&mut [0; PAGE], choices.number()),
        };
        if done.is_ok() && kind < 2 {
            at = found.size().unwrap_or(0);
        }
    }
}
