//! Interposes readv, writev and their positioned forms.
//!
//! A vectored transfer of a sealed file goes through a buffer in pieces: one system call for each
//! piece, not one for each part of the vector, and the count is the one that the kernel would
//! return.
//!
//! Invariants: R4. A short count means that the file ended or that the kernel wrote less.
//!
//! Must not: allocate or lock.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::c_int;

use libc::{iovec, off_t, ssize_t};
use shield::descriptors::{self, OpenFile};
use shield::real::Errno;
use shield::{file_io, scratch, transfer};

use crate::arguments::{buffer, buffer_mut, offset};
use crate::next::{self, count, real};

symbols! {
    /// As readv(2), at the file's position; a sealed file's bytes are opened. EIO if the
    /// descriptor's entry is invalid.
    fn readv(fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
        match descriptors::find(fd) {
            Ok(None) => next::readv(fd, parts, number),
            Err(errno) => count(Err(errno)),
            Ok(Some(open)) => {
                count(
                    parts_of(parts, number).and_then(|parts| read_from_position(fd, &open, parts))
                )
            }
        }
    }
    /// As writev(2), at the file's position or in append mode at the end; bytes to a sealed file
    /// are sealed. EIO if the descriptor's entry is invalid.
    fn writev(fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
        match descriptors::find(fd) {
            Ok(None) => next::writev(fd, parts, number),
            Err(errno) => count(Err(errno)),
            Ok(Some(open)) => {
                count(parts_of(parts, number).and_then(|parts| write_at_position(fd, &open, parts)))
            }
        }
    }
    /// As preadv(2); a sealed file's bytes are opened.
    fn preadv(fd: c_int, parts: *const iovec, number: c_int, at: off_t) -> ssize_t {
        preadv_any(fd, parts, number, at)
    }
    /// As preadv(2); a sealed file's bytes are opened.
    fn preadv64(fd: c_int, parts: *const iovec, number: c_int, at: off_t) -> ssize_t {
        preadv_any(fd, parts, number, at)
    }
    /// As pwritev(2); bytes to a sealed file are sealed.
    fn pwritev(fd: c_int, parts: *const iovec, number: c_int, at: off_t) -> ssize_t {
        pwritev_any(fd, parts, number, at)
    }
    /// As pwritev(2); bytes to a sealed file are sealed.
    fn pwritev64(fd: c_int, parts: *const iovec, number: c_int, at: off_t) -> ssize_t {
        pwritev_any(fd, parts, number, at)
    }
    /// As the C library's function; on a sealed file any flag fails with EOPNOTSUPP.
    fn preadv2(fd: c_int, parts: *const iovec, number: c_int, at: off_t, flags: c_int) -> ssize_t {
        preadv2_any(fd, parts, number, at, flags)
    }
    /// As the C library's function; on a sealed file any flag fails with EOPNOTSUPP.
    fn preadv64v2(
        fd: c_int, parts: *const iovec, number: c_int, at: off_t, flags: c_int
    ) -> ssize_t {
        preadv2_any(fd, parts, number, at, flags)
    }
    /// As the C library's function; on a sealed file any flag fails with EOPNOTSUPP.
    fn pwritev2(fd: c_int, parts: *const iovec, number: c_int, at: off_t, flags: c_int) -> ssize_t {
        pwritev2_any(fd, parts, number, at, flags)
    }
    /// As the C library's function; on a sealed file any flag fails with EOPNOTSUPP.
    fn pwritev64v2(
        fd: c_int, parts: *const iovec, number: c_int, at: off_t, flags: c_int
    ) -> ssize_t {
        pwritev2_any(fd, parts, number, at, flags)
    }
}

/// `preadv`: of a sealed file, its logical bytes, opened. -1 with errno: EIO if the descriptor's
/// entry is invalid, EINVAL for a negative offset or too many parts.
///
/// # Safety
/// As preadv(2).
unsafe fn preadv_any(fd: c_int, parts: *const iovec, number: c_int, at: off_t) -> ssize_t {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: the program's arguments.
        Ok(None) => return unsafe { next::preadv(fd, parts, number, at) },
        Err(errno) => return count(Err(errno)),
    };
    // SAFETY: the program's arguments.
    let parts = unsafe { parts_of(parts, number) };
    count(parts.and_then(|parts| read_parts(fd, &open, parts, offset(at)?)))
}

