//! Rows of the audit log go from the store into archives: which ones, in which order of writes.
//!
//! Order: the archive is durable under its name; then one commit says so, with a row of its own;
//! then the rows are removed, some at a time. Who is killed after the first write finds the archive
//! again and goes on with it, and after the second one removes the rows at the next run.
//!
//! Invariants: AR3, a row is removed only when a commit names an archive that holds it and is
//! durable; AR4, the rows that stay contain the row that names the last archive, so that the chain
//! itself says where the store's part of it begins; AR5, once there was an archive, further ones are
//! only written into the directory that has the last one or the file [`MARK`]: a file system that is
//! not mounted, or a directory that was removed, is an alarm, and not a new directory in its place.
//!
//! Must not: remove or replace an archive, whoever made it.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde::Serialize;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, durable};

use super::{Client, Peer, Service};
use crate::archive::{self, Head};
use crate::audit::{Chain, Event, GENESIS, Row};
use crate::config::Config;
use crate::config_audit::Audit;
use crate::ledger::opened;
use crate::now;
use crate::records::{AUDIT_CUT, AUTHORITY, AuditCut, Authority, Found, Role};
use crate::store::Guard;

/// Most rows of one archive: they are in memory while it is written.
const ROWS_MAX: usize = 50_000;
/// Rows that are read at once.
const AT_ONCE: usize = 2000;
/// Rows that are removed at once.
const REMOVED_AT_ONCE: u64 = 5000;
/// Most archives that one call makes.
const ARCHIVES_MAX: usize = 20;
/// Of its own accord the server archives rows when the oldest is late by so much, in seconds, so
/// that there is an archive a day and not one a minute.
const LATE_S: u64 = 86_400;

/// An empty file that the server makes in its directory of archives, and knows the directory by.
const MARK: &str = ".strongroom-archives";

/// An archive that was made, or that was found and taken.
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

/// Rows that go into one archive, and where the store's part of the log began before.
struct Due {
    guard: Guard,
    before: String,
    rows: Vec<Row>,
}

impl Service {
    /// Archives all rows that are older than the configuration keeps, because an administrator says
    /// so.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8456 when no directory is configured, or what is in it is
    /// in the way; SR-8436 when the rows are not whole; what the store reports.
    pub fn archive(&self, peer: &Peer, config: &Config) -> Result<Vec<Archived>, Error> {
        let client = self.run(peer, "archive", "", |client: &Client| {
            client.must_be(&[Role::Admin])?;
            Ok(super::Plan::read(client.event("archive", "")))
        })?;
        self.archive_all(config, &client, false)
    }

