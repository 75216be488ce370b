//! Reads the tails in a write-ahead log's frames: for each page, the tail that it had in the
//! database file when the log's generation wrote it for the first time (X2).
//!
//! Must not: use a frame whose transaction does not end in the log.

use std::collections::BTreeMap;

use strongroom_format::aad::Role;
use strongroom_format::sqlite::{
    AuxKind, Prologue, WAL_FRAME_HEADER, WAL_HEAD, WalGeometry, prologue_layout,
};
use strongroom_keyring::{Error, Purpose};

use crate::big_endian::be_u32_at;
use crate::page_tail::{TAIL, Tail};
use crate::seal::{UnitKey, unit_key};
use crate::sealed::OpenedHeader;

/// Reads at an offset of the log. Returns false when the file ends before.
pub(crate) type ReadAt<'a> = &'a mut dyn FnMut(&mut [u8], u64) -> Result<bool, Error>;

/// The tails in the finished transactions of a log. Their frames do not change within a generation,
/// so they are read only once.
#[derive(Default)]
pub(crate) struct LogTails {
    generation: [u8; 16],
    key: Option<UnitKey>,
    /// The number of frames of finished transactions.
    frames: u64,
    first: BTreeMap<u64, Tail>,
}

impl LogTails {
    /// Reads the frames of `generation` that were not read before, and keeps the tails of those
    /// whose transaction ends in the log. If `self` holds another generation, it is emptied first.
    /// Stops at the first frame that is missing or not authentic, which is not an error. Nothing is
    /// added if the log does not begin with this generation.
    pub(crate) fn read_new_frames(
        &mut self,
        opened: &OpenedHeader,
        generation: [u8; 16],
        read: ReadAt<'_>,
    ) -> Result<(), Error> {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
        if self.key.is_none() {
            self.key = key_of(opened, generation, read)?;
        }
        let Some(key) = &self.key else {
            return Ok(());
        };
        let geometry = WalGeometry {
            page_size: opened.object.header().unit_size,
        };
        let physical = usize::try_from(geometry.frame_physical()).unwrap_or(0);
        let mut frame = vec![0; physical];
        let mut unfinished = Vec::new();
        let mut index = self.frames;
        while read(&mut frame, geometry.frame_offset(index))? {
            let Some(plain) = key.open(Role::WalFrame, index, &mut frame) else {
                break;
            };
            let (page, ends) = page_and_commit(plain);
            if let Some(tail) = plain.last_chunk::<TAIL>() {
                unfinished.push((page, *tail));
            }
            index += 1;
            if ends {
                self.frames = index;
                for (page, tail) in unfinished.drain(..) {
                    self.first.entry(page).or_insert(tail);
                }
            }
        }
        frame.fill(0);
        Ok(())
    }

    /// Returns the number of frames that belong to finished transactions.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Yields the number of each page in those frames, in ascending order, with the tail that the
    /// page had in the database before the log.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, &Tail)> {
        self.first.iter().map(|(page, tail)| (*page, tail))
    }

    /// Returns the tail (the last 32 bytes: nonce, tag, epoch) that the page had in the database
    /// before the log wrote it. `None` for a page that is not in the log.
    pub(crate) fn tail_before(&self, page: u64) -> Option<&Tail> {
        self.first.get(&page)
    }
}

/// Derives the frame key of the log's generation. `None` when the log does not begin with that
/// generation, belongs to another database, or its header does not authenticate. Errors are those
/// of `read` and of the cryptography.
fn key_of(
    opened: &OpenedHeader,
    generation: [u8; 16],
    read: ReadAt<'_>,
) -> Result<Option<UnitKey>, Error> {
    let mut head = [0; WAL_HEAD];
    if generation == [0; 16] || !read(&mut head, 0)? {
        return Ok(None);
    }
    let (first, header) = head.split_at_mut(prologue_layout::SIZE);
    let prologue = Prologue::parse(first).filter(|prologue| {
        prologue.kind == AuxKind::Wal
            && prologue.unit == opened.object.header().unit_size
            && prologue.object_id == opened.object.object_id()
            && prologue.generation() == generation
            && opened.cipher(prologue.epoch).is_some()
    });
    let Some(prologue) = prologue else {
        return Ok(None);
    };
    let key = unit_key(&opened.object, &prologue, Role::WalFrame, Purpose::Wal)?;
    let opens = key.open(Role::WalHeader, 0, header).is_some();
    Ok(opens.then_some(key))
}

/// Returns the page number of a frame, and whether the frame ends a transaction (SQLite file
/// format, section 4.1). Panics if the frame holds no page.
fn page_and_commit(frame: &[u8]) -> (u64, bool) {
    assert!(frame.len() > WAL_FRAME_HEADER, "a frame holds a page");
    let number = |at| be_u32_at(frame, at).unwrap_or(0);
    (u64::from(number(0)), number(4) != 0)
}
