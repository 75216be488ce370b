//! Layouts of sealed PostgreSQL: the tweaks of blocks, and the headers of streams and containers.
//!
//! Specified in docs/spec/postgres.md. All arithmetic between PostgreSQL's offsets ("logical") and
//! the file's ("physical") lives here, so that it is stated and tested once. A tweak says where in
//! the instance a block belongs, never where its file lies: tablespace, version directory and inode
//! are not in it.
//!
//! Must not: seal or open anything, look at a path, allocate. All of it runs inside PostgreSQL's
//! critical sections.

use crate::layout::{layout, put};

pub mod container;
pub mod convert;
pub mod stream;

/// PostgreSQL's block and Strongroom's XTS data unit, in bytes. No other `BLCKSZ` is supported.
pub const BLOCK: u32 = 8192;
/// The major versions of PostgreSQL whose files these layouts are made for.
pub const MAJORS: core::ops::RangeInclusive<u32> = 15..=18;
/// Blocks per segment of a relation: 1 GiB. No other `RELSEG_SIZE` is supported.
pub const SEGMENT_BLOCKS: u32 = 131_072;
/// The cipher block of XTS, in bytes: the least that is sealed, and that may be rewritten alone.
pub const XTS_UNIT: usize = 16;
/// What a disk writes as a whole, in bytes. Where zeros are sealed too, a whole sector of stored
/// zeros reads as zeros.
pub const SECTOR: usize = 512;
/// Name of the instance's header, in the data directory.
pub const HEADER_FILE: &str = "strongroom.header";
/// Name of the header's companion configuration: where the key comes from.
pub const CONFIG_FILE: &str = "strongroom.conf";
/// Name of the state of a conversion under way. While it is there, no server starts.
pub const CONVERT_FILE: &str = "strongroom.convert";
/// Prefix of the names of Strongroom's own files in a data directory.
pub const OWN_PREFIX: &str = "strongroom.";

layout! {
    /// Tweak of a block of a relation.
    tweak_relation_layout, 16, {
        DATABASE @ 0, 4;
        RELATION @ 4, 4;
        FORK @ 8, 1;
        BACKEND @ 9, 3;
        BLOCK @ 12, 4;
    }
}

layout! {
    /// Tweak of a block of the write-ahead log.
    tweak_wal_layout, 16, {
        TIMELINE @ 0, 4;
        SEGMENT @ 4, 8;
        BLOCK @ 12, 4;
    }
}

layout! {
    /// Tweak of a page of an SLRU file.
    tweak_slru_layout, 16, {
        DIRECTORY @ 0, 1;
        RESERVED @ 1, 3;
        SEGMENT @ 4, 8;
        PAGE @ 12, 4;
    }
}

layout! {
    /// Tweak of the control file.
    tweak_control_layout, 16, {
        NAME @ 0, 11;
        TAIL @ 11, 1;
        BLOCK @ 12, 4;
    }
}

layout! {
    /// Tweak of a relation map.
    tweak_map_layout, 16, {
        DATABASE @ 0, 4;
        RESERVED @ 4, 7;
        TAIL @ 11, 1;
        BLOCK @ 12, 4;
    }
}

layout! {
    /// Tweak of a temporary file.
    tweak_temp_layout, 16, {
        FILE @ 0, 11;
        TAIL @ 11, 1;
        BLOCK @ 12, 4;
    }
}

/// `NAME` in the tweak of the control file.
pub const CONTROL_NAME: [u8; 11] = *b"pg_control\0";

/// A fork of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The relation's data.
    Main,
    /// Free space map, `_fsm`.
    FreeSpace,
    /// Visibility map, `_vm`.
    Visibility,
    /// The initial contents of an unlogged relation, `_init`.
    Init,
}

impl Fork {
    /// The number in the tweak.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Main => 0,
            Self::FreeSpace => 1,
            Self::Visibility => 2,
            Self::Init => 3,
        }
    }
}

/// A directory of SLRU files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlruDirectory {
    /// `pg_xact`.
    Xact,
    /// `pg_multixact/offsets`.
    MultixactOffsets,
    /// `pg_multixact/members`.
    MultixactMembers,
    /// `pg_subtrans`.
    Subtrans,
    /// `pg_commit_ts`.
    CommitTs,
    /// `pg_notify`.
    Notify,
    /// `pg_serial`.
    Serial,
}

