//! Interposes fopen and its relatives, for C streams of sealed files.
//!
//! The streams of the C library call read and write internally, where no symbol can be interposed.
//! A sealed file therefore gets a stream made by fopencookie, whose read, write, seek and close are
//! functions of this module; buffering, fprintf and fscanf remain the C library's. Such a stream
//! has no descriptor in the C library, so `fileno` is interposed too: PostgreSQL calls fstat, fsync
//! and ftruncate with its result.
//!
//! Invariants: D1 holds for the descriptor of a stream; the position of the stream is that of the
//! descriptor (D4), so that lseek and fseek agree.
//!
//! Must not: buffer.
#![expect(unsafe_code, reason = "interposed C functions, and callbacks from C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{FILE, off_t, size_t, ssize_t};
use shield::descriptors::{self, DESCRIPTORS, OpenFile};
use shield::real::Errno;
use shield::resolve::Resolved;
use shield::transfer;
use strongroom_format::code;

use crate::arguments::{buffer, buffer_mut, bytes, resolve_path};
use crate::next::{self, CookieFunctions, count, real, set_errno};
use crate::open::open_resolved;
use crate::report;

symbols! {
    /// As fopen(3). A sealed file gets a stream of this module; update mode (`+`) fails with
    /// EOPNOTSUPP for it.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        open_stream(path, mode)
    }
    /// As fopen(3). A sealed file gets a stream of this module; update mode (`+`) fails with
    /// EOPNOTSUPP for it.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        open_stream(path, mode)
    }
    /// As freopen(3). For a sealed file, or a stream of this module, it closes the stream, and
    /// fails with EOPNOTSUPP.
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        reopen(path, mode, stream)
    }
    /// As freopen(3). For a sealed file, or a stream of this module, it closes the stream, and
    /// fails with EOPNOTSUPP.
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        reopen(path, mode, stream)
    }
    /// As fdopen(3). A sealed file gets a stream of this module; update mode (`+`) fails with
    /// EOPNOTSUPP for it, and the descriptor stays open.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if !descriptors::is_sealed(fd) {
            return next::fdopen(fd, mode);
        }
        match Mode::of(bytes(mode)) {
            Err(errno) => no_stream(errno.0),
            Ok(mode) => {
                if mode.flags & libc::O_APPEND != 0 {
                    descriptors::set_append(fd, true);
                }
                stream_of(fd, &mode)
            }
        }
    }
    /// As fileno(3), also for streams of this module, of which the C library knows no descriptor.
    fn fileno(stream: *mut FILE) -> c_int {
        descriptor_of(stream)
    }
    /// As fileno(3), also for streams of this module, of which the C library knows no descriptor.
    fn fileno_unlocked(stream: *mut FILE) -> c_int {
        descriptor_of(stream)
    }
}

/// The stream that this module made for each descriptor.
static STREAMS: [AtomicPtr<FILE>; DESCRIPTORS] =
    [const { AtomicPtr::new(null_mut()) }; DESCRIPTORS];
/// One more than the highest descriptor that ever had a stream.
static STREAMS_END: AtomicUsize = AtomicUsize::new(0);

/// A parsed mode string of fopen(3).
#[derive(Debug, PartialEq, Eq)]
struct Mode {
    /// For open(2).
    flags: c_int,
    /// The mode string for fopencookie, without the letters that concern open(2) only.
    plain: &'static CStr,
}

