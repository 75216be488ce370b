//! The sections `[audit]` and `[alarms]` of `server.toml`: how long rows of the audit log stay in
//! the store, where they are archived, and when an alarm says that the store is filling up.
//! Documented in docs/guides/keyserver-audit.md.
//!
//! Must not: read or write a file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strongroom_format::code;
use strongroom_keyring::Error;

const DAY_S: u64 = 86_400;

/// How long rows of the audit log stay in the store, and where they are archived.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// The directory of the archives. Without it, every row stays in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<PathBuf>,
    /// Rows that are older than so many days are archived; 0: rows of any age stay.
    pub keep_days: u32,
    /// The most rows that stay in the store, regardless of their age; 0: any number stays.
    pub keep_rows: u64,
    /// The datagram socket of the local syslog daemon to which every row is also sent, such as
    /// `/dev/log`.
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
    /// Returns the time since which rows stay in the store: those that were written then or later,
    /// in seconds since the Unix epoch. 0 when rows of any age stay.
    #[must_use]
    pub fn keep_since(&self, now: u64) -> u64 {
        match self.keep_days {
            0 => 0,
            days => now.saturating_sub(u64::from(days).saturating_mul(DAY_S)),
        }
    }

    /// Returns the number of the last row that exceeds the most rows that stay, when the last row
    /// of the log has the number `last`; 0 when none does.
    #[must_use]
    pub fn excess_through(&self, last: u64) -> u64 {
        match self.keep_rows {
            0 => 0,
            rows => last.saturating_sub(rows),
        }
    }
}

/// The thresholds of the alarms about the store's space. 0 switches an alarm off.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alarms {
    /// The least free space on the file systems of the store and of the archives, in MiB.
    pub free_mib: u64,
    /// The size to which the store may grow, in MiB: etcd's `--quota-backend-bytes`. With 0, it is
    /// what etcd reports, or 2048 for an etcd that does not report it.
    pub store_mib: u64,
    /// The part of that size, in percent, from which on the alarm is raised.
    pub store_percent: u8,
    /// The number of rows in the store from which on the alarm is raised.
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
    /// Checks that the percentage is at most 100.
    ///
    /// # Errors
    /// SR-8434 if not.
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
    fn every_row_stays_when_both_limits_are_off() {
        let off = Audit {
            keep_days: 0,
            keep_rows: 0,
            ..Audit::default()
        };
        assert_eq!((off.keep_since(1000), off.excess_through(1000)), (0, 0));
        let some = Audit {
            keep_days: 1,
            keep_rows: 10,
            ..Audit::default()
        };
        assert_eq!(some.keep_since(DAY_S + 7), 7);
        assert_eq!((some.excess_through(12), some.excess_through(9)), (2, 0));
    }
}
