//! The records of the store: their paths and what is in them. Specified in docs/spec/keyserver.md, "Records".
//!
//! Must not: decide anything; hold a key that is not wrapped.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

use crate::keys::Keys;
use crate::store::{Change, Guard, Store};

/// What a client may do at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Fetches keys that were granted to it.
    Node,
    /// Sees everything but keys.
    Viewer,
    /// Changes everything; sees no key that was not granted to it.
    Admin,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }
}

/// Who a certificate is: at `spki/{SHA-256 of its public key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The client's name.
    pub name: String,
    /// What it may do at all.
    pub role: Role,
    /// Whether it may make keys.
    pub may_create: bool,
    /// Whether it may destroy keys that it made.
    pub may_destroy: bool,
    /// When it was enrolled, in seconds since the Unix epoch.
    pub enrolled: u64,
    /// When its certificate ends.
    pub expires: u64,
    /// 16 random bytes in hexadecimal digits, made with each enrolment and kept by renewals. It
    /// tells a client from an earlier one of the same name that was revoked or replaced. Older
    /// builds did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<String>,
    /// Whether it was never used: the certificate that it renews counts until it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unused: bool,
    /// SHA-256 of the one certificate that counts. Older builds did not write it: then the name in
    /// the certificate decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// Whose a public key is, for ever: at `certified/{SHA-256 of the public key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certified {
    /// The only name that it is ever certified for.
    pub name: String,
}

/// Which certificate a name has: at `nodes/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// SHA-256 of the certificate's public key, in hexadecimal digits.
    pub spki: String,
    /// The same of the certificate that takes its place as soon as it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key that is granted: at `grants/{node}/{key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// When, in seconds since the Unix epoch.
    pub granted: u64,
    /// Whether the node may destroy the key.
    pub may_destroy: bool,
}

/// Whether a key is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is.
    Active,
    /// It is not until it is enabled again.
    Disabled,
    /// It is not, and will be destroyed at the time that stands beside, unless it is restored.
    DestroyPending,
    /// Its material was erased.
    Destroyed,
}

impl State {
    /// The word for it.
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

/// A kept key: at `keys/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Random, made with the key: a key of the same name made later is another one.
    pub id: String,
    /// Whether it is delivered.
    pub state: State,
    /// When it will be destroyed, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy_at: Option<u64>,
    /// The request for its destruction that waits for a second administrator. It may have ended:
    /// see [`Asked`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy_asked: Option<Asked>,
    /// Who made it.
    pub created_by: String,
    /// Every version, oldest first.
    pub versions: Vec<Version>,
    /// What it was made for, in the words of the client that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<BTreeMap<String, String>>,
}

/// That an administrator asked for the destruction of a key, where two of them have to. Whether it
/// still counts is decided in `service/destroy.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The administrator's name.
    pub by: String,
    /// When, in seconds since the Unix epoch.
    pub at: u64,
    /// How many seconds after the second administrator's request the key is to be destroyed. Older
    /// builds did not write it, and their requests do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<u64>,
    /// [`Identity::enrolment`] of the administrator who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<String>,
}

/// One version of a kept key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// From 1.
    pub version: u32,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
    /// The wrapped key in hexadecimal digits; empty when it was destroyed.
    pub wrapped: String,
}

/// A token for enrolment: at `tokens/{SHA-256 of the token}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The name that the client will have.
    pub node: String,
    /// What it will be.
    pub role: Role,
    /// Keys that are granted to it with its enrolment.
    pub keys: Vec<String>,
    /// Whether it may make keys.
    pub may_create: bool,
    /// Whether it may destroy keys that it makes, and those that are granted here.
    pub may_destroy: bool,
    /// Whether a node that is enrolled already keeps what it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_rights: bool,
    /// When the token ends, in seconds since the Unix epoch.
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

/// A header that is kept for its owner: at `escrow/{object id}`; its pieces at `escrow-data/{object id}/{made}/{number}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escrow {
    /// Who keeps it here.
    pub node: String,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: String,
    /// Which pieces are its own: random.
    pub made: String,
    /// How many pieces.
    pub pieces: u32,
    /// When it was put, in seconds since the Unix epoch.
    pub stored: u64,
}

/// Pieces of a header that no record names, or none yet: at `escrow-work/{object id}/{made}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unnamed {
    /// Since when, in seconds since the Unix epoch; 0 when no record will ever name them.
    pub since: u64,
}

/// How much a client has put here: at `usage/{name}`. None: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Headers.
    pub headers: u64,
    /// Their bytes.
    pub header_bytes: u64,
    /// Objects that it reported last.
    pub objects: u64,
    /// Keys that it made.
    pub keys: u64,
}

/// What a node reported of an object: at `objects/{object id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Who reported it.
    pub node: String,
    /// When it was reported last, in seconds since the Unix epoch.
    pub reported: u64,
    /// What was reported.
    pub report: Report,
}

