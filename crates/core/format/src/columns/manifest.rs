//! The manifest of the zone's store: the blocks of the last checkpoint, and where they are.
//!
//! A head in clear, then one sealed body: counts, partitions with their extents and blocks, chains,
//! the quarantine, column keys, ledgers. Specified in docs/spec/columns.md. Must not: seal
//! anything.

mod head;
mod ledger;
mod moved;

use super::fid::{EXTENTS, Fid, PARTITIONS};
use super::kind::Kind;
use super::lineage::Lineage;
use super::redo::{REDO_VERSION, Relation};
use crate::layout::{array, layout, put, u16_at, u32_at, u64_at, zero_at};

pub use head::{ManifestError, ManifestHead};
pub use ledger::{Asker, LedgerEntry, LedgerLine, ledger_layout, ledger_line_layout};
pub use moved::{MovedEntry, moved_layout};

/// First bytes of a manifest.
pub const MANIFEST_MAGIC: [u8; 8] = *b"SRZMANIF";
/// The version that this code writes. Raised by any change of the manifest or of the blocks that it
/// names: a block has no version of its own.
pub const MANIFEST_VERSION: u16 = 5;
/// The oldest version that this code reads.
pub const MANIFEST_VERSION_OLDEST: u16 = 2;
/// The first version whose body has ledgers.
const LEDGERS_SINCE: u16 = 3;
/// The first version whose body says which redo records are refused.
const REDO_FROM_SINCE: u16 = 4;
/// The first version whose body says how far the host's log had reached, and which partitions have
/// moved.
const REACHED_SINCE: u16 = 5;
/// Label of the key that nonces are made with.
pub const MANIFEST_NONCE_LABEL: &str = "strongroom/v1/manifest-nonce";
/// How many extents are reserved after the last one in use, in each partition.
pub const EXTENT_RESERVE: u32 = 64;
/// How many extents a store leaves unused in each partition after it was restored on purpose.
pub const RESTORE_STRIDE: u32 = 65_536;

layout! {
    /// Layout of a manifest's head; LENGTH sealed bytes follow.
    manifest_layout, 64, {
        MAGIC @ 0, 8;
        VERSION @ 8, 2;
        RESERVED_A @ 10, 6;
        COUNTER @ 16, 8;
        LENGTH @ 24, 8;
        NONCE @ 32, 12;
        TAG @ 44, 16;
        RESERVED_B @ 60, 4;
    }
}

layout! {
    /// Layout of the body's beginning.
    manifest_body_layout, 88, {
        POSITION @ 0, 8;
        STAMP @ 8, 8;
        SWEEP @ 16, 8;
        BLOCK_VERSION @ 24, 8;
        FLOOR @ 32, 4;
        PARTITIONS @ 36, 4;
        CHAINS @ 40, 4;
        KEYS @ 44, 4;
        QUARANTINE @ 48, 8;
        TIMELINE @ 56, 4;
        FORMER_KEYS @ 60, 4;
        LEDGERS @ 64, 4;
        REDO_FROM @ 68, 4;
        REACHED @ 72, 8;
        REACHED_TIMELINE @ 80, 4;
        MOVED @ 84, 4;
    }
}

layout! {
    /// Layout of a partition; EXTENTS extents follow.
    partition_layout, 70, {
        PARTITION @ 0, 2;
        STATE @ 2, 1;
        RESERVED @ 3, 1;
        TABLESPACE @ 4, 4;
        DATABASE @ 8, 4;
        FILENODE @ 12, 4;
        FIRST_EXTENT @ 16, 4;
        RESERVED_TO @ 20, 4;
        EXTENTS @ 24, 4;
        STAMP @ 28, 8;
        KEY @ 36, 32;
        COLUMN_KEYS @ 68, 2;
    }
}

layout! {
    /// Layout of a column's key in a manifest, behind its partition.
    column_key_layout, 26, {
        COLUMN @ 0, 2;
        KEY_ID @ 2, 16;
        LINEAGE @ 18, 8;
    }
}

layout! {
    /// Layout of a column key that the store keeps.
    kept_key_layout, 48, {
        KEY_ID @ 0, 16;
        KEY @ 16, 32;
    }
}

