//! Interposes readdir, and leaves Strongroom's own files out.
//!
//! Invariants: N2. The name is checked first, so that a listing is not slower; the path is resolved
//! only for names that match.
//!
//! Must not: hide a file of such a name outside of an instance.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{CStr, c_int};

use libc::{DIR, dirent};
use shield::open_instances;
use shield::resolve::{Resolved, resolve_followed};

use crate::next::{self, real};

symbols! {
    /// As the C library's function, but skips Strongroom's own files in an instance.
    fn readdir(directory: *mut DIR) -> *mut dirent {
        read(directory)
    }
    /// As the C library's function, but skips Strongroom's own files in an instance.
    fn readdir64(directory: *mut DIR) -> *mut dirent {
        read(directory)
    }
    /// As the C library's function, but skips Strongroom's own files in an instance.
    fn readdir_r(directory: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
        read_into(directory, entry, result)
    }
    /// As the C library's function, but skips Strongroom's own files in an instance.
    fn readdir64_r(directory: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
        read_into(directory, entry, result)
    }
}

/// Returns the next entry that is not hidden; null at the end or on failure, as readdir(3).
///
/// # Safety
/// As readdir(3).
unsafe fn read(directory: *mut DIR) -> *mut dirent {
    loop {
        // SAFETY: the program's argument.
        let entry = unsafe { next::readdir(directory) };
        // SAFETY: an open directory, and the C library's entry.
        if entry.is_null() || unsafe { !is_hidden(directory, entry) } {
            return entry;
        }
    }
}

/// Reads the next entry that is not hidden into the program's buffer: `result` is set to the entry,
/// or to null at the end. Returns 0 or the error number.
///
/// # Safety
/// As `readdir_r`.
unsafe fn read_into(directory: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
    loop {
        // SAFETY: the program's arguments.
        let failed = unsafe { next::readdir_r(directory, entry, result) };
        // SAFETY: as above; on success the result is null or the entry that was filled.
        if failed != 0 || unsafe { (*result).is_null() || !is_hidden(directory, *result) } {
            return failed;
        }
    }
}

/// Whether an entry is one of Strongroom's own files in an open instance. False if the directory's
/// path is not known.
///
/// # Safety
/// An open directory and an entry of it.
unsafe fn is_hidden(directory: *mut DIR, entry: *const dirent) -> bool {
    if open_instances::is_empty() {
        return false;
    }
    // SAFETY: the C library's entry, valid until the next call; its name is terminated. The entry
    // may be shorter than the fixed length of the field, so no reference to the whole field is
    // made.
    let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) };
    let name = name.to_bytes();
    if !name.windows(OWN_MARK.len()).any(|part| part == OWN_MARK) {
        return false;
    }
    let mut path = [0_u8; PATH_MAX];
    // SAFETY: an open directory.
    let here = real().path_of(unsafe { libc::dirfd(directory) }, &mut path);
    here.is_some_and(|here| matches!(resolve_followed(here, name), Ok(Resolved::Hidden)))
}

/// A part of the name of each of Strongroom's own files.
const OWN_MARK: &[u8] = b"strongroom";
/// Longest path.
const PATH_MAX: usize = 4096;