/// What a node says of an object. Times in seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// `volume`, `sqlite`, `instance` or `backup`.
    pub kind: String,
    /// What its node calls it.
    pub name: String,
    /// How it is sealed.
    pub cipher: String,
    /// The key that opens it.
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
    /// When its node destroyed it; none for one that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shredded: Option<u64>,
}

/// Where identities are.
pub const IDENTITIES: &str = "spki/";
/// Where it says whose a public key is that was ever certified.
pub const CERTIFIED: &str = "certified/";
/// Where the names of clients are.
pub const NODES: &str = "nodes/";
/// Where grants are.
pub const GRANTS: &str = "grants/";
/// Where keys are.
pub const KEYS: &str = "keys/";
/// Where the names of keys are that are to be destroyed, with the times.
pub const PENDING: &str = "pending/";
/// Where tokens are.
pub const TOKENS: &str = "tokens/";
/// Where headers are kept.
pub const ESCROW: &str = "escrow/";
/// Where the pieces of headers are kept.
pub const ESCROW_DATA: &str = "escrow-data/";
/// Where it says which pieces no record names.
pub const ESCROW_WORK: &str = "escrow-work/";
/// Where it says who has put how much here.
pub const USAGE: &str = "usage/";
/// Where reports are.
pub const OBJECTS: &str = "objects/";
/// That an administrator was made with the root key: at `alarms/break-glass`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakGlass {
    /// How often.
    pub count: u64,
    /// When last, in seconds since the Unix epoch.
    pub at: u64,
    /// The last one's name.
    pub name: String,
}

/// Where it says that an administrator was made with the root key.
pub const BREAK_GLASS: &str = "alarms/break-glass";
/// Where the audit log begins in the store, because older rows are in an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditCut {
    /// Number of the last row that was archived. Rows up to it are removed from the store.
    pub through: u64,
    /// The hash of that row.
    pub head: String,
    /// The name of the archive that holds it, without a directory.
    pub file: String,
    /// When it was archived, in seconds since the Unix epoch.
    pub at: u64,
}

/// Where it says which rows of the audit log were archived.
pub const AUDIT_CUT: &str = "archives/audit";
/// Where the authority is.
pub const AUTHORITY: &str = "authority";

/// A record with what a commit that is based upon it has to be guarded by.
pub struct Found<T> {
    /// What is in it; `None`: there is none.
    pub record: Option<T>,
    /// The guard.
    pub guard: Guard,
}

impl<T> Found<T> {
    /// The record, or SR-8423.
    ///
    /// # Errors
    /// SR-8423.
    pub fn there(self, detail: &str) -> Result<(T, Guard), Error> {
        self.or(&code::SERVER_NO_SUCH, detail)
    }

    /// The record, or another error: where who asks may know what is there.
    ///
    /// # Errors
    /// `missing`.
    pub fn or(self, missing: &'static Code, detail: &str) -> Result<(T, Guard), Error> {
        let missing = || Error::new(missing, detail);
        Ok((self.record.ok_or_else(missing)?, self.guard))
    }
}

/// Reads and opens one record.
///
/// # Errors
/// What the store reports; SR-8435 when the record does not open.
pub fn read<T: DeserializeOwned>(
    store: &dyn Store,
    keys: &Keys,
    path: &str,
) -> Result<Found<T>, Error> {
    let stored = store.read(path)?;
    let revision = stored.as_ref().map_or(0, |stored| stored.revision);
    let record = stored
        .map(|stored| parsed(keys, path, &stored.value))
        .transpose()?;
    let guard = Guard {
        path: path.to_owned(),
        revision,
    };
    Ok(Found { record, guard })
}

/// Reads and opens records below a prefix, in order, with what follows the prefix as their names.
///
/// # Errors
/// As [`read`].
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
    let found = store
        .list(prefix, &after, limit)?
        .into_iter()
        .map(|(path, stored)| {
            let record = parsed(keys, &path, &stored.value)?;
            Ok((
                path.strip_prefix(prefix).unwrap_or_default().to_owned(),
                record,
            ))
        });
    found.collect()
}

fn parsed<T: DeserializeOwned>(keys: &Keys, path: &str, value: &[u8]) -> Result<T, Error> {
    let malformed = |_| Error::new(&code::SERVER_STORE, format!("{path} is malformed"));
    serde_json::from_slice(&keys.open(path, value)?).map_err(malformed)
}

/// The change that writes a record.
///
/// # Errors
/// SR-5001; SR-8430 when it is larger than the store takes.
pub fn put<T: Serialize>(keys: &Keys, path: &str, record: &T) -> Result<Change, Error> {
    let bytes = serde_json::to_vec(record)
        .map(zeroize::Zeroizing::new)
        .map_err(|error| Error::new(&code::BUG, error.to_string()))?;
    let value = keys.seal(path, &bytes)?;
    if value.len() > crate::store::VALUE_MAX {
        return Err(Error::new(&code::SERVER_TOO_LARGE, path));
    }
    Ok(Change::Put {
        path: path.to_owned(),
        value,
    })
}
