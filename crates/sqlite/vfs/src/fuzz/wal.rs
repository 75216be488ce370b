//! Write-ahead logs: prologue, header, frames; read as recovery, readers and checkpoints do, and
//! then written on.
//!
//! Must not: know what is right for a log that nobody changed; the other tests do.

use std::sync::Arc;

use strongroom_format::aad::Role;
use strongroom_format::header::Anchor;
use strongroom_format::sqlite::{
    AuxKind, Prologue, WAL_FRAME_HEADER, WAL_FRAMES, WAL_HEADER, WalGeometry,
};
use strongroom_keyring::Purpose;

use super::memory::MemoryFile;
use super::{Choices, PAGE, damage, database};
use crate::io_methods::IoMethods as _;
use crate::seal::{UnitKey, unit_key};
use crate::sealed::SealedDatabase;
use crate::wal::WalFile;

/// Plaintext of frame `index`: no byte is zero, and none is another frame's.
fn filling(index: usize) -> u8 {
    0x51 + u8::try_from(index & 0x1f).unwrap_or(0)
}

/// Frames in the file.
const FRAMES: usize = 6;
const UNIT: usize = WAL_FRAME_HEADER + PAGE;

fn geometry() -> WalGeometry {
    WalGeometry {
        page_size: u32::try_from(PAGE).unwrap_or(0),
    }
}

fn offset(index: usize) -> usize {
    usize::try_from(geometry().frame_offset(index as u64)).unwrap_or(0)
}

/// A log, its database, and the key of its frames.
struct Log {
    main: Vec<u8>,
    bytes: Vec<u8>,
    sealed: Arc<SealedDatabase>,
    key: UnitKey,
}

fn made(choices: &mut Choices<'_>) -> Option<Log> {
    let (mut main, sealed) = database();
    let flags = choices.byte();
    let opened = sealed.opened_header();
    let object = &opened.object;
    let prologue = Prologue {
        kind: match flags & 0x30 {
            0x30 => AuxKind::Journal,
            _ => AuxKind::Wal,
        },
        unit: match flags & 0x0c {
            0x0c => 1024,
            _ => geometry().page_size,
        },
        epoch: object.epoch() + u32::from(flags & 0xc0 == 0xc0),
        object_id: object.object_id(),
        salt: [flags; 32],
        page1_before: [0; 32],
        page1_nonce: [0; 12],
    };
    if flags & 3 != 3 {
        let sequence = u64::from(choices.byte()) + 2;
        let anchor = object
            .seal_anchor(sequence, prologue.generation(), None, 0)
            .ok()?;
        let at = Anchor::offset(sequence);
        main[at..at + anchor.to_bytes().len()].copy_from_slice(&anchor.to_bytes());
    }
    let key = unit_key(object, &prologue, Role::WalFrame, Purpose::Wal).ok()?;
    let mut header = [1; WAL_HEADER];
    header[16..24].fill(choices.byte() & 3);
    let mut bytes = prologue.to_bytes().to_vec();
    key.seal(Role::WalHeader, 0, &[&header], &mut bytes).ok()?;
    assert_eq!(bytes.len() as u64, WAL_FRAMES, "the head's length");
    for index in 0..FRAMES {
        // Sometimes another's place.
        let sealed_for = index as u64 + u64::from(choices.byte() == 255);
        let plain = [filling(index); UNIT];
        key.seal(Role::WalFrame, sealed_for, &[&plain], &mut bytes)
            .ok()?;
    }
    Some(Log {
        main,
        bytes,
        sealed,
        key,
    })
}

