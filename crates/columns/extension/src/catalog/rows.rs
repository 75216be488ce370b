//! Rows of the catalogs as the current command has just made them.
//!
//! PostgreSQL calls the hook for a new object before its rows are visible to the caches, so they
//! are read with `SnapshotSelf`. Must not: cache anything.

use std::ffi::CStr;

use pg_sys::{Datum, Oid};
use pgrx::pg_sys;
use strongroom_format::columns;

use crate::catalog::{tuples, types};

/// A relation's row of `pg_class`.
pub(crate) struct Class {
    /// `relkind`.
    pub(crate) kind: u8,
    /// `relam`.
    pub(crate) access_method: Oid,
    /// The files of its rows; meaningless for a relation without storage.
    pub(crate) storage: pg_sys::RelFileNode,
    /// The backend that owns it if it is temporary; -1 otherwise.
    pub(crate) backend: i32,
    /// The table for which it is filled, if it is the new form of one that is being rewritten.
    pub(crate) rewritten: Option<Oid>,
}

/// Deepest nesting of types that is searched; PostgreSQL itself refuses a type that contains
/// itself.
const DEPTH_MAX: u32 = 16;

/// OIDs of `pg_partitioned_table` and of its only index (`pg_partitioned_table.h`), which pgrx
/// lacks.
const PARTITIONED: u32 = 3350;
const PARTITIONED_INDEX: u32 = 3351;

/// OID of `pg_attrdef` (`pg_attrdef.h`), which pgrx lacks.
pub(crate) const DEFAULTS: u32 = 2604;

/// The fixed part of a row of `pg_partitioned_table`.
#[repr(C)]
struct Partitioned {
    _table: Oid,
    _strategy: u8,
    _count: i16,
    _default: Oid,
    columns: pg_sys::int2vector,
}

/// Calls `take` with each row of a catalog whose first index column has this value, uncommitted
/// rows of this transaction included. The row is valid during the call only.
fn for_each_row(
    catalog: Oid,
    index: u32,
    column: u32,
    key: Oid,
    mut take: impl FnMut(pg_sys::HeapTuple, pg_sys::TupleDesc),
) {
    let lock = pg_sys::AccessShareLock.cast_signed();
    // SAFETY: PostgreSQL's protocol of a scan of a catalog; `take` only reads the row while it is
    // the scan's current one.
    unsafe {
        let relation = pg_sys::table_open(catalog, lock);
        let mut scan_key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &raw mut scan_key,
            i16::try_from(column).unwrap_or(0),
            u16::try_from(pg_sys::BTEqualStrategyNumber).unwrap_or(0),
            Oid::from(pg_sys::F_OIDEQ),
            Datum::from(key),
        );
        let itself = &raw mut pg_sys::SnapshotSelfData;
        let scan = pg_sys::systable_beginscan(
            relation,
            Oid::from(index),
            true,
            itself,
            1,
            &raw mut scan_key,
        );
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            take(tuple, (*relation).rd_att);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, lock);
    }
}

/// The `pg_class` row of a relation. `None` if there is none.
pub(crate) fn class(oid: Oid) -> Option<Class> {
    let mut found = None;
    for_each_row(
        pg_sys::RelationRelationId,
        pg_sys::ClassOidIndexId,
        pg_sys::Anum_pg_class_oid,
        oid,
        |tuple, _| {
            // SAFETY: a row of pg_class.
            let form = unsafe { &*tuples::fixed_part::<pg_sys::FormData_pg_class>(tuple) };
            // SAFETY: OIDs of this database, set when the backend starts.
            let (own, database) = unsafe { (pg_sys::MyDatabaseTableSpace, pg_sys::MyDatabaseId) };
            let elsewhere = form.reltablespace != pg_sys::InvalidOid;
            let temporary = form.relpersistence.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP;
            found = Some(Class {
                backend: if temporary {
                    // SAFETY: looks the schema's name up.
                    unsafe { pg_sys::GetTempNamespaceBackendId(form.relnamespace) }
                } else {
                    -1
                },
                rewritten: (form.relrewrite != pg_sys::InvalidOid).then_some(form.relrewrite),
                kind: form.relkind.cast_unsigned(),
                access_method: form.relam,
                storage: pg_sys::RelFileNode {
                    spcNode: if elsewhere { form.reltablespace } else { own },
                    dbNode: database,
                    relNode: form.relfilenode,
                },
            });
        },
    );
    found
}

