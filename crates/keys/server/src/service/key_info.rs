//! What clients may know of a key: everything but its bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::now;
use crate::records::{DestroyRequest, Key, State};

/// How long an administrator's request waits for a second administrator, in seconds.
const DESTROY_REQUEST_S: u64 = 7 * 86_400;

/// The members that describe the object for which a key was created, as its client sent them.
pub(crate) type Members = BTreeMap<String, String>;

/// A key without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// Its name.
    pub name: String,
    /// Whether it is delivered.
    pub state: State,
    /// When it will be destroyed, or was, in seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroy_at: Option<u64>,
    /// The request for its destruction that waits for a second administrator.
    #[serde(flatten)]
    pub destroy_request: Option<DestroyRequestInfo>,
    /// The client that created it.
    pub created_by: String,
    /// Its versions, oldest first.
    pub versions: Vec<VersionInfo>,
    /// The object for which it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Members>,
}

/// A version of a key without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionInfo {
    /// From 1.
    pub version: u32,
    /// When it was created, in seconds since the Unix epoch.
    pub created: u64,
}

/// A request for a key's destruction that waits for a second administrator. In JSON, its members
/// are members of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DestroyRequestInfo {
    /// The administrator who made the request.
    pub destroy_asked_by: String,
    /// When it was made, in seconds since the Unix epoch.
    pub destroy_asked_at: u64,
    /// How many seconds after the second administrator's request the key is to be destroyed.
    pub destroy_asked_after_seconds: u64,
    /// When the request expires, in seconds since the Unix epoch.
    pub destroy_asked_until: u64,
}

impl DestroyRequestInfo {
    /// Describes a request for destruction. `None` for a request of an older build, which names no
    /// time.
    pub(super) fn of(request: DestroyRequest) -> Option<Self> {
        Some(Self {
            destroy_asked_after_seconds: request.after_seconds?,
            destroy_asked_until: request_expires(&request),
            destroy_asked_by: request.by,
            destroy_asked_at: request.at,
        })
    }
}

impl KeyInfo {
    /// Describes a key without its bytes, with its state at this moment. The caller has removed a
    /// stale request for destruction from the key (`Service::drop_stale_request`).
    pub(super) fn of(name: &str, key: Key) -> Self {
        let versions = key.versions.iter();
        Self {
            name: name.to_owned(),
            state: effective_state(&key),
            destroy_at: key.destroy_at,
            destroy_request: key.destroy_asked.and_then(DestroyRequestInfo::of),
            versions: versions
                .map(|one| VersionInfo {
                    version: one.version,
                    created: one.created,
                })
                .collect(),
            created_by: key.created_by,
            object: key.object,
        }
    }
}

/// Returns the state of a key at this moment. A key whose time of destruction has passed is
/// destroyed, even if its bytes have not been erased yet.
pub(super) fn effective_state(key: &Key) -> State {
    match (key.state, key.destroy_at) {
        (State::DestroyPending, Some(at)) if at <= now() => State::Destroyed,
        (state, _) => state,
    }
}

/// Returns when a request for destruction expires, in seconds since the Unix epoch: seven days
/// after it was made.
pub(super) fn request_expires(request: &DestroyRequest) -> u64 {
    request.at.saturating_add(DESTROY_REQUEST_S)
}
