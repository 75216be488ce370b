//! Rows of PostgreSQL's catalogs as C structures.
//!
//! Must not: read a catalog by itself.

use std::ffi::CStr;

use pg_sys::Oid;
use pgrx::pg_sys;

/// The fixed part of a catalog's row (`htup_details.h`, GETSTRUCT).
///
/// # Safety
///
/// The tuple is a row of the catalog whose form `T` is; the pointer is valid as long as the tuple.
pub(crate) const unsafe fn fixed_part<T>(tuple: pg_sys::HeapTuple) -> *const T {
    // SAFETY: the caller's promise: the form begins `t_hoff` bytes after the header's start,
    // aligned.
    unsafe {
        let header = (*tuple).t_data;
        header.cast::<u8>().add((*header).t_hoff as usize).cast()
    }
}

/// A copy of a name from `pg_class` or another catalog.
pub(crate) fn name_of(name: &pg_sys::NameData) -> String {
    // SAFETY: a NameData ends with a zero.
    unsafe { CStr::from_ptr(name.data.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

/// The columns of a row type that are not dropped: number and type.
///
/// # Safety
///
/// The descriptor is PostgreSQL's, and lives as long as the iterator.
pub(crate) unsafe fn columns(descriptor: pg_sys::TupleDesc) -> impl Iterator<Item = (i16, Oid)> {
    // SAFETY: the caller's promise.
    let attributes = unsafe { attributes(descriptor) };
    attributes.map(|attribute| (attribute.attnum, attribute.atttypid))
}

/// The columns of a row type that are not dropped.
///
/// # Safety
///
/// The descriptor is PostgreSQL's, and lives as long as the iterator and what it returns.
pub(crate) unsafe fn attributes<'a>(
    descriptor: pg_sys::TupleDesc,
) -> impl Iterator<Item = &'a pg_sys::FormData_pg_attribute> {
    // SAFETY: the caller's promise; a descriptor has `natts` attributes.
    let attributes = unsafe {
        let count = usize::try_from((*descriptor).natts).unwrap_or(0);
        (*descriptor).attrs.as_slice(count)
    };
    attributes
        .iter()
        .filter(|attribute| !attribute.attisdropped)
}
