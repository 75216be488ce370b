//! The body of a sealed file: four operations on logical offsets, one implementation for each treatment.
//!
//! Invariants: P1 to P6 (docs/internals/shield.md). No operation moves the kernel's file offset, keeps bytes back, or
//! changes the caller's buffer. Buffers are never longer than [`crate::scratch::LEN`]: the symbols cut larger requests.
//!
//! Must not: know a path or a C type.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;

use crate::instance::Instance;
use crate::real::{Errno, Real};
use crate::zeros::{SECTOR_U64, Zeros};
use crate::{block, container, status_files, stream};

/// How the bytes of an open file are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// XTS in blocks of 8 KiB, physical offsets are logical ones.
    Block,
    /// XTS under this boot's key; as `Block`, otherwise.
    Temporary,
    /// XTS of a log file that has no name yet: each zero unit stays zero.
    NewLog,
    /// CTR behind a header of 4096 bytes, persistent key.
    Stream,
    /// CTR behind a header of 4096 bytes, this boot's key.
    TemporaryStream,
    /// AEAD in chunks behind a header.
    Container,
}

impl Body {
    /// The body with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Block,
            2 => Self::Temporary,
            3 => Self::NewLog,
            4 => Self::Stream,
            5 => Self::TemporaryStream,
            6 => Self::Container,
            _ => return None,
        })
    }

    /// The number of this body.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Block => 1,
            Self::Temporary => 2,
            Self::NewLog => 3,
            Self::Stream => 4,
            Self::TemporaryStream => 5,
            Self::Container => 6,
        }
    }

    /// Whether a logical size or offset is also the physical one.
    #[must_use]
    pub const fn is_headerless(self) -> bool {
        matches!(self, Self::Block | Self::Temporary | Self::NewLog)
    }
}

/// Which of an instance's XTS keys seals a block file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKey {
    /// Relations, all forks.
    Relation,
    /// Write-ahead log.
    Wal,
    /// SLRU segments.
    Slru,
    /// The control file.
    Control,
    /// Relation maps.
    Map,
    /// Temporary files, this boot.
    Temporary,
}

impl BlockKey {
    const ALL: [Self; 6] = [
        Self::Relation,
        Self::Wal,
        Self::Slru,
        Self::Control,
        Self::Map,
        Self::Temporary,
    ];

    /// The key with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number of this key, in memory only.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Relation => 0,
            Self::Wal => 1,
            Self::Slru => 2,
            Self::Control => 3,
            Self::Map => 4,
            Self::Temporary => 5,
        }
    }

    /// Whether files of this key may keep a length that is no multiple of 16 bytes for good.
    #[must_use]
    pub const fn has_tails(self) -> bool {
        matches!(self, Self::Map | Self::Temporary)
    }
}

/// What a treatment may remember of an open file, for as long as the descriptor lives: four words, zero at open, copied
/// by dup. For the header's nonce or file id, or how far a temporary file reaches. Words may be seen by several threads; a treatment orders them itself.
pub type Memory = [AtomicU64; 4];

/// An open sealed file, as the table of descriptors describes it.
#[derive(Clone, Copy)]
pub struct File<'a> {
    /// The instance it belongs to.
    pub instance: &'a Instance,
    /// How its bytes are sealed.
    pub body: Body,
    /// The XTS key of a block file.
    pub key: BlockKey,
    /// Of a block file, the tweak of its first block; the block's number is added to the last four
    /// bytes (little-endian). Of a container, what stands for its name ([`crate::name`]).
    pub tweak: [u8; 16],
    /// See [`Memory`].
    pub memory: &'a Memory,
}

