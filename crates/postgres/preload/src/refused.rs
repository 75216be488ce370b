//! Calls that would move the bytes of a sealed file without the shield: they fail (R5).
//!
//! They are mmap, transfers within the kernel (sendfile, splice), asynchronous I/O of the C
//! library, clones of extents, and `io_uring`, whose requests are not calls of C functions. On
//! files that are not sealed all of them work as without the shield, except `io_uring`, which is
//! refused as a whole while an instance is open: PostgreSQL 18 uses it only to read relations.
//!
//! Must not: let one of these calls reach a sealed file.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{off_t, size_t, ssize_t};
use shield::{descriptors, open_instances, transfer};
use strongroom_format::code;

use crate::open::fail;
use crate::{next, report};

symbols! {
    /// As mmap(2); ENODEV for a sealed file.
    fn mmap(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t
    ) -> *mut c_void {
        mmap_any(address, len, protection, flags, fd, at)
    }
    /// As mmap(2); ENODEV for a sealed file.
    fn mmap64(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t
    ) -> *mut c_void {
        mmap_any(address, len, protection, flags, fd, at)
    }
    /// As the C library's function; EINVAL if either file is sealed, so that the caller reads and
    /// writes instead.
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        if is_sealed(to) || is_sealed(from) {
            refuse_transfer()
        } else {
            next::sendfile(to, from, at, len)
        }
    }
    /// As the C library's function; EINVAL if either file is sealed, so that the caller reads and
    /// writes instead.
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        if is_sealed(to) || is_sealed(from) {
            refuse_transfer()
        } else {
            next::sendfile(to, from, at, len)
        }
    }
    /// As the C library's function; EINVAL if either file is sealed, so that the caller reads and
    /// writes instead.
    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t {
        if is_sealed(to) || is_sealed(from) {
            refuse_transfer()
        } else {
            next::splice(from, from_at, to, to_at, len, flags)
        }
    }
    /// As the C library's function; -1 with EINVAL for a sealed file.
    fn aio_read(block: *mut libc::aiocb) -> c_int {
        if targets_sealed_file(block) { fail(libc::EINVAL) } else { next::aio_read(block) }
    }
    /// As the C library's function; -1 with EINVAL for a sealed file.
    fn aio_read64(block: *mut libc::aiocb) -> c_int {
        if targets_sealed_file(block) { fail(libc::EINVAL) } else { next::aio_read(block) }
    }
    /// As the C library's function; -1 with EINVAL for a sealed file.
    fn aio_write(block: *mut libc::aiocb) -> c_int {
        if targets_sealed_file(block) { fail(libc::EINVAL) } else { next::aio_write(block) }
    }
    /// As the C library's function; -1 with EINVAL for a sealed file.
    fn aio_write64(block: *mut libc::aiocb) -> c_int {
        if targets_sealed_file(block) { fail(libc::EINVAL) } else { next::aio_write(block) }
    }
    /// As ioctl(2); EOPNOTSUPP for a clone of extents to or from a sealed file, except of a whole
    /// file under the same address and keys.
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        if is_refused_clone(fd, request, argument) {
            return fail(libc::EOPNOTSUPP);
        }
        next::ioctl(fd, request, argument)
    }
    /// As liburing's function; while an instance is open it returns -EPERM and reports SR-7002.
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        refuse_io_uring(c"io_uring_queue_init", |function| {
            let function: unsafe extern "C" fn(
                c_uint, *mut c_void, c_uint
            ) -> c_int = std::mem::transmute(function);
            function(entries, ring, flags)
        })
    }
    /// As liburing's function; while an instance is open it returns -EPERM and reports SR-7002.
    fn io_uring_queue_init_params(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void
    ) -> c_int {
        refuse_io_uring(c"io_uring_queue_init_params", |function| {
            let function: unsafe extern "C" fn(
                c_uint, *mut c_void, *mut c_void
            ) -> c_int = std::mem::transmute(function);
            function(entries, ring, parameters)
        })
    }
    /// As liburing's function; while an instance is open it returns -EPERM and reports SR-7002.
    fn io_uring_queue_init_mem(
        entries: c_uint,
        ring: *mut c_void,
        parameters: *mut c_void,
        memory: *mut c_void,
        len: size_t
    ) -> c_int {
        refuse_io_uring(c"io_uring_queue_init_mem", |function| {
            let function: unsafe extern "C" fn(
                c_uint, *mut c_void, *mut c_void, *mut c_void, size_t
            ) -> c_int = std::mem::transmute(function);
            function(entries, ring, parameters, memory, len)
        })
    }
}