layout! {
    /// Layout of an extent; a block follows for each bit of PRESENT, the lowest first.
    extent_layout, 24, {
        EXTENT @ 0, 4;
        COLUMN @ 4, 2;
        KIND @ 6, 1;
        RESERVED @ 7, 1;
        PRESENT @ 8, 8;
        GONE @ 16, 8;
    }
}

layout! {
    /// Layout of a block's whereabouts.
    block_layout, 38, {
        PLACE @ 0, 8;
        LENGTH @ 8, 4;
        VERSION @ 12, 8;
        TAG @ 20, 16;
        VALUES @ 36, 2;
    }
}

layout! {
    /// Layout of a chain's end.
    chain_layout, 44, {
        INCARNATION @ 0, 16;
        RING @ 16, 4;
        NUMBER @ 20, 8;
        TAG @ 28, 16;
    }
}

layout! {
    /// Layout of a value in quarantine.
    quarantine_layout, 16, {
        SWEEP @ 0, 8;
        FID @ 8, 8;
    }
}

/// The body's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestBody {
    /// Position in the host's log from which it has to be replayed.
    pub position: u64,
    /// Highest stamp of a partition's change.
    pub stamp: u64,
    /// Number of the last sweep.
    pub sweep: u64,
    /// Highest version of a block.
    pub block_version: u64,
    /// First extent of a partition that is not listed.
    pub floor: u32,
    /// How many partitions follow.
    pub partitions: u32,
    /// How many chains follow.
    pub chains: u32,
    /// How many column keys follow.
    pub keys: u32,
    /// How many values in quarantine follow.
    pub quarantine: u64,
    /// Timeline of the host's log that `position` is of; 0 when that is not known.
    pub timeline: u32,
    /// How many keys of proofs follow, of column keys that were kept before.
    pub former_keys: u32,
    /// How many ledgers of column keys follow.
    pub ledgers: u32,
    /// Redo records of an earlier version than this one are not in the host's log from `position`
    /// on; 0 when records of any version may be there.
    pub redo_from: u32,
    /// The highest position of the host's log at which a record ends that the host has said to be
    /// in it: the store may hold what that record says. 0 when the host has said none.
    pub reached: u64,
    /// Timeline of the host's log that `reached` is of; 0 when that is not known.
    pub reached_timeline: u32,
    /// How many relations follow whose partition has moved.
    pub moved: u32,
}

