//! The name of a column from which its lineage is made.
//!
//! The data owner's proxy makes the same name from what it reads of the catalog
//! (crates/columns/proxy, `sql/lineage.rs`); docs/spec/columns.md, "Lineages". Must not: hash it;
//! the zone does.

use std::ffi::{CStr, c_char};

use pg_sys::Oid;
use pgrx::pg_sys;

use crate::catalog::rows;

unsafe extern "C-unwind" {
    /// The OIDs of the tables that a partition is below, its own parent first.
    // src/backend/catalog/partition.c; not among pgrx's bindings.
    fn get_partition_ancestors(relation: Oid) -> *mut pg_sys::List;
}

/// Prefix of the name of a column that a conversion fills; the number of the column that it is to
/// replace follows.
const CONVERTED: &str = "strongroom~";

/// The names of database, schema, relation and column, a zero byte between them. A partition has
/// the name of the table that it is a part of, temporary tables are all in the schema `pg_temp`,
/// and a column that a conversion fills has the name of the one that it is to replace. Empty if the
/// relation or column does not exist.
pub(crate) fn path(relation: Oid, column: i16) -> Vec<u8> {
    let own = rows::class(relation);
    // The table that a rewrite fills has no name of its own.
    let relation = own.map_or(relation, |class| class.rewritten.unwrap_or(relation));
    // SAFETY: searches of the catalog caches, by OIDs of this database; each gives a new C string,
    // or a null pointer.
    let names = unsafe {
        let root = root_of(relation);
        let schema = pg_sys::get_rel_namespace(root);
        let schema = if pg_sys::isAnyTempNamespace(schema) {
            Some("pg_temp".to_owned())
        } else {
            text(pg_sys::get_namespace_name(schema))
        };
        let column = column_name(relation, column);
        [
            text(pg_sys::get_database_name(pg_sys::MyDatabaseId)),
            schema,
            text(pg_sys::get_rel_name(root)),
            column,
        ]
    };
    let names: Option<Vec<String>> = names.into_iter().collect();
    names.map_or_else(Vec::new, |names| names.join("\0").into_bytes())
}

/// The table at the top of a partition's hierarchy; the relation itself if it is no partition.
fn root_of(relation: Oid) -> Oid {
    // SAFETY: searches of the catalogs; the list is one of OIDs, and is not changed.
    unsafe {
        if !pg_sys::get_rel_relispartition(relation) {
            return relation;
        }
        let ancestors = get_partition_ancestors(relation);
        if ancestors.is_null() {
            return relation;
        }
        let last = usize::try_from((*ancestors).length - 1).unwrap_or(0);
        (*(*ancestors).elements.add(last)).oid_value
    }
}

/// The name of a column, or of the column that it is to replace. `None` if there is none.
fn column_name(relation: Oid, column: i16) -> Option<String> {
    // SAFETY: a search of the catalog cache, which returns a null pointer if there is no such
    // column.
    let name = |number: i16| unsafe { text(pg_sys::get_attname(relation, number, true)) };
    let own = name(column)?;
    let replaced = own
        .strip_prefix(CONVERTED)
        .and_then(|number| number.parse().ok());
    Some(replaced.and_then(name).unwrap_or(own))
}

/// A copy of a C string. `None` for a null pointer.
///
/// # Safety
///
/// A null pointer or a C string.
unsafe fn text(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}