impl SlruDirectory {
    /// The number in the tweak.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Xact => 1,
            Self::MultixactOffsets => 2,
            Self::MultixactMembers => 3,
            Self::Subtrans => 4,
            Self::CommitTs => 5,
            Self::Notify => 6,
            Self::Serial => 7,
        }
    }
}

/// The AES-XTS tweak of a block of a relation, by PostgreSQL's numbers: `database` is an OID, 0 in
/// `global/`, and `relation` the relation's file number. `block` counts from the relation's start
/// over all its segments. `backend` is `None` unless the relation is temporary.
///
/// Returns `None` for a backend's number of more than 24 bits, which no server gives.
#[must_use]
pub fn tweak_relation(
    database: u32,
    relation: u32,
    fork: Fork,
    backend: Option<u32>,
    block: u32,
) -> Option<[u8; 16]> {
    use tweak_relation_layout as at;
    let plus_one = match backend {
        None => 0,
        Some(number) => number.checked_add(1)?,
    };
    let [low, middle, high, 0] = plus_one.to_le_bytes() else {
        return None;
    };
    let mut out = [0; 16];
    put(&mut out, at::DATABASE, &database.to_le_bytes())?;
    put(&mut out, at::RELATION, &relation.to_le_bytes())?;
    put(&mut out, at::FORK, &[fork.number()])?;
    put(&mut out, at::BACKEND, &[low, middle, high])?;
    put(&mut out, at::BLOCK, &block.to_le_bytes())?;
    Some(out)
}

/// The block, counted over all segments, of block `within` of segment `segment`; `None` when there
/// is no such block.
#[must_use]
pub const fn relation_block(segment: u32, within: u32) -> Option<u32> {
    if within >= SEGMENT_BLOCKS {
        return None;
    }
    match segment.checked_mul(SEGMENT_BLOCKS) {
        Some(first) => first.checked_add(within),
        None => None,
    }
}

/// The tweak of block `block` of a segment of the write-ahead log. `log` and `segment` are the
/// second and third eight digits of the segment's name, as they stand there.
#[must_use]
pub fn tweak_wal(timeline: u32, log: u32, segment: u32, block: u32) -> [u8; 16] {
    let number = u64::from(log) << 32 | u64::from(segment);
    wal_tweak(timeline, number, block)
}

/// The tweak of block `block` of `xlogtemp.PROCESS`, which is no segment yet: timeline 0, which no
/// segment has.
#[must_use]
pub fn tweak_wal_unnamed(process: u32, block: u32) -> [u8; 16] {
    wal_tweak(0, u64::from(process), block)
}

/// The tweak of block `block` of a segment of the log. `segment` is the last 16 digits of its name
/// as a number, or the process of an `xlogtemp` file. No tag sets it apart from other files'
/// tweaks, because the log has a key of its own.
fn wal_tweak(timeline: u32, segment: u64, block: u32) -> [u8; 16] {
    use tweak_wal_layout as at;
    tweak_of(|out| {
        put(out, at::TIMELINE, &timeline.to_le_bytes())?;
        put(out, at::SEGMENT, &segment.to_le_bytes())?;
        put(out, at::BLOCK, &block.to_le_bytes())
    })
}

/// The tweak of page `page`, from 0, of segment `segment` of an SLRU directory.
#[must_use]
pub fn tweak_slru(directory: SlruDirectory, segment: u64, page: u32) -> [u8; 16] {
    use tweak_slru_layout as at;
    tweak_of(|out| {
        put(out, at::DIRECTORY, &[directory.number()])?;
        put(out, at::SEGMENT, &segment.to_le_bytes())?;
        put(out, at::PAGE, &page.to_le_bytes())
    })
}

/// The tweak of block `block` of the control file, which has one block, number 0.
#[must_use]
pub fn tweak_control(block: u32) -> [u8; 16] {
    use tweak_control_layout as at;
    tweak_of(|out| {
        put(out, at::NAME, &CONTROL_NAME)?;
        put(out, at::BLOCK, &block.to_le_bytes())
    })
}

/// The tweak of block `block` of the relation map of `database`, 0 for `global/`.
#[must_use]
pub fn tweak_map(database: u32, block: u32) -> [u8; 16] {
    use tweak_map_layout as at;
    tweak_of(|out| {
        put(out, at::DATABASE, &database.to_le_bytes())?;
        put(out, at::BLOCK, &block.to_le_bytes())
    })
}

