//! A redo record: changes that a zone made to its store, sealed, in the host's log.
//!
//! The head is in clear; a link of the ring's chain and entries, one after the other, are sealed.
//! Specified in docs/spec/columns.md.
//! Must not: seal anything.

use super::block::VALUE_MAX;
use super::envelope::{ENVELOPE_PAD, is_padded};
use super::fid::Fid;
use super::kind::Kind;
use super::lineage::Lineage;
use crate::aad::{AssociatedData, Role, aad_layout};
use crate::header::Cipher;
use crate::layout::{Field, array, bytes, layout, put, u16_at, u32_at, u64_at, zero_at};

/// The version that this code writes, and the highest one that it reads. Raised by any change of
/// what is sealed, a new entry included. The head and the way it is sealed stay the same in every
/// version, so that a reader can tell a later version's record from one that is damaged or forged:
/// the version is authenticated.
pub const REDO_VERSION: u8 = 2;
/// The first version whose records have the binding of every column that they have values of.
pub const REDO_BOUND_SINCE: u8 = 2;
/// The highest number of a column: PostgreSQL's tables have no more. The lowest is 1.
pub const COLUMNS_MAX: u16 = 1600;
/// Most sealed bytes of one record.
pub const REDO_MAX: usize = 16_777_216;
/// Label of the key that nonces are made with.
pub const REDO_NONCE_LABEL: &str = "strongroom/v1/redo-nonce";
/// Records of an incarnation under one key.
pub const REDO_KEY_USES: u64 = 65_536;

layout! {
    /// Layout of a record's head; LENGTH sealed bytes follow.
    redo_layout, 60, {
        VERSION @ 0, 1;
        RESERVED @ 1, 3;
        LENGTH @ 4, 4;
        INCARNATION @ 8, 16;
        NUMBER @ 24, 8;
        TAG @ 32, 16;
        NONCE @ 48, 12;
    }
}

layout! {
    /// Layout of the link, with which the sealed bytes begin.
    redo_link_layout, 32, {
        RING @ 0, 4;
        RESERVED @ 4, 4;
        PREVIOUS @ 8, 8;
        PREVIOUS_TAG @ 16, 16;
    }
}

layout! {
    /// Layout of an entry that puts a value; a word of 8 bytes follows (entry 1), or a length of 4
    /// bytes and bytes (entry 2); then padding.
    redo_put_layout, 12, {
        ENTRY @ 0, 1;
        KIND @ 1, 1;
        COLUMN @ 2, 2;
        FID @ 4, 8;
    }
}

layout! {
    /// Layout of an entry that frees a value.
    redo_freed_layout, 9, {
        ENTRY @ 0, 1;
        FID @ 1, 8;
    }
}

layout! {
    /// Layout of an entry that puts a value into quarantine.
    redo_swept_layout, 17, {
        ENTRY @ 0, 1;
        SWEEP @ 1, 8;
        FID @ 9, 8;
    }
}

layout! {
    /// Layout of an entry that opens, drops or rehomes a partition.
    redo_partition_layout, 28, {
        ENTRY @ 0, 1;
        RESERVED @ 1, 1;
        PARTITION @ 2, 2;
        TABLESPACE @ 4, 4;
        DATABASE @ 8, 4;
        FILENODE @ 12, 4;
        FIRST_EXTENT @ 16, 4;
        STAMP @ 20, 8;
    }
}

