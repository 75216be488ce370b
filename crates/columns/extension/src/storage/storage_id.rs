//! Which files hold a table's rows, in PostgreSQL's terms: tablespace, database, relfilenode.
//!
//! A partition of the mapping store belongs to one of these. Must not: open a relation.

use pgrx::pg_sys;
use strongroom_columns_ring::layout::relation_layout;
use strongroom_format::layout::Field;

/// Tablespace, database and relfilenode of a relation (storage/relfilenode.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StorageId {
    tablespace: u32,
    database: u32,
    filenode: u32,
}

impl StorageId {
    /// The storage with these numbers. `backend` owns the relation if it is temporary, and is -1
    /// otherwise.
    ///
    /// Each backend numbers the files of its temporary tables by itself, so their storage has the
    /// backend's number in place of the tablespace's, and no database.
    pub(crate) fn new(node: pg_sys::RelFileNode, backend: i32) -> Self {
        let temporary = u32::try_from(backend).ok();
        Self {
            tablespace: temporary.unwrap_or_else(|| node.spcNode.to_u32()),
            database: temporary.map_or_else(|| node.dbNode.to_u32(), |_| 0),
            filenode: node.relNode.to_u32(),
        }
    }

    /// Whether a temporary relation has it.
    pub(crate) const fn is_temporary(self) -> bool {
        self.database == 0
    }

    /// The storage of an open relation.
    pub(crate) fn of(relation: pg_sys::Relation) -> Self {
        // SAFETY: an open relation.
        unsafe { Self::new((*relation).rd_node, (*relation).rd_backend) }
    }

    /// The storage that an open relation is about to get.
    ///
    /// # Safety
    ///
    /// `node` is PostgreSQL's argument to a callback of the access method.
    pub(crate) unsafe fn of_new(
        relation: pg_sys::Relation,
        node: *const pg_sys::RelFileNode,
    ) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(*node, (*relation).rd_backend) }
    }

    /// What the zone calls the storage of the retired partition of this number, which this storage
    /// had: no relation has tablespace 0.
    pub(crate) const fn retired(self, partition: u16) -> Self {
        Self {
            tablespace: 0,
            database: self.database,
            filenode: partition as u32,
        }
    }

    /// The record of a relation with this storage, as the zone reads it. `relation` is its OID, or
    /// 0.
    pub(crate) fn record(self, relation: u32) -> [u8; relation_layout::SIZE] {
        let mut record = [0; relation_layout::SIZE];
        let fields = [
            (relation_layout::TABLESPACE, self.tablespace),
            (relation_layout::DATABASE, self.database),
            (relation_layout::FILENODE, self.filenode),
            (relation_layout::RELATION, relation),
        ];
        for (field, value) in fields {
            put(&mut record, field, &value.to_le_bytes());
        }
        record
    }
}

/// Copies bytes into a record, from the field's offset on, as far as the record goes.
pub(crate) fn put(record: &mut [u8], field: Field, bytes: &[u8]) {
    for (to, from) in record.iter_mut().skip(field.offset).zip(bytes) {
        *to = *from;
    }
}
