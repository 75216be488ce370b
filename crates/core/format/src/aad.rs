//! Associated data: the 48 bytes that bind every sealed unit to the place it belongs to. They are
//! never stored.
//!
//! Two units with equal associated data are the same place in the same object under the same key
//! epoch. Specified in docs/spec/header.md, "Associated data".

use crate::FORMAT_VERSION;
use crate::layout::{layout, put};

layout! {
    /// Layout of the associated data.
    aad_layout, 48, {
        ROLE @ 0, 4;
        VERSION @ 4, 2;
        CIPHER @ 6, 2;
        UNIT_SIZE @ 8, 4;
        EPOCH @ 12, 4;
        OBJECT_ID @ 16, 16;
        POSITION @ 32, 8;
        EXTRA @ 40, 8;
    }
}

/// What kind of unit is sealed. Each kind has four letters in the associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A page of a database; position = page number, from 1.
    Page,
    /// The header of a SQLite write-ahead log.
    WalHeader,
    /// A frame of a SQLite write-ahead log; position = frame index, from 0.
    WalFrame,
    /// A chunk of a SQLite rollback journal; position = chunk index, from 0.
    Journal,
    /// A mark of a SQLite rollback journal; position = pair, 0 or 1.
    JournalMark,
    /// The body of a SQLite super-journal.
    SuperJournal,
    /// A chunk of a temporary file; position = chunk index, from 0.
    Temp,
    /// A data key wrapped by a key slot; position = slot kind.
    Slot,
    /// The previous epoch's data key wrapped under the current one.
    PreviousKey,
    /// The header's canary.
    Canary,
    /// A key of a keyring; position = key version, extra = state and purpose.
    KeyringEntry,
    /// The private key of a keyring's certificate; position = its length.
    KeyringCertificate,
    /// A super-journal's file key wrapped for one participating database.
    SuperSlot,
    /// A chunk of a container of a PostgreSQL instance that is not bound to its name; position =
    /// chunk index, from 0.
    PgContainer,
    /// A chunk of a container of a PostgreSQL instance that is bound to its name; position = chunk
    /// index, from 0.
    PgNamedContainer,
    /// A confidential value in an envelope; the object is the column key, position = kind.
    Envelope,
    /// A block of the zone's store; position = FID bits of its first slot, extra = version.
    ZoneBlock,
    /// The manifest of the zone's store; position = counter, extra = length.
    ZoneManifest,
    /// A redo record of the zone; position = number, extra = length.
    ZoneRedo,
    /// The freshness state in an anchor; position = the anchor's sequence.
    Freshness,
}

impl Role {
    /// The four letters in the associated data.
    #[must_use]
    pub const fn letters(self) -> [u8; 4] {
        match self {
            Self::Page => *b"PAGE",
            Self::WalHeader => *b"WALH",
            Self::WalFrame => *b"WALF",
            Self::Journal => *b"JRNL",
            Self::JournalMark => *b"MARK",
            Self::SuperJournal => *b"SUPR",
            Self::Temp => *b"TEMP",
            Self::Slot => *b"SLOT",
            Self::PreviousKey => *b"PREV",
            Self::Canary => *b"CANR",
            Self::KeyringEntry => *b"KEYR",
            Self::KeyringCertificate => *b"KEYC",
            Self::SuperSlot => *b"SUPS",
            Self::PgContainer => *b"PGCT",
            Self::PgNamedContainer => *b"PGCN",
            Self::Envelope => *b"ENVL",
            Self::ZoneBlock => *b"ZBLK",
            Self::ZoneManifest => *b"ZMAN",
            Self::ZoneRedo => *b"REDO",
            Self::Freshness => *b"FRSH",
        }
    }
}

/// The associated data of all units of one file under one key epoch; [`Self::at`] adds the position
/// of a unit.
#[derive(Clone, Copy, Debug)]
pub struct AssociatedData {
    /// What is sealed.
    pub role: Role,
    /// Cipher suite number, see [`crate::header::Cipher`].
    pub cipher: u16,
    /// Page or chunk size in bytes; 0 where there is none.
    pub unit_size: u32,
    /// Key epoch.
    pub epoch: u32,
    /// Object id.
    pub object_id: [u8; 16],
}

impl AssociatedData {
    /// The associated data of the unit at `position`.
    #[must_use]
    pub fn at(&self, position: u64) -> [u8; aad_layout::SIZE] {
        self.at_with(position, 0)
    }

    /// The associated data of the unit at `position`, with the role's extra word.
    #[must_use]
    pub fn at_with(&self, position: u64, extra: u64) -> [u8; aad_layout::SIZE] {
        let mut out = [0; aad_layout::SIZE];
        let fields = [
            put(&mut out, aad_layout::ROLE, &self.role.letters()),
            put(&mut out, aad_layout::VERSION, &FORMAT_VERSION.to_le_bytes()),
            put(&mut out, aad_layout::CIPHER, &self.cipher.to_le_bytes()),
            put(
                &mut out,
                aad_layout::UNIT_SIZE,
                &self.unit_size.to_le_bytes(),
            ),
            put(&mut out, aad_layout::EPOCH, &self.epoch.to_le_bytes()),
            put(&mut out, aad_layout::OBJECT_ID, &self.object_id),
            put(&mut out, aad_layout::POSITION, &position.to_le_bytes()),
            put(&mut out, aad_layout::EXTRA, &extra.to_le_bytes()),
        ];
        // Lengths are constants of the table above; a mismatch is a programming error found by any
        // test.
        assert!(fields.iter().all(Option::is_some), "associated data layout");
        out
    }
}