layout! {
    /// Layout of an entry that binds a column to its key: 8.
    redo_bound_layout, 34, {
        ENTRY @ 0, 1;
        RESERVED @ 1, 1;
        PARTITION @ 2, 2;
        COLUMN @ 4, 2;
        FIRST_EXTENT @ 6, 4;
        KEY_ID @ 10, 16;
        LINEAGE @ 26, 8;
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoHead {
    /// Version of what is sealed, from 1.
    pub version: u8,
    /// Length of the sealed bytes that follow the head.
    pub length: u32,
    /// The incarnation of the zone that sealed it.
    pub incarnation: [u8; 16],
    /// Counts the records of the incarnation, from 1.
    pub number: u64,
    /// GCM's tag.
    pub tag: [u8; 16],
    /// GCM's nonce, at random. It is not the number, because a machine that is resumed from a
    /// snapshot gives a number twice.
    pub nonce: [u8; 12],
}

impl RedoHead {
    /// Parses the head of `record`, which is exactly one record, of this version or a later one.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        let [version] = array(record, redo_layout::VERSION)?;
        let head = Self {
            version,
            length: u32_at(record, redo_layout::LENGTH)?,
            incarnation: array(record, redo_layout::INCARNATION)?,
            number: u64_at(record, redo_layout::NUMBER)?,
            tag: array(record, redo_layout::TAG)?,
            nonce: array(record, redo_layout::NONCE)?,
        };
        let length = usize::try_from(head.length).ok()?;
        let sound = version != 0
            && zero_at(record, redo_layout::RESERVED)
            && (redo_link_layout::SIZE..=REDO_MAX).contains(&length)
            && record.len().checked_sub(redo_layout::SIZE) == Some(length)
            && head.number != 0;
        sound.then_some(head)
    }

    /// Returns the head's bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; redo_layout::SIZE] {
        let mut out = [0; redo_layout::SIZE];
        let fields = [
            put(&mut out, redo_layout::VERSION, &[self.version]),
            put(&mut out, redo_layout::LENGTH, &self.length.to_le_bytes()),
            put(&mut out, redo_layout::INCARNATION, &self.incarnation),
            put(&mut out, redo_layout::NUMBER, &self.number.to_le_bytes()),
            put(&mut out, redo_layout::TAG, &self.tag),
            put(&mut out, redo_layout::NONCE, &self.nonce),
        ];
        assert!(fields.iter().all(Option::is_some), "redo layout");
        out
    }

    /// Whether a later version of Strongroom has written the record, whose entries this code cannot
    /// read. To be believed only once the record has been authenticated: whoever may write into the
    /// host's log can put any bytes there.
    #[must_use]
    pub const fn is_newer(&self) -> bool {
        self.version > REDO_VERSION
    }

    /// The number of the incarnation's key that seals this record. A key seals [`REDO_KEY_USES`]
    /// records, so that there are few random nonces under it.
    #[must_use]
    pub const fn key_number(&self) -> u64 {
        self.number >> REDO_KEY_USES.trailing_zeros()
    }

    /// The associated data: the number as position, the length as extra, and the version less 1, so
    /// 0 in the first one, as size of a unit.
    #[must_use]
    pub fn associated_data(&self, object_id: [u8; 16], epoch: u32) -> [u8; aad_layout::SIZE] {
        let place = AssociatedData {
            role: Role::ZoneRedo,
            cipher: Cipher::Aes256Gcm.number(),
            unit_size: u32::from(self.version).saturating_sub(1),
            epoch,
            object_id,
        };
        place.at_with(self.number, u64::from(self.length))
    }
}

/// The link of a ring's chain: the record that the ring's host inserted before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The ring's number in its incarnation.
    pub ring: u32,
    /// The number of the record before; 0 when there is none.
    pub previous: u64,
    /// Its tag; zero when there is none.
    pub previous_tag: [u8; 16],
}

impl Link {
    /// Reads the link, and what follows it. `None` when it is cut short, or a field has a value
    /// that no writer gives it.
    #[must_use]
    pub fn parse(sealed: &[u8]) -> Option<(Self, &[u8])> {
        let link = Self {
            ring: u32_at(sealed, redo_link_layout::RING)?,
            previous: u64_at(sealed, redo_link_layout::PREVIOUS)?,
            previous_tag: array(sealed, redo_link_layout::PREVIOUS_TAG)?,
        };
        let sound = zero_at(sealed, redo_link_layout::RESERVED)
            && (link.previous != 0 || link.previous_tag == [0; 16]);
        let rest = sealed.get(redo_link_layout::SIZE..)?;
        sound.then_some((link, rest))
    }

    /// Returns the link's bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; redo_link_layout::SIZE] {
        let mut out = [0; redo_link_layout::SIZE];
        let fields = [
            put(&mut out, redo_link_layout::RING, &self.ring.to_le_bytes()),
            put(
                &mut out,
                redo_link_layout::PREVIOUS,
                &self.previous.to_le_bytes(),
            ),
            put(&mut out, redo_link_layout::PREVIOUS_TAG, &self.previous_tag),
        ];
        assert!(fields.iter().all(Option::is_some), "redo link layout");
        out
    }
}

