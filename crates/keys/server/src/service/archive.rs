//! Moving rows of the audit log from the store into archives: which rows, and the order of writes.
//!
//! Order: First, the archive is durable under its name. Second, a commit with a row of its own
//! records the archive. Third, the rows are removed in batches. A server that was killed after the
//! first step finds the archive and continues with it; after the second step, it removes the rows
//! in its next run.
//!
//! Invariants:
//! - AR3: A row is removed only when a durable commit names an archive that holds it.
//! - AR4: The rows that stay in the store contain the row that names the last archive. The hash
//!   chain itself therefore says where the store's part of the log begins.
//! - AR5: After the first archive, archives are written only into the directory that holds the last
//!   archive or the file [`MARK`]. A file system that is not mounted, or a directory that was
//!   removed, raises an alarm; it is not replaced by a new directory.
//!
//! Must not: remove or replace an archive.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde::Serialize;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, durable};

use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::archive::{self, ArchiveHeader};
use crate::audit::{Chain, Event, Row};
use crate::config::Config;
use crate::config_audit::Audit;
use crate::ledger::open_row;
use crate::now;
use crate::paths::{AUDIT_CUT, AUTHORITY};
use crate::records::{AuditCut, Authority, Role};
use crate::store::Guard;

/// The most rows of one archive. They are in memory while it is written.
const ROWS_MAX: usize = 50_000;
/// Rows that are read from the store at once.
const PAGE: usize = 2000;
/// Rows that are removed from the store at once.
const REMOVAL_BATCH: u64 = 5000;
/// The most archives that one call makes.
const ARCHIVES_MAX: usize = 20;
/// The server archives rows by itself when the oldest row is overdue by so many seconds, so that it
/// makes one archive a day and not one a minute.
const OVERDUE_S: u64 = 86_400;

/// An empty file in the directory of archives, by which the server recognizes the directory.
const MARK: &str = ".strongroom-archives";

/// An archive that was written, or was found complete after an interrupted run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Archived {
    /// Its name, without a directory.
    pub file: String,
    /// Number of its first row.
    pub first: u64,
    /// Number of its last row.
    pub last: u64,
    /// The hash of its last row.
    pub head: String,
}

/// The rows for one archive.
struct DueRows {
    /// Guard on the record of the last archive.
    guard: Guard,
    /// The hash of the row before the first one.
    before: String,
    rows: Vec<Row>,
}

impl Service {
    /// Archives all rows that are older than the configuration keeps, or exceed the rows that it
    /// keeps, on request of an administrator: writes archives, records each with a row of its own,
    /// and removes the rows from the store. Returns the archives; none when no row is due.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8456 when no directory is configured, it
    /// cannot be used, or a file in it is in the way; SR-8436 when the hash chain is broken;
    /// SR-8442 when another server archives at the same time; as for every request SR-8420 without
    /// a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails.
    pub fn archive(&self, peer: &Peer, config: &Config) -> Result<Vec<Archived>, Error> {
        let event = self.run(peer, "archive", "", |client| {
            client.must_be(&[Role::Admin])?;
            Ok(Plan::read(client.event("archive", "")))
        })?;
        self.archive_all(config, &event, false)
    }

    /// Archives rows without a request, when enough of them are due, and returns the archives. A
    /// failure raises an alarm until the next call succeeds. Without a configured directory, only
    /// rows that are archived already are removed.
    ///
    /// # Errors
    /// As [`Service::archive`], without those of the client. Another server that archives at the
    /// same time is no error.
    pub fn archive_when_due(&self, config: &Config) -> Result<Vec<Archived>, Error> {
        let archived = self.archive_due(config);
        self.set_archive_error(archived.as_ref().err());
        archived
    }

