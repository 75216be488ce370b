//! Interposes `copy_file_range`, and makes it a read and a write of logical bytes.
//!
//! PostgreSQL 18 with `file_copy_method = clone` has no fallback when this call fails, so it does
//! not fail because a file is sealed.
//!
//! Must not: copy sealed bytes as they are.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_int, c_uint};

use libc::{off_t, size_t, ssize_t};
use shield::descriptors::{self, OpenFile};
use shield::real::Errno;
use shield::{scratch, transfer};

use crate::arguments::offset;
use crate::next::{self, count, real};

symbols! {
    /// As `copy_file_range`(2). Where either file is sealed, it reads and writes logical bytes, at
    /// most one buffer in a call.
    fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint,
    ) -> ssize_t {
        match (descriptors::find(from), descriptors::find(to)) {
            (Ok(None), Ok(None)) => next::copy_file_range(from, from_at, to, to_at, len, flags),
            (Ok(source), Ok(target)) => {
                count(copy_range((from, source, from_at), (to, target, to_at), len, flags))
            }
            (Err(errno), _) | (_, Err(errno)) => count(Err(errno)),
        }
    }
}

/// One end of a copy: its descriptor, the sealed file behind it if there is one, and the program's
/// offset.
type CopyEnd = (c_int, Option<OpenFile>, *mut off_t);

/// Copies at most `len` bytes and one buffer, opening and sealing them as needed, advances the
/// offsets that the program gave, or the files' positions, and returns the count. EINVAL for any
/// flag and for a negative offset; ENOMEM if there is no buffer; otherwise errors of reading and
/// writing.
///
/// # Safety
/// As `copy_file_range`.
unsafe fn copy_range(
    from: CopyEnd,
    to: CopyEnd,
    len: size_t,
    flags: c_uint,
) -> Result<usize, Errno> {
    if flags != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: null or the program's own variables.
    let (from_at, to_at) = unsafe { (position(&from)?, position(&to)?) };
    let done = scratch::stage(|stage| {
        let piece = stage.get_mut(..len.min(scratch::LEN)).unwrap_or_default();
        let read = match from.1 {
            Some(open) => transfer::read_at(real(), from.0, &open, piece, from_at)?,
            None => real().pread(from.0, piece, from_at)?,
        };
        let bytes = piece.get(..read).unwrap_or_default();
        match to.1 {
            Some(open) => transfer::write_at(real(), to.0, &open, bytes, to_at),
            None => real().pwrite(to.0, bytes, to_at),
        }
    })
    .map_err(|_| Errno(libc::ENOMEM))??;
    // SAFETY: null or the program's own variables.
    unsafe {
        set_position(&from, from_at, done)?;
        set_position(&to, to_at, done)?;
    }
    Ok(done)
}

/// The offset that the program gave for this end, or else the present position of the file. EINVAL
/// if it is negative.
///
/// # Safety
/// The end's pointer is null or valid.
unsafe fn position(end: &CopyEnd) -> Result<u64, Errno> {
    if end.2.is_null() {
        return real().lseek(end.0, 0, libc::SEEK_CUR);
    }
    // SAFETY: by this function's contract.
    offset(unsafe { *end.2 })
}

/// Sets the offset that the program gave, or else the file's position, to `at + count`. EOVERFLOW
/// if that is too large.
///
/// # Safety
/// The end's pointer is null or valid.
unsafe fn set_position(end: &CopyEnd, at: u64, count: usize) -> Result<(), Errno> {
    let target = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    let target = off_t::try_from(target).map_err(|_| Errno(libc::EOVERFLOW))?;
    if end.2.is_null() {
        return real().lseek(end.0, target, libc::SEEK_SET).map(|_| ());
    }
    // SAFETY: by this function's contract.
    unsafe { *end.2 = target };
    Ok(())
}