/// Calls `take` with each row of `pg_attribute` of a relation, those of system and dropped columns
/// included.
fn for_each_column(oid: Oid, mut take: impl FnMut(&pg_sys::FormData_pg_attribute)) {
    for_each_row(
        pg_sys::AttributeRelationId,
        pg_sys::AttributeRelidNumIndexId,
        pg_sys::Anum_pg_attribute_attrelid,
        oid,
        |tuple, _| {
            // SAFETY: a row of pg_attribute.
            take(unsafe { &*tuples::fixed_part::<pg_sys::FormData_pg_attribute>(tuple) });
        },
    );
}

/// Number and type of each column of a relation, without dropped columns.
pub(crate) fn columns(oid: Oid) -> Vec<(i16, Oid)> {
    let mut found = Vec::new();
    for_each_column(oid, |form| {
        if form.attnum > 0 && !form.attisdropped {
            found.push((form.attnum, form.atttypid));
        }
    });
    found
}

/// The numbers of the confidential columns of a relation, with their classes.
pub(crate) fn classes(oid: Oid) -> Vec<(i16, columns::Class)> {
    let mut found = Vec::new();
    for_each_column(oid, |form| {
        let live = form.attnum > 0 && !form.attisdropped;
        if live && types::kind_of(form.atttypid).is_some() {
            found.push((form.attnum, columns::Class::of_modifier(form.atttypmod)));
        }
    });
    found
}

/// Whether the rows of a relation that were there before a confidential column was added have a
/// value of it that is in the catalog (`attmissingval`).
pub(crate) fn has_kept_default(oid: Oid, column: i16) -> bool {
    let mut found = false;
    for_each_column(oid, |form| {
        found |=
            form.attnum == column && form.atthasmissing && types::kind_of(form.atttypid).is_some();
    });
    found
}

/// The base type of a domain; `None` for any other type.
pub(crate) fn domain_base(oid: Oid) -> Option<Oid> {
    let mut found = None;
    for_each_row(
        pg_sys::TypeRelationId,
        pg_sys::TypeOidIndexId,
        pg_sys::Anum_pg_type_oid,
        oid,
        |tuple, _| {
            // SAFETY: a row of pg_type.
            let form = unsafe { &*tuples::fixed_part::<pg_sys::FormData_pg_type>(tuple) };
            found = (form.typtype.cast_unsigned() == b'd').then_some(form.typbasetype);
        },
    );
    found
}

/// An index's row of `pg_index`.
pub(crate) struct Index {
    /// The table, and the columns of it that are keys or included, keys first; 0 for an expression.
    pub(crate) table: Oid,
    pub(crate) keys: Vec<i16>,
    /// How many are keys.
    pub(crate) key_count: usize,
    /// The operator classes of the keys.
    pub(crate) operator_classes: Vec<Oid>,
    /// The expressions among the keys, as PostgreSQL writes a tree as text; empty without any.
    pub(crate) expressions: String,
    /// Whether it belongs to an exclusion constraint.
    pub(crate) exclusion: bool,
}

/// The `pg_index` row of an index. `None` if there is none. Reads uncommitted changes of this
/// transaction too.
pub(crate) fn index(index: Oid) -> Option<Index> {
    let mut found = None;
    for_each_row(
        pg_sys::IndexRelationId,
        pg_sys::IndexRelidIndexId,
        pg_sys::Anum_pg_index_indexrelid,
        index,
        |tuple, description| {
            // SAFETY: the only catalog that is scanned here is pg_index.
            let form: *const pg_sys::FormData_pg_index = unsafe { tuples::fixed_part(tuple) };
            let attribute = pg_sys::Anum_pg_index_indclass.cast_signed();
            // SAFETY: as above; the column is a vector of OIDs, and never null.
            let operator_classes = unsafe {
                let vector = pg_sys::heap_getattr(tuple, attribute, description, &mut false);
                let vector: *const pg_sys::oidvector = vector.cast_mut_ptr();
                let length = usize::try_from((*vector).dim1).unwrap_or(0);
                (*vector).values.as_slice(length).to_vec()
            };
            // SAFETY: as above; its first vector follows the fixed part.
            found = Some(unsafe {
                Index {
                    table: (*form).indrelid,
                    keys: vector(&raw const (*form).indkey),
                    key_count: usize::try_from((*form).indnkeyatts).unwrap_or(0),
                    operator_classes,
                    expressions: trees(tuple, pg_sys::Anum_pg_index_indexprs, description),
                    exclusion: (*form).indisexclusion,
                }
            });
        },
    );
    found
}

