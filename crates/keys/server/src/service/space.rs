//! How much space the store has left, and alarms long before it is full: in a full store no row of
//! the audit log can be written, and so no key can be delivered.
//!
//! Must not: stop an operation.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use strongroom_format::code;
use strongroom_keyring::Error;

use super::space_info::SpaceInfo;
use super::state::Service;
use crate::config::Config;
use crate::config_audit::Alarms;
use crate::disk_space::free_bytes;
use crate::log::{Level, log};
use crate::now;
use crate::syslog::Syslog;

/// For how long a measurement may be returned again.
const CACHED: Duration = Duration::from_secs(10);
/// How often an alarm is logged while it is raised, in seconds.
const LOG_INTERVAL_S: u64 = 3600;
/// The longest wait for syslog before the process ends.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// The default quota of etcd, for a member that does not report its quota when none is configured.
const ETCD_QUOTA: u64 = 2 << 30;
const MIB: u64 = 1 << 20;

impl Service {
    /// Returns how much space there is and which alarms are raised, measured at most 10 seconds
    /// ago.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub fn space(&self, config: &Config) -> Result<SpaceInfo, Error> {
        let measured = &self.space.measured;
        let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, space)) = &*measured
            && at.elapsed() < CACHED
        {
            return Ok(space.clone());
        }
        let (space, _) = self.measure_space(config)?;
        *measured = Some((Instant::now(), space.clone()));
        Ok(space)
    }

    /// Measures the space, and returns it with the kinds of alarms that are raised. Errors are
    /// those of the store, such as SR-8435 when it does not answer.
    fn measure_space(&self, config: &Config) -> Result<(SpaceInfo, Vec<&'static str>), Error> {
        let store = self.store.space()?;
        let last = self.store.last_row()?.map_or(0, |(n, _)| n);
        let (cut, _) = self.audit_cut()?;
        let alarms = &config.alarms;
        let is_etcd = config.store.starts_with("etcd:");
        let limit = match (alarms.store_mib, store.limit_bytes) {
            (0, None) if is_etcd => Some(ETCD_QUOTA),
            (0, limit) => limit,
            (mib, _) => Some(mib.saturating_mul(MIB)),
        };
        let archive = config
            .audit
            .archive
            .as_deref()
            .map(|path| config.path(path));
        let mut space = SpaceInfo {
            audit_rows: last.saturating_sub(cut.through),
            audit_archived_through: cut.through,
            store_bytes: store.used_bytes,
            store_limit_bytes: limit,
            free_bytes: store.free_bytes,
            archive_free_bytes: archive.as_deref().and_then(free_bytes_near),
            syslog_lost: self.ledger.syslog().map_or(0, |syslog| syslog.lost()),
            alarms: Vec::new(),
        };
        let mut raised = raised_alarms(&space, alarms, archive.is_some());
        let error = &self.space.archive_error;
        if let Some(why) = &*error.lock().unwrap_or_else(PoisonError::into_inner) {
            raised.push((
                "archive",
                format!("the audit log could not be archived: {why}"),
            ));
        }
        let kinds = raised.iter().map(|(kind, _)| *kind).collect();
        space.alarms = raised.into_iter().map(|(_, text)| text).collect();
        Ok((space, kinds))
    }

    /// Measures the space, and writes alarms to the server's log: when one is raised, every hour
    /// while any lasts, and when all are over.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub fn watch_space(&self, config: &Config) -> Result<(), Error> {
        let (space, kinds) = self.measure_space(config)?;
        let measured = &self.space.measured;
        *measured.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), space.clone()));
        let logged = &self.space.logged;
        let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, at) = &*logged;
        if kinds.is_empty() {
            if !before.is_empty() {
                log(Level::Info, "room", &[("alarm", "over")]);
            }
            *logged = (kinds, 0);
            return Ok(());
        }
        let is_news = kinds.iter().any(|kind| !before.contains(kind));
        if !is_news && at.saturating_add(LOG_INTERVAL_S) > now() {
            return Ok(());
        }
        let what = code::SERVER_ROOM;
        let detail = space.alarms.join("; ");
        log(
            Level::Error,
            "room",
            &[
                ("code", &format!("SR-{}", what.number)),
                ("what", what.what),
                ("detail", &detail),
                ("todo", what.todo),
            ],
        );
        *logged = (kinds, now());
        Ok(())
    }

    /// Raises the alarm that archiving failed, or clears it for `None`.
    pub(super) fn set_archive_error(&self, error: Option<&Error>) {
        let archive_error = &self.space.archive_error;
        *archive_error.lock().unwrap_or_else(PoisonError::into_inner) =
            error.map(ToString::to_string);
    }

    /// Also sends rows of the audit log to syslog from now on, if the configuration names its
    /// socket, on a thread that this starts; otherwise stops sending them.
    ///
    /// # Errors
    /// SR-5001 when the thread cannot be started.
    pub fn set_syslog(&self, config: &Config) -> Result<(), Error> {
        let path = config.audit.syslog.as_deref();
        let syslog = path.map(|path| Syslog::start(&config.path(path)).map(Arc::new));
        self.ledger.set_syslog(syslog.transpose()?);
        Ok(())
    }

    /// Waits until syslog has every row, for at most two seconds. For the end of the process.
    pub fn flush_syslog(&self) {
        if let Some(syslog) = self.ledger.syslog() {
            syslog.flush(FLUSH_MAX);
        }
    }
}