/// A log that the input describes.
pub fn wal(input: &[u8]) {
    let choices = &mut Choices(input);
    let Some(mut made) = made(choices) else {
        return;
    };
    damage(choices, &mut made.bytes);
    // Frames that can be opened where they stand; of all others no byte may be seen.
    let good: Vec<bool> = (0..FRAMES)
        .map(|index| {
            let unit = made.bytes.get(offset(index)..offset(index + 1));
            let unit = unit.map(<[u8]>::to_vec);
            unit.is_some_and(|mut unit| {
                let opened = made.key.open(Role::WalFrame, index as u64, &mut unit);
                opened.is_some()
            })
        })
        .collect();
    let mut main = MemoryFile::new(made.main);
    let mut below = MemoryFile::new(made.bytes);
    let mut log = WalFile::new(below.lower(), main.lower(), made.sealed, Arc::default());
    for _ in 0..16 {
        let index = usize::from(choices.byte() % 8);
        let (within, len) = match choices.byte() % 6 {
            0 => (0, WAL_FRAME_HEADER),
            1 => (0, UNIT),
            2 => (16, 8),
            3 => (choices.below(UNIT), choices.below(UNIT)),
            _ => (WAL_FRAME_HEADER, PAGE),
        };
        let mut out = vec![0xee; len];
        let at = WAL_HEADER + index * UNIT + within;
        if log.read(&mut out, at as u64).is_ok() {
            let right = good.get(index) == Some(&true) && within + len <= UNIT;
            let shown = |byte: &u8| *byte == 0 || (right && *byte == filling(index));
            assert!(out.iter().all(shown), "frame {index} is not authentic");
        }
        let _header = log.read(&mut [0; WAL_HEADER], 0);
    }
    write_on(choices, &mut log);
}

/// SQLite's writer, in whatever was there.
fn write_on(choices: &mut Choices<'_>, log: &mut WalFile) {
    let mut header = [1; WAL_HEADER];
    header[16..24].fill(choices.byte() & 3);
    let mut frame = [2; WAL_FRAME_HEADER];
    frame[8..16].copy_from_slice(&header[16..24]);
    for _ in 0..choices.byte() % 8 {
        let at = (WAL_HEADER + usize::from(choices.byte() % 8) * UNIT) as u64;
        let _done = match choices.byte() % 7 {
            0 => log.write(&header, 0),
            1 => log.write(&frame, at),
            2 => log.write(&[0x77; PAGE], at + WAL_FRAME_HEADER as u64),
            3 => log.write(&[0x66; 8], at.wrapping_add(choices.number())),
            4 => log.sync(2),
            5 => log.truncate(choices.number()),
            _ => log.size().map(|_| ()),
        };
    }
    let _closed = log.before_close();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQLite writes a frame's header and then its page. When it gives up in between, nothing is
    /// damaged.
    #[test]
    fn a_header_whose_page_never_comes_is_no_damage() {
        let mut made = made(&mut Choices(&[])).unwrap();
        let mut main = MemoryFile::new(std::mem::take(&mut made.main));
        let mut below = MemoryFile::new(std::mem::take(&mut made.bytes));
        let sealed = Arc::clone(&made.sealed);
        let mut log = WalFile::new(below.lower(), main.lower(), sealed, Arc::default());
        let mut header = [1; WAL_FRAME_HEADER];
        header[8..16].fill(0);
        let at = |index: usize| (WAL_HEADER + index * UNIT) as u64;
        let page = [0x77; PAGE];
        // Behind the last frame, where nothing is; every later call has to work.
        log.write(&header, at(FRAMES)).unwrap();
        log.sync(2).unwrap();
        log.write(&header, at(FRAMES)).unwrap();
        log.write(&header, at(FRAMES)).unwrap();
        log.write(&page, at(FRAMES) + WAL_FRAME_HEADER as u64)
            .unwrap();
        let mut read = [0; PAGE];
        log.read(&mut read, at(FRAMES) + WAL_FRAME_HEADER as u64)
            .unwrap();
        assert_eq!(read, page);
        log.write(&header, at(FRAMES + 1)).unwrap();
        log.before_close().unwrap();
        // A frame that this handle wrote and that is damaged now stays damage, also for a header
        // alone.
        let mut log = WalFile::new(below.lower(), main.lower(), made.sealed, Arc::default());
        log.write(&header, at(FRAMES)).unwrap();
        log.write(&page, at(FRAMES) + WAL_FRAME_HEADER as u64)
            .unwrap();
        let raw = below.lower();
        let place = offset(FRAMES) as u64 + 100;
        raw.write(&[0xff; 32], place).unwrap();
        log.write(&header, at(FRAMES)).unwrap();
        assert!(log.sync(2).is_err());
    }
}
