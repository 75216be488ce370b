//! Finds the C library's functions that this library interposes, with `dlsym(RTLD_NEXT)`, and has
//! the macro that declares an exported function.
//!
//! Invariants: a function is looked up once; one that the C library does not have fails with
//! ENOSYS. [`real`] is complete before `main` (see [`crate::start`]). Nothing here changes errno on
//! success.
//!
//! Must not: know what a sealed file is.
#![expect(unsafe_code, reason = "dlsym, and calls through what it finds")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, iovec, mode_t, off_t, size_t, ssize_t};
use shield::real::{Errno, Real, Symbols};

/// The address of one function of the C library, which is looked up at first use.
pub(crate) struct Slot {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Slot {
    /// A slot for the C library's function `name`, which is not looked up yet.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(null_mut()),
        }
    }

    /// The function's address, looked up once. `None` when the C library has no such function; it
    /// is then looked up at each call.
    #[inline]
    pub(crate) fn find(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return Some(known);
        }
        // SAFETY: a terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// `cookie_io_functions_t`: the operations of a stream, see fopencookie(3).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CookieFunctions {
    pub(crate) read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    pub(crate) write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    pub(crate) seek: Option<unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int>,
    pub(crate) close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// C's void, as a result.
type Nothing = ();
const NOTHING: Nothing = ();

/// Declares functions of the C library: name, arguments, result, and the result of a failure.
macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failure:expr;)*) => {
        #[expect(non_upper_case_globals, reason = "named as the functions are")]
        mod slots {
            $(pub(super) static $name: super::Slot = super::Slot::new(
                match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
            );)*
        }
        $(
            /// Calls the C library's function of this name; fails with ENOSYS if it has none.
            ///
            /// # Safety
            /// As that function's.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let Some(address) = slots::$name.find() else {
                    $crate::next::set_errno(libc::ENOSYS);
                    return $failure;
                };
                // SAFETY: the C library's function of this name has this type.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut std::ffi::c_void,
                        unsafe extern "C" fn($($type),*) -> $result,
                    >(address)
                };
                // SAFETY: the caller's arguments.
                unsafe { function($($argument),*) }
            }
        )*
        static ALL: &[&Slot] = &[$(&slots::$name),*];
    };
}

/// Defines exported C functions. Each has the name of a function of the C library and the given
/// body. `unsafe` operations in the body rely on the C library's rules for the arguments: pointers
/// are valid for what that function does with them.
macro_rules! symbols {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block
    )*) => {
        $(
            $(#[$meta])*
            // SAFETY: the symbol interposes the C library's, and behaves as that does.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the program's arguments, for which it keeps the C function's rules.
                unsafe { $body }
            }
        )*
    };
}

next! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    openat(base: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    close(fd: c_int) -> c_int, -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, -1;
    closefrom(first: c_int) -> Nothing, NOTHING;
    dup(fd: c_int) -> c_int, -1;
    dup2(fd: c_int, copy: c_int) -> c_int, -1;
    dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int, -1;
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, -1;
    ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int, -1;
    read(fd: c_int, into: *mut c_void, count: size_t) -> ssize_t, -1;
    write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t, -1;
    pread(fd: c_int, into: *mut c_void, count: size_t, offset: off_t) -> ssize_t, -1;
    pwrite(fd: c_int, from: *const c_void, count: size_t, offset: off_t) -> ssize_t, -1;
    __read_chk(fd: c_int, into: *mut c_void, count: size_t, room: size_t) -> ssize_t, -1;
    __pread_chk(
        fd: c_int, into: *mut c_void, count: size_t, offset: off_t, room: size_t
    ) -> ssize_t, -1;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t, -1;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t, -1;
    preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t, -1;
    pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t, -1;
    preadv2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t, -1;
    pwritev2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t, -1;
    lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t, -1;
    fstat(fd: c_int, about: *mut libc::stat) -> c_int, -1;
    stat(path: *const c_char, about: *mut libc::stat) -> c_int, -1;
    lstat(path: *const c_char, about: *mut libc::stat) -> c_int, -1;
    fstatat(base: c_int, path: *const c_char, about: *mut libc::stat, flags: c_int) -> c_int, -1;
    __xstat(version: c_int, path: *const c_char, about: *mut libc::stat) -> c_int, -1;
    __lxstat(version: c_int, path: *const c_char, about: *mut libc::stat) -> c_int, -1;
    __fxstat(version: c_int, fd: c_int, about: *mut libc::stat) -> c_int, -1;
    __fxstatat(
        version: c_int, base: c_int, path: *const c_char, about: *mut libc::stat, flags: c_int
    ) -> c_int, -1;
    statx(
        base: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut libc::statx
    ) -> c_int, -1;
    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, null_mut();
    freopen(
        path: *const c_char, mode: *const c_char, stream: *mut libc::FILE
    ) -> *mut libc::FILE, null_mut();
    fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE, null_mut();
    fopencookie(
        cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions
    ) -> *mut libc::FILE, null_mut();
    fclose(stream: *mut libc::FILE) -> c_int, libc::EOF;
    fileno(stream: *mut libc::FILE) -> c_int, -1;
    ftruncate(fd: c_int, size: off_t) -> c_int, -1;
    truncate(path: *const c_char, size: off_t) -> c_int, -1;
    posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int, libc::ENOSYS;
    fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int, -1;
    fsync(fd: c_int) -> c_int, -1;
    rename(from: *const c_char, to: *const c_char) -> c_int, -1;
    renameat(from_base: c_int, from: *const c_char, to_base: c_int, to: *const c_char) -> c_int, -1;
    renameat2(
        from_base: c_int, from: *const c_char, to_base: c_int, to: *const c_char, flags: c_uint
    ) -> c_int, -1;
    link(from: *const c_char, to: *const c_char) -> c_int, -1;
    linkat(
        from_base: c_int, from: *const c_char, to_base: c_int, to: *const c_char, flags: c_int
    ) -> c_int, -1;
    unlink(path: *const c_char) -> c_int, -1;
    unlinkat(base: c_int, path: *const c_char, flags: c_int) -> c_int, -1;
    remove(path: *const c_char) -> c_int, -1;
    access(path: *const c_char, mode: c_int) -> c_int, -1;
    faccessat(base: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, -1;
    readdir(directory: *mut DIR) -> *mut libc::dirent, null_mut();
    readdir_r(
        directory: *mut DIR, entry: *mut libc::dirent, result: *mut *mut libc::dirent
    ) -> c_int, libc::ENOSYS;
    copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint
    ) -> ssize_t, -1;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t, -1;
    splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint
    ) -> ssize_t, -1;
    mmap(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void, libc::MAP_FAILED;
    aio_read(block: *mut libc::aiocb) -> c_int, -1;
    aio_write(block: *mut libc::aiocb) -> c_int, -1;
    lio_listio(
        mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void
    ) -> c_int, -1;
    vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, -1;
    __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void
    ) -> c_int, -1;
    posix_spawn_file_actions_addopen(
        actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) -> c_int, libc::ENOSYS;
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, -1;
    fork() -> libc::pid_t, -1;
    chdir(path: *const c_char) -> c_int, -1;
    fchdir(fd: c_int) -> c_int, -1;
}

/// Functions that a C library may not have: a program cannot call them then.
const NEWER: &[&CStr] = &[
    c"close_range",
    c"closefrom",
    c"copy_file_range",
    c"renameat2",
    // The first four exist since glibc 2.33, and replaced the last four.
    c"stat",
    c"lstat",
    c"fstat",
    c"fstatat",
    c"__xstat",
    c"__lxstat",
    c"__fxstat",
    c"__fxstatat",
];

/// Looks up every function of the C library that this library calls. The error is the name of a
/// missing one that no version of the C library lacks.
pub(crate) fn find_all() -> Result<(), &'static str> {
    let missing = ALL
        .iter()
        .find(|slot| slot.find().is_none() && !NEWER.contains(&slot.name));
    match missing {
        None => Ok(()),
        Some(slot) => Err(slot.name.to_str().unwrap_or_default()),
    }
}

