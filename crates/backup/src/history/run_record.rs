//! One run of a verb of `strongroom backup`: a row of the catalogue.
//!
//! Must not: hold a text of the command line that may contain a secret.

use serde::Serialize;
use strongroom_format::code::Code;

use crate::clock::now_unix_s;
use crate::{ListedSet, Store, listed, opener_names};

/// The outcome of a successful run.
pub(super) const DONE: &str = "done";

/// The operation of a `verify` that also restores the set and starts a server on it.
pub(super) const RESTORE_TEST: &str = "restore-test";

/// One run: a row of the catalogue.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct RunRecord {
    /// The verb, `scan`, or `restore-test`.
    pub operation: String,
    /// `done`, or the code of the error.
    pub outcome: String,
    /// Seconds since the Unix epoch.
    pub begun_unix_s: u64,
    /// Seconds since the Unix epoch.
    pub ended_unix_s: u64,
    /// The medium, absolute.
    pub medium: String,
    /// What was backed up.
    pub source: String,
    /// The target of a restore, what was removed, or the error's detail.
    pub detail: String,
    /// The set that the run made or used; null if the run failed before.
    pub set: Option<SetFacts>,
    #[serde(skip)]
    pub(super) done: bool,
    #[serde(skip)]
    pub(super) exit_code: u8,
    /// Bytes that were archived.
    #[serde(skip)]
    pub(super) archived: Option<u64>,
}

/// What is known of a set without its key.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct SetFacts {
    /// From 1; grows with every set of a medium.
    pub position: u32,
    /// The id of the set, 32 hexadecimal digits.
    pub set_id: String,
    /// The id of the medium, 32 hexadecimal digits.
    pub medium_id: String,
    /// What was backed up: `files`, `sqlite` or `postgres`.
    pub kind: String,
    /// The name that the set was given.
    pub name: String,
    /// When the set was begun, in seconds since the Unix epoch.
    pub started_unix_s: u64,
    /// When the set was finished, in seconds since the Unix epoch.
    pub finished_unix_s: u64,
    /// When the set may be removed, in seconds since the Unix epoch.
    pub expires_unix_s: Option<u64>,
    /// Files in the set.
    pub files: u64,
    /// Bytes of the files.
    pub backup_size_bytes: u64,
    /// Bytes of the set on the medium.
    pub compressed_size_bytes: u64,
    /// The cipher; `none` for a set in clear.
    pub key_algorithm: String,
    /// What can open the set, as the verb `header` shows it.
    pub encryptor: String,
    /// The system identifier of a PostgreSQL cluster.
    pub system_identifier: Option<String>,
    /// The timeline of a PostgreSQL backup.
    pub timeline: Option<u32>,
    /// Where the log begins that a PostgreSQL backup needs.
    pub start_lsn: Option<String>,
    /// Where the log ends that a PostgreSQL backup needs.
    pub end_lsn: Option<String>,
    /// The set that an incremental one builds on.
    pub base_set_id: Option<String>,
    /// The host that made the set.
    pub machine_name: String,
    /// The user who made the set.
    pub user_name: String,
    /// The program that made the set, with its version.
    pub software: String,
}

