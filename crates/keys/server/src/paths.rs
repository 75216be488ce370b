//! The paths of the records in the store. Specified in docs/spec/keyserver.md, "Records".
//!
//! A constant that ends in `/` is a prefix, which the record's name follows.

use strongroom_crypto::sha256;
use strongroom_format::hex::hex;

/// Identities of certificates; the name is the SHA-256 of the public key.
pub const IDENTITIES: &str = "spki/";
/// The owner of every public key that was ever certified; the name is its SHA-256.
pub const CERTIFIED: &str = "certified/";
/// The current certificate of each client; the name is the client's.
pub const NODES: &str = "nodes/";
/// Grants; the name is `{node}/{key}`.
pub const GRANTS: &str = "grants/";
/// Keys; the name is the key's.
pub const KEYS: &str = "keys/";
/// Times at which keys are to be destroyed; the name is the key's.
pub const PENDING: &str = "pending/";
/// Enrolment tokens; the name is the SHA-256 of the token.
pub const TOKENS: &str = "tokens/";
/// Headers in escrow; the name is the object's id.
pub const ESCROW: &str = "escrow/";
/// Pieces of headers in escrow; the name is `{object id}/{made}/{number}`.
pub const ESCROW_DATA: &str = "escrow-data/";
/// Pieces that no escrow record names; the name is `{object id}/{made}`.
pub const ESCROW_WORK: &str = "escrow-work/";
/// How much each client has stored; the name is the client's.
pub const USAGE: &str = "usage/";
/// Reports of objects; the name is the object's id.
pub const OBJECTS: &str = "objects/";
/// The alarm after an administrator was made with the root key.
pub const BREAK_GLASS: &str = "alarms/break-glass";
/// The record of which rows of the audit log are in an archive.
pub const AUDIT_CUT: &str = "archives/audit";
/// The certificate authority.
pub const AUTHORITY: &str = "authority";

/// The path of the identity with this public key. `spki`: SHA-256 in hexadecimal digits.
pub(crate) fn identity_path(spki: &str) -> String {
    format!("{IDENTITIES}{spki}")
}

/// The path of the record of a public key's owner. `spki`: SHA-256 in hexadecimal digits.
pub(crate) fn certified_path(spki: &str) -> String {
    format!("{CERTIFIED}{spki}")
}

/// The path of a client's record.
pub(crate) fn node_path(name: &str) -> String {
    format!("{NODES}{name}")
}

/// The path of a key's record.
pub(crate) fn key_path(name: &str) -> String {
    format!("{KEYS}{name}")
}

/// The path of the grant of a key to a node.
pub(crate) fn grant_path(node: &str, key: &str) -> String {
    format!("{GRANTS}{node}/{key}")
}

/// Returns the path of the record of the time at which a key is to be destroyed.
pub(crate) fn pending_path(name: &str) -> String {
    format!("{PENDING}{name}")
}

/// Returns the path of a token's record, which has only the token's hash. White space around the
/// token does not matter.
pub(crate) fn token_path(token: &str) -> String {
    format!("{TOKENS}{}", hex(&sha256(&[token.trim().as_bytes()])))
}

/// The path of the record of what a client has stored.
pub(crate) fn usage_path(name: &str) -> String {
    format!("{USAGE}{name}")
}

/// The path of the report of an object.
pub(crate) fn object_path(id: &str) -> String {
    format!("{OBJECTS}{id}")
}

/// The path of the record of a header in escrow.
pub(crate) fn escrow_path(id: &str) -> String {
    format!("{ESCROW}{id}")
}

/// Returns the prefix of the paths of the pieces with the name `made`, of the header of the object
/// `id`.
pub(crate) fn escrow_pieces_prefix(id: &str, made: &str) -> String {
    format!("{ESCROW_DATA}{id}/{made}/")
}

/// Returns the path of the record that says that no escrow record names the pieces `made` of the
/// object `id`.
pub(crate) fn escrow_work_path(id: &str, made: &str) -> String {
    format!("{ESCROW_WORK}{id}/{made}")
}
