//! The records of the store, and reading and writing them. `paths.rs` has their paths. Specified in
//! docs/spec/keyserver.md, "Records".
//!
//! Must not: decide anything; contain a key that is not wrapped.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

use crate::keys::Keys;
use crate::store::{Change, Guard, Store, VALUE_MAX};

/// The role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Fetches the keys that are granted to it.
    Node,
    /// Reads everything except the bytes of keys.
    Viewer,
    /// Changes everything; reads the bytes of no key that is not granted to it.
    Admin,
}

impl Role {
    /// Its name in the interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }
}

/// The client that a certificate belongs to: at `spki/{SHA-256 of its public key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The client's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Whether it may create keys.
    pub may_create: bool,
    /// Whether it may destroy keys that it created.
    pub may_destroy: bool,
    /// When it was enrolled, in seconds since the Unix epoch.
    pub enrolled: u64,
    /// When its certificate expires, in seconds since the Unix epoch.
    pub expires: u64,
    /// 16 random bytes in hexadecimal digits, new with each enrolment and unchanged by renewals.
    /// They distinguish a client from an earlier one of the same name that was revoked or replaced.
    /// Older builds did not write them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<String>,
    /// Whether the certificate was never used. Until it is, the certificate that it renews is
    /// valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unused: bool,
    /// SHA-256 of the only valid certificate with this public key. Older builds did not write it;
    /// then the name in the certificate decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// The owner of a public key, which never changes: at `certified/{SHA-256 of the public key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certified {
    /// The only name for which the public key is ever certified.
    pub name: String,
}

/// The certificates of a client: at `nodes/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// SHA-256 of the public key of its present certificate, in hexadecimal digits.
    pub spki: String,
    /// The same of a renewed certificate that was not used yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A grant of a key to a node: at `grants/{node}/{key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// When it was granted, in seconds since the Unix epoch.
    pub granted: u64,
    /// Whether the node may destroy the key.
    pub may_destroy: bool,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is delivered.
    Active,
    /// It is not delivered until it is enabled again.
    Disabled,
    /// It is not delivered, and will be destroyed at [`Key::destroy_at`] unless it is restored.
    DestroyPending,
    /// Its bytes were erased.
    Destroyed,
}

impl State {
    /// The state's name in the server's HTTP interface and in its errors, such as `active`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::DestroyPending => "destroy-pending",
            Self::Destroyed => "destroyed",
        }
    }
}

/// A key: at `keys/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// 16 random bytes in hexadecimal digits. They distinguish the key from a later one of the same
    /// name.
    pub id: String,
    /// Whether it is delivered.
    pub state: State,
    /// When it will be destroyed, or was, in seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy_at: Option<u64>,
    /// The request for its destruction that waits for a second administrator. It may no longer be
    /// valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy_asked: Option<DestroyRequest>,
    /// The client that created it.
    pub created_by: String,
    /// All versions, oldest first.
    pub versions: Vec<Version>,
    /// The object for which it was created, as the client described it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<BTreeMap<String, String>>,
}

/// A request of an administrator for the destruction of a key, where two administrators have to
/// agree. `service/key_access.rs` decides whether it is still valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyRequest {
    /// The administrator's name.
    pub by: String,
    /// When it was made, in seconds since the Unix epoch.
    pub at: u64,
    /// How many seconds after the second administrator's request the key is to be destroyed. Older
    /// builds did not write it; their requests are not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<u64>,
    /// [`Identity::enrolment`] of the administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<String>,
}

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// From 1.
    pub version: u32,
    /// When it was created, in seconds since the Unix epoch.
    pub created: u64,
    /// The wrapped key in hexadecimal digits; empty after the key was destroyed.
    pub wrapped: String,
}

/// An enrolment token: at `tokens/{SHA-256 of the token}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The name that the client will have.
    pub node: String,
    /// The role that it will have.
    pub role: Role,
    /// Keys that are granted to it when it is enrolled.
    pub keys: Vec<String>,
    /// Whether it may create keys.
    pub may_create: bool,
    /// Whether it may destroy the keys that it creates and those that the token grants.
    pub may_destroy: bool,
    /// Whether a node that is enrolled already keeps its rights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_rights: bool,
    /// When the token expires, in seconds since the Unix epoch.
    pub expires: u64,
}

/// The authority that signs certificates: at `authority`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, in PEM.
    pub certificate: String,
    /// Its private key, PKCS #8, in hexadecimal digits. The record itself is sealed.
    pub key: String,
}

/// A header in escrow: at `escrow/{object id}`. Its pieces are at
/// `escrow-data/{object id}/{made}/{number}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escrow {
    /// The node that owns it.
    pub node: String,
    /// Its length in bytes.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: String,
    /// The name of its pieces: 16 random bytes in hexadecimal digits.
    pub made: String,
    /// How many pieces it has.
    pub pieces: u32,
    /// When it was stored, in seconds since the Unix epoch.
    pub stored: u64,
}

/// Pieces of a header that no escrow record names, or that none names yet: at
/// `escrow-work/{object id}/{made}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnnamedPieces {
    /// When their writing began, in seconds since the Unix epoch; 0 when no record will ever name
    /// them.
    pub since: u64,
}

/// How much a client has stored: at `usage/{name}`. Without a record, nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Headers in escrow.
    pub headers: u64,
    /// Bytes of all its headers in escrow.
    pub header_bytes: u64,
    /// Objects whose last report is its own.
    pub objects: u64,
    /// Keys that it created.
    pub keys: u64,
}

