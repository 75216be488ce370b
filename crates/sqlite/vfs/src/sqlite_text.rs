//! Texts that pass between SQLite and Rust, and the parameters of a URI.
//!
//! Must not: keep a pointer of SQLite's.
#![expect(unsafe_code, reason = "reads and allocates C strings")]

use std::ffi::{CStr, CString, c_char, c_void};

use crate::api::{Api, api};

/// Copies a text of SQLite's; empty for null. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn text_of(text: *const u8) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text.cast::<c_char>()) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the value of the parameter `key` in the URI by which SQLite opens a database. `None`
/// when the URI does not have it.
///
/// # Safety
/// `name` is a file name that SQLite's core gave to `xOpen`, followed by its parameters.
pub(crate) unsafe fn uri_parameter(name: *const c_char, key: &str) -> Option<String> {
    let key = CString::new(key).ok()?;
    // SAFETY: the caller's word; the key ends with a zero byte.
    let value = unsafe { (api()?.uri_parameter)(name, key.as_ptr()) };
    // SAFETY: null, or a text of SQLite's.
    (!value.is_null()).then(|| unsafe { text_of(value.cast()) })
}

/// Replaces the VFS name in `argument` by the same with "strongroom/" before it
/// (`SQLITE_FCNTL_VFSNAME`), and frees the former string.
///
/// # Safety
/// `argument` points to a string of SQLite's allocator, or to null.
pub(crate) unsafe fn prefix_vfs_name(argument: *mut c_void) {
    let Some(api) = api() else { return };
    let place = argument.cast::<*mut c_char>();
    // SAFETY: the caller's word.
    let below = unsafe { place.read() };
    // SAFETY: a string or null.
    let text = format!("strongroom/{}", unsafe { text_of(below.cast::<u8>()) });
    // SAFETY: allocated by SQLite, as the operation says.
    unsafe { (api.free)(below.cast::<c_void>()) };
    // SAFETY: `place` is writable.
    unsafe { place.write(sqlite_string(&text)) };
}

/// Copies `text` into memory of SQLite's allocator, with a zero byte at its end; null when there is
/// no memory.
#[must_use]
pub(crate) fn sqlite_string(text: &str) -> *mut c_char {
    api().map_or(std::ptr::null_mut(), |api| string_of(api, text))
}

/// Copies `text` into memory of the allocator of the SQLite library that `api` is, with a zero byte
/// at its end; null when there is no memory.
pub(crate) fn string_of(api: &Api, text: &str) -> *mut c_char {
    let bytes = text.as_bytes();
    // SAFETY: plain allocation.
    let copy = unsafe { (api.malloc64)(bytes.len() as u64 + 1) }.cast::<u8>();
    if copy.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: `copy` has room for the text and the zero byte.
    unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    // SAFETY: within the allocation.
    unsafe { copy.add(bytes.len()).write(0) };
    copy.cast::<c_char>()
}