impl RunRecord {
    /// Makes the record of a run that begins now; `operation` is its verb.
    #[must_use]
    pub fn begin(operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            begun_unix_s: now_unix_s(),
            ..Self::default()
        }
    }

    /// Notes the medium that the run works on.
    pub fn set_medium(&mut self, store: &dyn Store) {
        self.medium = absolute_name(&store.shown());
    }

    /// Notes what is backed up, in a form without secrets.
    pub fn set_source(&mut self, shown: String) {
        self.source = shown;
    }

    /// Changes the operation: the run is a `verify` that also restores the set.
    pub fn mark_restore_test(&mut self) {
        RESTORE_TEST.clone_into(&mut self.operation);
    }

    /// Notes the target of a restore, or what was removed.
    pub fn set_detail(&mut self, detail: String) {
        self.detail = detail;
    }

    /// Notes the set that the run made or uses, which is at `position` on the medium, and as the
    /// run's source what the set was made of. Reads the set's head and does not authenticate it. If
    /// that fails, nothing is noted and there is no error: the run itself still counts.
    pub fn set_backup_set(&mut self, store: &dyn Store, position: u32) {
        if let Ok(set) = listed(store, position) {
            self.source.clone_from(&set.description.source);
            self.set = Some(SetFacts::of(&set));
        }
    }

    /// Makes a record of the operation `scan`, which has succeeded, for a set that is on a medium.
    pub fn of_listed_set(store: &dyn Store, set: &ListedSet) -> Self {
        let mut record = Self::begin("scan");
        record.set_medium(store);
        record.source.clone_from(&set.description.source);
        record.set = Some(SetFacts::of(set));
        record.mark_done();
        record.end(None);
        record
    }

    /// Notes that the run has done its work. A later failure, such as one to print the result, then
    /// does not change the outcome.
    pub fn mark_done(&mut self) {
        self.done = true;
    }

    /// Ends the run: notes the time and the outcome. `failure` is the code and the detail of its
    /// error, if it failed; it is ignored after [`Self::mark_done`].
    pub fn end(&mut self, failure: Option<(&Code, &str)>) {
        self.ended_unix_s = now_unix_s();
        match failure {
            Some((code, detail)) if !self.done => {
                self.outcome = format!("SR-{:04}", code.number);
                detail.clone_into(&mut self.detail);
                self.exit_code = code.class.exit_code();
            }
            _ => DONE.clone_into(&mut self.outcome),
        }
    }

    /// Whether the run ended without an error.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome == DONE
    }

    /// The verb, for monitoring; a restore test counts as `verify`.
    #[must_use]
    pub fn operation(&self) -> &str {
        match self.operation.as_str() {
            RESTORE_TEST => "verify",
            operation => operation,
        }
    }

    /// The medium, absolute.
    #[must_use]
    pub fn medium(&self) -> &str {
        &self.medium
    }

    /// The exit code of the error's class; 0 without an error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Notes how many bytes were archived, for the metrics.
    pub fn set_archived_bytes(&mut self, bytes: u64) {
        self.archived = Some(bytes);
    }

    /// Bytes of the set's files, or else the bytes that were archived; `None` without either.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        let of_set = self.set.as_ref().map(|set| set.backup_size_bytes);
        of_set.or(self.archived)
    }

    /// Bytes on the medium of the set that the run made or used; `None` without a set.
    #[must_use]
    pub fn stored_bytes(&self) -> Option<u64> {
        self.set.as_ref().map(|set| set.compressed_size_bytes)
    }

    /// When the run ended, in seconds since the Unix epoch, and how many seconds it took.
    #[must_use]
    pub fn times(&self) -> (u64, u64) {
        let took = self.ended_unix_s.saturating_sub(self.begun_unix_s);
        (self.ended_unix_s, took)
    }
}

impl SetFacts {
    /// Takes the facts from a set's head, which is not authenticated.
    fn of(set: &ListedSet) -> Self {
        let d = &set.description;
        let postgres = d.postgres.as_ref();
        Self {
            position: set.position,
            set_id: d.set_id.clone(),
            medium_id: d.medium_id.clone(),
            kind: d.kind.name().to_owned(),
            name: d.name.clone(),
            started_unix_s: d.started_unix_s,
            finished_unix_s: d.finished_unix_s,
            expires_unix_s: d.expires_unix_s,
            files: d.files,
            backup_size_bytes: d.backup_size_bytes,
            compressed_size_bytes: d.compressed_size_bytes,
            key_algorithm: d.key_algorithm.clone(),
            encryptor: set
                .header
                .as_ref()
                .map(opener_names)
                .unwrap_or_default()
                .join(", "),
            system_identifier: postgres.map(|facts| facts.system_identifier.clone()),
            timeline: postgres.map(|facts| facts.timeline),
            start_lsn: postgres.map(|facts| facts.start_lsn.clone()),
            end_lsn: postgres.map(|facts| facts.end_lsn.clone()),
            base_set_id: postgres.and_then(|facts| facts.base_set_id.clone()),
            machine_name: d.machine_name.clone(),
            user_name: d.user_name.clone(),
            software: d.software.clone(),
        }
    }
}

/// Makes the path of a directory absolute; a URL is returned unchanged, and so is a path when the
/// working directory is not known.
#[must_use]
pub fn absolute_name(shown: &str) -> String {
    if shown.contains("://") {
        return shown.to_owned();
    }
    let absolute = std::path::absolute(shown);
    absolute.map_or_else(|_| shown.to_owned(), |path| path.display().to_string())
}