impl Mode {
    /// Parses a mode string as fopen(3) does: unknown letters are ignored, and a comma ends it.
    /// EINVAL if the first letter is not `r`, `w` or `a`.
    ///
    /// Update mode (`+`) is refused with EOPNOTSUPP: a stream made by fopencookie of glibc 2.36 can
    /// lose its position when it is read, then written, then asked for its position. PostgreSQL
    /// opens no stream for update.
    fn of(text: &[u8]) -> Result<Self, Errno> {
        let (first, rest) = text.split_first().ok_or(Errno(libc::EINVAL))?;
        let rest = rest.split(|&byte| byte == b',').next().unwrap_or_default();
        let has = |letter: u8| rest.contains(&letter);
        if has(b'+') {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let (plain, flags) = match first {
            b'r' => (c"r", libc::O_RDONLY),
            b'w' => (c"w", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC),
            b'a' => (c"a", libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND),
            _ => return Err(Errno(libc::EINVAL)),
        };
        let exclusive = if has(b'x') { libc::O_EXCL } else { 0 };
        let closed = if has(b'e') { libc::O_CLOEXEC } else { 0 };
        Ok(Self {
            flags: flags | exclusive | closed,
            plain,
        })
    }
}

/// `fopen`: a sealed file gets a stream of this module. Null with errno on failure; EOPNOTSUPP,
/// reported as SR-7002, for update mode (`+`) on a sealed file.
///
/// # Safety
/// As fopen(3).
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's string.
    let resolved = unsafe { resolve_path(path) };
    if matches!(resolved, Ok(Resolved::Outside | Resolved::Plain(_))) {
        // SAFETY: the program's arguments.
        return unsafe { remove_entry_of(next::fopen(path, mode)) };
    }
    // SAFETY: the program's string.
    let wanted = match Mode::of(unsafe { bytes(mode) }) {
        Ok(wanted) => wanted,
        Err(errno) => {
            if errno.0 == libc::EOPNOTSUPP {
                // SAFETY: the program's string.
                let path = unsafe { bytes(path) };
                let what = format_args!("{} as a stream for update", path.escape_ascii());
                report::refuse(&code::PG_REFUSED, what);
            }
            return no_stream(errno.0);
        }
    };
    let how = |flags| {
        // SAFETY: the program's string; the mode is that of fopen(3).
        unsafe { next::open(path, flags, 0o666) }
    };
    // SAFETY: the program's string.
    let fd = unsafe { open_resolved(resolved, path, wanted.flags, how) };
    if fd < 0 {
        return null_mut();
    }
    if descriptors::is_sealed(fd) {
        return stream_or_close(fd, &wanted);
    }
    // This is a directory or a device. SAFETY: opened just now; the program's string.
    unsafe { next::fdopen(fd, mode) }
}

/// Makes a stream over the sealed file `fd`, which was opened for it. If that fails, closes the
/// descriptor, and returns null with errno.
fn stream_or_close(fd: c_int, mode: &Mode) -> *mut FILE {
    let stream = stream_of(fd, mode);
    if stream.is_null() {
        let kept = Errno::last();
        descriptors::remove(fd);
        // SAFETY: opened for this stream, and given to nobody.
        let _closed = unsafe { next::close(fd) };
        set_errno(kept.0);
    }
    stream
}

/// Makes a stream over the open sealed file `fd` with fopencookie, and notes it for `fileno`. With
/// append mode it first moves the file's position to the end. Returns null with errno if there is
/// no memory; the descriptor stays open.
fn stream_of(fd: c_int, mode: &Mode) -> *mut FILE {
    // As the C library does: ftell returns the size of a file that is opened for appending, before
    // it is written.
    let appends = libc::O_WRONLY | libc::O_APPEND;
    if let (true, Ok(Some(open))) = (mode.flags & appends == appends, descriptors::find(fd)) {
        // The C library ignores the result too.
        let _at = transfer::seek(real(), fd, &open, 0, libc::SEEK_END);
    }
    let functions = CookieFunctions {
        read: Some(cookie_read),
        write: Some(cookie_write),
        seek: Some(cookie_seek),
        close: Some(cookie_close),
    };
    // SAFETY: the callbacks take the cookie for the number it is; the mode is terminated.
    let stream = unsafe { next::fopencookie(cookie_of(fd), mode.plain.as_ptr(), functions) };
    if let (false, Some((at, slot))) = (stream.is_null(), slot(fd)) {
        STREAMS_END.fetch_max(at.saturating_add(1), Ordering::Relaxed);
        slot.store(stream, Ordering::Release);
    }
    stream
}

/// `freopen`. For a path or a stream of which either is sealed (or hidden or refused), it closes
/// the stream and returns null with EOPNOTSUPP.
///
/// # Safety
/// As freopen(3).
unsafe fn reopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: the program's string.
    let resolved = unsafe { resolve_path(path) };
    let plain = matches!(resolved, Ok(Resolved::Outside | Resolved::Plain(_)));
    if plain && own_descriptor(stream).is_none() {
        // SAFETY: the program's arguments.
        return unsafe { remove_entry_of(next::freopen(path, mode, stream)) };
    }
    // R5. A stream of the C library cannot become one of fopencookie, or the reverse. It is closed,
    // as after any failure of this function.
    // SAFETY: the program's stream.
    let _closed = unsafe { next::fclose(stream) };
    no_stream(libc::EOPNOTSUPP)
}

/// Removes the entry of the descriptor of a stream that the C library has opened, because its file
/// is not sealed. Returns the stream; does nothing for a null one.
///
/// # Safety
/// `stream` is null or open.
unsafe fn remove_entry_of(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: by this function's contract.
        descriptors::remove(unsafe { next::fileno(stream) });
    }
    stream
}

