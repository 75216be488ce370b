//! The head of a set: its description, which can be read without a key, and the seal that binds the
//! description to the families.
//!
//! Invariant B4: with a key, a description is used only after its seal was verified, and a head
//! without seal is refused.
//!
//! Must not: do I/O, except to read the medium's head; put a secret into a description.

use serde::{Deserialize, Serialize};
use strongroom_format::backup::{DESCRIPTION_MAX, RecordError, SetRecord, set_layout};
use strongroom_format::header::{
    FIXED_LEN, HEADER_LEN, Header, HeaderError, ObjectKind, is_sealed,
};
use strongroom_format::layout::is_zero;
use strongroom_format::{code, hex};
use strongroom_keyring::{Object, Opener, inspect_checksum};

use crate::medium_head::{MediumHead, Protection};
use crate::set::{SetKeys, cipher_of};
use crate::store::Store;
use crate::{Error, Result};

/// What was backed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory.
    Files,
    /// A SQLite database.
    Sqlite,
    /// A PostgreSQL cluster.
    Postgres,
    /// One file of a log archive.
    Wal,
}

impl Kind {
    /// The word in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Wal => "wal",
        }
    }

    /// Whether its sets may have symbolic links. Those of a cluster are made by the restore itself.
    pub(crate) const fn has_links(self) -> bool {
        matches!(self, Self::Files)
    }
}

/// The description of a set, readable without a key (docs/spec/backup.md, "The head of a set").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// 32 hexadecimal digits.
    pub set_id: String,
    /// Of the medium that the set was made on.
    pub medium_id: String,
    /// May be empty.
    pub name: String,
    /// What was backed up.
    pub kind: Kind,
    /// Which one, without secrets.
    pub source: String,
    /// Where.
    pub machine_name: String,
    /// By whom.
    pub user_name: String,
    /// The program that wrote the set.
    pub software: String,
    /// Seconds since the Unix epoch.
    pub started_unix_s: u64,
    /// Seconds since the Unix epoch.
    pub finished_unix_s: u64,
    /// Seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
    /// `none` or `zstd:LEVEL`.
    pub compression: String,
    /// `aes-256`, `aes-192`, `aes-128`, `triple-des-3key` or `none`.
    pub key_algorithm: String,
    /// Members of the stream.
    pub members: u64,
    /// Regular files.
    pub files: u64,
    /// Bytes of all regular files.
    pub backup_size_bytes: u64,
    /// Bytes of all families.
    pub compressed_size_bytes: u64,
    /// How each family ends.
    pub families: Vec<FamilyEnd>,
    /// Of a PostgreSQL cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres: Option<PostgresFacts>,
    /// Of a SQLite database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sqlite: Option<SqliteFacts>,
    /// Of a file of a log archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_digest: Option<String>,
    /// Where on the medium the set was put. Sets of builds from before do not say it, nor do
    /// archived files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_position: Option<u32>,
}

impl Description {
    /// The facts of the PostgreSQL cluster that the set was made of. `None` for other kinds,
    /// archived files included.
    pub(crate) fn cluster_facts(&self) -> Option<&PostgresFacts> {
        let facts = self.postgres.as_ref();
        facts.filter(|_| self.kind == Kind::Postgres)
    }

    /// The id of the set that this one builds on; `None` unless it is incremental.
    #[must_use]
    pub fn base_set_id(&self) -> Option<&str> {
        self.postgres.as_ref()?.base_set_id.as_deref()
    }
}

/// Where a family ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyEnd {
    /// Its length.
    pub length_bytes: u64,
    /// Its segments, the last one included.
    pub segments: u32,
    /// SHA-256 of its header and of all heads and trailers.
    pub digest: String,
    /// SHA-256 of all its bytes. Sets that are signed have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_digest: Option<String>,
}

/// What a set of a PostgreSQL cluster, or a file of its archive, is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PostgresFacts {
    /// Decimal digits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system_identifier: String,
    /// As `server_version_num`.
    pub server_version: u32,
    /// Where the backup began.
    pub timeline: u32,
    /// Recovery begins here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start_lsn: String,
    /// The backup is consistent from here on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub end_lsn: String,
    /// The timeline of that position.
    pub end_timeline: u32,
    /// Bytes of a segment of the log.
    pub segment_size_bytes: u64,
    /// All but the default one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tablespaces: Vec<TablespaceFacts>,
    /// Whether every file agreed with the server's own manifest.
    pub manifest: bool,
    /// How the object ends that has the manifest by itself, for incremental sets that are to build
    /// on this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_object: Option<FamilyEnd>,
    /// The set that this one builds on, if it is incremental.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_set_id: Option<String>,
    /// Name in the archive.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file_name: String,
}