/// fstat(2), as a system call where the C library has no function of that name (glibc before 2.33).
/// Returns 0, or -1 with errno.
///
/// # Safety
/// `about` is one `struct stat`.
unsafe fn any_fstat(fd: c_int, about: *mut libc::stat) -> c_int {
    if slots::fstat.find().is_some() {
        // SAFETY: by this function's contract.
        return unsafe { fstat(fd, about) };
    }
    // SAFETY: by this function's contract; on 64-bit Linux the kernel's structure is the C
    // library's.
    let done = unsafe { libc::syscall(libc::SYS_fstat, fd, about) };
    c_int::try_from(done).unwrap_or(-1)
}

/// Returns the table of the C library's functions that the core (`shield`) calls, made at the first
/// call and kept. Each entry finds its function by itself when it is first called. A function that
/// the C library lacks fails with ENOSYS then; nothing fails here.
pub(crate) fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| {
        /// Calls the C library's `open`, not this library's.
        unsafe extern "C" fn real_open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the core's arguments.
            unsafe { open(path, flags, mode) }
        }
        /// Calls the C library's `close`, not this library's.
        unsafe extern "C" fn real_close(fd: c_int) -> c_int {
            // SAFETY: as above.
            unsafe { close(fd) }
        }
        /// Calls the C library's `pread`, not this library's.
        unsafe extern "C" fn real_pread(
            fd: c_int,
            into: *mut c_void,
            count: usize,
            at: i64,
        ) -> isize {
            // SAFETY: as above.
            unsafe { pread(fd, into, count, at) }
        }
        /// Calls the C library's `pwrite`, not this library's.
        unsafe extern "C" fn real_pwrite(
            fd: c_int,
            from: *const c_void,
            count: usize,
            at: i64,
        ) -> isize {
            // SAFETY: as above.
            unsafe { pwrite(fd, from, count, at) }
        }
        /// Calls the C library's `lseek`, not this library's.
        unsafe extern "C" fn real_lseek(fd: c_int, offset: i64, whence: c_int) -> i64 {
            // SAFETY: as above.
            unsafe { lseek(fd, offset, whence) }
        }
        /// Calls the C library's `fstat`, not this library's.
        unsafe extern "C" fn real_fstat(fd: c_int, about: *mut libc::stat) -> c_int {
            // SAFETY: as above.
            unsafe { any_fstat(fd, about) }
        }
        /// Calls the C library's `ftruncate`, not this library's.
        unsafe extern "C" fn real_ftruncate(fd: c_int, size: i64) -> c_int {
            // SAFETY: as above.
            unsafe { ftruncate(fd, size) }
        }
        /// Calls the C library's `fsync`, not this library's.
        unsafe extern "C" fn real_fsync(fd: c_int) -> c_int {
            // SAFETY: as above.
            unsafe { fsync(fd) }
        }
        /// Calls the C library's `fcntl`, not this library's.
        unsafe extern "C" fn real_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
            // SAFETY: as above.
            unsafe { fcntl(fd, command, argument) }
        }
        // SAFETY: each is the C library's function of that name.
        unsafe {
            Real::new(Symbols {
                open: real_open,
                close: real_close,
                pread: real_pread,
                pwrite: real_pwrite,
                lseek: real_lseek,
                fstat: real_fstat,
                ftruncate: real_ftruncate,
                fsync: real_fsync,
                fcntl: real_fcntl,
            })
        }
    })
}

/// Sets this thread's errno.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library's own location, valid for this thread.
    unsafe { *libc::__errno_location() = value };
}

/// Converts the outcome of a transfer to C's: the count, or -1 with errno set.
pub(crate) fn count(outcome: Result<usize, Errno>) -> ssize_t {
    match outcome {
        Ok(count) => ssize_t::try_from(count).unwrap_or(ssize_t::MAX),
        Err(errno) => {
            set_errno(errno.0);
            -1
        }
    }
}

/// Converts the outcome of a call without a value to C's: 0, or -1 with errno set.
pub(crate) fn status(outcome: Result<(), Errno>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno.0);
            -1
        }
    }
}

/// Writes to standard error; errors are ignored.
pub(crate) fn write_all_stderr(bytes: &[u8]) {
    // SAFETY: the buffer is readable for its length.
    let _written = unsafe { write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}
