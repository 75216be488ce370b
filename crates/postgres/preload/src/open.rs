//! Interposes open and its aliases.
//!
//! Invariants: D1, D3, D5, D6. A sealed file is opened for reading too and without `O_APPEND`, and
//! is entered into the table of descriptors before the program gets the descriptor.
//!
//! Must not: read or write the file.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int};

use libc::mode_t;
use shield::classify::Class;
use shield::descriptors::{self, NewEntry};
use shield::layout::FileLayout;
use shield::open_instances;
use shield::path::file_name;
use shield::real::Errno;
use shield::resolve::{Resolved, Seal};
use strongroom_format::code;

use crate::arguments::{bytes, resolve_path, resolve_path_at};
use crate::{next, report};

symbols! {
    /// As open(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_resolved(resolve_path(path), path, flags, |flags| next::open(path, flags, mode))
    }
    /// As open(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_resolved(
            resolve_path(path), path, flags, |flags| next::open(
                path, flags | libc::O_LARGEFILE, mode
            )
        )
    }
    /// As open(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        open_resolved(resolve_path(path), path, flags, |flags| next::open(path, flags, 0))
    }
    /// As open(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        open_resolved(
            resolve_path(path), path, flags, |flags| next::open(path, flags | libc::O_LARGEFILE, 0)
        )
    }
    /// As openat(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn openat(base: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_resolved(
            resolve_path_at(base, path), path, flags, |flags| next::openat(base, path, flags, mode)
        )
    }
    /// As openat(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn openat64(base: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let large = libc::O_LARGEFILE;
        open_resolved(
            resolve_path_at(base, path), path, flags, |flags| next::openat(
                base, path, flags | large, mode
            )
        )
    }
    /// As openat(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn __openat_2(base: c_int, path: *const c_char, flags: c_int) -> c_int {
        open_resolved(
            resolve_path_at(base, path), path, flags, |flags| next::openat(base, path, flags, 0)
        )
    }
    /// As openat(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn __openat64_2(base: c_int, path: *const c_char, flags: c_int) -> c_int {
        let large = libc::O_LARGEFILE;
        open_resolved(
            resolve_path_at(base, path), path, flags, |flags| next::openat(
                base, path, flags | large, 0
            )
        )
    }
    /// As creat(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open_resolved(resolve_path(path), path, flags, |flags| next::open(path, flags, mode))
    }
    /// As creat(2); a sealed file is opened for reading too and entered into the table of
    /// descriptors. ENOENT for Strongroom's own files, EACCES where no file can be sealed,
    /// EOPNOTSUPP for `O_TMPFILE`.
    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC | libc::O_LARGEFILE;
        open_resolved(resolve_path(path), path, flags, |flags| next::open(path, flags, mode))
    }
}

symbols! {
    /// As mkstemp(3), and enters a sealed file into the table of descriptors. Where no file can be
    /// sealed, the new file is removed again and the call fails with EACCES.
    fn mkstemp(template: *mut c_char) -> c_int {
        enter_temporary(template, next::mkostemps(template, 0, 0), 0)
    }
    /// As mkstemp(3), and enters a sealed file into the table of descriptors. Where no file can be
    /// sealed, the new file is removed again and the call fails with EACCES.
    fn mkstemp64(template: *mut c_char) -> c_int {
        enter_temporary(template, next::mkostemps(template, 0, 0), 0)
    }
    /// As mkostemp(3), and enters a sealed file into the table of descriptors. Where no file can be
    /// sealed, the new file is removed again and the call fails with EACCES.
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
        enter_temporary(template, next::mkostemps(template, 0, flags & !libc::O_APPEND), flags)
    }
    /// As mkostemp(3), and enters a sealed file into the table of descriptors. Where no file can be
    /// sealed, the new file is removed again and the call fails with EACCES.
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        enter_temporary(template, next::mkostemps(template, 0, flags & !libc::O_APPEND), flags)
    }
    /// As mkstemps(3), and enters a sealed file into the table of descriptors. Where no file can be
    /// sealed, the new file is removed again and the call fails with EACCES.
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
        enter_temporary(template, next::mkostemps(template, suffix, 0), 0)
    }
    /// As mkstemps(3), and enters a sealed file into the table of descriptors. Where no file can be
    /// sealed, the new file is removed again and the call fails with EACCES.
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
        enter_temporary(template, next::mkostemps(template, suffix, 0), 0)
    }
    /// As mkostemps(3), and enters a sealed file into the table of descriptors. Where no file can
    /// be sealed, the new file is removed again and the call fails with EACCES.
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        enter_temporary(template, next::mkostemps(template, suffix, flags & !libc::O_APPEND), flags)
    }
    /// As mkostemps(3), and enters a sealed file into the table of descriptors. Where no file can
    /// be sealed, the new file is removed again and the call fails with EACCES.
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        enter_temporary(template, next::mkostemps(template, suffix, flags & !libc::O_APPEND), flags)
    }
}

/// Enters a temporary file that the C library has just made, open as `fd`, into the table of
/// descriptors; `template` now holds its name. Returns `fd`, or -1 with errno when
/// [`open_resolved`] refuses the file, which is then closed and removed again.
///
/// # Safety
/// `template` is a terminated string.
unsafe fn enter_temporary(template: *mut c_char, fd: c_int, flags: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    // SAFETY: by this function's contract.
    let made = unsafe {
        open_resolved(
            resolve_path(template),
            template,
            libc::O_RDWR | flags,
            |_| fd,
        )
    };
    if made < 0 {
        // It was refused, so the empty file is removed.
        // SAFETY: opened for this call, given to nobody; a terminated string.
        unsafe {
            let kept = Errno::last();
            let _closed = next::close(fd);
            let _removed = next::unlink(template);
            next::set_errno(kept.0);
        }
    }
    made
}