/// A tablespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablespaceFacts {
    /// Its number.
    pub oid: u32,
    /// Where it was on the server.
    pub location: String,
}

/// What a set of a SQLite database is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqliteFacts {
    /// Bytes of a page.
    pub page_size_bytes: u32,
    /// Pages of the copy.
    pub pages: u64,
    /// Whether the source was sealed. The copy is then, too, for the same key.
    pub sealed_source: bool,
}

/// The signed part of a head: all but the object header, which changes with the key slots. Empty
/// when the head is too short.
pub(crate) fn signed_part(head: &[u8]) -> &[u8] {
    head.get(header_len(head)..).unwrap_or_default()
}

/// Bytes of a head's object header; 0 in a plain set.
fn header_len(head: &[u8]) -> usize {
    if is_sealed(head) { HEADER_LEN } else { 0 }
}

/// A head as it was read: structure is checked, nothing is authenticated.
pub(crate) struct UnopenedHead {
    bytes: Vec<u8>,
    /// Bytes of the object header; 0 in a plain set.
    header_len: usize,
    record: SetRecord,
    pub(crate) description: Description,
    /// Bytes of header, record and description together.
    pub(crate) length: usize,
}

/// Seals a description, and returns the bytes of the head: object header of a sealed set, record,
/// description. SR-7114 when the description is too long.
pub(crate) fn to_bytes(set_keys: &SetKeys, description: &Description) -> Result<Vec<u8>> {
    let bug = |_| Error::new(&code::BUG, "a description that cannot be written");
    let text = serde_json::to_vec(description).map_err(|error| bug(error.to_string()))?;
    let length = u32::try_from(text.len()).map_err(|error| bug(error.to_string()))?;
    if length > DESCRIPTION_MAX {
        let detail = "its description is too long";
        return Err(Error::new(&code::BACKUP_SOURCE, detail));
    }
    let mut record = SetRecord {
        cipher: set_keys.number(),
        length,
        set_id: set_keys.set_id(),
        seal: [0; 32],
    };
    let unsealed = record.to_bytes();
    record.seal = set_keys.seal(SetRecord::covered(&unsealed), &text)?;
    let mut out = match set_keys {
        SetKeys::Sealed { object, .. } => object.initial_bytes(),
        SetKeys::Plain { .. } => Vec::new(),
    };
    out.extend_from_slice(&record.to_bytes());
    out.extend_from_slice(&text);
    Ok(out)
}

/// The error SR-3002 for a head of this version.
fn newer(version: u16) -> Error {
    Error::new(&code::NEWER_FORMAT, format!("format version {version}"))
}

