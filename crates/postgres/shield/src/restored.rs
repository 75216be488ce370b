//! Checks a segment that the restore command has fetched, before it gets the name of a segment.
//!
//! An archive holds segments as the archive command read them: sealed under this instance's key if
//! a program without the shield copied them; in clear if a program with the shield did, or if they
//! were received over a connection. Sealed segments stay as they are. Segments in clear are sealed
//! here, in place, unless that is refused.
//!
//! Invariants: a file that gets the name of a segment is that segment, sealed under this instance's
//! key, and durable. Any other file is an error, because PostgreSQL would take it for the end of
//! the log and lose later commits. A file that was being sealed when the process ended begins with
//! neither a plain nor a sealed header (PostgreSQL fetches it again in any case). A file with a
//! second link is not written: it may be the archive's own.
//!
//! Must not: rename anything; take a file in clear for authentic. Checking its address and system
//! identifier detects mistakes, not attacks.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;

use crate::block;
use crate::open_instances;
use crate::real::{Errno, Real};
use crate::resolve::{Resolved, Seal, resolve};
use crate::scratch;
use crate::sealed_file::{FileCache, SealedFile};

/// Whether a segment in clear may become a segment of a sealed instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainSegments {
    /// It is sealed first.
    Sealed,
    /// It is an error.
    Refused,
}

/// The result of [`check_restored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredAs {
    /// The segment under this instance's key, or zeros, which PostgreSQL knows to be no log.
    Unchanged,
    /// The segment in clear; it is sealed now.
    SealedNow,
}

/// Why a file does not become a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel's error.
    Kernel(Errno),
    /// It is not that segment, neither sealed under this key nor in clear, or was cut short.
    NotTheSegment,
    /// In clear, of another instance or of another version of PostgreSQL.
    AnotherInstance,
    /// In clear, and that is refused.
    PlainSegments,
    /// In clear, and a link to a file that may be the archive's: sealing it would change the
    /// archive.
    Linked,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl Refusal {
    /// Returns the errno that the program gets: the kernel's, else EIO.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Kernel(errno) => errno,
            _ => Errno(libc::EIO),
        }
    }

    /// Says what went wrong, for a message.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Kernel(_) => "it cannot be read or sealed",
            Self::NotTheSegment => {
                "not this segment, neither under this instance's key nor in clear"
            }
            Self::AnotherInstance => "in clear, of another instance or version of PostgreSQL",
            Self::PlainSegments => {
                "in clear, which is refused unless STRONGROOM_PG_PLAIN_ARCHIVE is accept"
            }
            Self::Linked => "in clear, and a link: have the restore command make a copy",
        }
    }
}

/// Length in bytes of the part of the first page's header that is checked: three units.
const HEADER_LEN: usize = 48;
type HeaderBytes = [u8; HEADER_LEN];

/// Checks the first 48 bytes of a file that was restored from an archive, before it gets the name
/// of the segment `to`. If it is the segment in clear, and `in_clear` allows that, checks its
/// length, seals it in place and syncs it. The segment under this key is accepted whatever its
/// length, and so are zeros in place of the 48 bytes. One under another key would decrypt to noise,
/// which PostgreSQL takes for the end of the log: recovery would stop there without an error.
///
/// # Errors
/// `NotTheSegment` for any other file, one shorter than 48 bytes, or one in clear of another
/// length; `AnotherInstance` for one in clear of another instance or version, `PlainSegments` for
/// one in clear where that is refused, `Linked` for one in clear with several names or behind a
/// symbolic link, `Kernel` for the kernel's, after which the file may be sealed in part.
pub fn check_restored(
    real: &Real,
    path: &CStr,
    to: &Seal,
    in_clear: PlainSegments,
) -> Result<RestoredAs, Refusal> {
    let cache: FileCache = [const { AtomicU64::new(0) }; 4];
    let file = to.file(&cache)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let (opened, raw) = real.with_open(path, flags, |fd| read_page_header(real, fd, &file))?;
    // PostgreSQL recognises zeros as no segment.
    if opened == [0; HEADER_LEN] || begins_segment(&opened, &to.tweak) {
        return Ok(RestoredAs::Unchanged);
    }
    if !begins_segment(&raw, &to.tweak) {
        return Err(Refusal::NotTheSegment);
    }
    if !is_of_instance(real, to.root, &raw)? {
        return Err(Refusal::AnotherInstance);
    }
    if in_clear == PlainSegments::Refused {
        return Err(Refusal::PlainSegments);
    }
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    match real.with_open(path, flags, |fd| seal_in_place(real, fd, &file, &raw)) {
        Err(Refusal::Kernel(Errno(libc::ELOOP))) => Err(Refusal::Linked),
        outcome => outcome.map(|()| RestoredAs::SealedNow),
    }
}

/// Reads the first 48 bytes of the file, and returns them decrypted, and as they are stored.
/// `Refusal::NotTheSegment` when it is shorter; `Refusal::Kernel` when it cannot be read.
fn read_page_header(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
) -> Result<(HeaderBytes, HeaderBytes), Refusal> {
    let (mut opened, mut raw) = ([0; HEADER_LEN], [0; HEADER_LEN]);
    let read = block::read_at(real, fd, file, &mut opened, 0)?;
    let there = real.pread_full(fd, &mut raw, 0)?;
    if read < HEADER_LEN || there < HEADER_LEN {
        return Err(Refusal::NotTheSegment);
    }
    Ok((opened, raw))
}

