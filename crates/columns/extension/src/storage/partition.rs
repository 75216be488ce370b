//! The partition of the mapping store that belongs to a table's storage, and the table's
//! confidential columns.
//!
//! A partition belongs to one relfilenode (docs/internals/columns.md, "The mapping store"), so
//! TRUNCATE and rewrites of a table get a new one. What was looked up is cached until PostgreSQL
//! says that the table has changed, or until there is another connection to the zone. Must not:
//! make a partition for a table without confidential columns.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::layout::column_layout;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Answer, Broken, Descriptor, Fault, Op};
use strongroom_format::columns::{Class, Kind};

use crate::catalog::{names, tuples, types};
use crate::fault;
use crate::ring::connection::{self, Connection};
use crate::ring::zone;
use crate::storage::pending;
use crate::storage::storage_id::{StorageId, put};

/// A confidential column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// `attnum`.
    pub(crate) number: i16,
    /// Kind of its values.
    pub(crate) kind: Kind,
    /// What its type's modifier says of the order of its values.
    class: Class,
}

/// The confidential columns of a table, and its partition.
#[derive(Clone)]
pub(crate) struct Table {
    /// The confidential columns; empty for a table without any.
    pub(crate) columns: Rc<[Column]>,
    /// OID of the relation.
    relation: u32,
    /// The partition's number, and the number of the connection over which it was learned.
    partition: Option<(u16, u32)>,
}

thread_local! {
    static TABLES: RefCell<BTreeMap<StorageId, Table>> = const { RefCell::new(BTreeMap::new()) };
}

/// Registers a callback that removes tables from the cache when they change.
pub(crate) fn install() {
    // SAFETY: registers a function that only removes from a map.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_relation_change), Datum::null()) };
}

/// Removes a table from the cache, because it has changed; all tables if `relation` is invalid.
extern "C-unwind" fn on_relation_change(_arg: Datum, relation: pg_sys::Oid) {
    let changed = relation.to_u32();
    TABLES.with(|tables| {
        if let Ok(mut tables) = tables.try_borrow_mut() {
            tables.retain(|_, table| changed != 0 && table.relation != changed);
        }
    });
}

/// Removes a storage from the cache: it is dropped, or belongs to another table.
pub(crate) fn forget(storage: StorageId) {
    TABLES.with(|tables| {
        if let Ok(mut tables) = tables.try_borrow_mut() {
            tables.remove(&storage);
        }
    });
}

/// The confidential columns of an open relation, and its partition if that is cached. Asks nothing
/// of the zone.
pub(crate) fn table_of(relation: pg_sys::Relation) -> Table {
    let storage = StorageId::of(relation);
    let cached = TABLES.with(|tables| tables.borrow().get(&storage).cloned());
    cached.unwrap_or_else(|| {
        // SAFETY: an open relation and its row type.
        let (number, columns) =
            unsafe { ((*relation).rd_id, tuples::attributes((*relation).rd_att)) };
        let columns = columns.filter_map(|attribute| {
            Some(Column {
                number: attribute.attnum,
                kind: types::kind_of(attribute.atttypid)?,
                class: Class::of_modifier(attribute.atttypmod),
            })
        });
        let table = Table {
            columns: columns.collect(),
            relation: number.to_u32(),
            partition: None,
        };
        cache(storage, table.clone());
        table
    })
}

/// Caches what is known of a table, for later statements of this backend.
fn cache(storage: StorageId, table: Table) {
    TABLES.with(|tables| tables.borrow_mut().insert(storage, table));
}

/// The number of the partition of a table's storage, cached or from the zone, which makes the
/// partition if there is none. Raises the zone's faults as an ERROR.
pub(crate) fn find_or_make(storage: StorageId, table: &Table) -> u16 {
    let connection = connection::latest_number();
    if let Some((partition, learned)) = table.partition
        && learned == connection
        && connection != 0
    {
        return partition;
    }
    let origin = pending::origin(storage);
    let columns = column_records(table);
    let found = zone::with(|connection| make(connection, origin, table, &columns));
    let partition = u16::try_from(found)
        .unwrap_or_else(|_| fault::raise_internal("a partition has an impossible number"));
    let table = Table {
        partition: Some((partition, connection::latest_number())),
        ..table.clone()
    };
    cache(storage, table);
    partition
}

/// Has the zone find the partition of a storage, or make it with the table's columns. Returns its
/// number. Fails as [`Connection::call`] does.
fn make(
    connection: &mut Connection,
    storage: StorageId,
    table: &Table,
    columns: &[u8],
) -> Result<u64, Broken> {
    let mut bytes = storage.record(table.relation).to_vec();
    bytes.extend_from_slice(columns);
    connection.write(0, &bytes)?;
    let answer = connection.call(Descriptor {
        flags: flag::NEW,
        n: u32::try_from(table.columns.len()).unwrap_or(u32::MAX),
        a: columns.len() as u64,
        ..Descriptor::of(Op::Partition)
    })?;
    Ok(answer.value)
}

/// The records of a table's columns for the zone, with their names.
fn column_records(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    for column in &*table.columns {
        let name = names::path(table.relation.into(), column.number);
        let mut record = [0; column_layout::SIZE];
        let number = column.number.cast_unsigned().to_le_bytes();
        let len = u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes();
        put(&mut record, column_layout::COLUMN, &number);
        put(&mut record, column_layout::KIND, &[column.kind.number()]);
        put(&mut record, column_layout::CLASS, &[column.class.number()]);
        put(&mut record, column_layout::NAME, &len);
        bytes.extend_from_slice(&record);
        bytes.extend_from_slice(&name);
    }
    bytes
}

/// Asks the zone for the partition of a storage: its number in `value`, how many values it has in
/// `aux`. `None` if there is none. Returns the zone's other faults, or `Lost` if it is gone. A
/// partition that has moved to the storage stays there from now on: to be called for what has
/// committed.
pub(crate) fn find(
    connection: &mut Connection,
    storage: StorageId,
) -> Result<Option<Answer>, Broken> {
    find_with(connection, storage, 0)
}

/// As [`find`], for a storage whose partition this transaction moves: the move may be undone yet.
pub(crate) fn find_moving(
    connection: &mut Connection,
    storage: StorageId,
) -> Result<Option<Answer>, Broken> {
    find_with(connection, storage, flag::MOVING)
}

/// As [`find`], with these flags.
fn find_with(
    connection: &mut Connection,
    storage: StorageId,
    flags: u16,
) -> Result<Option<Answer>, Broken> {
    connection.write(0, &storage.record(0))?;
    let asked = Descriptor {
        flags,
        ..Descriptor::of(Op::Partition)
    };
    match connection.call(asked) {
        Ok(answer) => Ok(Some(answer)),
        Err(Broken::Fault(Fault::PartitionUnknown)) => Ok(None),
        Err(broken) => Err(broken),
    }
}
