//! Relations whose partition was given to another relation, in a manifest.
//!
//! Must not: know why it was given.

use super::super::redo::Relation;
use super::PARTITIONS;
use crate::layout::{layout, put, u16_at, u32_at};

layout! {
    /// Layout of a relation whose partition has moved.
    moved_layout, 14, {
        PARTITION @ 0, 2;
        TABLESPACE @ 2, 4;
        DATABASE @ 6, 4;
        FILENODE @ 10, 4;
    }
}

/// A relation whose partition was given to another one, which may yet be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedEntry {
    /// Number of the partition.
    pub partition: u16,
    /// The relation that it belonged to.
    pub relation: Relation,
}

impl MovedEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        use moved_layout as at;
        let found = Self {
            partition: u16_at(rest, at::PARTITION)?,
            relation: Relation {
                tablespace: u32_at(rest, at::TABLESPACE)?,
                database: u32_at(rest, at::DATABASE)?,
                filenode: u32_at(rest, at::FILENODE)?,
            },
        };
        let sound = found.partition != 0
            && u32::from(found.partition) < PARTITIONS
            && found.relation.tablespace != 0;
        let rest = rest.get(moved_layout::SIZE..)?;
        sound.then_some((found, rest))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; moved_layout::SIZE] {
        use moved_layout as at;
        let mut out = [0; moved_layout::SIZE];
        let relation = &self.relation;
        let fields = [
            put(&mut out, at::PARTITION, &self.partition.to_le_bytes()),
            put(&mut out, at::TABLESPACE, &relation.tablespace.to_le_bytes()),
            put(&mut out, at::DATABASE, &relation.database.to_le_bytes()),
            put(&mut out, at::FILENODE, &relation.filenode.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "moved layout");
        out
    }
}