/// Opens a file in the way that its path was resolved to, and returns the descriptor, or -1 with
/// errno. `call` calls the C library's function with the flags that it is given. A sealed file is
/// entered into the table of descriptors; for any other, a left-over entry of the same descriptor
/// is removed.
///
/// Fails with EOPNOTSUPP for `O_TMPFILE` in an instance, ENOENT for a hidden path, EACCES for a
/// refused one (reported as SR-7002), EBUSY for a new `postmaster.pid` during a conversion
/// (reported as SR-7003; the file is removed), EMFILE if the descriptor does not fit the table, and
/// with the error in `resolved`.
///
/// # Safety
/// `path` is null or a terminated string.
pub(crate) unsafe fn open_resolved(
    resolved: Result<Resolved, Errno>,
    path: *const c_char,
    flags: c_int,
    call: impl Fn(c_int) -> c_int,
) -> c_int {
    match resolved {
        // R5: a file without a name has no class, and could be given a name later.
        Ok(Resolved::Plain(_) | Resolved::Sealed(_))
            if flags & libc::O_TMPFILE == libc::O_TMPFILE =>
        {
            fail(libc::EOPNOTSUPP)
        }
        Ok(Resolved::Plain(clear)) if clear.class == Class::Bookkeeping && flags & NEW == NEW => {
            let fd = call(flags);
            descriptors::remove(fd);
            // SAFETY: by this function's contract.
            unsafe { check_lock_file(path, fd, clear.root) }
        }
        Ok(Resolved::Outside | Resolved::Plain(_)) => {
            let fd = call(flags);
            // The descriptor's number may have been closed without the shield: it is another file
            // now.
            descriptors::remove(fd);
            fd
        }
        Ok(Resolved::Sealed(seal)) if flags & (libc::O_PATH | libc::O_DIRECTORY) == 0 => {
            open_sealed(&seal, flags, call)
        }
        Ok(Resolved::Sealed(_)) => {
            let fd = call(flags);
            descriptors::remove(fd);
            fd
        }
        Ok(Resolved::Hidden) => fail(libc::ENOENT),
        Ok(Resolved::Refused(_)) => {
            // SAFETY: by this function's contract.
            let path = unsafe { bytes(path) };
            report::refuse(&code::PG_REFUSED, format_args!("{}", path.escape_ascii()));
            fail(libc::EACCES)
        }
        Err(errno) => fail(errno.0),
    }
}

/// Flags with which a server makes its lock file.
const NEW: c_int = libc::O_CREAT | libc::O_EXCL;

/// Refuses a server that has just made `postmaster.pid` while a conversion of the instance is under
/// way: reports SR-7003, closes `fd`, removes the file, and returns -1 with EBUSY. Otherwise
/// returns `fd` unchanged, also when it is -1 or another file. A conversion makes its own file
/// first and then looks for `postmaster.pid`, so at least one of the two sees the other.
///
/// # Safety
/// `path` is a terminated string.
unsafe fn check_lock_file(path: *const c_char, fd: c_int, root: u8) -> c_int {
    // SAFETY: by this function's contract.
    let name = file_name(unsafe { bytes(path) });
    let instance = open_instances::get(usize::from(root));
    if fd < 0
        || name != b"postmaster.pid"
        || !instance.is_some_and(|instance| instance.is_being_converted(next::real()))
    {
        return fd;
    }
    report::refuse(&code::PG_CONVERTING, format_args!("postmaster.pid"));
    // SAFETY: opened and made for this call, given to nobody; by this function's contract.
    unsafe {
        let _closed = next::close(fd);
        let _removed = next::unlink(path);
    }
    fail(libc::EBUSY)
}

/// Opens a sealed file, for reading too and without `O_APPEND`, enters it into the table of
/// descriptors and returns the descriptor. A container's path that is not a regular file, such as a
/// directory, is opened without an entry. Returns -1 with errno: that of `call`, or EMFILE when the
/// descriptor does not fit the table; it is then closed.
fn open_sealed(seal: &Seal, flags: c_int, call: impl Fn(c_int) -> c_int) -> c_int {
    let write_only = flags & libc::O_ACCMODE == libc::O_WRONLY;
    let append = flags & libc::O_APPEND != 0;
    let mut upgraded = flags & !libc::O_APPEND;
    if write_only {
        upgraded = upgraded & !libc::O_ACCMODE | libc::O_RDWR;
    }
    let fd = call(upgraded);
    if fd < 0 {
        return fd;
    }
    descriptors::remove(fd);
    // A directory may be opened too, to be synced, and its name may match no rule.
    if seal.layout == FileLayout::Container && !is_regular(fd) {
        return fd;
    }
    let entered = descriptors::insert(
        fd,
        &NewEntry {
            root: seal.root,
            layout: seal.layout,
            key: seal.key,
            tweak: seal.tweak,
            append,
            write_only,
        },
    );
    if entered {
        return fd;
    }
    // SAFETY: opened above, and given to nobody.
    let _closed = unsafe { next::close(fd) };
    fail(libc::EMFILE)
}

/// Whether the descriptor is a regular file. False too if that cannot be found out.
fn is_regular(fd: c_int) -> bool {
    next::real()
        .fstat(fd)
        .is_ok_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Sets errno and returns -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    next::set_errno(errno);
    -1
}