/// `pwritev`: to a sealed file, sealed; in append mode at its end. -1 with errno: EIO if the
/// descriptor's entry is invalid, EINVAL for a negative offset or too many parts.
///
/// # Safety
/// As pwritev(2).
unsafe fn pwritev_any(fd: c_int, parts: *const iovec, number: c_int, at: off_t) -> ssize_t {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: the program's arguments.
        Ok(None) => return unsafe { next::pwritev(fd, parts, number, at) },
        Err(errno) => return count(Err(errno)),
    };
    // SAFETY: the program's arguments.
    let parts = unsafe { parts_of(parts, number) };
    count(parts.and_then(|parts| write_parts(fd, &open, parts, offset(at)?)))
}

/// `preadv2`; with offset -1 it reads at the file's position and advances it. Flags are refused on
/// a sealed file (EOPNOTSUPP) rather than ignored.
///
/// # Safety
/// As preadv2(2).
unsafe fn preadv2_any(
    fd: c_int,
    parts: *const iovec,
    number: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    if !descriptors::is_sealed(fd) {
        // SAFETY: the program's arguments.
        return unsafe { next::preadv2(fd, parts, number, at, flags) };
    }
    if flags != 0 {
        return count(Err(Errno(libc::EOPNOTSUPP)));
    }
    // SAFETY: the program's arguments.
    unsafe {
        if at == -1 {
            readv(fd, parts, number)
        } else {
            preadv_any(fd, parts, number, at)
        }
    }
}

/// `pwritev2`; with offset -1 it writes at the file's position and advances it. Flags, such as
/// `RWF_DSYNC`, are refused on a sealed file (EOPNOTSUPP) rather than ignored.
///
/// # Safety
/// As pwritev2(2).
unsafe fn pwritev2_any(
    fd: c_int,
    parts: *const iovec,
    number: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    if !descriptors::is_sealed(fd) {
        // SAFETY: the program's arguments.
        return unsafe { next::pwritev2(fd, parts, number, at, flags) };
    }
    if flags != 0 {
        return count(Err(Errno(libc::EOPNOTSUPP)));
    }
    // SAFETY: the program's arguments.
    unsafe {
        if at == -1 {
            writev(fd, parts, number)
        } else {
            pwritev_any(fd, parts, number, at)
        }
    }
}

/// The parts of a vector as a slice. EINVAL for a negative number, for more than [`PARTS_MAX`], and
/// for a null pointer with a number above 0.
///
/// # Safety
/// `parts` points to `number` parts.
unsafe fn parts_of<'a>(parts: *const iovec, number: c_int) -> Result<&'a [iovec], Errno> {
    let number = usize::try_from(number).map_err(|_| Errno(libc::EINVAL))?;
    if number > PARTS_MAX || (parts.is_null() && number > 0) {
        return Err(Errno(libc::EINVAL));
    }
    if number == 0 {
        return Ok(&[]);
    }
    // SAFETY: by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(parts, number) })
}

/// The most parts of one transfer (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// `readv` of a sealed file: reads at the file's position, advances it, and returns the count of
/// bytes. The kernel's errors; EIO when what is stored is damaged.
fn read_from_position(fd: c_int, open: &OpenFile, parts: &[iovec]) -> Result<usize, Errno> {
    let at = real().lseek(fd, 0, libc::SEEK_CUR)?;
    let done = read_parts(fd, open, parts, at)?;
    move_to(fd, at, done)?;
    Ok(done)
}

/// `writev` to a sealed file: writes at the file's position, or at the end in append mode, and
/// advances the position. Returns the count of bytes. The kernel's errors; EIO when what is stored
/// there is damaged.
fn write_at_position(fd: c_int, open: &OpenFile, parts: &[iovec]) -> Result<usize, Errno> {
    if open.append {
        let done = write_parts(fd, open, parts, 0)?;
        move_to(fd, file_io::size(real(), fd, &open.file)?, 0)?;
        return Ok(done);
    }
    let at = real().lseek(fd, 0, libc::SEEK_CUR)?;
    let done = write_parts(fd, open, parts, at)?;
    move_to(fd, at, done)?;
    Ok(done)
}

/// Sets the file's position to `at + further`. EOVERFLOW if that is too large.
fn move_to(fd: c_int, at: u64, further: usize) -> Result<(), Errno> {
    let target = i64::try_from(at.saturating_add(u64::try_from(further).unwrap_or(u64::MAX)));
    let target = target.map_err(|_| Errno(libc::EOVERFLOW))?;
    real().lseek(fd, target, libc::SEEK_SET).map(|_| ())
}

