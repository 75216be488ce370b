//! The JSON of requests and responses: docs/spec/keyserver.md. Unknown members of a response are
//! ignored, because a newer server may send more. Members that are used must be there.

use std::fmt;

use serde::{Deserialize, Serialize};
use strongroom_format::text::printable;

/// A key as the server describes it, without its material.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct KeyRecord {
    /// The key's name.
    pub name: String,
    /// `active`, `disabled`, `destroy-pending` or `destroyed`.
    pub state: String,
    /// Its versions, oldest first.
    pub versions: Vec<KeyVersion>,
    /// Further members.
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

/// One version of a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct KeyVersion {
    /// The version's number, from 1.
    pub version: u64,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
}

/// A page of the list of keys.
#[derive(Deserialize)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<KeyRecord>,
    /// There may be more keys after the last of them.
    pub(crate) more: bool,
}

/// A node's report about an object on it, for the fleet page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// `volume`, `sqlite`, `instance` or `backup`.
    pub kind: String,
    /// Its name for people.
    pub name: String,
    /// The cipher of its data.
    pub cipher: String,
    /// The name of the key server's key that opens it.
    pub key_id: String,
    /// The version of that key.
    pub key_version: u64,
    /// When it was made, in seconds since the Unix epoch; 0 when that is not known.
    pub created: u64,
    /// When its key was last changed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rotated: Option<u64>,
    /// When it was last backed up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backed_up: Option<u64>,
    /// When it was last verified.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified: Option<u64>,
    /// When it was destroyed by `volume shred`; none for an object that is there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shredded: Option<u64>,
}

/// What would be lost with a key, as far as nodes have reported it.
#[derive(Clone, Debug, Deserialize)]
pub struct Needs {
    /// How many objects need it.
    pub objects: u64,
    /// Whether the server has counted all of them.
    #[serde(default = "is_complete")]
    pub complete: bool,
    /// The nodes that are granted it.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Some of the objects.
    #[serde(default)]
    pub named: Vec<NeedingObject>,
}

/// Returns true: the value of `complete` in a response of an older server, which does not send it.
const fn is_complete() -> bool {
    true
}

/// An object that needs a key. Shown as `volume /dev/vdb on db-7`.
#[derive(Clone, Debug, Deserialize)]
pub struct NeedingObject {
    /// Its identifier in hexadecimal digits.
    pub object_id: String,
    /// `volume`, `sqlite`, `instance` or `backup`.
    pub kind: String,
    /// What people call it.
    pub name: String,
    /// The node that has reported it.
    pub node: String,
}

impl fmt::Display for NeedingObject {
    /// Writes what the object is, its name and its node, in one line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind, name, node, ..
        } = self;
        write!(
            f,
            "{} {} on {}",
            printable(kind),
            printable(name),
            printable(node)
        )
    }
}

/// The status that a server gives to every client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ServerStatus {
    /// Whether the server has no root key and therefore delivers nothing.
    pub sealed: bool,
    /// Further members.
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

/// The body of `POST /v1/keys`.
#[derive(Serialize)]
pub(crate) struct NewKey<'a> {
    pub(crate) name: &'a str,
}

/// The response to a request for a new key or version.
#[derive(Deserialize)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) version: u64,
}

/// The response with key material. Its texts borrow from the wiped buffer of the response, so texts
/// with escapes are refused.
#[derive(Deserialize)]
pub(crate) struct Material<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: u64,
    pub(crate) material: &'a str,
}

/// The body of `POST .../destroy`.
#[derive(Serialize)]
pub(crate) struct Destroy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after_seconds: Option<u64>,
}

/// The state of a key that is to be destroyed.
#[derive(Clone, Debug, Deserialize)]
pub struct Ending {
    /// The key.
    pub name: String,
    /// `destroy-pending` or `destroyed`; another state while further approval is missing.
    pub state: String,
    /// When it is, or was, destroyed, in seconds since the Unix epoch.
    #[serde(default)]
    pub destroy_at: Option<u64>,
}

/// The response to `POST /v1/enroll` and `POST /v1/renew`. The request of an enrolment is not here:
/// it is written by hand, so that the token stays in wiped memory.
#[derive(Deserialize)]
pub(crate) struct Issued {
    pub(crate) node: String,
    pub(crate) role: String,
    pub(crate) certificate: String,
}

/// The body of `POST /v1/renew`.
#[derive(Serialize)]
pub(crate) struct Renew<'a> {
    pub(crate) csr: &'a str,
}