/// The numbers of the columns in a table's partition key; 0 for an expression. Empty for a table
/// that is not partitioned.
pub(crate) fn partition_key(table: Oid) -> Vec<i16> {
    let mut found = Vec::new();
    for_each_row(
        Oid::from(PARTITIONED),
        PARTITIONED_INDEX,
        1,
        table,
        |tuple, _| {
            // SAFETY: a row of pg_partitioned_table; its first vector follows the fixed part.
            found =
                unsafe { vector(&raw const (*tuples::fixed_part::<Partitioned>(tuple)).columns) };
        },
    );
    found
}

/// The row of `pg_statistic_ext` of an object of extended statistics.
pub(crate) struct Statistics {
    /// The table, and its columns that the statistics are about.
    pub(crate) table: Oid,
    pub(crate) keys: Vec<i16>,
    /// The expressions, as PostgreSQL writes a tree as text; empty without any.
    pub(crate) expressions: String,
}

/// The `pg_statistic_ext` row of this OID. `None` if there is none.
pub(crate) fn statistics(oid: Oid) -> Option<Statistics> {
    let mut found = None;
    for_each_row(
        pg_sys::StatisticExtRelationId,
        pg_sys::StatisticExtOidIndexId,
        pg_sys::Anum_pg_statistic_ext_oid,
        oid,
        |tuple, description| {
            let form = row_of_statistics(tuple);
            let attribute = pg_sys::Anum_pg_statistic_ext_stxexprs;
            // SAFETY: a row of pg_statistic_ext with its description; the first vector follows the
            // fixed part.
            found = Some(unsafe {
                Statistics {
                    table: (*form).stxrelid,
                    keys: vector(&raw const (*form).stxkeys),
                    expressions: trees(tuple, attribute, description),
                }
            });
        },
    );
    found
}

/// The expressions in a column of a row, as PostgreSQL writes trees as text; empty without any.
///
/// # Safety
///
/// A row with its description, and a column of the type `pg_node_tree` of it.
unsafe fn trees(tuple: pg_sys::HeapTuple, column: u32, description: pg_sys::TupleDesc) -> String {
    let mut null = false;
    // SAFETY: the caller's promise.
    unsafe {
        let trees = pg_sys::heap_getattr(tuple, column.cast_signed(), description, &mut null);
        if null { String::new() } else { text(trees) }
    }
}

/// A copy of a text.
///
/// # Safety
///
/// A value of the type `text` or `pg_node_tree`.
unsafe fn text(value: Datum) -> String {
    // SAFETY: the caller's promise; the copy is the memory context's.
    let copy = unsafe { CStr::from_ptr(pg_sys::text_to_cstring(value.cast_mut_ptr())) };
    copy.to_string_lossy().into_owned()
}

/// The fixed part of a row of `pg_statistic_ext`.
fn row_of_statistics(tuple: pg_sys::HeapTuple) -> *const pg_sys::FormData_pg_statistic_ext {
    // SAFETY: the only caller scans pg_statistic_ext.
    unsafe { tuples::fixed_part(tuple) }
}

/// A copy of the elements of a vector.
///
/// # Safety
///
/// A vector in the current row of a scan.
unsafe fn vector(vector: *const pg_sys::int2vector) -> Vec<i16> {
    // SAFETY: the caller's promise; the vector has its length.
    unsafe {
        let length = usize::try_from((*vector).dim1).unwrap_or(0);
        (*vector).values.as_slice(length).to_vec()
    }
}

/// Whether values of this type contain confidential values: as an array, domain, range or composite
/// type. `depth` is the nesting searched so far; true beyond 16.
pub(crate) fn contains_confidential(oid: Oid, depth: u32) -> bool {
    let inside =
        |inner: Oid| types::kind_of(inner).is_some() || contains_confidential(inner, depth + 1);
    if depth > DEPTH_MAX {
        return true;
    }
    // SAFETY: searches of the catalog cache; an invalid OID says that the type is of another sort.
    let (element, kind) = unsafe {
        (
            pg_sys::get_element_type(oid),
            pg_sys::get_typtype(oid).cast_unsigned(),
        )
    };
    if element != pg_sys::InvalidOid {
        return inside(element);
    }
    match kind {
        b'd' => {
            // SAFETY: as above.
            inside(unsafe { pg_sys::getBaseType(oid) })
        }
        b'r' => {
            // SAFETY: as above.
            inside(unsafe { pg_sys::get_range_subtype(oid) })
        }
        b'm' => {
            // SAFETY: as above.
            contains_confidential(unsafe { pg_sys::get_multirange_range(oid) }, depth + 1)
        }
        b'c' => {
            // SAFETY: as above.
            let relation = unsafe { pg_sys::get_typ_typrelid(oid) };
            columns(relation).iter().any(|(_, column)| inside(*column))
        }
        _ => false,
    }
}
