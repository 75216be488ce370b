//! The partition of the mapping store that belongs to a table's storage, and the table's confidential columns.
//!
//! A partition stands for one relfilenode (contract, "The mapping store"), so TRUNCATE and rewrites get a new one. What was found is kept
//! until PostgreSQL says that the table has changed, or the zone is another. Must not: make a partition for a table without
//! confidential columns.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::layout::{column_layout, relation_layout};
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Answer, Broken, Descriptor, Op};
use strongroom_format::columns::Kind;

use crate::catalog::types;
use crate::ring::zone;
use crate::ring::zone::Link;
use crate::storage::transaction_end;

/// Where a table's rows are: tablespace, database, relfilenode (storage/relfilenode.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Storage {
    tablespace: u32,
    database: u32,
    filenode: u32,
}

impl Storage {
    /// The storage with these numbers. Temporary tables of each backend number their files by themselves, so those have the backend's
    /// number in place of the tablespace's, and no database.
    pub(crate) fn new(node: pg_sys::RelFileNode, backend: i32) -> Self {
        let temporary = u32::try_from(backend).ok();
        Self {
            tablespace: temporary.unwrap_or_else(|| node.spcNode.to_u32()),
            database: temporary.map_or_else(|| node.dbNode.to_u32(), |_| 0),
            filenode: node.relNode.to_u32(),
        }
    }
}

/// A confidential column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// `attnum`.
    pub(crate) number: i16,
    /// What it holds.
    pub(crate) kind: Kind,
}

/// A table's storage as far as the zone is concerned.
#[derive(Clone)]
pub(crate) struct Table {
    /// The columns; none for a table without confidential ones.
    pub(crate) columns: Rc<[Column]>,
    relation: u32,
    /// Its partition, and the connection over which it was learned.
    partition: Option<(u16, u32)>,
}

thread_local! {
    static TABLES: RefCell<BTreeMap<Storage, Table>> = const { RefCell::new(BTreeMap::new()) };
}

/// Has the cache forget tables that change.
pub(crate) fn watch() {
    // SAFETY: registers a function that only removes from a map.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(changed), Datum::null()) };
}

extern "C-unwind" fn changed(_arg: Datum, relation: pg_sys::Oid) {
    let changed = relation.to_u32();
    TABLES.with(|tables| {
        if let Ok(mut tables) = tables.try_borrow_mut() {
            tables.retain(|_, table| changed != 0 && table.relation != changed);
        }
    });
}

/// Forgets what is known of a storage: it is dropped, or belongs to another table.
pub(crate) fn forget(storage: Storage) {
    TABLES.with(|tables| {
        if let Ok(mut tables) = tables.try_borrow_mut() {
            tables.remove(&storage);
        }
    });
}

/// The storage of an open relation.
pub(crate) fn storage(relation: pg_sys::Relation) -> Storage {
    // SAFETY: an open relation.
    unsafe { Storage::new((*relation).rd_node, (*relation).rd_backend) }
}

/// The storage that an open relation gets.
///
/// # Safety
///
/// `node` is PostgreSQL's argument to a callback of the access method.
pub(crate) unsafe fn new_storage(
    relation: pg_sys::Relation,
    node: *const pg_sys::RelFileNode,
) -> Storage {
    // SAFETY: the caller's promise.
    unsafe { Storage::new(*node, (*relation).rd_backend) }
}

/// The confidential columns of an open relation.
pub(crate) fn table(relation: pg_sys::Relation) -> Table {
    let at = storage(relation);
    let known = TABLES.with(|tables| tables.borrow().get(&at).cloned());
    known.unwrap_or_else(|| {
        // SAFETY: an open relation and its row type.
        let (number, columns) = unsafe { ((*relation).rd_id, types::columns((*relation).rd_att)) };
        let columns = columns.filter_map(|(number, oid)| {
            let kind = types::kind_of(oid)?;
            Some(Column { number, kind })
        });
        let table = Table {
            columns: columns.collect(),
            relation: number.to_u32(),
            partition: None,
        };
        remember(at, table.clone());
        table
    })
}

fn remember(at: Storage, table: Table) {
    TABLES.with(|tables| tables.borrow_mut().insert(at, table));
}

/// The partition of a table's storage; made when it is not there.
pub(crate) fn partition(at: Storage, table: &Table) -> u16 {
    let connection = zone::connection();
    if let Some((partition, learned)) = table.partition
        && learned == connection
        && connection != 0
    {
        return partition;
    }
    let origin = transaction_end::origin(at);
    let found = zone::with(|link| find(link, origin, table, flag::NEW));
    let partition = u16::try_from(found)
        .unwrap_or_else(|_| crate::fault::internal("a partition has an impossible number"));
    let table = Table {
        partition: Some((partition, zone::connection())),
        ..table.clone()
    };
    remember(at, table);
    partition
}

fn find(link: &mut Link, at: Storage, table: &Table, flags: u16) -> Result<u64, Broken> {
    let mut bytes = relation_record(at, table.relation).to_vec();
    for column in &*table.columns {
        let mut record = [0; column_layout::SIZE];
        put(
            &mut record,
            column_layout::COLUMN.offset,
            &column.number.cast_unsigned().to_le_bytes(),
        );
        put(
            &mut record,
            column_layout::KIND.offset,
            &[column.kind.number()],
        );
        bytes.extend_from_slice(&record);
    }
    link.write(0, &bytes)?;
    let answer = link.call(Descriptor {
        flags,
        n: u32::try_from(table.columns.len()).unwrap_or(u32::MAX),
        ..Descriptor::of(Op::Partition)
    })?;
    Ok(answer.value)
}

/// The partition of a storage, if it has one, as the zone answers: its number, and how many values it has.
pub(crate) fn existing(link: &mut Link, at: Storage) -> Result<Answer, Broken> {
    link.write(0, &relation_record(at, 0))?;
    link.call(Descriptor::of(Op::Partition))
}

/// A relation as the zone's records have it.
pub(crate) fn relation_record(at: Storage, relation: u32) -> [u8; relation_layout::SIZE] {
    let mut record = [0; relation_layout::SIZE];
    put(
        &mut record,
        relation_layout::TABLESPACE.offset,
        &at.tablespace.to_le_bytes(),
    );
    put(
        &mut record,
        relation_layout::DATABASE.offset,
        &at.database.to_le_bytes(),
    );
    put(
        &mut record,
        relation_layout::FILENODE.offset,
        &at.filenode.to_le_bytes(),
    );
    put(
        &mut record,
        relation_layout::RELATION.offset,
        &relation.to_le_bytes(),
    );
    record
}

/// Copies bytes into a record at an offset of its layout.
pub(crate) fn put(record: &mut [u8], offset: usize, bytes: &[u8]) {
    for (to, from) in record.iter_mut().skip(offset).zip(bytes) {
        *to = *from;
    }
}