/// Returns the alarms that are raised by these measurements: the kind of each, and its text for an
/// operator. Free space has to be below its threshold, the store and the rows at or above theirs. A
/// threshold of 0 switches an alarm off.
fn raised_alarms(
    space: &SpaceInfo,
    alarms: &Alarms,
    is_archived: bool,
) -> Vec<(&'static str, String)> {
    let mut raised = Vec::new();
    let least = alarms.free_mib.saturating_mul(MIB);
    let file_systems = [
        ("free", "the store's file system", space.free_bytes),
        (
            "archive-free",
            "the archives' file system",
            space.archive_free_bytes,
        ),
    ];
    for (kind, name, free) in file_systems {
        if let Some(free) = free.filter(|free| *free < least) {
            let text = format!(
                "{name} has {} MiB free, fewer than {}",
                free / MIB,
                alarms.free_mib
            );
            raised.push((kind, text));
        }
    }
    if let Some(limit) = space.store_limit_bytes.filter(|_| alarms.store_percent > 0) {
        let percent = u64::from(alarms.store_percent);
        if space.store_bytes >= limit / 100 * percent {
            let text = format!(
                "the store has {} of {} MiB, more than {percent} percent",
                space.store_bytes / MIB,
                limit / MIB
            );
            raised.push(("store", text));
        }
    }
    if alarms.audit_rows > 0 && space.audit_rows >= alarms.audit_rows {
        let todo = match is_archived {
            true => "",
            false => "; no archive is configured",
        };
        let text = format!(
            "the audit log has {} rows in the store{todo}",
            space.audit_rows
        );
        raised.push(("rows", text));
    }
    raised
}

/// Returns the free bytes of a directory's file system, also when only its parent exists. `None` if
/// neither can be examined.
fn free_bytes_near(path: &Path) -> Option<u64> {
    free_bytes(path)
        .or_else(|_| free_bytes(path.parent().unwrap_or(path)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_raised_before_the_store_is_full() {
        let alarms = Alarms::default();
        let fine = SpaceInfo {
            audit_rows: 4_999_999,
            store_bytes: 1433 * MIB,
            store_limit_bytes: Some(2048 * MIB),
            free_bytes: Some(1024 * MIB),
            archive_free_bytes: None,
            ..SpaceInfo::default()
        };
        assert_eq!(raised_alarms(&fine, &alarms, true), []);
        let kinds = |space: &SpaceInfo, alarms: &Alarms| -> Vec<&str> {
            raised_alarms(space, alarms, false)
                .into_iter()
                .map(|(kind, _)| kind)
                .collect()
        };
        let all = SpaceInfo {
            audit_rows: 5_000_000,
            store_bytes: 1434 * MIB,
            free_bytes: Some(1024 * MIB - 1),
            archive_free_bytes: Some(0),
            ..fine
        };
        assert_eq!(
            kinds(&all, &alarms),
            ["free", "archive-free", "store", "rows"]
        );
        let off = Alarms {
            free_mib: 0,
            store_mib: 0,
            store_percent: 0,
            audit_rows: 0,
        };
        assert!(kinds(&all, &off).is_empty());
    }
}