impl ManifestBody {
    /// Parses the beginning of a body of the manifest version `version`, and returns it with the
    /// bytes that follow. Before version 3 there are no ledgers, nor the field that counts them;
    /// before version 4 records of any version may be in the log, and before version 5 it is not
    /// known how far the log had reached, nor which partitions have moved.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(body: &[u8], version: u16) -> Option<(Self, &[u8])> {
        use manifest_body_layout as at;
        let (size, ledgers) = match version {
            REACHED_SINCE.. => (at::SIZE, u32_at(body, at::LEDGERS)?),
            LEDGERS_SINCE.. => (at::REACHED.offset, u32_at(body, at::LEDGERS)?),
            _ => (at::LEDGERS.offset, 0),
        };
        let (reached, reached_timeline, moved) = match version {
            REACHED_SINCE.. => (
                u64_at(body, at::REACHED)?,
                u32_at(body, at::REACHED_TIMELINE)?,
                u32_at(body, at::MOVED)?,
            ),
            _ => (0, 0, 0),
        };
        let found = Self {
            position: u64_at(body, at::POSITION)?,
            stamp: u64_at(body, at::STAMP)?,
            sweep: u64_at(body, at::SWEEP)?,
            block_version: u64_at(body, at::BLOCK_VERSION)?,
            floor: u32_at(body, at::FLOOR)?,
            partitions: u32_at(body, at::PARTITIONS)?,
            chains: u32_at(body, at::CHAINS)?,
            keys: u32_at(body, at::KEYS)?,
            quarantine: u64_at(body, at::QUARANTINE)?,
            timeline: u32_at(body, at::TIMELINE)?,
            former_keys: u32_at(body, at::FORMER_KEYS)?,
            ledgers,
            redo_from: match version {
                REDO_FROM_SINCE.. => u32_at(body, at::REDO_FROM)?,
                _ => 0,
            },
            reached,
            reached_timeline,
            moved,
        };
        let sound = found.floor <= EXTENTS
            && found.partitions < PARTITIONS
            && found.redo_from <= u32::from(REDO_VERSION)
            && (found.reached != 0 || found.reached_timeline == 0)
            && (version != LEDGERS_SINCE || zero_at(body, at::REDO_FROM));
        let rest = body.get(size..)?;
        sound.then_some((found, rest))
    }

    /// Returns its bytes, as they are written in [`MANIFEST_VERSION`].
    #[must_use]
    pub fn to_bytes(&self) -> [u8; manifest_body_layout::SIZE] {
        use manifest_body_layout as at;
        let mut out = [0; manifest_body_layout::SIZE];
        let fields = [
            put(&mut out, at::POSITION, &self.position.to_le_bytes()),
            put(&mut out, at::STAMP, &self.stamp.to_le_bytes()),
            put(&mut out, at::SWEEP, &self.sweep.to_le_bytes()),
            put(
                &mut out,
                at::BLOCK_VERSION,
                &self.block_version.to_le_bytes(),
            ),
            put(&mut out, at::FLOOR, &self.floor.to_le_bytes()),
            put(&mut out, at::PARTITIONS, &self.partitions.to_le_bytes()),
            put(&mut out, at::CHAINS, &self.chains.to_le_bytes()),
            put(&mut out, at::KEYS, &self.keys.to_le_bytes()),
            put(&mut out, at::QUARANTINE, &self.quarantine.to_le_bytes()),
            put(&mut out, at::TIMELINE, &self.timeline.to_le_bytes()),
            put(&mut out, at::FORMER_KEYS, &self.former_keys.to_le_bytes()),
            put(&mut out, at::LEDGERS, &self.ledgers.to_le_bytes()),
            put(&mut out, at::REDO_FROM, &self.redo_from.to_le_bytes()),
            put(&mut out, at::REACHED, &self.reached.to_le_bytes()),
            put(
                &mut out,
                at::REACHED_TIMELINE,
                &self.reached_timeline.to_le_bytes(),
            ),
            put(&mut out, at::MOVED, &self.moved.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "manifest body layout");
        out
    }
}

/// A partition in a manifest. Its key is a secret: there is no `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Its number.
    pub partition: u16,
    /// The relation that it belongs to; `None` when it was dropped.
    pub relation: Option<Relation>,
    /// Its first extent.
    pub first_extent: u32,
    /// The first extent that cannot have been used yet.
    pub reserved_to: u32,
    /// How many extents follow.
    pub extents: u32,
    /// Stamp of its last change.
    pub stamp: u64,
    /// Salt of the key of its blocks; zero when it was dropped.
    pub key: [u8; 32],
    /// How many columns with their keys follow, before the extents.
    pub column_keys: u16,
}

