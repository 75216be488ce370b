//! What would move a sealed file's bytes past the shield: an error (R5).
//!
//! Mapping a file, sending it from kernel to kernel, cloning its extents, and rings whose requests no C function
//! carries. On files that are not sealed all of it goes on as before, but for rings: PostgreSQL 18 has nothing else to
//! do with one than to read relations.
//!
//! Must not: pass anything of a sealed file.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{off_t, size_t, ssize_t};
use shield::{descriptors, open_instances, transfer};
use strongroom_format::code;

use crate::open::failed;
use crate::{next, report};

symbols! {
    fn mmap(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void {
        map(address, len, protection, flags, fd, at)
    }
    fn mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void {
        map(address, len, protection, flags, fd, at)
    }
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        if sealed(to) || sealed(from) { refuse() } else { next::sendfile(to, from, at, len) }
    }
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        if sealed(to) || sealed(from) { refuse() } else { next::sendfile(to, from, at, len) }
    }
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t {
        if sealed(to) || sealed(from) { refuse() } else { next::splice(from, from_at, to, to_at, len, flags) }
    }
    fn aio_read(block: *mut libc::aiocb) -> c_int {
        if asynchronous(block) { failed(libc::EINVAL) } else { next::aio_read(block) }
    }
    fn aio_read64(block: *mut libc::aiocb) -> c_int {
        if asynchronous(block) { failed(libc::EINVAL) } else { next::aio_read(block) }
    }
    fn aio_write(block: *mut libc::aiocb) -> c_int {
        if asynchronous(block) { failed(libc::EINVAL) } else { next::aio_write(block) }
    }
    fn aio_write64(block: *mut libc::aiocb) -> c_int {
        if asynchronous(block) { failed(libc::EINVAL) } else { next::aio_write(block) }
    }
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        if clones(fd, request, argument) {
            return failed(libc::EOPNOTSUPP);
        }
        next::ioctl(fd, request, argument)
    }
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        ring_refused(c"io_uring_queue_init", |function| {
            let function: unsafe extern "C" fn(c_uint, *mut c_void, c_uint) -> c_int = std::mem::transmute(function);
            function(entries, ring, flags)
        })
    }
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        ring_refused(c"io_uring_queue_init_params", |function| {
            let function: unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void) -> c_int = std::mem::transmute(function);
            function(entries, ring, parameters)
        })
    }
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: size_t) -> c_int {
        ring_refused(c"io_uring_queue_init_mem", |function| {
            let function: unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void, *mut c_void, size_t) -> c_int = std::mem::transmute(function);
            function(entries, ring, parameters, memory, len)
        })
    }
}

/// # Safety
/// `block` is null or valid.
pub(crate) unsafe fn asynchronous(block: *const libc::aiocb) -> bool {
    // SAFETY: by this function's contract.
    !block.is_null() && sealed(unsafe { (*block).aio_fildes })
}

fn sealed(fd: c_int) -> bool {
    descriptors::is_sealed(fd)
}

fn refuse() -> ssize_t {
    // What the kernel answers for files that cannot do it: callers fall back to reading and writing.
    next::set_errno(libc::EINVAL);
    -1
}

/// # Safety
/// As mmap(2).
unsafe fn map(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && sealed(fd) {
        next::set_errno(libc::ENODEV);
        return libc::MAP_FAILED;
    }
    // SAFETY: the program's arguments.
    unsafe { next::mmap(address, len, protection, flags, fd, at) }
}

/// `FICLONE` takes the source's descriptor, `FICLONERANGE` a structure that begins with it as 64 bits.
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

/// # Safety
/// As ioctl(2).
unsafe fn clones(fd: c_int, request: c_ulong, argument: usize) -> bool {
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
        // pg_upgrade: a whole file to the same address under the same keys.
        (Ok(Some(to)), Ok(Some(from))) if request == FICLONE => !transfer::same_bytes(&from, &to),
        _ => true,
    }
}

/// # Safety
/// `pass` calls the function it is given, which is that of liburing with the name `name`.
unsafe fn ring_refused(
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
