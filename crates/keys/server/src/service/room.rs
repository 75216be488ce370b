//! How much room the store has left, and the alarm long before there is none: without room no row
//! of the audit log can be written, and so no key is delivered.
//!
//! Must not: stop anything by itself.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::Service;
use crate::config::Config;
use crate::config_audit::Alarms;
use crate::log::{Level, log};
use crate::now;
use crate::store::free;
use crate::syslog::Syslog;

/// For how long an answer is kept.
const KEPT: Duration = Duration::from_secs(10);
/// How often an alarm is told in the log while it lasts.
const TOLD_EVERY_S: u64 = 3600;
/// Longest wait for syslog when a command ends.
const SETTLE: Duration = Duration::from_secs(2);
/// The quota of an etcd that does not say it and for which none is configured: etcd's default.
const ETCD_QUOTA: u64 = 2 << 30;
const MIB: u64 = 1 << 20;

/// How much room there is, and what is wrong with it. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoomInfo {
    /// Rows of the audit log that are in the store.
    pub audit_rows: u64,
    /// Number of the last row that is in an archive and no longer in the store; 0 when none is.
    pub audit_archived_through: u64,
    /// What the store uses.
    pub store_bytes: u64,
    /// To what size it may grow, where that is limited.
    pub store_limit_bytes: Option<u64>,
    /// What is free on the store's file system, where that is the server's.
    pub free_bytes: Option<u64>,
    /// What is free where the archives are.
    pub archive_free_bytes: Option<u64>,
    /// Rows that syslog did not get since the server's start.
    pub syslog_lost: u64,
    /// What an operator has to do something about, in words; empty when all is well.
    pub alarms: Vec<String>,
}

/// What was looked at last, and what was told.
#[derive(Default)]
pub(super) struct KeptRoom {
    looked: Mutex<Option<(Instant, RoomInfo)>>,
    told: Mutex<(Vec<&'static str>, u64)>,
    archive_failed: Mutex<Option<String>>,
}

impl Service {
    /// How much room there is, looked at within the last seconds.
    ///
    /// # Errors
    /// What the store reports.
    pub fn room(&self, config: &Config) -> Result<RoomInfo, Error> {
        let kept = &self.room.looked;
        let mut looked = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, room)) = &*looked
            && at.elapsed() < KEPT
        {
            return Ok(room.clone());
        }
        let (room, _) = self.look(config)?;
        *looked = Some((Instant::now(), room.clone()));
        Ok(room)
    }

    fn look(&self, config: &Config) -> Result<(RoomInfo, Vec<&'static str>), Error> {
        let store = self.store.room()?;
        let last = self.store.last_row()?.map_or(0, |(n, _)| n);
        let (cut, _) = self.audit_cut()?;
        let alarms = &config.alarms;
        let is_etcd = config.store.starts_with("etcd:");
        let limit = match (alarms.store_mib, store.limit) {
            (0, None) if is_etcd => Some(ETCD_QUOTA),
            (0, limit) => limit,
            (mib, _) => Some(mib.saturating_mul(MIB)),
        };
        let archive = config
            .audit
            .archive
            .as_deref()
            .map(|path| config.path(path));
        let mut room = RoomInfo {
            audit_rows: last.saturating_sub(cut.through),
            audit_archived_through: cut.through,
            store_bytes: store.used,
            store_limit_bytes: limit,
            free_bytes: store.free,
            archive_free_bytes: archive.as_deref().and_then(free_there),
            syslog_lost: self.ledger.syslog().map_or(0, |syslog| syslog.lost()),
            alarms: Vec::new(),
        };
        let mut found = found(&room, alarms, archive.is_some());
        let failed = &self.room.archive_failed;
        if let Some(why) = &*failed.lock().unwrap_or_else(PoisonError::into_inner) {
            found.push((
                "archive",
                format!("the audit log could not be archived: {why}"),
            ));
        }
        let kinds = found.iter().map(|(kind, _)| *kind).collect();
        room.alarms = found.into_iter().map(|(_, words)| words).collect();
        Ok((room, kinds))
    }

    /// Looks after the store's room and tells the log when an alarm is raised, while it lasts, and
    /// when it is over.
    ///
    /// # Errors
    /// What the store reports.
    pub fn watch_room(&self, config: &Config) -> Result<(), Error> {
        let (room, kinds) = self.look(config)?;
        let looked = &self.room.looked;
        *looked.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), room.clone()));
        let told = &self.room.told;
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, at) = &*told;
        if kinds.is_empty() {
            if !before.is_empty() {
                log(Level::Info, "room", &[("alarm", "over")]);
            }
            *told = (kinds, 0);
            return Ok(());
        }
        let is_news = kinds.iter().any(|kind| !before.contains(kind));
        if !is_news && at.saturating_add(TOLD_EVERY_S) > now() {
            return Ok(());
        }
        let what = code::SERVER_ROOM;
        let detail = room.alarms.join("; ");
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
        *told = (kinds, now());
        Ok(())
    }

    /// Keeps in mind how the last run of the archive ended.
    pub(super) fn archive_ended(&self, failed: Option<&Error>) {
        let kept = &self.room.archive_failed;
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = failed.map(ToString::to_string);
    }

    /// Sends rows to syslog too from now on, if the configuration says where.
    ///
    /// # Errors
    /// SR-5001.
    pub fn set_syslog(&self, config: &Config) -> Result<(), Error> {
        let path = config.audit.syslog.as_deref();
        let syslog = path.map(|path| Syslog::start(&config.path(path)).map(Arc::new));
        self.ledger.set_syslog(syslog.transpose()?);
        Ok(())
    }

    /// Waits a moment until syslog has every row, before the process ends.
    pub fn settle_syslog(&self) {
        if let Some(syslog) = self.ledger.syslog() {
            syslog.settle(SETTLE);
        }
    }
}