impl PartitionEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        use partition_layout as at;
        let relation = Relation {
            tablespace: u32_at(rest, at::TABLESPACE)?,
            database: u32_at(rest, at::DATABASE)?,
            filenode: u32_at(rest, at::FILENODE)?,
        };
        let [state] = array(rest, at::STATE)?;
        let found = Self {
            partition: u16_at(rest, at::PARTITION)?,
            relation: (state == 1).then_some(relation),
            first_extent: u32_at(rest, at::FIRST_EXTENT)?,
            reserved_to: u32_at(rest, at::RESERVED_TO)?,
            extents: u32_at(rest, at::EXTENTS)?,
            stamp: u64_at(rest, at::STAMP)?,
            key: array(rest, at::KEY)?,
            column_keys: u16_at(rest, at::COLUMN_KEYS)?,
        };
        let empty = found.extents == 0 && found.column_keys == 0 && found.key == [0; 32];
        let dropped = state == 2 && relation == Relation::NONE && empty;
        let sound = (state == 1 || dropped)
            && zero_at(rest, at::RESERVED)
            && found.partition != 0
            && u32::from(found.partition) < PARTITIONS
            && found.first_extent <= found.reserved_to
            && found.reserved_to <= EXTENTS;
        let rest = rest.get(partition_layout::SIZE..)?;
        sound.then_some((found, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; partition_layout::SIZE] {
        use partition_layout as at;
        let mut out = [0; partition_layout::SIZE];
        let relation = self.relation.unwrap_or(Relation::NONE);
        let state = if self.relation.is_some() { 1 } else { 2 };
        let fields = [
            put(&mut out, at::PARTITION, &self.partition.to_le_bytes()),
            put(&mut out, at::STATE, &[state]),
            put(&mut out, at::TABLESPACE, &relation.tablespace.to_le_bytes()),
            put(&mut out, at::DATABASE, &relation.database.to_le_bytes()),
            put(&mut out, at::FILENODE, &relation.filenode.to_le_bytes()),
            put(&mut out, at::FIRST_EXTENT, &self.first_extent.to_le_bytes()),
            put(&mut out, at::RESERVED_TO, &self.reserved_to.to_le_bytes()),
            put(&mut out, at::EXTENTS, &self.extents.to_le_bytes()),
            put(&mut out, at::STAMP, &self.stamp.to_le_bytes()),
            put(&mut out, at::KEY, &self.key),
            put(&mut out, at::COLUMN_KEYS, &self.column_keys.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "partition layout");
        out
    }
}

/// A column's key in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnKeyEntry {
    /// Number of the column.
    pub column: u16,
    /// Id of the column key.
    pub key_id: [u8; 16],
    /// The column's lineage.
    pub lineage: Lineage,
}

impl ColumnKeyEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        let found = Self {
            column: u16_at(rest, column_key_layout::COLUMN)?,
            key_id: array(rest, column_key_layout::KEY_ID)?,
            lineage: Lineage::of(u64_at(rest, column_key_layout::LINEAGE)?),
        };
        let rest = rest.get(column_key_layout::SIZE..)?;
        found.lineage.is_column().then_some((found, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; column_key_layout::SIZE] {
        let mut out = [0; column_key_layout::SIZE];
        let fields = [
            put(
                &mut out,
                column_key_layout::COLUMN,
                &self.column.to_le_bytes(),
            ),
            put(&mut out, column_key_layout::KEY_ID, &self.key_id),
            put(
                &mut out,
                column_key_layout::LINEAGE,
                &self.lineage.number().to_le_bytes(),
            ),
        ];
        assert!(fields.iter().all(Option::is_some), "column key layout");
        out
    }
}

/// An extent in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentEntry {
    /// Its number.
    pub extent: u32,
    /// The column that it belongs to.
    pub column: u16,
    /// The column's kind.
    pub kind: Kind,
    /// The blocks that follow: bit n is block n.
    pub present: u64,
    /// The blocks that held values before and are empty now: bit n is block n.
    pub gone: u64,
}

impl ExtentEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        use extent_layout as at;
        let [kind] = array(rest, at::KIND)?;
        let found = Self {
            extent: u32_at(rest, at::EXTENT)?,
            column: u16_at(rest, at::COLUMN)?,
            kind: Kind::from_number(kind)?,
            present: u64_at(rest, at::PRESENT)?,
            gone: u64_at(rest, at::GONE)?,
        };
        let sound = zero_at(rest, at::RESERVED)
            && found.extent < EXTENTS
            && found.present & found.gone == 0;
        let rest = rest.get(extent_layout::SIZE..)?;
        sound.then_some((found, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; extent_layout::SIZE] {
        use extent_layout as at;
        let mut out = [0; extent_layout::SIZE];
        let fields = [
            put(&mut out, at::EXTENT, &self.extent.to_le_bytes()),
            put(&mut out, at::COLUMN, &self.column.to_le_bytes()),
            put(&mut out, at::KIND, &[self.kind.number()]),
            put(&mut out, at::PRESENT, &self.present.to_le_bytes()),
            put(&mut out, at::GONE, &self.gone.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "extent layout");
        out
    }
}

/// Where a block is in the block file, and by what it is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Offset in the block file, a multiple of [`super::block::BLOCK_UNIT`].
    pub place: u64,
    /// Bytes of the image, without nonce.
    pub length: u32,
    /// Its version: no two sealed images have the same.
    pub version: u64,
    /// GCM's tag.
    pub tag: [u8; 16],
    /// How many of its slots have a value.
    pub values: u16,
}

