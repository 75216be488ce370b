//! Indexes on columns of class equality, which have a keyed order: an operator class of their own
//! whose family has `=` and no other operator.
//!
//! The planner takes every B-tree for sorted in the order of its families, and would plan merge
//! joins by the keyed order, which is another one for each column. So it is told another family to
//! look for the order in, `enc_unsorted_ops`, whose equality operators are in no query: the planner
//! then finds that no query needs the order. It goes on matching `=` with the index's own family.
//! The planner takes merge joins' order from the family of `=` that was made first, which has to be
//! the types' default one (crates/columns/extension/script). Must not: change what else the planner
//! knows of an index.

use std::cell::Cell;
use std::ffi::CStr;

use pg_sys::{Datum, Oid};
use pgrx::pg_sys;

use crate::call::{call_postgres, guarded};
use crate::catalog::{options, tuples, types};

/// Name of the family with the equality operators that no query has.
const UNSORTED: &CStr = c"enc_unsorted_ops";

/// Number of the support function of B-trees that compares two values (access/nbtree.h,
/// `BTORDER_PROC`).
const ORDER_PROC: i16 = 1;

thread_local! {
    static PREVIOUS_HOOK: Cell<pg_sys::get_relation_info_hook_type> = const { Cell::new(None) };
}

/// Installs the planner's hook for what it knows of a relation; it calls the one installed before.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        PREVIOUS_HOOK.set(pg_sys::get_relation_info_hook);
        pg_sys::get_relation_info_hook = Some(on_relation_info);
    }
}

/// Whether an operator class has the keyed order.
pub(crate) fn is_keyed(operator_class: Oid) -> bool {
    // SAFETY: searches of the catalog cache, by OIDs of this database.
    unsafe {
        let family = pg_sys::get_opclass_family(operator_class);
        is_keyed_family(family, pg_sys::get_opclass_input_type(operator_class))
    }
}

/// Whether a B-tree family compares values of this type in the keyed order.
fn is_keyed_family(family: Oid, of: Oid) -> bool {
    if types::kind_of(of).is_none() {
        return false;
    }
    // SAFETY: a search of the catalog cache.
    let function = unsafe { pg_sys::get_opfamily_proc(family, of, of, ORDER_PROC) };
    types::symbol_of(function).is_some_and(|symbol| symbol == "strongroom_keyed_cmp")
}

/// The planner's hook for a relation: of each index with a keyed order, replaces the families that
/// the planner takes the order from.
extern "C-unwind" fn on_relation_info(
    root: *mut pg_sys::PlannerInfo,
    relation: Oid,
    with_inheritance: bool,
    info: *mut pg_sys::RelOptInfo,
) {
    guarded(|| {
        if let Some(hook) = PREVIOUS_HOOK.get() {
            // SAFETY: the hook that was installed before, with its arguments.
            unsafe { call_postgres(|| hook(root, relation, with_inheritance, info)) };
        }
        // SAFETY: the planner's own list of its own structures, for as long as the call.
        unsafe {
            for index in options::items((*info).indexlist) {
                hide_keyed_order(index);
            }
        }
    });
}

/// Replaces the families that the planner takes the order of an index from, where it is the keyed
/// order, and has the executor look for the elements of an array one by one. Does nothing to other
/// indexes.
///
/// # Safety
///
/// An index as the planner has it.
unsafe fn hide_keyed_order(index: *mut pg_sys::IndexOptInfo) {
    // SAFETY: the caller's promise; the arrays have an element for each key.
    unsafe {
        let keys = usize::try_from((*index).nkeycolumns).unwrap_or(0);
        if (*index).sortopfamily.is_null() {
            return;
        }
        let families = std::slice::from_raw_parts((*index).sortopfamily, keys).iter();
        let types = std::slice::from_raw_parts((*index).opcintype, keys).iter();
        let mut keyed = families
            .zip(types)
            .enumerate()
            .filter_map(|(at, (family, of))| {
                is_keyed_family(*family, *of).then_some((at, *family))
            });
        let mut next = keyed.next();
        if next.is_none() {
            return;
        }
        // Most often the same array as `opfamily`, which has to stay.
        let copy = pg_sys::palloc(keys * size_of::<Oid>()).cast::<Oid>();
        copy.copy_from_nonoverlapping((*index).sortopfamily, keys);
        while let Some((at, family)) = next {
            copy.add(at).write(unsorted_beside(family));
            next = keyed.next();
        }
        (*index).sortopfamily = copy;
        // The B-tree would sort the elements of `= ANY (...)` by the keyed order to drop those that
        // are twice there, and elements of several columns have no such order.
        (*index).amsearcharray = false;
    }
}

/// The family `enc_unsorted_ops` in the schema of this family of the extension. The family itself
/// if there is none.
fn unsorted_beside(family: Oid) -> Oid {
    let by_oid = pg_sys::SysCacheIdentifier::OPFAMILYOID.cast_signed();
    let by_name = pg_sys::SysCacheIdentifier::OPFAMILYAMNAMENSP.cast_signed();
    let oid = i16::try_from(pg_sys::Anum_pg_opfamily_oid).unwrap_or(0);
    // SAFETY: searches of the catalog cache; the row is a FormData_pg_opfamily, from which an OID
    // is copied before it is released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(by_oid, Datum::from(family));
        if tuple.is_null() {
            return family;
        }
        let form = tuples::fixed_part::<pg_sys::FormData_pg_opfamily>(tuple);
        let schema = (*form).opfnamespace;
        pg_sys::ReleaseSysCache(tuple);
        let mut name = pg_sys::NameData::default();
        pg_sys::namestrcpy(&raw mut name, UNSORTED.as_ptr());
        let found = pg_sys::GetSysCacheOid(
            by_name,
            oid,
            Datum::from(pg_sys::BTREE_AM_OID),
            Datum::from(&raw const name),
            Datum::from(schema),
            Datum::null(),
        );
        if found == Oid::INVALID { family } else { found }
    }
}