impl File<'_> {
    /// Whether this is a transaction status file, in which zeros are sealed like other bytes.
    #[must_use]
    pub fn seals_zeros(&self) -> bool {
        self.key == BlockKey::Slru
    }

    /// Whether a file of `size` bytes may be made longer by zeros that are not sealed, as the
    /// kernel adds them: not a transaction status file, and elsewhere only from the end of a sector
    /// on.
    #[must_use]
    pub fn may_grow_by_plain_zeros(&self, size: u64) -> bool {
        self.body.is_headerless() && !self.seals_zeros() && size.is_multiple_of(SECTOR_U64)
    }

    /// Where zeros that are stored in this file read as zeros. The files of an instance whose
    /// header does not say that zeros are sealed may have been written by a version that stored
    /// them.
    pub(crate) fn zeros(&self) -> Zeros {
        match (self.instance.keys.zeros_are_sealed(), self.body) {
            (true, _) if self.seals_zeros() => Zeros::Refused,
            (true, Body::Block | Body::Temporary) => Zeros::BySector,
            _ => Zeros::ByUnit,
        }
    }
}

/// Reads at most `into.len()` bytes at the logical `offset`. 0 at the end of the file.
///
/// # Errors
/// The kernel's; EIO when the bytes are not authentic.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    match file.body {
        Body::Block | Body::Temporary | Body::NewLog => {
            block::read_at(real, fd, file, into, offset)
        }
        Body::Stream | Body::TemporaryStream => stream::read_at(real, fd, file, into, offset),
        Body::Container => container::read_at(real, fd, file, into, offset),
    }
}

/// Writes `from` at the logical `offset`, which may lie beyond the end.
///
/// # Errors
/// The kernel's.
pub fn write_at(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    match file.body {
        Body::Block if file.seals_zeros() => status_files::write_at(real, fd, file, from, offset),
        Body::Block | Body::Temporary | Body::NewLog => {
            block::write_at(real, fd, file, from, offset)
        }
        Body::Stream | Body::TemporaryStream => stream::write_at(real, fd, file, from, offset),
        Body::Container => container::write_at(real, fd, file, from, offset),
    }
}

/// Writes `from` at the end (`O_APPEND`) and gives the offset at which it landed, and the count.
///
/// Two processes that append at the same time must not overwrite each other: streams and containers lock; block
/// files, which PostgreSQL never appends to in this way, do not.
///
/// # Errors
/// The kernel's.
pub fn append(real: &Real, fd: RawFd, file: &File<'_>, from: &[u8]) -> Result<(u64, usize), Errno> {
    match file.body {
        Body::Stream | Body::TemporaryStream => stream::append(real, fd, file, from),
        Body::Container => container::append(real, fd, file, from),
        Body::Block | Body::Temporary | Body::NewLog => {
            let end = real.file_size(fd)?;
            Ok((end, write_at(real, fd, file, from, end)?))
        }
    }
}

/// The logical size in bytes.
///
/// # Errors
/// The kernel's; EIO when the size cannot be told because the header is damaged.
pub fn size(real: &Real, fd: RawFd, file: &File<'_>) -> Result<u64, Errno> {
    match file.body {
        Body::Block | Body::Temporary | Body::NewLog => real.file_size(fd),
        Body::Stream | Body::TemporaryStream => stream::size(real, fd, file),
        Body::Container => container::size(real, fd, file),
    }
}

/// Sets the logical size. What is added reads as zeros.
///
/// # Errors
/// The kernel's.
pub fn truncate(real: &Real, fd: RawFd, file: &File<'_>, size: u64) -> Result<(), Errno> {
    match file.body {
        Body::Block if file.seals_zeros() => status_files::truncate(real, fd, file, size),
        Body::Block | Body::Temporary | Body::NewLog => block::truncate(real, fd, file, size),
        Body::Stream | Body::TemporaryStream => stream::truncate(real, fd, file, size),
        Body::Container => container::truncate(real, fd, file, size),
    }
}

/// The logical size of a file that is not open here, from its physical one: what stat by path answers.
#[must_use]
pub fn size_of_closed(body: Body, physical: u64) -> u64 {
    match body {
        Body::Block | Body::Temporary | Body::NewLog => physical,
        Body::Stream | Body::TemporaryStream => stream::logical_size(physical),
        Body::Container => container::logical_size(physical),
    }
}