/// A relation's files as PostgreSQL names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation {
    /// OID of the tablespace.
    pub tablespace: u32,
    /// OID of the database; 0 for none.
    pub database: u32,
    /// `relfilenode`.
    pub filenode: u32,
}

impl Relation {
    /// Stands for no relation.
    pub const NONE: Self = Self {
        tablespace: 0,
        database: 0,
        filenode: 0,
    };
}

/// What happened to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionChange {
    /// Its number.
    pub partition: u16,
    /// The relation that it belongs to now; [`Relation::NONE`] when it was dropped.
    pub relation: Relation,
    /// Its first extent. Lower extents belonged to earlier partitions of the same number.
    pub first_extent: u32,
    /// Orders the changes of the partitions of one number: an older one has a lower stamp.
    pub stamp: u64,
}

/// One change of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A value of fixed length was put into a slot.
    Word {
        /// Identifier of the value.
        fid: Fid,
        /// Number of the column.
        column: u16,
        /// The column's kind.
        kind: Kind,
        /// The value, little-endian.
        word: [u8; 8],
    },
    /// A value of any length was put into a slot.
    Bytes {
        /// Identifier of the value.
        fid: Fid,
        /// Number of the column.
        column: u16,
        /// The column's kind.
        kind: Kind,
        /// The value, at most [`VALUE_MAX`] bytes.
        bytes: &'a [u8],
    },
    /// A value was freed: its slot has the next generation from now on.
    Freed(Fid),
    /// A value was put into quarantine by the sweep of that number.
    Swept(u64, Fid),
    /// A partition was opened.
    Opened(PartitionChange),
    /// A partition was dropped.
    Dropped(PartitionChange),
    /// A partition was given to another relation.
    Rehomed(PartitionChange),
    /// A column was bound to a column key.
    Bound(ColumnBinding),
}

/// The column key under which the values of a column may leave the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnBinding {
    /// Number of the partition.
    pub partition: u16,
    /// Number of the column.
    pub column: u16,
    /// The partition's first extent: a later partition of the same number has a later one.
    pub first_extent: u32,
    /// Id of the column key.
    pub key_id: [u8; 16],
    /// The column's lineage.
    pub lineage: Lineage,
}

impl ColumnBinding {
    /// Parses the entry that binds a column. `None` when it is cut short or a field is out of
    /// range.
    fn parse(rest: &[u8]) -> Option<Self> {
        use redo_bound_layout as at;
        let found = Self {
            partition: u16_at(rest, at::PARTITION)?,
            column: column_at(rest, at::COLUMN)?,
            first_extent: u32_at(rest, at::FIRST_EXTENT)?,
            key_id: array(rest, at::KEY_ID)?,
            lineage: Lineage::of(u64_at(rest, at::LINEAGE)?),
        };
        let in_range = found.partition != 0
            && found.lineage.is_column()
            && u32::from(found.partition) < super::fid::PARTITIONS
            && found.first_extent <= super::fid::EXTENTS;
        (in_range && bytes(rest, at::RESERVED) == Some(&[0])).then_some(found)
    }