/// Whether an asynchronous request names a sealed file. False for a null pointer.
///
/// # Safety
/// `block` is null or valid.
pub(crate) unsafe fn targets_sealed_file(block: *const libc::aiocb) -> bool {
    // SAFETY: by this function's contract.
    !block.is_null() && is_sealed(unsafe { (*block).aio_fildes })
}

/// Whether the descriptor is a sealed file.
fn is_sealed(fd: c_int) -> bool {
    descriptors::is_sealed(fd)
}

/// Returns -1 with EINVAL, which callers take for a reason to fall back to read and write.
fn refuse_transfer() -> ssize_t {
    // The kernel returns this for files that do not support the call.
    next::set_errno(libc::EINVAL);
    -1
}

/// `mmap`: returns `MAP_FAILED` with ENODEV for a sealed file.
///
/// # Safety
/// As mmap(2).
unsafe fn mmap_any(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && is_sealed(fd) {
        next::set_errno(libc::ENODEV);
        return libc::MAP_FAILED;
    }
    // SAFETY: the program's arguments.
    unsafe { next::mmap(address, len, protection, flags, fd, at) }
}

/// `FICLONE` takes the source's descriptor, `FICLONERANGE` a structure that begins with it as 64
/// bits.
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

/// Whether an ioctl clones extents to or from a sealed file, and is therefore refused. A clone of a
/// whole file between files of the same address and keys is allowed. True as well if the source's
/// number is no descriptor; false for any other request.
///
/// # Safety
/// As ioctl(2).
unsafe fn is_refused_clone(fd: c_int, request: c_ulong, argument: usize) -> bool {
    let source = match request {
        // An int: only the lower half of the register counts.
        FICLONE => i64::try_from(argument & 0xffff_ffff).ok(),
        FICLONERANGE if argument != 0 => {
            // SAFETY: for this request the argument points to the structure.
            Some(unsafe { std::ptr::with_exposed_provenance::<i64>(argument).read_unaligned() })
        }
        _ => return false,
    };
    let Some(source) = source.and_then(|source| c_int::try_from(source).ok()) else {
        return true;
    };
    match (descriptors::find(fd), descriptors::find(source)) {
        (Ok(None), Ok(None)) => false,
        // pg_upgrade clones a whole file to the same address under the same keys.
        (Ok(Some(to)), Ok(Some(from))) if request == FICLONE => !transfer::same_bytes(&from, &to),
        _ => true,
    }
}

/// While an instance is open, reports SR-7002 and returns -EPERM without setting up a ring.
/// Otherwise passes liburing's function to `pass` and returns its result, or -ENOSYS if liburing is
/// not loaded.
///
/// # Safety
/// `pass` calls the function that it is given, which is liburing's function of the name `name`.
unsafe fn refuse_io_uring(
    name: &'static std::ffi::CStr,
    pass: impl FnOnce(*mut c_void) -> c_int,
) -> c_int {
    if open_instances::is_empty() {
        // SAFETY: a terminated name.
        let function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        return if function.is_null() {
            -libc::ENOSYS
        } else {
            pass(function)
        };
    }
    report::refuse(&code::PG_REFUSED, format_args!("io_method=io_uring"));
    -libc::EPERM
}