/// The tweak of block `block` of a temporary file. `file` stands for its path: the first 11 bytes
/// of a digest.
#[must_use]
pub fn tweak_temp(file: [u8; 11], block: u32) -> [u8; 16] {
    use tweak_temp_layout as at;
    tweak_of(|out| {
        put(out, at::FILE, &file)?;
        put(out, at::BLOCK, &block.to_le_bytes())
    })
}

/// The tweak and the block from which the keystream of a short tail is made: `len` (1 to 15) bytes
/// that follow the last whole 16-byte unit, the `unit`-th (from 0) of a block whose tweak is
/// `tweak`.
///
/// Only blocks of relation maps and of temporary files have tails; only their tweaks have a byte
/// for the mark. The keystream is the first `len` bytes of the XTS encryption of the block under
/// the tweak. `None` when `len` or `unit` is out of range.
#[must_use]
pub fn tail(tweak: [u8; 16], unit: u32, len: usize) -> Option<([u8; 16], [u8; 16])> {
    use tail_block_layout as at;
    let len = u8::try_from(len).ok().filter(|len| (1..16).contains(len))?;
    if unit >= UNITS_PER_BLOCK {
        return None;
    }
    let mut marked = tweak;
    put(&mut marked, tweak_temp_layout::TAIL, &[1])?;
    let mut block = [0; 16];
    put(&mut block, at::UNIT, &unit.to_le_bytes())?;
    put(&mut block, at::TAIL_LENGTH, &[len])?;
    Some((marked, block))
}

/// XTS units per block.
const UNITS_PER_BLOCK: u32 = 512;

layout! {
    /// What is encrypted to make the keystream of a tail.
    tail_block_layout, 16, {
        UNIT @ 0, 4;
        TAIL_LENGTH @ 4, 1;
        ZERO @ 5, 11;
    }
}

/// A tweak whose fields `fill` writes; the others are zero.
fn tweak_of(fill: impl FnOnce(&mut [u8]) -> Option<()>) -> [u8; 16] {
    let mut out = [0; 16];
    let done = fill(&mut out);
    // Lengths are constants of the tables above; a mismatch is a programming error found by any
    // test.
    assert!(done.is_some(), "tweak layout");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tweaks_are_the_tables() {
        let relation = tweak_relation(
            0x0403_0201,
            0x0807_0605,
            Fork::Visibility,
            Some(0x000c_0b08),
            0x100f_0e0d,
        );
        assert_eq!(
            relation,
            Some([
                1, 2, 3, 4, 5, 6, 7, 8, 2, 9, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10
            ])
        );
        assert_eq!(
            tweak_wal(1, 2, 3, 4),
            [1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]
        );
        assert_eq!(
            tweak_wal_unnamed(0x1234, 5),
            [0, 0, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]
        );
        assert_eq!(
            tweak_slru(SlruDirectory::Notify, 1 << 40, 31),
            [6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 31, 0, 0, 0]
        );
        assert_eq!(&tweak_control(0), b"pg_control\0\0\0\0\0\0");
        assert_eq!(
            tweak_map(5, 0),
            [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            tweak_temp([9; 11], 1),
            [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 1, 0, 0, 0]
        );
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(tweak_relation(1, 1, Fork::Main, Some((1 << 24) - 2), 0).is_some());
        assert_eq!(
            tweak_relation(1, 1, Fork::Main, Some((1 << 24) - 1), 0),
            None
        );
        assert_eq!(tweak_relation(1, 1, Fork::Main, Some(u32::MAX), 0), None);
        assert_eq!(relation_block(0, SEGMENT_BLOCKS), None);
        assert_eq!(relation_block(1, 5), Some(131_077));
        assert_eq!(relation_block(32_767, SEGMENT_BLOCKS - 1), Some(u32::MAX));
        assert_eq!(relation_block(32_768, 0), None);
        for (unit, len) in [(0, 0), (0, 16), (512, 1), (u32::MAX, 1)] {
            assert_eq!(tail([0; 16], unit, len), None, "{unit}, {len}");
        }
    }

    #[test]
    fn a_tail_shares_no_tweak_with_a_block() {
        let (tweak, block) = tail(tweak_map(5, 0), 32, 12).unwrap();
        assert_ne!(tweak, tweak_map(5, 0));
        assert_eq!(tweak[11], 1);
        assert_eq!(block, [32, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