    /// The entry's bytes, its number 8 included.
    fn to_bytes(self) -> [u8; redo_bound_layout::SIZE] {
        use redo_bound_layout as at;
        let mut out = [0; redo_bound_layout::SIZE];
        let fields = [
            put(&mut out, at::ENTRY, &[8]),
            put(&mut out, at::PARTITION, &self.partition.to_le_bytes()),
            put(&mut out, at::COLUMN, &self.column.to_le_bytes()),
            put(&mut out, at::FIRST_EXTENT, &self.first_extent.to_le_bytes()),
            put(&mut out, at::KEY_ID, &self.key_id),
            put(&mut out, at::LINEAGE, &self.lineage.number().to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "redo binding layout");
        out
    }
}

impl<'a> Entry<'a> {
    /// Reads one entry, and returns it with the bytes after it. `None` when it is cut short, has a
    /// value that no writer gives it, or an unknown number.
    #[must_use]
    pub fn parse(rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        match rest.first()? {
            1 => {
                let (fid, column, kind, tail) = parse_put(rest)?;
                let (word, tail) = tail.split_first_chunk::<8>()?;
                let tail = unpadded(kind, None, tail)?;
                Some((
                    Self::Word {
                        fid,
                        column,
                        kind,
                        word: *word,
                    },
                    tail,
                ))
            }
            2 => {
                let (fid, column, kind, tail) = parse_put(rest)?;
                let (length, tail) = tail.split_first_chunk::<4>()?;
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                let (bytes, tail) = tail.split_at_checked(length)?;
                let tail = unpadded(kind, Some(length), tail)?;
                let entry = Self::Bytes {
                    fid,
                    column,
                    kind,
                    bytes,
                };
                (length <= VALUE_MAX).then_some((entry, tail))
            }
            3 => {
                let fid = permanent(u64_at(rest, redo_freed_layout::FID)?)?;
                Some((Self::Freed(fid), rest.get(redo_freed_layout::SIZE..)?))
            }
            4 => {
                let fid = permanent(u64_at(rest, redo_swept_layout::FID)?)?;
                let sweep = u64_at(rest, redo_swept_layout::SWEEP)?;
                Some((
                    Self::Swept(sweep, fid),
                    rest.get(redo_swept_layout::SIZE..)?,
                ))
            }
            number @ 5..=7 => {
                let change = parse_change(rest)?;
                let tail = rest.get(redo_partition_layout::SIZE..)?;
                let entry = match number {
                    5 => Self::Opened(change),
                    6 => Self::Dropped(change),
                    _ => Self::Rehomed(change),
                };
                let sound = *number != 6 || change.relation == Relation::NONE;
                sound.then_some((entry, tail))
            }
            8 => {
                let binding = ColumnBinding::parse(rest)?;
                Some((Self::Bound(binding), rest.get(redo_bound_layout::SIZE..)?))
            }
            _ => None,
        }
    }

    /// The length of the bytes that [`Self::write`] writes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Word { kind, .. } => redo_put_layout::SIZE
                .saturating_add(8)
                .saturating_add(padding(*kind, None)),
            Self::Bytes { kind, bytes, .. } => redo_put_layout::SIZE
                .saturating_add(4)
                .saturating_add(bytes.len())
                .saturating_add(padding(*kind, Some(bytes.len()))),
            Self::Freed(_) => redo_freed_layout::SIZE,
            Self::Swept(..) => redo_swept_layout::SIZE,
            Self::Opened(_) | Self::Dropped(_) | Self::Rehomed(_) => redo_partition_layout::SIZE,
            Self::Bound(_) => redo_bound_layout::SIZE,
        }
    }

    /// Passes the entry's bytes to `out`, one piece after the other.
    pub fn write(&self, out: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Word {
                fid,
                column,
                kind,
                word,
            } => {
                out(&put_bytes(1, *fid, *column, *kind));
                out(word);
                out(zeros(padding(*kind, None)));
            }
            Self::Bytes {
                fid,
                column,
                kind,
                bytes,
            } => {
                // What is longer than VALUE_MAX was refused when it was put.
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                out(&put_bytes(2, *fid, *column, *kind));
                out(&length.to_le_bytes());
                out(bytes);
                out(zeros(padding(*kind, Some(bytes.len()))));
            }
            Self::Freed(fid) => {
                out(&[3]);
                out(&fid.bits().to_le_bytes());
            }
            Self::Swept(sweep, fid) => {
                out(&[4]);
                out(&sweep.to_le_bytes());
                out(&fid.bits().to_le_bytes());
            }
            Self::Opened(change) => out(&change_bytes(5, change)),
            Self::Dropped(change) => out(&change_bytes(6, change)),
            Self::Rehomed(change) => out(&change_bytes(7, change)),
            Self::Bound(binding) => out(&binding.to_bytes()),
        }
    }
}

/// Returns how many zero bytes follow a word (`length` is `None`) or a value of `length` bytes.
/// Values of a kind without fixed length are padded as in an envelope, and a word as the shortest
/// of them, so that the length of a record says no more about a value than that of an envelope.
const fn padding(kind: Kind, length: Option<usize>) -> usize {
    if !is_padded(kind) {
        return 0;
    }
    match length {
        // Four bytes of length, and one block, less the word.
        None => ENVELOPE_PAD.saturating_sub(4),
        Some(length) => ENVELOPE_PAD.saturating_sub(length & (ENVELOPE_PAD.saturating_sub(1))),
    }
}

/// Returns `count` zero bytes, or 16 if `count` is more.
fn zeros(count: usize) -> &'static [u8] {
    const ZEROS: [u8; ENVELOPE_PAD] = [0; ENVELOPE_PAD];
    ZEROS.get(..count).unwrap_or(&ZEROS)
}