/// Seals a segment in clear whose first bytes are `head`, in place; then syncs it.
/// `Refusal::Linked` for a file with several names, `Refusal::NotTheSegment` for one that is not
/// regular or has another length. Its head is neither plain nor sealed until all else is sealed.
/// `Refusal::Kernel` when reading or writing fails; the file may then be sealed in part.
fn seal_in_place(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    head: &HeaderBytes,
) -> Result<(), Refusal> {
    /// Neither a plain nor a sealed head, nor zeros.
    const UNFINISHED: HeaderBytes = [0xff; HEADER_LEN];
    let about = real.fstat(fd)?;
    if about.st_nlink != 1 {
        return Err(Refusal::Linked);
    }
    let size = Header::of(head).segment_size;
    if about.st_mode & libc::S_IFMT != libc::S_IFREG || about.st_size != i64::from(size) {
        return Err(Refusal::NotTheSegment);
    }
    real.pwrite_full(fd, &UNFINISHED, 0)?;
    let sealed = scratch::stage(|stage| -> Result<(), Errno> {
        let mut skip = HEADER_LEN;
        let mut at = 0_u64;
        loop {
            let count = real.pread_full(fd, stage, at)?;
            let bytes = stage.get(skip..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            let start = at.saturating_add(u64::try_from(skip).unwrap_or(0));
            block::write_all(real, fd, file, bytes, start)?;
            skip = 0;
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            at = at.checked_add(count).ok_or(Errno(libc::EFBIG))?;
        }
    });
    sealed.map_err(|_| Errno(libc::ENOMEM))??;
    block::write_all(real, fd, file, head, 0)?;
    Ok(real.fsync(fd)?)
}

/// The header of a segment's first page (`XLogLongPageHeaderData` in PostgreSQL's
/// `access/xlog_internal.h`).
struct Header {
    magic: u16,
    info: u16,
    address: u64,
    system: [u8; 8],
    segment_size: u32,
    block: u32,
}

impl Header {
    /// Reads the fields of a page header.
    fn of(head: &HeaderBytes) -> Self {
        Self {
            magic: u16::from_le_bytes(at(head, 0)),
            info: u16::from_le_bytes(at(head, 2)),
            address: u64::from_le_bytes(at(head, 8)),
            system: at(head, 24),
            segment_size: u32::from_le_bytes(at(head, 32)),
            block: u32::from_le_bytes(at(head, 36)),
        }
    }
}

/// Returns the `N` bytes at `from`; zeros when the header is too short.
fn at<const N: usize>(head: &HeaderBytes, from: usize) -> [u8; N] {
    let bytes = head.get(from..).and_then(<[u8]>::first_chunk);
    bytes.copied().unwrap_or([0; N])
}

/// Whether this is the header of the segment that the tweak belongs to, by its address.
fn begins_segment(head: &HeaderBytes, tweak: &[u8; 16]) -> bool {
    /// `XLP_LONG_HEADER` of `xlp_info`.
    const LONG_HEADER: u16 = 2;
    const BLOCK: u32 = 8192;
    let header = Header::of(head);
    let [_, _, _, _, number @ .., _, _, _, _] = *tweak;
    let number = u64::from_le_bytes(number);
    let (log, within) = (number >> 32, number & u64::from(u32::MAX));
    let begins = within
        .checked_mul(u64::from(header.segment_size))
        .and_then(|within| within.checked_add(log << 32));
    header.info & LONG_HEADER != 0 && header.block == BLOCK && begins == Some(header.address)
}

/// Whether a header in clear is of this instance and its version of PostgreSQL. Reads the control
/// file; EBADF when the instance is not open.
fn is_of_instance(real: &Real, root: u8, head: &HeaderBytes) -> Result<bool, Errno> {
    let instance = open_instances::get(usize::from(root)).ok_or(Errno(libc::EBADF))?;
    let header = Header::of(head);
    let [_, kind] = header.magic.to_le_bytes();
    let version = match instance.major.and_then(page_magic) {
        Some(own) => header.magic == own,
        // Without PG_VERSION: the second byte is the same in all versions.
        None => kind == 0xd1,
    };
    Ok(version && header.system == system_identifier(real, root)?)
}

/// Returns `XLOG_PAGE_MAGIC` of a major version; `None` when it is not known.
const fn page_magic(major: u32) -> Option<u16> {
    match major {
        15 => Some(0xd110),
        16 => Some(0xd113),
        17 => Some(0xd116),
        18 => Some(0xd118),
        _ => None,
    }
}

/// Reads the system identifier of the instance: the first field of its control file. EIO when that
/// cannot be read; EBADF when the instance is not open.
fn system_identifier(real: &Real, root: u8) -> Result<[u8; 8], Errno> {
    let instance = open_instances::get(usize::from(root)).ok_or(Errno(libc::EBADF))?;
    let directory = instance.prefixes.first().ok_or(Errno(libc::ENOENT))?;
    let mut path = directory.path.clone();
    path.extend_from_slice(b"/global/pg_control");
    let Resolved::Sealed(control) = resolve(b"/", &path)? else {
        return Err(Errno(libc::EIO));
    };
    let path = CString::new(path).map_err(|_| Errno(libc::EINVAL))?;
    let cache: FileCache = [const { AtomicU64::new(0) }; 4];
    let file = control.file(&cache)?;
    let mut number = [0; 8];
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let read = real.with_open(&path, flags, |fd| {
        block::read_at(real, fd, &file, &mut number, 0)
    });
    match read? {
        8 => Ok(number),
        _ => Err(Errno(libc::EIO)),
    }
}
