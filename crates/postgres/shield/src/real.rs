//! The C library's functions, not interposed.
//!
//! Invariants: every system call of the core goes through a [`Real`], so that inside PostgreSQL it
//! reaches the C library and not the shield again; a failure is the kernel's errno, unchanged. No
//! method allocates.
//!
//! Must not: know what is sealed.
#![expect(unsafe_code, reason = "calls C functions through pointers")]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// An errno value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    /// Returns the errno of this thread.
    #[must_use]
    pub fn last() -> Self {
        Self(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl fmt::Debug for Errno {
    /// Writes `errno` and the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", self.0)
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

/// The functions that the core calls. All are those of a 64-bit `off_t`.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the C function of that name")]
pub struct Symbols {
    pub open: unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int,
    pub close: unsafe extern "C" fn(c_int) -> c_int,
    pub pread: unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize,
    pub pwrite: unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize,
    pub lseek: unsafe extern "C" fn(c_int, i64, c_int) -> i64,
    pub fstat: unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int,
    pub ftruncate: unsafe extern "C" fn(c_int, i64) -> c_int,
    pub fsync: unsafe extern "C" fn(c_int) -> c_int,
    pub fcntl: unsafe extern "C" fn(c_int, c_int, usize) -> c_int,
}

/// Access to the C library. Cheap to copy and to share.
#[derive(Clone, Copy)]
pub struct Real(Symbols);

impl Real {
    /// Wraps a table of functions that the caller found.
    ///
    /// # Safety
    /// Each must be the C library's function of that name, or behave as it does.
    #[must_use]
    pub const unsafe fn new(symbols: Symbols) -> Self {
        Self(symbols)
    }

    /// Returns the functions of the table.
    #[must_use]
    pub const fn symbols(&self) -> Symbols {
        self.0
    }

    /// Returns a table of the functions that this program is linked with. Not for the preload
    /// library, where these names are the interposed functions.
    #[must_use]
    pub fn linked() -> Self {
        /// Calls the C library's `open`, which is variadic, with a mode.
        unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
            // SAFETY: the caller's arguments, passed on.
            unsafe { libc::open(path, flags, mode) }
        }
        /// Calls the C library's `fcntl`, which is variadic, with one argument.
        unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
            // SAFETY: the caller's arguments, passed on.
            unsafe { libc::fcntl(fd, command, argument) }
        }
        Self(Symbols {
            open,
            close: libc::close,
            pread: libc::pread,
            pwrite: libc::pwrite,
            lseek: libc::lseek,
            fstat: libc::fstat,
            ftruncate: libc::ftruncate,
            fsync: libc::fsync,
            fcntl,
        })
    }

    /// Calls open(2), and returns the new descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&self, path: &CStr, flags: c_int, mode: libc::mode_t) -> Result<RawFd, Errno> {
        // SAFETY: a terminated string that lives during the call.
        let fd = unsafe { (self.0.open)(path.as_ptr(), flags, mode) };
        if fd < 0 { Err(Errno::last()) } else { Ok(fd) }
    }

    /// Opens an existing file for `work`, closes it afterwards, and returns the result of `work`.
    ///
    /// # Errors
    /// The error of `work`; otherwise the kernel's, of opening or closing.
    pub fn with_open<T, E: From<Errno>>(
        &self,
        path: &CStr,
        flags: c_int,
        work: impl FnOnce(RawFd) -> Result<T, E>,
    ) -> Result<T, E> {
        let fd = self.open(path, flags, 0)?;
        let outcome = work(fd);
        let closed = self.close(fd);
        let value = outcome?;
        closed?;
        Ok(value)
    }

    /// Calls close(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn close(&self, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: plain argument.
        check(unsafe { (self.0.close)(fd) })
    }

    /// Calls pread(2) once, and returns the number of bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// The kernel's, EINTR too; EINVAL for an offset that does not fit.
    pub fn pread(&self, fd: RawFd, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the buffer is writable for its length.
        let count = unsafe { (self.0.pread)(fd, into.as_mut_ptr().cast(), into.len(), offset) };
        usize::try_from(count).map_err(|_| Errno::last())
    }

    /// Calls pread(2) until the buffer is full or the file ends, and returns the number of bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pread_full(&self, fd: RawFd, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut filled = 0_usize;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            let count = self.pread(fd, rest, at)?;
            if count == 0 {
                break;
            }
            filled = filled.saturating_add(count);
        }
        Ok(filled)
    }

    /// Calls pwrite(2) once, and returns the number of bytes.
    ///
    /// # Errors
    /// The kernel's, EINTR too; EFBIG for an offset that does not fit.
    pub fn pwrite(&self, fd: RawFd, from: &[u8], offset: u64) -> Result<usize, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno(libc::EFBIG))?;
        // SAFETY: the buffer is readable for its length.
        let count = unsafe { (self.0.pwrite)(fd, from.as_ptr().cast(), from.len(), offset) };
        usize::try_from(count).map_err(|_| Errno::last())
    }

    /// Calls pwrite(2) until all of `from` is written.
    ///
    /// # Errors
    /// The kernel's, EINTR too, with a part written; ENOSPC when it writes nothing without an
    /// error.
    pub fn pwrite_full(&self, fd: RawFd, from: &[u8], offset: u64) -> Result<(), Errno> {
        let mut written = 0_usize;
        while let Some(rest) = from.get(written..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
            match self.pwrite(fd, rest, at)? {
                0 => return Err(Errno(libc::ENOSPC)),
                count => written = written.saturating_add(count),
            }
        }
        Ok(())
    }

    /// Calls lseek(2), and returns the new position.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lseek(&self, fd: RawFd, offset: i64, whence: c_int) -> Result<u64, Errno> {
        // SAFETY: plain arguments.
        let at = unsafe { (self.0.lseek)(fd, offset, whence) };
        u64::try_from(at).map_err(|_| Errno::last())
    }

    /// Calls fstat(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn fstat(&self, fd: RawFd) -> Result<libc::stat, Errno> {
        let mut about = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the buffer is one `struct stat`.
        check(unsafe { (self.0.fstat)(fd, about.as_mut_ptr()) })?;
        // SAFETY: zeroed, then filled by the kernel; every bit pattern of its integers is valid.
        Ok(unsafe { about.assume_init() })
    }

    /// Returns the physical size of an open file in bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn file_size(&self, fd: RawFd) -> Result<u64, Errno> {
        let about = self.fstat(fd)?;
        u64::try_from(about.st_size).map_err(|_| Errno(libc::EIO))
    }

    /// Calls ftruncate(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn ftruncate(&self, fd: RawFd, size: u64) -> Result<(), Errno> {
        let size = i64::try_from(size).map_err(|_| Errno(libc::EFBIG))?;
        // SAFETY: plain arguments.
        check(unsafe { (self.0.ftruncate)(fd, size) })
    }

    /// Returns the path of an open file, as far as it fits into `path`; `None` where there is no
    /// /proc. Makes a direct system call, which cannot be interposed.
    #[must_use]
    pub fn path_of<'path>(&self, fd: RawFd, path: &'path mut [u8]) -> Option<&'path [u8]> {
        let mut link = [0_u8; 32];
        // "/proc/self/fd/" and at most ten digits; the rest stays zero.
        write!(link.as_mut_slice(), "/proc/self/fd/{fd}").ok()?;
        // SAFETY: a terminated path, and a buffer that is writable for its length.
        let len = unsafe {
            libc::syscall(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                link.as_ptr(),
                path.as_mut_ptr(),
                path.len(),
            )
        };
        path.get(..usize::try_from(len).ok()?)
    }

    /// Writes a message to standard error; errors are ignored. A direct system call.
    pub fn write_stderr(&self, line: &[u8]) {
        // SAFETY: the buffer is readable for its length.
        let _lost = unsafe {
            libc::syscall(
                libc::SYS_write,
                libc::STDERR_FILENO,
                line.as_ptr(),
                line.len(),
            )
        };
    }

    /// Calls fsync(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn fsync(&self, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: plain argument.
        check(unsafe { (self.0.fsync)(fd) })
    }

    /// Locks or unlocks `length` bytes from `start` for this open file description
    /// (`F_OFD_SETLKW`). Waits for conflicting locks, also after a signal.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lock(&self, fd: RawFd, kind: LockKind, start: i64, length: i64) -> Result<(), Errno> {
        // SAFETY: `struct flock` is plain data; zero is valid for each field.
        let mut lock = unsafe { MaybeUninit::<libc::flock>::zeroed().assume_init() };
        lock.l_type = match kind {
            LockKind::Shared => libc::F_RDLCK.try_into().unwrap_or(0),
            LockKind::Exclusive => libc::F_WRLCK.try_into().unwrap_or(1),
            LockKind::None => libc::F_UNLCK.try_into().unwrap_or(2),
        };
        lock.l_start = start;
        lock.l_len = length;
        let argument = (&raw mut lock).addr();
        loop {
            // SAFETY: the command takes the address of a `struct flock`, which lives during the
            // call.
            match check(unsafe { (self.0.fcntl)(fd, libc::F_OFD_SETLKW, argument) }) {
                Err(Errno(libc::EINTR)) => {}
                outcome => return outcome,
            }
        }
    }
}

/// What [`Real::lock`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A lock that others may share.
    Shared,
    /// A lock of its own.
    Exclusive,
    /// Releases the lock.
    None,
}

/// Returns the errno of this thread as an error, unless the call returned 0.
fn check(result: c_int) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::last())
    }
}
