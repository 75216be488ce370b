//! The layout of a sealed rollback journal of SQLite: its head, its marks and its slots.
//!
//! Specified in docs/spec/sqlite.md, "Rollback journal". Must not: seal or open anything.

use crate::layout::{layout, put, u16_at, u32_at, u64_at, zero_at};

/// Logical bytes per journal chunk: SQLite's sector size when overwrites are power-safe.
pub const JOURNAL_CHUNK: usize = 512;
/// What the disk writes as a whole; each copy of a prologue or mark has a sector of its own.
pub const SECTOR: usize = 512;
/// Length of the head, after which slot 0 begins: two copies of the prologue and two pairs of
/// marks, a sector each.
pub const JOURNAL_HEAD: usize = 3072;
/// Physical offset of a pair of marks: two copies, one sector each. Marks of odd sequence are in
/// pair 0.
pub const JOURNAL_MARKS: [usize; 2] = [1024, 2048];
/// Where a segment's header (a logical chunk) holds the link to the segment before, in bytes that
/// SQLite does not read.
pub const JOURNAL_LINK: usize = 28;

layout! {
    /// Layout of a rollback journal's slot: one chunk of at most 512 bytes, sealed.
    journal_slot_layout, 544, {
        NONCE @ 0, 12;
        LENGTH @ 12, 2;
        RESERVED @ 14, 2;
        DATA @ 16, 512;
        TAG @ 528, 16;
    }
}

layout! {
    /// Layout of a sealed mark.
    journal_mark_layout, 60, {
        NONCE @ 0, 12;
        DATA @ 12, 32;
        TAG @ 44, 16;
    }
}

layout! {
    /// Layout of a mark's plaintext: how much of the journal is valid.
    mark_layout, 32, {
        SEQUENCE @ 0, 8;
        STATE @ 8, 2;
        RESERVED @ 10, 2;
        RECORDS @ 12, 4;
        SEGMENT @ 16, 8;
        LENGTH @ 24, 8;
    }
}

layout! {
    /// Layout of a segment's link to the segment before it; zero in the first.
    link_layout, 12, {
        SEGMENT @ 0, 8;
        RECORDS @ 8, 4;
    }
}

layout! {
    /// Layout of a shadow: the former version of a slot that is written again, in the pair of marks
    /// that is free.
    journal_shadow_layout, 552, {
        INDEX @ 0, 8;
        SLOT @ 8, 544;
    }
}

/// Physical offset of the shadow: the pair of marks that an uncounted journal, which has one mark
/// only, leaves free.
pub const JOURNAL_SHADOW: usize = JOURNAL_MARKS[1];
/// The smallest page of the system's page cache: a write that a signal ends may be cut at a
/// multiple of it.
pub const CACHE_PAGE: usize = 4096;

/// Physical length of a journal slot.
pub const JOURNAL_SLOT: u64 = journal_slot_layout::SIZE as u64;

/// Returns the physical offset, in bytes, of the slot that holds journal chunk `index`, from 0.
#[must_use]
pub const fn journal_slot_offset(index: u64) -> u64 {
    (JOURNAL_HEAD as u64).saturating_add(index.saturating_mul(JOURNAL_SLOT))
}

/// Returns how many whole slots a journal of this physical size, in bytes, has. A torn last slot
/// does not count.
#[must_use]
pub const fn journal_slots(physical: u64) -> u64 {
    match physical.checked_sub(JOURNAL_HEAD as u64) {
        None => 0,
        Some(body) => match body.checked_div(JOURNAL_SLOT) {
            Some(slots) => slots,
            None => 0,
        },
    }
}

/// Whether the slot of chunk `index` crosses a multiple of [`CACHE_PAGE`], so that it may be cut
/// when the process that writes it is killed.
#[must_use]
pub const fn journal_slot_crosses_cache_page(index: u64) -> bool {
    let within = journal_slot_offset(index) & (CACHE_PAGE as u64).saturating_sub(1);
    within.saturating_add(JOURNAL_SLOT) > CACHE_PAGE as u64
}

/// The state of a journal, which its newest mark has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// To be played back: the segments up to the one that the mark names, each with its count.
    Counted,
    /// To be played back as far as it goes (`synchronous=OFF`).
    Uncounted,
    /// Its transaction has ended.
    Ended,
}

impl JournalState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Counted, Self::Uncounted, Self::Ended];

    /// The number that stands for the state in a mark.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Counted => 1,
            Self::Uncounted => 2,
            Self::Ended => 3,
        }
    }
}

/// A segment: where its header is, and how many records follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Logical offset of the segment's header, a multiple of 512.
    pub at: u64,
    /// Records in it.
    pub records: u32,
}

/// The plaintext of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMark {
    /// From 1; raised by one at each mark of a journal.
    pub sequence: u64,
    /// What the journal is.
    pub state: JournalState,
    /// The newest segment that counts; zero unless the state is `Counted`.
    pub newest: Segment,
    /// Logical length of the valid part of the journal, in bytes: the name of a super-journal may
    /// follow the newest segment's records. Zero unless the state is `Counted`.
    pub length: u64,
}

impl JournalMark {
    /// Parses a mark from exactly 32 bytes. `None` for another length, an unknown state, or
    /// reserved bytes that are not zero.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        use mark_layout as at;
        if record.len() != at::SIZE || !zero_at(record, at::RESERVED) {
            return None;
        }
        let number = u16_at(record, at::STATE)?;
        Some(Self {
            sequence: u64_at(record, at::SEQUENCE)?,
            state: JournalState::ALL
                .into_iter()
                .find(|state| state.number() == number)?,
            newest: Segment {
                at: u64_at(record, at::SEGMENT)?,
                records: u32_at(record, at::RECORDS)?,
            },
            length: u64_at(record, at::LENGTH)?,
        })
    }

    /// The 32 bytes of the mark's plaintext.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; mark_layout::SIZE] {
        use mark_layout as at;
        let mut out = [0; mark_layout::SIZE];
        let done = [
            put(&mut out, at::SEQUENCE, &self.sequence.to_le_bytes()),
            put(&mut out, at::STATE, &self.state.number().to_le_bytes()),
            put(&mut out, at::RECORDS, &self.newest.records.to_le_bytes()),
            put(&mut out, at::SEGMENT, &self.newest.at.to_le_bytes()),
            put(&mut out, at::LENGTH, &self.length.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "mark layout");
        out
    }

    /// Index into [`JOURNAL_MARKS`] of the pair that a mark of this sequence is written to.
    #[must_use]
    pub const fn pair(&self) -> usize {
        if self.sequence & 1 == 1 { 0 } else { 1 }
    }
}

impl Segment {
    /// Parses the link in a segment's header (12 bytes) to the segment before. `None` when it is
    /// cut short.
    #[must_use]
    pub fn parse_link(record: &[u8]) -> Option<Self> {
        Some(Self {
            at: u64_at(record, link_layout::SEGMENT)?,
            records: u32_at(record, link_layout::RECORDS)?,
        })
    }

    /// The 12 bytes of a link to this segment.
    #[must_use]
    pub fn to_link(self) -> [u8; link_layout::SIZE] {
        let mut out = [0; link_layout::SIZE];
        let done = [
            put(&mut out, link_layout::SEGMENT, &self.at.to_le_bytes()),
            put(&mut out, link_layout::RECORDS, &self.records.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "link layout");
        out
    }
}
