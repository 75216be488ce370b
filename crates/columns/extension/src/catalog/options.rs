//! Options and parts of a command, as its parse tree lists them.
//!
//! Must not: judge them.

use std::ffi::CStr;

use pgrx::pg_sys;

/// The options of this name in a command.
///
/// # Safety
///
/// A list of definitions, or none, that lives as long as the iterator.
pub(super) unsafe fn named(
    list: *mut pg_sys::List,
    name: &CStr,
) -> impl Iterator<Item = *mut pg_sys::DefElem> {
    // SAFETY: the caller's promise.
    let all = unsafe { items::<pg_sys::DefElem>(list) };
    // SAFETY: as above; a definition has a name.
    all.filter(move |definition| unsafe { CStr::from_ptr((**definition).defname) == name })
}

/// The items of a list of pointers.
///
/// # Safety
///
/// A list of pointers to `T`, or none, that lives as long as the iterator.
pub(crate) unsafe fn items<T>(list: *mut pg_sys::List) -> impl Iterator<Item = *mut T> {
    let count = if list.is_null() {
        0
    } else {
        // SAFETY: the caller's promise, here and below.
        unsafe { (*list).length }
    };
    (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: as above.
        .map(move |at| unsafe { (*(*list).elements.add(at)).ptr_value.cast::<T>() })
}
