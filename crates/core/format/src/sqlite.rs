//! Layouts of sealed SQLite: the page tail, the prologue of logs and journals, and the units of
//! write-ahead logs. What is a rollback journal's alone is in `journal.rs`.
//!
//! Specified in docs/spec/sqlite.md. All arithmetic between SQLite's offsets ("logical") and the
//! file's ("physical") lives here, so that it is stated and tested once. Must not: seal or open
//! anything.

use crate::FORMAT_VERSION;
use crate::header::HEADER_LEN;
use crate::layout::{array, layout, put, u16_at, u32_at, zero_at};

/// Reserved bytes at the end of each page (SQLite's byte 20 of page 1).
pub const PAGE_RESERVE: u32 = 32;
/// Bytes that sealing adds to a log or journal unit: nonce and tag.
pub const SEAL_OVERHEAD: usize = 28;
/// Length of SQLite's WAL header.
pub const WAL_HEADER: usize = 32;
/// Length of SQLite's WAL frame header.
pub const WAL_FRAME_HEADER: usize = 24;
/// First bytes of a sealed log. To SQLite they are the header of a log of a later version, with a
/// valid checksum: an SQLite without the VFS says "unable to open" and leaves the log alone
/// (wal.c, `walIndexRecover`), where it would delete one in which it finds no frame.
pub const WAL_MAGIC: [u8; 32] = [
    0x37, 0x7f, 0x06, 0x82, 0x53, 0x52, 0x00, 0x01, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00,
    0x00, //
    0x53, 0x54, 0x52, 0x4f, 0x4e, 0x47, 0x52, 0x4d, 0xdc, 0x93, 0xc7, 0x5f, 0xb2, 0x0a, 0x30, 0xf8,
];
/// First bytes of a sealed journal. The first is zero, so that an SQLite without the VFS takes
/// the journal for one that is not hot (pager.c, `hasHotJournal`) and leaves it alone.
pub const JOURNAL_MAGIC: [u8; 32] = *b"\0STRONGROOM JOURNAL\r\n\x1a\n\0\0\0\0\0\0\0\0\0";
/// First bytes of a sealed super-journal.
pub const SUPER_MAGIC: [u8; 32] = *b"\x89STRONGROOM SUPER\r\n\x1a\n\0\0\0\0\0\0\0\0\0\0\0";

layout! {
    /// Layout of the reserved bytes at the end of a sealed page.
    tail_layout, 32, {
        NONCE @ 0, 12;
        TAG @ 12, 16;
        EPOCH @ 28, 4;
    }
}

layout! {
    /// Layout of the prologue of a log, journal or super-journal.
    prologue_layout, 144, {
        MAGIC @ 0, 32;
        VERSION @ 32, 2;
        KIND @ 34, 2;
        UNIT @ 36, 4;
        EPOCH @ 40, 4;
        RESERVED_A @ 44, 4;
        OBJECT_ID @ 48, 16;
        SALT @ 64, 32;
        PAGE1_BEFORE @ 96, 32;
        PAGE1_NONCE @ 128, 12;
        RESERVED_B @ 140, 4;
    }
}

layout! {
    /// Layout of a super-journal's slot: its file key, wrapped for one participating database.
    super_slot_layout, 80, {
        OBJECT_ID @ 0, 16;
        EPOCH @ 16, 4;
        NONCE @ 20, 12;
        KEY @ 32, 32;
        TAG @ 64, 16;
    }
}

/// Length of a prologue, in bytes.
pub const PROLOGUE_LEN: u64 = prologue_layout::SIZE as u64;

/// What a prologue introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxKind {
    /// A write-ahead log.
    Wal,
    /// A rollback journal.
    Journal,
    /// A super-journal.
    SuperJournal,
}

impl AuxKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Wal, Self::Journal, Self::SuperJournal];

    /// The kind whose magic `bytes` begin with. `None` when it is no kind's magic.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| bytes.starts_with(kind.magic()))
    }

    /// First bytes of a file of this kind.
    #[must_use]
    pub const fn magic(self) -> &'static [u8; 32] {
        match self {
            Self::Wal => &WAL_MAGIC,
            Self::Journal => &JOURNAL_MAGIC,
            Self::SuperJournal => &SUPER_MAGIC,
        }
    }

    /// The number in the prologue.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Wal => 1,
            Self::Journal => 2,
            Self::SuperJournal => 3,
        }
    }
}

/// The prologue of a log or journal. Bound to every unit after it through the file's key
/// derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prologue {
    /// What follows.
    pub kind: AuxKind,
    /// Page size (log) or chunk size (journal), in bytes.
    pub unit: u32,
    /// Key epoch of the data key that the file's key is derived from.
    pub epoch: u32,
    /// The database's object id; zero in a super-journal.
    pub object_id: [u8; 16],
    /// Random; new whenever the file starts again. Its first 16 bytes are a log's generation.
    pub salt: [u8; 32],
    /// Journal: the reserved bytes of page 1 as they stood on disk when the transaction began.
    pub page1_before: [u8; 32],
    /// Journal: the nonce that the transaction gives page 1; its last 4 bytes count rewrites.
    pub page1_nonce: [u8; 12],
}

