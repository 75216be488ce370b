//! The sections `[audit]` and `[alarms]` of `server.toml`: how long rows of the audit log stay in
//! the store, where they go, and when the server says that its store is filling up.
//!
//! Must not: read or write a file. Documented in docs/guides/keyserver-audit.md.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strongroom_format::code;
use strongroom_keyring::Error;

const DAY_S: u64 = 86_400;

/// How long rows of the audit log stay in the store, and where they go.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// The directory of the archives. Without one every row stays in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<PathBuf>,
    /// Rows older than this are archived; 0: age does not count.
    pub keep_days: u32,
    /// As many rows stay at most, whatever their age; 0: their number does not count.
    pub keep_rows: u64,
    /// The datagram socket of the local syslog daemon that gets each row too, as `/dev/log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syslog: Option<PathBuf>,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            archive: None,
            keep_days: 90,
            keep_rows: 1_000_000,
            syslog: None,
        }
    }
}

impl Audit {
    /// The time from which on a row is young enough to stay, in seconds since the Unix epoch.
    #[must_use]
    pub fn young_since(&self, now: u64) -> u64 {
        match self.keep_days {
            0 => 0,
            days => now.saturating_sub(u64::from(days).saturating_mul(DAY_S)),
        }
    }

    /// Of rows whose last has number `last`, how many are too many: the number of the last of
    /// those.
    #[must_use]
    pub fn too_many_through(&self, last: u64) -> u64 {
        match self.keep_rows {
            0 => 0,
            rows => last.saturating_sub(rows),
        }
    }
}

/// From when on the server says that its store is filling up. 0 switches one off.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alarms {
    /// Least room of the file systems of the store and of the archives, in MiB.
    pub free_mib: u64,
    /// The size to which the store may grow, in MiB: etcd's `--quota-backend-bytes`. Unless it is
    /// said here, it is what etcd says, or 2048 for an etcd that does not say it.
    pub store_mib: u64,
    /// The part of that size, in percent, from which on it is told.
    pub store_percent: u8,
    /// Rows of the audit log in the store from which on it is told.
    pub audit_rows: u64,
}

impl Default for Alarms {
    fn default() -> Self {
        Self {
            free_mib: 1024,
            store_mib: 0,
            store_percent: 70,
            audit_rows: 5_000_000,
        }
    }
}

impl Alarms {
    /// # Errors
    /// SR-8434.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.store_percent {
            0..=100 => Ok(()),
            _ => Err(Error::new(
                &code::SERVER_CONFIG,
                "alarms: store_percent is 0 to 100",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_keeps_every_row() {
        let off = Audit {
            keep_days: 0,
            keep_rows: 0,
            ..Audit::default()
        };
        assert_eq!((off.young_since(1000), off.too_many_through(1000)), (0, 0));
        let some = Audit {
            keep_days: 1,
            keep_rows: 10,
            ..Audit::default()
        };
        assert_eq!(some.young_since(DAY_S + 7), 7);
        assert_eq!(
            (some.too_many_through(12), some.too_many_through(9)),
            (2, 0)
        );
    }
}