    /// Archives rows without a request if they are overdue, and returns the archives. Without a
    /// configured directory, only removes rows that are archived already. Another server that
    /// archives at the same time is no error. SR-8456 for the directory or a file; SR-8436 for a
    /// broken chain; what the store reports.
    fn archive_due(&self, config: &Config) -> Result<Vec<Archived>, Error> {
        if config.audit.archive.is_none() {
            self.remove_archived()?;
            return Ok(Vec::new());
        }
        let by = Event {
            actor: "-".to_owned(),
            address: "-".to_owned(),
            action: "archive".to_owned(),
            ..Event::default()
        };
        match self.archive_all(config, &by, true) {
            // Another server on the same store archived the rows.
            Err(error) if error.code() == &code::SERVER_BUSY => Ok(Vec::new()),
            other => other,
        }
    }

    /// Archives the rows that are due, in one or several archives, at most [`ARCHIVES_MAX`] in one
    /// call, and removes them from the store; one call at a time. `event`: the row that records
    /// each archive. With `when_overdue`, does so only if the rows are overdue. Errors as
    /// [`Service::archive`].
    fn archive_all(
        &self,
        config: &Config,
        event: &Event,
        when_overdue: bool,
    ) -> Result<Vec<Archived>, Error> {
        // One run at a time in this process. Of two servers on one store, one gets a conflict.
        let _lock = self
            .archiving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let directory = self.archive_directory(config)?;
        let mut made = Vec::new();
        self.remove_archived()?;
        while made.len() < ARCHIVES_MAX {
            // Only the first archive of a run depends on whether rows are overdue.
            let only_overdue = when_overdue && made.is_empty();
            let Some(due) = self.due_rows(&config.audit, only_overdue)? else {
                break;
            };
            let archived = self.write_or_adopt(&directory, config, &due)?;
            // The row that records this archive may exceed the limit by one row, which is not worth
            // another archive.
            let is_done = due.rows.len() < ROWS_MAX
                && due.rows.last().is_none_or(|row| row.n <= archived.last);
            self.record_archive(due.guard, &archived, event)?;
            self.remove_archived()?;
            made.push(archived);
            if is_done {
                break;
            }
        }
        Ok(made)
    }

