//! How many values each partition has.
//!
//! Must not: read a block for it: values on disk only are counted in blocks.

use strongroom_format::columns::redo::Relation;

use super::Store;
use super::partition::{Block, Partition};

/// The counts of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Its number.
    pub number: u16,
    /// The relation that it belongs to.
    pub relation: Relation,
    /// Columns that are bound to a key.
    pub columns: usize,
    /// Values in blocks that were in memory since the store was opened.
    pub values: u64,
    /// Blocks that have not been read since then: each has 1 to 1024 values.
    pub unread: u64,
}

impl Store {
    /// The counts of every partition, in order of number. Reads no block.
    pub fn census(&self) -> impl Iterator<Item = Census> + '_ {
        self.partitions.iter().map(|(number, partition)| {
            let (values, unread) = count_values(partition);
            Census {
                number,
                relation: partition.relation,
                columns: partition.column_keys.len(),
                values,
                unread,
            }
        })
    }

    /// How many partitions belong to relations of the database with this OID.
    #[must_use]
    pub fn partitions_of(&self, database: u64) -> u64 {
        let of = |partition: &&Partition| u64::from(partition.relation.database) == database;
        self.partitions
            .iter()
            .map(|(_, partition)| partition)
            .filter(of)
            .count() as u64
    }
}

impl Store {
    /// The least OID above `after` of a database that has partitions, and the number of one of
    /// them. `None` if there is none.
    #[must_use]
    pub fn next_database(&self, after: u64) -> Option<(u32, u16)> {
        let all = self.partitions.iter();
        let of = all.map(|(number, partition)| (partition.relation.database, number));
        of.filter(|(database, _)| u64::from(*database) > after)
            .min()
    }

    /// The least number above `after` of a partition of a relation whose tablespace is 0, which no
    /// relation of the host's has: it is gone, and the host has not dropped the partition yet.
    /// `None` if there is none. With it comes what tells it from other partitions of its number,
    /// earlier and later: the end of the stamp of its last change.
    #[must_use]
    pub fn next_retired(&self, after: u64) -> Option<(u16, u32)> {
        let numbers = after.saturating_add(1)..u64::from(u16::MAX);
        let mut numbers = numbers.filter_map(|number| u16::try_from(number).ok());
        numbers.find_map(|number| {
            let partition = self.partitions.get(number)?;
            (partition.relation.tablespace == 0).then(|| (number, mark(partition)))
        })
    }

    /// Whether this is the retired partition of which [`Self::next_retired`] has told so.
    #[must_use]
    pub fn is_retired(&self, number: u16, told: u32) -> bool {
        let partition = self.partitions.get(number);
        let retired = partition.filter(|partition| partition.relation.tablespace == 0);
        retired.is_some_and(|partition| mark(partition) == told)
    }

    /// Whether the partition of this number is of a relation of the database with this OID.
    #[must_use]
    pub fn is_of_database(&self, number: u16, database: u32) -> bool {
        let partition = self.partitions.get(number);
        partition.is_some_and(|partition| partition.relation.database == database)
    }
}

/// The end of the stamp of a partition's last change.
fn mark(partition: &Partition) -> u32 {
    let [a, b, c, d, ..] = partition.stamp.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The number of the partition's values in blocks that were in memory since the store was opened,
/// and the number of its other blocks.
fn count_values(partition: &Partition) -> (u64, u64) {
    let extents = partition.extents.iter().flatten();
    let blocks = extents.flat_map(|extent| &extent.blocks);
    blocks.fold((0, 0), |(values, unread), block| {
        let more = u64::from(is_unread(block));
        (values + u64::from(block.live), unread + more)
    })
}

/// Whether the number of values of a block is unknown, because it was not read yet.
const fn is_unread(block: &Block) -> bool {
    block.frame.is_none() && block.disk.is_some() && block.live == 0 && !block.gone
}
