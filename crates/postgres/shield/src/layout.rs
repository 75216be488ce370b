//! How the bytes of an open file are laid out, and which key seals a block file.
//!
//! Invariant: the numbers of both enumerations are those of the table of descriptors
//! ([`crate::descriptors`]). They exist in memory only.
//!
//! Must not: depend on a key, a path or a file.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

/// How the bytes of an open file are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLayout {
    /// XTS in blocks of 8 KiB, physical offsets are logical ones.
    Block,
    /// As `Block`, under a key that is drawn when the server starts.
    Temporary,
    /// As `Block`, for a log file that does not have its final name yet: each unit of zeros is
    /// stored as zeros.
    NewLog,
    /// A header of 4096 bytes, then CTR under the instance's key.
    Stream,
    /// As `Stream`, under a key that is drawn when the server starts.
    TemporaryStream,
    /// A header, then chunks under an AEAD.
    Container,
}

impl FileLayout {
    /// Returns the layout with this number; `None` if there is none.
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

    /// Returns the number of this layout in the table of descriptors.
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
    /// Temporary files; drawn when the server starts.
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

    /// Returns the key with this number; `None` if there is none.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the number of this key in the table of descriptors.
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

    /// Whether files of this key may have a lasting length that is not a multiple of 16 bytes.
    #[must_use]
    pub const fn has_tails(self) -> bool {
        matches!(self, Self::Map | Self::Temporary)
    }
}
