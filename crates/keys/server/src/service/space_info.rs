//! How much space the store uses and has, and which alarms are raised.

use std::sync::Mutex;
use std::time::Instant;

use serde::Serialize;

/// How much space there is, and which alarms are raised. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpaceInfo {
    /// Rows of the audit log that are in the store.
    pub audit_rows: u64,
    /// Number of the last row that is in an archive and no longer in the store; 0 when there is
    /// none.
    pub audit_archived_through: u64,
    /// The space that the store uses.
    pub store_bytes: u64,
    /// The size to which the store may grow, where there is a limit.
    pub store_limit_bytes: Option<u64>,
    /// Free space on the store's file system, where the store is a local file.
    pub free_bytes: Option<u64>,
    /// Free space on the archives' file system.
    pub archive_free_bytes: Option<u64>,
    /// Rows that were lost on the way to syslog since the server's start.
    pub syslog_lost: u64,
    /// The alarms that are raised, as text for an operator.
    pub alarms: Vec<String>,
}

/// The last measurement, the alarms that were logged, and how the last archiving ended.
#[derive(Default)]
pub(super) struct SpaceState {
    /// When the space was measured last, and the result.
    pub(super) measured: Mutex<Option<(Instant, SpaceInfo)>>,
    /// The kinds of alarms in the last log event, and its time in seconds since the Unix epoch.
    pub(super) logged: Mutex<(Vec<&'static str>, u64)>,
    /// Why the last archiving failed; `None` when it succeeded.
    pub(super) archive_error: Mutex<Option<String>>,
}
