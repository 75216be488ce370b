//! Converts C arguments to Rust slices, and resolves paths.
//!
//! Must not: keep a reference longer than the call that it belongs to.
#![expect(unsafe_code, reason = "pointers from C")]

use std::ffi::{CStr, c_char, c_int, c_void};

use shield::open_instances;
use shield::real::Errno;
use shield::resolve::{Resolved, resolve, resolve_followed};

use crate::next::{self, real};
use crate::process::working_directory;
use crate::start::open_deferred;

/// The bytes of a C string. Empty for a null pointer, which the C library then rejects.
///
/// # Safety
/// Null, or a terminated string that lives as long as the result is used.
pub(crate) unsafe fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    if path.is_null() {
        return b"";
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// Resolves `path`, relative to the working directory: whether it is outside of every open
/// instance, or in one, and how its file is treated. Symbolic links into an instance are followed.
/// `Outside` while no instance is open; `pg_ctl` first opens its instances when the path is the
/// control file (EACCES if that fails). Otherwise the errors of [`resolve`].
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn resolve_path(path: *const c_char) -> Result<Resolved, Errno> {
    // SAFETY: by this function's contract.
    let path = unsafe { bytes(path) };
    if open_instances::is_empty() {
        open_deferred(path)?;
        if open_instances::is_empty() {
            return Ok(Resolved::Outside);
        }
    }
    match resolve(working_directory(), path)? {
        Resolved::Outside => resolve_by_kernel(libc::AT_FDCWD, path),
        resolved => Ok(resolved),
    }
}

/// Resolves `path` as [`resolve_path`] does, relative to the directory that is open as `base`, and
/// without opening an instance. EBADF if a relative path needs `base` and its path cannot be found
/// out.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn resolve_path_at(base: c_int, path: *const c_char) -> Result<Resolved, Errno> {
    if open_instances::is_empty() {
        return Ok(Resolved::Outside);
    }
    // SAFETY: by this function's contract.
    let path = unsafe { bytes(path) };
    let resolved = if base == libc::AT_FDCWD || path.starts_with(b"/") {
        resolve(working_directory(), path)?
    } else {
        let mut buffer = [0_u8; PATH_MAX];
        let directory = real().path_of(base, &mut buffer);
        resolve(directory.ok_or(Errno(libc::EBADF))?, path)?
    };
    match resolved {
        Resolved::Outside => resolve_by_kernel(base, path),
        resolved => Ok(resolved),
    }
}