/// What is wrong: a word that tells one from another, and words for people.
fn found(room: &RoomInfo, alarms: &Alarms, is_archived: bool) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let least = alarms.free_mib.saturating_mul(MIB);
    let places = [
        ("free", "the store's file system", room.free_bytes),
        (
            "archive-free",
            "the archives' file system",
            room.archive_free_bytes,
        ),
    ];
    for (kind, place, free) in places {
        if let Some(free) = free.filter(|free| *free < least) {
            let words = format!(
                "{place} has {} MiB free, fewer than {}",
                free / MIB,
                alarms.free_mib
            );
            found.push((kind, words));
        }
    }
    if let Some(limit) = room.store_limit_bytes.filter(|_| alarms.store_percent > 0) {
        let percent = u64::from(alarms.store_percent);
        if room.store_bytes >= limit / 100 * percent {
            let words = format!(
                "the store has {} of {} MiB, more than {percent} percent",
                room.store_bytes / MIB,
                limit / MIB
            );
            found.push(("store", words));
        }
    }
    if alarms.audit_rows > 0 && room.audit_rows >= alarms.audit_rows {
        let todo = match is_archived {
            true => "",
            false => "; no archive is configured",
        };
        let words = format!(
            "the audit log has {} rows in the store{todo}",
            room.audit_rows
        );
        found.push(("rows", words));
    }
    found
}

/// What is free at a directory that may not be there yet.
fn free_there(path: &Path) -> Option<u64> {
    free(path)
        .or_else(|_| free(path.parent().unwrap_or(path)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_raised_before_there_is_no_room() {
        let alarms = Alarms::default();
        let fine = RoomInfo {
            audit_rows: 4_999_999,
            store_bytes: 1433 * MIB,
            store_limit_bytes: Some(2048 * MIB),
            free_bytes: Some(1024 * MIB),
            archive_free_bytes: None,
            ..RoomInfo::default()
        };
        assert_eq!(found(&fine, &alarms, true), []);
        let kinds = |room: &RoomInfo, alarms: &Alarms| -> Vec<&str> {
            found(room, alarms, false)
                .into_iter()
                .map(|(kind, _)| kind)
                .collect()
        };
        let all = RoomInfo {
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