    /// Returns the configured directory, if archives may be written there (AR5). Creates it if
    /// there was no archive before and its parent exists, and creates the file [`MARK`] in it where
    /// that is missing. SR-8456 if no directory is configured, it cannot be used, or it is not the
    /// one that holds the archives.
    fn archive_directory(&self, config: &Config) -> Result<PathBuf, Error> {
        let none = || {
            let detail = "no directory is configured: [audit] archive in server.toml";
            Error::new(&code::SERVER_ARCHIVE, detail)
        };
        let path = config.path(config.audit.archive.as_deref().ok_or_else(none)?);
        let (cut, _) = self.audit_cut()?;
        let is_first = cut.through == 0;
        if is_first {
            let created = std::fs::DirBuilder::new().mode(0o700).create(&path);
            match created {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(unusable(&path, &error));
                }
                _ => {}
            }
        }
        check_directory(&path)?;
        let mark = path.join(MARK);
        if mark.exists() {
            return Ok(path);
        }
        // An older version of the server did not write the mark.
        if is_first || path.join(&cut.file).exists() {
            return match durable::create_new(&mark, b"", 0o600) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    Err(unusable(&mark, &error))
                }
                _ => Ok(path),
            };
        }
        let detail = format!(
            "{} is not the directory that archives were written to: neither the last one, {}, nor \
             {MARK} is there; mount its file system, or, if archives are to go there from now on, \
             create the empty file {MARK} in it",
            path.display(),
            cut.file
        );
        Err(Error::new(&code::SERVER_ARCHIVE, detail))
    }

    /// Reads and verifies the rows that are due, from the first row in the store on, at most
    /// [`ROWS_MAX`]. `None` if there are none; with `only_overdue`, also unless they are overdue.
    /// The last row of the log is never due. SR-8436 when a row does not open or the hash chain is
    /// broken.
    fn due_rows(&self, audit: &Audit, only_overdue: bool) -> Result<Option<DueRows>, Error> {
        let (cut, guard) = self.audit_cut()?;
        let Some((last, _)) = self.store.last_row()? else {
            return Ok(None);
        };
        let excess_through = audit.excess_through(last);
        let keep_since = audit.keep_since(now());
        if only_overdue && !self.is_overdue(audit, &cut, excess_through, keep_since)? {
            return Ok(None);
        }
        let mut chain = Chain::after(cut.through, &cut.head);
        let mut rows: Vec<Row> = Vec::new();
        'pages: loop {
            let (from, _) = chain.last();
            let page = self.store.rows(from, PAGE)?;
            for (n, sealed) in &page {
                let row = open_row(&self.keys, *n, sealed)?;
                chain.verify(&row)?;
                let is_due = row.n <= excess_through || row.time < keep_since;
                // The last row of the log stays in the store.
                if !is_due || row.n >= last || rows.len() >= ROWS_MAX {
                    break 'pages;
                }
                rows.push(row);
            }
            if page.is_empty() {
                break;
            }
        }
        let before = cut.head;
        Ok((!rows.is_empty()).then_some(DueRows {
            guard,
            before,
            rows,
        }))
    }

    /// Whether there are a tenth more rows than the store keeps, or the first one should have been
    /// archived more than a day ago. SR-8436 when that row does not open; what the store reports.
    fn is_overdue(
        &self,
        audit: &Audit,
        cut: &AuditCut,
        excess_through: u64,
        keep_since: u64,
    ) -> Result<bool, Error> {
        if excess_through > cut.through.saturating_add(audit.keep_rows / 10) {
            return Ok(true);
        }
        let first = self.store.rows(cut.through, 1)?;
        let Some((n, sealed)) = first.first() else {
            return Ok(false);
        };
        let row = open_row(&self.keys, *n, sealed)?;
        Ok(row.time.saturating_add(OVERDUE_S) < keep_since)
    }

    /// Writes a signed archive of the rows, durably, or adopts the one that an interrupted run left
    /// in the directory. SR-8456 if the file cannot be written, or another file is in the way.
    fn write_or_adopt(
        &self,
        directory: &Path,
        config: &Config,
        due: &DueRows,
    ) -> Result<Archived, Error> {
        let bug = || Error::new(&code::BUG, "rows that are due");
        let first = due.rows.first().ok_or_else(bug)?.n;
        if let Some(path) = find_archive(directory, first)? {
            return self.adopt(&path, config, due);
        }
        let last = due.rows.last().ok_or_else(bug)?.n;
        let (authority, _) = self.read::<Authority>(AUTHORITY)?.require("authority")?;
        let id = config.server_id()?;
        let (bytes, head) = archive::encode(&id, &authority, &due.before, &due.rows, now())?;
        let file = archive::file_name(first, last);
        let path = directory.join(&file);
        durable::create_new(&path, &bytes, 0o600).map_err(|error| unusable(&path, &error))?;
        Ok(Archived {
            file,
            first,
            last,
            head,
        })
    }

    /// Adopts an archive that remains from an interrupted run: verifies it, compares it with the
    /// rows in the store, and syncs it. SR-8456 if it is not valid, belongs to another log or has
    /// other rows.
    fn adopt(&self, path: &Path, config: &Config, due: &DueRows) -> Result<Archived, Error> {
        let in_the_way = |why: &str| {
            let detail = format!("{} is in the way: {why}", path.display());
            Error::new(&code::SERVER_ARCHIVE, detail)
        };
        let header: ArchiveHeader = archive::verify_file(path, self.authority().as_bytes())
            .map_err(|error| in_the_way(error.detail()))?;
        if header.server_id != hex(&config.server_id()?) || header.before != due.before {
            return Err(in_the_way("it belongs to another log"));
        }
        let rows = self.store.rows(header.last.saturating_sub(1), 2)?;
        // The last row of the archive, and the row after it, since the last row of the log is never
        // archived.
        let [(n, sealed), _] = rows.as_slice() else {
            return Err(in_the_way("it holds rows that the store does not have"));
        };
        if *n != header.last || open_row(&self.keys, *n, sealed)?.hash != header.head {
            return Err(in_the_way("the store has other rows"));
        }
        // The interrupted run may not have synced the file and its directory entry.
        File::open(path)
            .and_then(|file| file.sync_all())
            .and_then(|()| durable::sync_dir_of(path))
            .map_err(|error| unusable(path, &error))?;
        let file = path.file_name().unwrap_or_default();
        Ok(Archived {
            file: file.to_string_lossy().into_owned(),
            first: header.first,
            last: header.last,
            head: header.head,
        })
    }

    /// Records an archive in the store, with a row of the audit log (AR4), in one commit. SR-8442
    /// when another server has archived rows in the meantime.
    fn record_archive(
        &self,
        guard: Guard,
        archived: &Archived,
        event: &Event,
    ) -> Result<(), Error> {
        let cut = AuditCut {
            through: archived.last,
            head: archived.head.clone(),
            file: archived.file.clone(),
            at: now(),
        };
        let event = Event {
            subject: archived.file.clone(),
            detail: archive_row_detail(&archived.head, archived.last),
            ..event.clone()
        };
        let changes = vec![self.put(AUDIT_CUT, &cut)?];
        match self.commit(vec![guard], changes, vec![event])? {
            true => Ok(()),
            false => Err(Error::new(&code::SERVER_BUSY, "the audit log's archive")),
        }
    }

    /// Removes from the store the rows that are recorded as archived (AR3), in batches, and then
    /// has the store erase them. Does nothing when there are none. Errors are those of the store,
    /// such as SR-8435 when it does not answer.
    fn remove_archived(&self) -> Result<(), Error> {
        let (cut, _) = self.audit_cut()?;
        if cut.through == 0 {
            return Ok(());
        }
        let mut removed = false;
        while self.store.forget_rows(cut.through, REMOVAL_BATCH)? > 0 {
            removed = true;
        }
        match removed {
            // In etcd, the rows take space until its history is compacted.
            true => self.store.scrub(),
            false => Ok(()),
        }
    }
}