/// Resolves a path that is, as it is spelled, outside of every instance: a symbolic link in it may
/// lead into one. The kernel follows the links; the server rarely uses such paths. For a file that
/// does not exist yet, its directory counts. `Outside` if the links cannot be followed, except that
/// EMFILE, ENFILE and ENOMEM are returned. Leaves errno unchanged.
fn resolve_by_kernel(base: c_int, path: &[u8]) -> Result<Resolved, Errno> {
    if path.is_empty() {
        return Ok(Resolved::Outside);
    }
    let kept = Errno::last();
    let mut buffer = [0_u8; PATH_MAX];
    let outcome = match follow_links(base, path, &mut buffer) {
        Ok(Some(there)) => resolve_followed(b"/", there),
        // The file does not exist: its directory is followed, and then its name.
        Err(Errno(libc::ENOENT)) => {
            let cut = path.iter().rposition(|&byte| byte == b'/');
            let (directory, name) = match cut {
                Some(at) => (path.get(..=at), path.get(at.saturating_add(1)..)),
                None => (Some(&b"."[..]), Some(path)),
            };
            match follow_links(base, directory.unwrap_or_default(), &mut buffer) {
                Ok(Some(there)) => resolve_new_file(there, name.unwrap_or_default(), LINKS_MAX),
                _ => Ok(Resolved::Outside),
            }
        }
        // The links cannot be followed for lack of resources, and the program's own call would fail
        // in the same way.
        Err(errno @ Errno(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => Err(errno),
        _ => Ok(Resolved::Outside),
    };
    next::set_errno(kept.0);
    outcome
}

/// The most symbolic links that the kernel follows in one path (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// Resolves a file that does not exist, by its name in the directory `there`. The name may be that
/// of a symbolic link whose target does not exist: the file would be created at the target, which
/// is resolved then. `links` is how many further links may be followed: ELOOP after them.
/// ENAMETOOLONG if the path does not fit.
fn resolve_new_file(there: &[u8], name: &[u8], links: u32) -> Result<Resolved, Errno> {
    let mut path = [0_u8; PATH_MAX];
    let joined = [there, b"/", name].concat();
    let space = path
        .get_mut(..joined.len())
        .filter(|_| joined.len() < PATH_MAX);
    space
        .ok_or(Errno(libc::ENAMETOOLONG))?
        .copy_from_slice(&joined);
    let mut target = [0_u8; PATH_MAX];
    // SAFETY: a terminated string, and a buffer of that length.
    let len = unsafe { libc::readlink(path.as_ptr().cast(), target.as_mut_ptr().cast(), PATH_MAX) };
    let target = usize::try_from(len).ok().and_then(|len| target.get(..len));
    let Some(target) = target else {
        return resolve_followed(there, name);
    };
    let links = links.checked_sub(1).ok_or(Errno(libc::ELOOP))?;
    let target = match target.starts_with(b"/") {
        true => target.to_vec(),
        false => [there, b"/", target].concat(),
    };
    let cut = target.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let (directory, name) = target.split_at(cut.saturating_add(1).min(target.len()));
    let mut buffer = [0_u8; PATH_MAX];
    match follow_links(libc::AT_FDCWD, directory, &mut buffer) {
        Ok(Some(directory)) => resolve_new_file(directory, name, links),
        _ => Ok(Resolved::Outside),
    }
}

/// Writes the canonical path of an existing file, symbolic links followed, into `buffer`, and
/// returns it. `None` if the kernel knows no absolute path of it. Errors are those of openat(2),
/// and ENAMETOOLONG.
fn follow_links<'out>(
    base: c_int,
    path: &[u8],
    buffer: &'out mut [u8; PATH_MAX],
) -> Result<Option<&'out [u8]>, Errno> {
    let mut name = [0_u8; PATH_MAX];
    // The last byte stays zero: terminated.
    let space = name.get_mut(..path.len()).filter(|_| path.len() < PATH_MAX);
    space
        .ok_or(Errno(libc::ENAMETOOLONG))?
        .copy_from_slice(path);
    // SAFETY: a terminated string. With O_PATH no device or pipe is opened.
    let fd = unsafe {
        next::openat(
            base,
            name.as_ptr().cast(),
            libc::O_PATH | libc::O_CLOEXEC,
            0,
        )
    };
    if fd < 0 {
        return Err(Errno::last());
    }
    let found = real().path_of(fd, buffer);
    // SAFETY: opened above, and given to nobody.
    let _closed = unsafe { next::close(fd) };
    Ok(found.filter(|path| path.starts_with(b"/")))
}

/// Longest path, with its terminator.
const PATH_MAX: usize = 4096;

/// The caller's buffer, to be filled. Empty when `count` is 0; EFAULT for a null pointer or an
/// impossible length.
///
/// # Safety
/// `into` is valid for writing `count` bytes, and nobody else uses them during the call.
pub(crate) unsafe fn buffer_mut<'a>(
    into: *mut c_void,
    count: usize,
) -> Result<&'a mut [u8], Errno> {
    if count == 0 {
        return Ok(&mut []);
    }
    if into.is_null() || isize::try_from(count).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by this function's contract; not null, not longer than isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), count) })
}

/// The caller's bytes, to be written. Empty when `count` is 0; EFAULT for a null pointer or an
/// impossible length.
///
/// PostgreSQL changes hint bits in a buffer while it is being written. The core reads each byte
/// once, by copying it to its own memory, and uses the copy only; PostgreSQL may write either value
/// of a byte that is changing.
///
/// # Safety
/// `from` is valid for reading `count` bytes.
pub(crate) unsafe fn buffer<'a>(from: *const c_void, count: usize) -> Result<&'a [u8], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() || isize::try_from(count).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by this function's contract; not null, not longer than isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), count) })
}

/// A file offset from C; EINVAL when it is negative.
pub(crate) fn offset(value: i64) -> Result<u64, Errno> {
    u64::try_from(value).map_err(|_| Errno(libc::EINVAL))
}