/// `fileno`, also of streams of this module. -1 with errno if the stream has no descriptor.
///
/// # Safety
/// As fileno(3).
unsafe fn descriptor_of(stream: *mut FILE) -> c_int {
    let kept = Errno::last();
    // SAFETY: the program's stream.
    let fd = unsafe { next::fileno(stream) };
    if fd >= 0 {
        return fd;
    }
    match own_descriptor(stream) {
        None => fd,
        Some(own) => {
            set_errno(kept.0);
            own
        }
    }
}

/// The descriptor of a stream that was made by this module. `None` for any other stream.
fn own_descriptor(stream: *mut FILE) -> Option<c_int> {
    let end = STREAMS_END.load(Ordering::Relaxed);
    let known = STREAMS.get(..end)?;
    let at = known
        .iter()
        .position(|slot| slot.load(Ordering::Acquire) == stream)?;
    c_int::try_from(at).ok()
}

/// The entry of [`STREAMS`] for a descriptor, with its index. `None` if the descriptor does not fit
/// the table.
fn slot(fd: c_int) -> Option<(usize, &'static AtomicPtr<FILE>)> {
    let at = usize::try_from(fd).ok()?;
    Some((at, STREAMS.get(at)?))
}

/// Sets errno and returns null.
fn no_stream(errno: c_int) -> *mut FILE {
    set_errno(errno);
    null_mut()
}

/// The cookie of a stream: the number of its descriptor plus one, so that it is never null.
fn cookie_of(fd: c_int) -> *mut c_void {
    let number = usize::try_from(fd).unwrap_or(0).saturating_add(1);
    without_provenance_mut(number)
}

/// The descriptor that [`cookie_of`] put into a cookie; -1 if it holds none.
fn fd_of(cookie: *mut c_void) -> c_int {
    let number = cookie.addr().saturating_sub(1);
    c_int::try_from(number).unwrap_or(-1)
}

/// The open sealed file of a descriptor. EBADF if it is not a sealed file; EIO if its entry is
/// invalid.
fn find_open_file(fd: c_int) -> Result<OpenFile, Errno> {
    descriptors::find(fd)?.ok_or(Errno(libc::EBADF))
}

/// The read function of a stream: reads and opens bytes at the position of its sealed file. Returns
/// the count, 0 at the end, or -1 with errno.
unsafe extern "C" fn cookie_read(cookie: *mut c_void, into: *mut c_char, len: size_t) -> ssize_t {
    let fd = fd_of(cookie);
    // SAFETY: the C library's buffer.
    let into = unsafe { buffer_mut(into.cast(), len) };
    count(into.and_then(|into| {
        let open = find_open_file(fd)?;
        transfer::read(real(), fd, &open, into)
    }))
}

/// Writes all bytes, as the C library's own streams do, or returns how many were written. The C
/// library takes a short count for an error; this function must not return -1.
unsafe extern "C" fn cookie_write(
    cookie: *mut c_void,
    from: *const c_char,
    len: size_t,
) -> ssize_t {
    let fd = fd_of(cookie);
    // SAFETY: the C library's buffer.
    let from = unsafe { buffer(from.cast(), len) }.unwrap_or_default();
    let mut written = 0_usize;
    while let Some(rest) = from.get(written..).filter(|rest| !rest.is_empty()) {
        let outcome = find_open_file(fd).and_then(|open| transfer::write(real(), fd, &open, rest));
        match outcome {
            Ok(0) => break,
            Ok(count) => written = written.saturating_add(count),
            Err(errno) => {
                set_errno(errno.0);
                break;
            }
        }
    }
    ssize_t::try_from(written).unwrap_or(ssize_t::MAX)
}

/// The seek function of a stream: sets the position of its sealed file, and stores the new one in
/// `to`. Returns 0, or -1 with errno.
unsafe extern "C" fn cookie_seek(cookie: *mut c_void, to: *mut off_t, whence: c_int) -> c_int {
    let fd = fd_of(cookie);
    // SAFETY: the C library's variable.
    let wanted = unsafe { *to };
    let outcome =
        find_open_file(fd).and_then(|open| transfer::seek(real(), fd, &open, wanted, whence));
    match outcome {
        Ok(at) => {
            // SAFETY: as above.
            unsafe { *to = off_t::try_from(at).unwrap_or(off_t::MAX) };
            0
        }
        Err(errno) => {
            set_errno(errno.0);
            -1
        }
    }
}

/// The close function of a stream: forgets the stream, removes the descriptor's entry, and closes
/// the descriptor. Returns what close(2) returns.
unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = fd_of(cookie);
    if let Some((_, slot)) = slot(fd) {
        slot.store(null_mut(), Ordering::Release);
    }
    descriptors::remove(fd);
    // SAFETY: the stream's own descriptor.
    unsafe { next::close(fd) }
}