/// Takes the padding off the front of `tail` and returns the bytes after it. `None` when it is cut
/// short or not all zero. `length` is as for [`padding`].
fn unpadded(kind: Kind, length: Option<usize>, tail: &[u8]) -> Option<&[u8]> {
    let (padding, tail) = tail.split_at_checked(padding(kind, length))?;
    padding.iter().all(|byte| *byte == 0).then_some(tail)
}

/// Returns the number of a column. `None` when it is cut short, or no column has the number.
fn column_at(rest: &[u8], field: Field) -> Option<u16> {
    u16_at(rest, field).filter(|column| (1..=COLUMNS_MAX).contains(column))
}

/// Returns the identifier with these bits. `None` when they are not those of a permanent value.
fn permanent(bits: u64) -> Option<Fid> {
    Fid::from_bits(bits).filter(|fid| !fid.is_ephemeral() && fid.partition() != 0)
}

/// Parses the head of an entry with a value, and returns it with the bytes after it. `None` when it
/// is cut short, or names no permanent value or no kind.
fn parse_put(rest: &[u8]) -> Option<(Fid, u16, Kind, &[u8])> {
    let fid = permanent(u64_at(rest, redo_put_layout::FID)?)?;
    let [kind] = array(rest, redo_put_layout::KIND)?;
    let column = column_at(rest, redo_put_layout::COLUMN)?;
    let tail = rest.get(redo_put_layout::SIZE..)?;
    Some((fid, column, Kind::from_number(kind)?, tail))
}

/// The head of an entry with a value; `entry` is the entry's number.
fn put_bytes(entry: u8, fid: Fid, column: u16, kind: Kind) -> [u8; redo_put_layout::SIZE] {
    let mut out = [0; redo_put_layout::SIZE];
    let fields = [
        put(&mut out, redo_put_layout::ENTRY, &[entry]),
        put(&mut out, redo_put_layout::KIND, &[kind.number()]),
        put(&mut out, redo_put_layout::COLUMN, &column.to_le_bytes()),
        put(&mut out, redo_put_layout::FID, &fid.bits().to_le_bytes()),
    ];
    assert!(fields.iter().all(Option::is_some), "redo put layout");
    out
}

/// Parses an entry that changes a partition, whatever its number. `None` when it is cut short or a
/// field is out of range.
fn parse_change(rest: &[u8]) -> Option<PartitionChange> {
    use redo_partition_layout as at;
    let relation = Relation {
        tablespace: u32_at(rest, at::TABLESPACE)?,
        database: u32_at(rest, at::DATABASE)?,
        filenode: u32_at(rest, at::FILENODE)?,
    };
    let change = PartitionChange {
        partition: u16_at(rest, at::PARTITION)?,
        relation,
        first_extent: u32_at(rest, at::FIRST_EXTENT)?,
        stamp: u64_at(rest, at::STAMP)?,
    };
    let in_range = change.partition != 0
        && u32::from(change.partition) < super::fid::PARTITIONS
        && change.first_extent <= super::fid::EXTENTS;
    (in_range && bytes(rest, at::RESERVED) == Some(&[0])).then_some(change)
}

/// The bytes of an entry that changes a partition; `entry` is the entry's number.
fn change_bytes(entry: u8, change: &PartitionChange) -> [u8; redo_partition_layout::SIZE] {
    use redo_partition_layout as at;
    let mut out = [0; redo_partition_layout::SIZE];
    let fields = [
        put(&mut out, at::ENTRY, &[entry]),
        put(&mut out, at::PARTITION, &change.partition.to_le_bytes()),
        put(
            &mut out,
            at::TABLESPACE,
            &change.relation.tablespace.to_le_bytes(),
        ),
        put(
            &mut out,
            at::DATABASE,
            &change.relation.database.to_le_bytes(),
        ),
        put(
            &mut out,
            at::FILENODE,
            &change.relation.filenode.to_le_bytes(),
        ),
        put(
            &mut out,
            at::FIRST_EXTENT,
            &change.first_extent.to_le_bytes(),
        ),
        put(&mut out, at::STAMP, &change.stamp.to_le_bytes()),
    ];
    assert!(fields.iter().all(Option::is_some), "redo partition layout");
    out
}

#[cfg(test)]
mod tests;