impl Prologue {
    /// Parses the prologue of a sealed log or journal from the first 144 bytes. `None` when they
    /// are fewer, or not a prologue that this version writes. Nothing is authenticated.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        use prologue_layout as at;
        let kind = AuxKind::of(record)?;
        let known = u16_at(record, at::VERSION) == Some(FORMAT_VERSION)
            && u16_at(record, at::KIND) == Some(kind.number())
            && zero_at(record, at::RESERVED_A)
            && zero_at(record, at::RESERVED_B);
        if !known {
            return None;
        }
        Some(Self {
            kind,
            unit: u32_at(record, at::UNIT)?,
            epoch: u32_at(record, at::EPOCH)?,
            object_id: array(record, at::OBJECT_ID)?,
            salt: array(record, at::SALT)?,
            page1_before: array(record, at::PAGE1_BEFORE)?,
            page1_nonce: array(record, at::PAGE1_NONCE)?,
        })
    }

    /// The 144 bytes of the prologue.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; prologue_layout::SIZE] {
        use prologue_layout as at;
        let mut out = [0; prologue_layout::SIZE];
        let done = [
            put(&mut out, at::MAGIC, self.kind.magic()),
            put(&mut out, at::VERSION, &FORMAT_VERSION.to_le_bytes()),
            put(&mut out, at::KIND, &self.kind.number().to_le_bytes()),
            put(&mut out, at::UNIT, &self.unit.to_le_bytes()),
            put(&mut out, at::EPOCH, &self.epoch.to_le_bytes()),
            put(&mut out, at::OBJECT_ID, &self.object_id),
            put(&mut out, at::SALT, &self.salt),
            put(&mut out, at::PAGE1_BEFORE, &self.page1_before),
            put(&mut out, at::PAGE1_NONCE, &self.page1_nonce),
        ];
        assert!(done.iter().all(Option::is_some), "prologue layout");
        out
    }

    /// The generation that an anchor names: the salt's first 16 bytes.
    #[must_use]
    pub fn generation(&self) -> [u8; 16] {
        let mut out = [0; 16];
        for (to, from) in out.iter_mut().zip(self.salt) {
            *to = from;
        }
        out
    }
}

/// Where the units of a sealed write-ahead log lie.
#[derive(Clone, Copy, Debug)]
pub struct WalGeometry {
    /// Page size in bytes.
    pub page_size: u32,
}

/// Physical length of a sealed WAL header.
pub const WAL_HEADER_SEALED: u64 = 60;
/// Physical offset of frame 0.
pub const WAL_FRAMES: u64 = PROLOGUE_LEN + WAL_HEADER_SEALED;
/// Length of what stands before frame 0: prologue and sealed header.
pub const WAL_HEAD: usize = prologue_layout::SIZE + 60;
const _: () = assert!(WAL_HEAD as u64 == WAL_FRAMES, "WAL head");

impl WalGeometry {
    /// Returns the length in bytes of a frame as SQLite sees it: a header of 24 bytes and a page.
    #[must_use]
    pub const fn frame_logical(self) -> u64 {
        (self.page_size as u64).saturating_add(24)
    }

    /// Returns the length in bytes of a sealed frame in the file: 28 more, for nonce and tag.
    #[must_use]
    pub const fn frame_physical(self) -> u64 {
        self.frame_logical().saturating_add(28)
    }

    /// Returns the physical offset in bytes of frame `index`, from 0.
    #[must_use]
    pub const fn frame_offset(self, index: u64) -> u64 {
        WAL_FRAMES.saturating_add(index.saturating_mul(self.frame_physical()))
    }

    /// The index of the frame that holds logical offset `at`, and the offset within that frame's
    /// plaintext. `None` below 32, where SQLite's log header is.
    #[must_use]
    pub const fn frame_at(self, at: u64) -> Option<(u64, u64)> {
        let Some(from_frames) = at.checked_sub(32) else {
            return None;
        };
        match (
            from_frames.checked_div(self.frame_logical()),
            from_frames.checked_rem(self.frame_logical()),
        ) {
            (Some(index), Some(within)) => Some((index, within)),
            _ => None,
        }
    }

    /// The size in bytes that SQLite sees for a physical size. 0 when the file ends before frame 0.
    /// Of a torn last frame, what is more than the 28 bytes of nonce and tag counts.
    #[must_use]
    pub const fn logical_size(self, physical: u64) -> u64 {
        let Some(from_frames) = physical.checked_sub(WAL_FRAMES) else {
            return 0;
        };
        let (Some(whole), Some(rest)) = (
            from_frames.checked_div(self.frame_physical()),
            from_frames.checked_rem(self.frame_physical()),
        ) else {
            return 0;
        };
        let partial = rest.saturating_sub(28);
        whole
            .saturating_mul(self.frame_logical())
            .saturating_add(32)
            .saturating_add(partial)
    }

    /// The physical size in bytes for the logical size that SQLite truncates to. Below SQLite's log
    /// header of 32 bytes it is 0: the prologue goes too.
    #[must_use]
    pub const fn physical_size(self, logical: u64) -> u64 {
        match self.frame_at(logical) {
            None => 0,
            Some((whole, 0)) => self.frame_offset(whole),
            Some((whole, partial)) => self
                .frame_offset(whole)
                .saturating_add(28)
                .saturating_add(partial),
        }
    }
}

/// Physical offset, in bytes, of page `number` (from 1) of a sealed database.
#[must_use]
pub const fn page_offset(number: u64, page_size: u32) -> u64 {
    (HEADER_LEN as u64).saturating_add(number.saturating_sub(1).saturating_mul(page_size as u64))
}

/// The number of the page that SQLite never writes because it holds the lock bytes (SQLite's
/// `PENDING_BYTE_PAGE`). 0 when `page_size` is 0.
#[must_use]
pub const fn lock_byte_page(page_size: u32) -> u64 {
    match 0x4000_0000_u64.checked_div(page_size as u64) {
        Some(page) => page.saturating_add(1),
        None => 0,
    }
}