impl BlockEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        use block_layout as at;
        let found = Self {
            place: u64_at(rest, at::PLACE)?,
            length: u32_at(rest, at::LENGTH)?,
            version: u64_at(rest, at::VERSION)?,
            tag: array(rest, at::TAG)?,
            values: u16_at(rest, at::VALUES)?,
        };
        let sound = found.place.is_multiple_of(super::block::BLOCK_UNIT)
            && u32::from(found.values) <= super::block::BLOCK_SLOTS;
        let rest = rest.get(block_layout::SIZE..)?;
        sound.then_some((found, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; block_layout::SIZE] {
        use block_layout as at;
        let mut out = [0; block_layout::SIZE];
        let fields = [
            put(&mut out, at::PLACE, &self.place.to_le_bytes()),
            put(&mut out, at::LENGTH, &self.length.to_le_bytes()),
            put(&mut out, at::VERSION, &self.version.to_le_bytes()),
            put(&mut out, at::TAG, &self.tag),
            put(&mut out, at::VALUES, &self.values.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "block layout");
        out
    }
}

/// The last record of a ring that a manifest holds: the last that was sealed for it, or the last
/// that its host has confirmed if it waits for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEntry {
    /// The ring's incarnation.
    pub incarnation: [u8; 16],
    /// The ring.
    pub ring: u32,
    /// Number of the record.
    pub number: u64,
    /// Its tag.
    pub tag: [u8; 16],
}

impl ChainEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        let found = Self {
            incarnation: array(rest, chain_layout::INCARNATION)?,
            ring: u32_at(rest, chain_layout::RING)?,
            number: u64_at(rest, chain_layout::NUMBER)?,
            tag: array(rest, chain_layout::TAG)?,
        };
        Some((found, rest.get(chain_layout::SIZE..)?))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; chain_layout::SIZE] {
        let mut out = [0; chain_layout::SIZE];
        let fields = [
            put(&mut out, chain_layout::INCARNATION, &self.incarnation),
            put(&mut out, chain_layout::RING, &self.ring.to_le_bytes()),
            put(&mut out, chain_layout::NUMBER, &self.number.to_le_bytes()),
            put(&mut out, chain_layout::TAG, &self.tag),
        ];
        assert!(fields.iter().all(Option::is_some), "chain layout");
        out
    }
}

/// A value in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineEntry {
    /// The sweep that put it there.
    pub sweep: u64,
    /// The value.
    pub fid: Fid,
}

impl QuarantineEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        let sweep = u64_at(rest, quarantine_layout::SWEEP)?;
        let fid = Fid::from_bits(u64_at(rest, quarantine_layout::FID)?)?;
        let rest = rest.get(quarantine_layout::SIZE..)?;
        (!fid.is_ephemeral()).then_some((Self { sweep, fid }, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; quarantine_layout::SIZE] {
        let mut out = [0; quarantine_layout::SIZE];
        let fields = [
            put(
                &mut out,
                quarantine_layout::SWEEP,
                &self.sweep.to_le_bytes(),
            ),
            put(
                &mut out,
                quarantine_layout::FID,
                &self.fid.bits().to_le_bytes(),
            ),
        ];
        assert!(fields.iter().all(Option::is_some), "quarantine layout");
        out
    }
}

/// A column key that the store keeps, or the key of proofs of one that it kept before, where it
/// stands in a body. A secret: there is no `Debug`, and no copy is made here.
pub struct KeptKey<'a> {
    /// The column key's id.
    pub id: [u8; 16],
    /// The key.
    pub key: &'a [u8; 32],
}

impl<'a> KeptKey<'a> {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short.
    #[must_use]
    pub fn parse(rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (id, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        Some((Self { id: *id, key }, rest))
    }
}

#[cfg(test)]
mod tests;