/// The last report of an object: at `objects/{object id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The node that reported it.
    pub node: String,
    /// When it was reported last, in seconds since the Unix epoch.
    pub reported: u64,
    /// The report.
    pub report: Report,
}

/// What a node reports about an object. Times in seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// `volume`, `sqlite`, `instance` or `backup`.
    pub kind: String,
    /// The name that its node gave it.
    pub name: String,
    /// The cipher that seals it.
    pub cipher: String,
    /// The name of the key that opens it.
    pub key_id: String,
    /// That key's version.
    pub key_version: u32,
    /// When the object was made; 0 when its node does not know.
    pub created: u64,
    /// When its data key was changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<u64>,
    /// When it was backed up last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backed_up: Option<u64>,
    /// When it was verified last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// When its node destroyed it; `None` while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shredded: Option<u64>,
}

/// How often and when an administrator was created with the root key: at `alarms/break-glass`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakGlass {
    /// How often.
    pub count: u64,
    /// When it happened last, in seconds since the Unix epoch.
    pub at: u64,
    /// The name of the last administrator.
    pub name: String,
}

/// Which rows of the audit log are in archives: at `archives/audit`. The store's part of the log
/// begins after them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditCut {
    /// The number of the last archived row. The store removes the rows up to this one.
    pub through: u64,
    /// The hash of that row, in hexadecimal digits.
    pub head: String,
    /// The file name of the archive that holds it.
    pub file: String,
    /// When it was archived, in seconds since the Unix epoch.
    pub at: u64,
}

/// A record as it was read, with the guard for commits that depend on it.
pub struct Guarded<T> {
    /// The record; `None` when there is none.
    pub record: Option<T>,
    /// The guard, with the revision that was read.
    pub guard: Guard,
}

impl<T> Guarded<T> {
    /// Returns the record, and the guard that lets a commit fail if the record has changed since.
    ///
    /// # Errors
    /// SR-8423, with `detail`, when there is no record.
    pub fn require(self, detail: &str) -> Result<(T, Guard), Error> {
        self.require_or(&code::SERVER_NO_SUCH, detail)
    }

    /// Returns the record and its guard, for a client that may know whether the record exists.
    ///
    /// # Errors
    /// `missing`, with this detail, when there is no record.
    pub fn require_or(self, missing: &'static Code, detail: &str) -> Result<(T, Guard), Error> {
        let missing = || Error::new(missing, detail);
        Ok((self.record.ok_or_else(missing)?, self.guard))
    }
}

/// Reads and opens the record at a path, and returns it with its guard. Without a record, `record`
/// is `None` and the guard requires that there is none.
///
/// # Errors
/// What the store reports; SR-8435 when the record does not open or is malformed.
pub fn read<T: DeserializeOwned>(
    store: &dyn Store,
    keys: &Keys,
    path: &str,
) -> Result<Guarded<T>, Error> {
    let stored = store.read(path)?;
    let revision = stored.as_ref().map_or(0, |stored| stored.revision);
    let record = stored
        .map(|stored| open_record(keys, path, &stored.value))
        .transpose()?;
    let guard = Guard {
        path: path.to_owned(),
        revision,
    };
    Ok(Guarded { record, guard })
}

/// Reads and opens at most `limit` records below a prefix, in order of their names, which follow
/// the prefix and are greater than `after`. Returns each name, without the prefix, and its record.
///
/// # Errors
/// What the store reports; SR-8435 when a record does not open or is malformed.
pub fn list<T: DeserializeOwned>(
    store: &dyn Store,
    keys: &Keys,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, T)>, Error> {
    let after = match after {
        "" => String::new(),
        name => format!("{prefix}{name}"),
    };
    let records = store
        .list(prefix, &after, limit)?
        .into_iter()
        .map(|(path, stored)| {
            let record = open_record(keys, &path, &stored.value)?;
            Ok((
                path.strip_prefix(prefix).unwrap_or_default().to_owned(),
                record,
            ))
        });
    records.collect()
}

/// Opens and parses a record. SR-8435 if it is not authentic for this path, or malformed.
fn open_record<T: DeserializeOwned>(keys: &Keys, path: &str, value: &[u8]) -> Result<T, Error> {
    parse(path, &keys.open(path, value)?)
}

/// Parses the content of the record at a path, which was opened. SR-8435 if it is malformed.
pub(crate) fn parse<T: DeserializeOwned>(path: &str, opened: &[u8]) -> Result<T, Error> {
    let malformed = |_| Error::new(&code::SERVER_STORE, format!("{path} is malformed"));
    serde_json::from_slice(opened).map_err(malformed)
}

/// Seals a record for its path, and returns the change that writes it. Writes nothing.
///
/// # Errors
/// SR-5001 when the system reports an error; SR-8430 when the sealed record is longer than
/// [`VALUE_MAX`].
pub fn put<T: Serialize>(keys: &Keys, path: &str, record: &T) -> Result<Change, Error> {
    let bytes = serde_json::to_vec(record)
        .map(zeroize::Zeroizing::new)
        .map_err(|error| Error::new(&code::BUG, error.to_string()))?;
    let value = keys.seal(path, &bytes)?;
    if value.len() > VALUE_MAX {
        return Err(Error::new(&code::SERVER_TOO_LARGE, path));
    }
    Ok(Change::Put {
        path: path.to_owned(),
        value,
    })
}