/// Reads from the offset `at` into the parts of a vector, one after the other, and returns the
/// count of bytes. The count is short at the end of the file, and when an error follows after some
/// bytes were read. ENOMEM if there is no memory for the buffer.
fn read_parts(fd: c_int, open: &OpenFile, parts: &[iovec], at: u64) -> Result<usize, Errno> {
    if let [only] = parts {
        // SAFETY: the program's buffer.
        let into = unsafe { buffer_mut(only.iov_base, only.iov_len) }?;
        return transfer::read_at(real(), fd, open, into, at);
    }
    scratch::stage(|stage| {
        let mut cursor = Cursor::new(parts);
        let mut done = 0_usize;
        loop {
            let piece = cursor.left().min(stage.len());
            let Some(stage) = stage.get_mut(..piece).filter(|stage| !stage.is_empty()) else {
                return Ok(done);
            };
            let from = at.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            let count = match transfer::read_at(real(), fd, open, stage, from) {
                Ok(count) => count,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            };
            let mut rest = stage.get(..count).unwrap_or_default();
            while let Some(part) = cursor.next(rest.len()) {
                // SAFETY: the program's buffers, of which `part` is a piece.
                let into = unsafe { buffer_mut(part.iov_base, part.iov_len) }?;
                let (now, later) = rest.split_at_checked(into.len()).unwrap_or((rest, &[]));
                into.copy_from_slice(now);
                rest = later;
            }
            done = done.saturating_add(count);
            if count < piece {
                return Ok(done);
            }
        }
    })
    .map_err(|_| Errno(libc::ENOMEM))?
}

/// Writes the parts of a vector at the offset `at`, one after the other, and returns the count of
/// bytes. The count is short when the kernel writes less, and when an error follows after some
/// bytes were written. ENOMEM if there is no memory for the buffer.
fn write_parts(fd: c_int, open: &OpenFile, parts: &[iovec], at: u64) -> Result<usize, Errno> {
    if let [only] = parts {
        // SAFETY: the program's buffer.
        let from = unsafe { buffer(only.iov_base, only.iov_len) }?;
        return transfer::write_at(real(), fd, open, from, at);
    }
    scratch::stage(|stage| {
        let mut cursor = Cursor::new(parts);
        let mut done = 0_usize;
        loop {
            let piece = cursor.left().min(stage.len());
            let Some(stage) = stage.get_mut(..piece).filter(|stage| !stage.is_empty()) else {
                return Ok(done);
            };
            let mut rest: &mut [u8] = stage;
            while let Some(part) = cursor.next(rest.len()) {
                // SAFETY: the program's buffers, of which `part` is a piece.
                let from = unsafe { buffer(part.iov_base, part.iov_len) }?;
                let (now, later) = rest
                    .split_at_mut_checked(from.len())
                    .ok_or(Errno(libc::EINVAL))?;
                now.copy_from_slice(from);
                rest = later;
            }
            let to = at.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            let count = match transfer::write_at(real(), fd, open, stage, to) {
                Ok(count) => count,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            };
            done = done.saturating_add(count);
            if count < piece {
                return Ok(done);
            }
        }
    })
    .map_err(|_| Errno(libc::ENOMEM))?
}

/// A position in the bytes of a vector.
struct Cursor<'a> {
    parts: &'a [iovec],
    /// Bytes of the first part that were used.
    used: usize,
}

impl<'a> Cursor<'a> {
    /// A position at the first byte of the vector.
    fn new(parts: &'a [iovec]) -> Self {
        Self { parts, used: 0 }
    }

    /// The number of bytes that were not yet taken.
    fn left(&self) -> usize {
        self.parts
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.iov_len))
            .saturating_sub(self.used)
    }

    /// Takes the next piece within one part, of at most `limit` bytes, and advances. `None` when
    /// `limit` is 0 or no bytes are left.
    fn next(&mut self, limit: usize) -> Option<iovec> {
        while let Some((first, others)) = self.parts.split_first() {
            let ahead = first.iov_len.saturating_sub(self.used);
            if ahead == 0 {
                self.parts = others;
                self.used = 0;
                continue;
            }
            let len = ahead.min(limit);
            if len == 0 {
                return None;
            }
            let base = first.iov_base.cast::<u8>().wrapping_add(self.used);
            self.used = self.used.saturating_add(len);
            return Some(iovec {
                iov_base: base.cast(),
                iov_len: len,
            });
        }
        None
    }
}