    /// Archives rows of the server's own accord, when enough are due. An alarm tells how this
    /// ended until the next time.
    ///
    /// # Errors
    /// As [`Service::archive`].
    pub fn archive_when_due(&self, config: &Config) -> Result<Vec<Archived>, Error> {
        let archived = self.archive_due(config);
        self.archive_ended(archived.as_ref().err());
        archived
    }

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
            // Another server on the store archived the same rows.
            Err(error) if error.code() == &code::SERVER_BUSY => Ok(Vec::new()),
            other => other,
        }
    }

    fn archive_all(
        &self,
        config: &Config,
        by: &Event,
        when_late: bool,
    ) -> Result<Vec<Archived>, Error> {
        // One at a time in this process. Of two servers on one store one is told to begin anew.
        let _alone = self
            .archiving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let directory = self.directory(config)?;
        let mut made = Vec::new();
        self.remove_archived()?;
        while made.len() < ARCHIVES_MAX {
            // The first archive of a run decides whether it is time; the others go on with it.
            let is_asked = !when_late || !made.is_empty();
            let Some(due) = self.due(&config.audit, is_asked)? else {
                break;
            };
            let archived = self.kept_in(&directory, config, &due)?;
            // The row that says so makes one too many again, which is not worth another archive.
            let is_done = due.rows.len() < ROWS_MAX
                && due.rows.last().is_none_or(|row| row.n <= archived.last);
            self.cut(due.guard, &archived, by)?;
            self.remove_archived()?;
            made.push(archived);
            if is_done {
                break;
            }
        }
        Ok(made)
    }

    /// The configured directory, if archives may go there. It is made when only its own name is
    /// missing and there was no archive before.
    fn directory(&self, config: &Config) -> Result<PathBuf, Error> {
        let none = || {
            let detail = "no directory is configured: [audit] archive in server.toml";
            Error::new(&code::SERVER_ARCHIVE, detail)
        };
        let path = config.path(config.audit.archive.as_deref().ok_or_else(none)?);
        let (cut, _) = self.audit_cut()?;
        let is_first = cut.through == 0;
        if is_first {
            let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
            match made {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(unusable(&path, &error));
                }
                _ => {}
            }
        }
        must_be_ours_alone(&path)?;
        let mark = path.join(MARK);
        if mark.exists() {
            return Ok(path);
        }
        // One that an older version of the server wrote has the last archive and no mark.
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

    /// Where the store's part of the log begins.
    pub(super) fn audit_cut(&self) -> Result<(AuditCut, Guard), Error> {
        let found: Found<AuditCut> = self.read(AUDIT_CUT)?;
        let cut = found.record.unwrap_or_else(|| AuditCut {
            head: GENESIS.to_owned(),
            ..AuditCut::default()
        });
        Ok((cut, found.guard))
    }

    /// The rows that are due, from the first one in the store on; none when it is not worth an
    /// archive.
    fn due(&self, audit: &Audit, is_asked: bool) -> Result<Option<Due>, Error> {
        let (cut, guard) = self.audit_cut()?;
        let Some((last, _)) = self.store.last_row()? else {
            return Ok(None);
        };
        let too_many = audit.too_many_through(last);
        let young = audit.young_since(now());
        if !is_asked && !self.is_time(audit, &cut, too_many, young)? {
            return Ok(None);
        }
        let mut chain = Chain::after(cut.through, &cut.head);
        let mut rows: Vec<Row> = Vec::new();
        'pages: loop {
            let (from, _) = chain.head();
            let page = self.store.rows(from, AT_ONCE)?;
            for (n, sealed) in &page {
                let row = opened(&self.keys, *n, sealed)?;
                chain.take(&row)?;
                let is_due = row.n <= too_many || row.time < young;
                // The last row says where the log has come to.
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
        Ok((!rows.is_empty()).then_some(Due {
            guard,
            before,
            rows,
        }))
    }

    /// Whether there are a tenth more rows than stay, or the first one is late.
    fn is_time(
        &self,
        audit: &Audit,
        cut: &AuditCut,
        too_many: u64,
        young: u64,
    ) -> Result<bool, Error> {
        if too_many > cut.through.saturating_add(audit.keep_rows / 10) {
            return Ok(true);
        }
        let first = self.store.rows(cut.through, 1)?;
        let Some((n, sealed)) = first.first() else {
            return Ok(false);
        };
        let row = opened(&self.keys, *n, sealed)?;
        Ok(row.time.saturating_add(LATE_S) < young)
    }

    /// An archive that is durable in the directory: a new one, or the one that a run left there
    /// which was killed before it could say so.
    fn kept_in(&self, directory: &Path, config: &Config, due: &Due) -> Result<Archived, Error> {
        let bug = || Error::new(&code::BUG, "rows that are due");
        let first = due.rows.first().ok_or_else(bug)?.n;
        if let Some(path) = left_there(directory, first)? {
            return self.taken(&path, config, due);
        }
        let last = due.rows.last().ok_or_else(bug)?.n;
        let (authority, _) = self.read::<Authority>(AUTHORITY)?.there("authority")?;
        let id = config.server_id()?;
        let (bytes, head) = archive::written(&id, &authority, &due.before, &due.rows, now())?;
        let file = archive::name(first, last);
        let path = directory.join(&file);
        durable::create_new(&path, &bytes, 0o600).map_err(|error| unusable(&path, &error))?;
        Ok(Archived {
            file,
            first,
            last,
            head,
        })
    }

    /// An archive that is there and fits: what it says must be what the store says.
    fn taken(&self, path: &Path, config: &Config, due: &Due) -> Result<Archived, Error> {
        let in_the_way = |why: &str| {
            let detail = format!("{} is in the way: {why}", path.display());
            Error::new(&code::SERVER_ARCHIVE, detail)
        };
        let head: Head = archive::checked(path, self.authority().as_bytes())
            .map_err(|error| in_the_way(error.detail()))?;
        if head.server_id != hex(&config.server_id()?) || head.before != due.before {
            return Err(in_the_way("it belongs to another log"));
        }
        let ours = self.store.rows(head.last.saturating_sub(1), 2)?;
        // The row itself, and one after it: the last row stays.
        let [(n, sealed), _] = ours.as_slice() else {
            return Err(in_the_way("it holds rows that the store does not have"));
        };
        if *n != head.last || opened(&self.keys, *n, sealed)?.hash != head.head {
            return Err(in_the_way("the store has other rows"));
        }
        // Its name may not have reached the disk before the kill.
        File::open(path)
            .and_then(|file| file.sync_all())
            .and_then(|()| durable::sync_dir_of(path))
            .map_err(|error| unusable(path, &error))?;
        let file = path.file_name().unwrap_or_default();
        Ok(Archived {
            file: file.to_string_lossy().into_owned(),
            first: head.first,
            last: head.last,
            head: head.head,
        })
    }

    /// Says in the store, and in the log, that the log goes on after an archive.
    fn cut(&self, guard: Guard, archived: &Archived, by: &Event) -> Result<(), Error> {
        let cut = AuditCut {
            through: archived.last,
            head: archived.head.clone(),
            file: archived.file.clone(),
            at: now(),
        };
        let event = Event {
            subject: archived.file.clone(),
            detail: naming(&archived.head, archived.last),
            ..by.clone()
        };
        let changes = vec![self.put(AUDIT_CUT, &cut)?];
        match self.commit(None, vec![guard], changes, vec![event])? {
            true => Ok(()),
            false => Err(Error::new(&code::SERVER_BUSY, "the audit log's archive")),
        }
    }

    /// Removes the rows that a commit says are archived.
    fn remove_archived(&self) -> Result<(), Error> {
        let (cut, _) = self.audit_cut()?;
        if cut.through == 0 {
            return Ok(());
        }
        let mut removed = false;
        while self.store.forget_rows(cut.through, REMOVED_AT_ONCE)? > 0 {
            removed = true;
        }
        match removed {
            // In etcd they take room until its history is dropped.
            true => self.store.scrub(),
            false => Ok(()),
        }
    }
}

/// The detail of the row that names an archive; `audit --verify` looks for it.
#[must_use]
pub fn naming(head: &str, last: u64) -> String {
    format!("through {last} head {head}")
}

/// Whoever may write there could put a file in the way of each archive.
fn must_be_ours_alone(path: &Path) -> Result<(), Error> {
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

/// The archive that begins with this row, if there is one.
fn left_there(directory: &Path, first: u64) -> Result<Option<PathBuf>, Error> {
    let begin = archive::begin_of_name(first);
    let failed = |error| unusable(directory, &error);
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.to_string_lossy().starts_with(&begin) {
            return Ok(Some(directory.join(name)));
        }
    }
    Ok(None)
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        &code::SERVER_ARCHIVE,
        format!("{}: {error}", path.display()),
    )
}