impl UnopenedHead {
    /// Reads the structure of a head at the start of `bytes`, which may go on after it. Nothing is
    /// authenticated.
    ///
    /// # Errors
    /// SR-7106 when record or description is malformed or cut short, or they are of different sets,
    /// or only one of record and object header is that of a sealed set; SR-3002 when the object
    /// header or the record is newer; SR-3003 when bytes of the object header are set that a set
    /// does not use, SR-3006 when it is cut short.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self> {
        let bad = |why: &str| Error::new(&code::SET_HEAD, why);
        let header_len = header_len(&bytes);
        let rest = bytes.get(header_len..);
        let rest = rest.ok_or_else(|| Error::new(&code::HEADER_TRUNCATED, "head of a set"))?;
        // Before anything that a newer version may have changed.
        if let (1.., Err(HeaderError::Newer(version))) = (header_len, Header::parse(&bytes)) {
            return Err(newer(version));
        }
        if header_len > 0 && !bytes.get(FIXED_LEN..HEADER_LEN).is_some_and(is_zero) {
            return Err(Error::new(&code::HEADER_DAMAGED, "anchors of a set"));
        }
        let record = SetRecord::parse(rest).map_err(|error| match error {
            RecordError::Newer(version) => newer(version),
            _ => bad("its record"),
        })?;
        let length = usize::try_from(record.length).map_err(|_| bad("its record"))?;
        let text_end = set_layout::SIZE.saturating_add(length);
        let text = rest.get(set_layout::SIZE..text_end);
        let text = text.ok_or_else(|| bad("cut short"))?;
        let description: Description =
            serde_json::from_slice(text).map_err(|_| bad("its description"))?;
        let plain = record.cipher == 0;
        if description.set_id != hex::hex(&record.set_id) || plain != (header_len == 0) {
            return Err(bad("its parts are of different sets"));
        }
        Ok(Self {
            length: header_len.saturating_add(text_end),
            bytes,
            header_len,
            record,
            description,
        })
    }

    /// Whether nothing follows the description.
    pub(crate) fn is_alone(&self) -> bool {
        self.length == self.bytes.len()
    }

    /// Everything but the object header.
    pub(crate) fn after_header(&self) -> &[u8] {
        self.bytes.get(self.header_len..).unwrap_or_default()
    }

    /// The bytes after the description: of an archived file its family.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.length..).unwrap_or_default()
    }

    /// Whether the head has an object header, so that a key is needed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.header_len > 0
    }

    /// Parses the object header, which is not authenticated; `None` in a plain set.
    ///
    /// # Errors
    /// SR-3003 when it is damaged; SR-3007 when it is of another kind of object.
    pub(crate) fn header(&self) -> Result<Option<Header>> {
        if !self.is_sealed() {
            return Ok(None);
        }
        // A newer version is refused when the head is parsed.
        let damaged = |_| Error::new(&code::HEADER_DAMAGED, "head of a set");
        let header = Header::parse(&self.bytes).map_err(damaged)?;
        if !inspect_checksum(&self.bytes) {
            return Err(Error::new(&code::HEADER_DAMAGED, "checksum"));
        }
        if header.kind != ObjectKind::Backup {
            return Err(Error::new(&code::WRONG_KIND, header.kind.name()));
        }
        Ok(Some(header))
    }

    /// Opens a head that was read from `store`, and verifies its seal. Without a key, a head that
    /// is not sealed is refused if the medium's head says that its sets are sealed; the medium's
    /// head is not authenticated, so that it can only cause a refusal. A medium's head that cannot
    /// be read refuses nothing.
    ///
    /// # Errors
    /// Those of [`Self::open`]; SR-7126 when the head is not sealed but the medium is.
    pub(crate) fn open_in(&self, store: &dyn Store, opener: Option<&Opener>) -> Result<SetKeys> {
        let set_keys = self.open(opener)?;
        if matches!(set_keys, SetKeys::Plain { .. })
            && let Ok(Some(medium)) = MediumHead::read(store)
            && medium.protection == Protection::Sealed
        {
            let detail = format!("{}: the medium is sealed", self.description.set_id);
            return Err(Error::new(&code::SET_NOT_SEALED, detail));
        }
        Ok(set_keys)
    }

    /// Opens the head with the key, verifies its seal, and returns the set's keys. A caller that
    /// gives a key never accepts a head without a seal; without a key, only the digest of a plain
    /// head is compared.
    ///
    /// # Errors
    /// Those of [`Object::open`], such as SR-2002 for a wrong key; SR-2001 when a key is needed;
    /// SR-7126 when a key was given and the head is not sealed; SR-7106 when the seal does not
    /// hold.
    pub(crate) fn open(&self, opener: Option<&Opener>) -> Result<SetKeys> {
        let set_keys = if self.is_sealed() {
            let opener = opener.ok_or_else(|| Error::new(&code::NO_KEY, "backup set"))?;
            let object = Object::open(&self.bytes, ObjectKind::Backup, opener)?;
            let cipher = cipher_of(object.header().cipher)?;
            let object = Box::new(object);
            SetKeys::Sealed { object, cipher }
        } else if opener.is_some() {
            let detail = format!("{}: a key was given", self.description.set_id);
            return Err(Error::new(&code::SET_NOT_SEALED, detail));
        } else {
            let set_id = self.record.set_id;
            SetKeys::Plain { set_id }
        };
        let text = self.bytes.get(self.text_at()..self.length);
        let agrees = set_keys.set_id() == self.record.set_id
            && set_keys.number() == self.record.cipher
            && set_keys.algorithm() == self.description.key_algorithm;
        if !agrees || !set_keys.seal_holds(&self.record, text.unwrap_or_default())? {
            return Err(Error::new(
                &code::SET_HEAD,
                self.description.set_id.as_str(),
            ));
        }
        Ok(set_keys)
    }

    /// The offset at which the description begins.
    fn text_at(&self) -> usize {
        self.header_len.saturating_add(set_layout::SIZE)
    }
}