/// Returns the detail of the row that names an archive. `audit --verify` searches for it.
#[must_use]
pub fn archive_row_detail(head: &str, last: u64) -> String {
    format!("through {last} head {head}")
}

/// Checks that a path is a directory of the server's user or of root to which nobody else may
/// write: others could create files with the names of archives. SR-8456 if not, or if it is
/// missing.
fn check_directory(path: &Path) -> Result<(), Error> {
    let about = std::fs::metadata(path).map_err(|error| {
        let detail = match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "{} is missing, and archives were written to it: mount its file system, or, if \
                 archives are to begin anew there, make the directory and the empty file {MARK} in it",
                path.display()
            ),
            _ => format!("{}: {error}", path.display()),
        };
        Error::new(&code::SERVER_ARCHIVE, detail)
    })?;
    let user = rustix::process::geteuid().as_raw();
    if !about.is_dir() || about.mode() & 0o022 != 0 || ![0, user].contains(&about.uid()) {
        let detail = format!(
            "{}: it has to be a directory of the server's user in which nobody else may write",
            path.display()
        );
        return Err(Error::new(&code::SERVER_ARCHIVE, detail));
    }
    Ok(())
}

/// Returns the path of the archive in the directory that begins with this row, by its name; `None`
/// if there is none. SR-8456 if the directory cannot be read.
fn find_archive(directory: &Path, first: u64) -> Result<Option<PathBuf>, Error> {
    let prefix = archive::file_name_prefix(first);
    let failed = |error| unusable(directory, &error);
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.to_string_lossy().starts_with(&prefix) {
            return Ok(Some(directory.join(name)));
        }
    }
    Ok(None)
}

/// Makes the error for a file or directory of archives that cannot be used (SR-8456).
fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        &code::SERVER_ARCHIVE,
        format!("{}: {error}", path.display()),
    )
}
