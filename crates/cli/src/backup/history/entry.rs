//! What the catalogue holds of one run.
//!
//! Must not: hold what a user typed before it was found to have no secret in it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use strongroom_backup::{ListedSet, Store};

use super::super::opener_names::openers;
use crate::failure::{Failure, code_text};

/// The outcome of a run that did what it was to do.
pub(in crate::backup) const DONE: &str = "done";

/// What a `verify` is noted as that also restores the set and starts a server on it.
pub(super) const RESTORE_TEST: &str = "restore-test";

/// One run: a row of the catalogue.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub(in crate::backup) struct Entry {
    /// The verb, `scan`, or `restore-test`.
    pub(super) operation: String,
    /// `done`, or the code of the error.
    pub(super) outcome: String,
    /// Seconds since the Unix epoch.
    pub(super) begun_unix_s: u64,
    /// As before.
    pub(super) ended_unix_s: u64,
    /// The medium, absolute.
    pub(super) medium: String,
    /// What was backed up.
    pub(super) source: String,
    /// Where to, what was removed, or the error's detail.
    pub(super) detail: String,
    /// The set that the run made or used; of a run that failed before, null.
    pub(super) set: Option<SetFacts>,
    #[serde(skip)]
    pub(super) done: bool,
    #[serde(skip)]
    pub(super) exit_code: u8,
    /// Bytes that were archived.
    #[serde(skip)]
    pub(super) archived: Option<u64>,
}

/// What was known of a set.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub(super) struct SetFacts {
    pub(super) position: u32,
    pub(super) set_id: String,
    pub(super) medium_id: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) started_unix_s: u64,
    pub(super) finished_unix_s: u64,
    pub(super) expires_unix_s: Option<u64>,
    pub(super) files: u64,
    pub(super) backup_size_bytes: u64,
    pub(super) compressed_size_bytes: u64,
    pub(super) key_algorithm: String,
    /// Who can open it, as `header` says it.
    pub(super) encryptor: String,
    pub(super) system_identifier: Option<String>,
    pub(super) timeline: Option<u32>,
    pub(super) start_lsn: Option<String>,
    pub(super) end_lsn: Option<String>,
    /// The set that an incremental one builds on.
    pub(super) base_set_id: Option<String>,
    pub(super) machine_name: String,
    pub(super) user_name: String,
    pub(super) software: String,
}

impl Entry {
    /// A run that begins now.
    pub(super) fn begun(operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            begun_unix_s: now(),
            ..Self::default()
        }
    }

    /// Where the run works.
    pub(in crate::backup) fn on(&mut self, store: &dyn Store) {
        self.medium = place(&store.shown());
    }

    /// What is backed up, without secrets.
    pub(in crate::backup) fn of_source(&mut self, shown: String) {
        self.source = shown;
    }

    /// The run is a `verify` that also restores the set.
    pub(in crate::backup) fn is_restore_test(&mut self) {
        RESTORE_TEST.clone_into(&mut self.operation);
    }

    /// Where a restore went, what was removed.
    pub(in crate::backup) fn with_detail(&mut self, detail: String) {
        self.detail = detail;
    }

    /// The set that the run made or uses. What cannot be read of it is left out: the run itself is what counts.
    pub(in crate::backup) fn with_set(&mut self, store: &dyn Store, position: u32) {
        if let Ok(set) = strongroom_backup::listed(store, position) {
            self.source.clone_from(&set.description.source);
            self.set = Some(SetFacts::of(&set));
        }
    }

    /// A set that a scan found.
    pub(super) fn scanned(store: &dyn Store, set: &ListedSet) -> Self {
        let mut entry = Self::begun("scan");
        entry.on(store);
        entry.source.clone_from(&set.description.source);
        entry.set = Some(SetFacts::of(set));
        entry.done();
        entry.end(None);
        entry
    }

    /// The run has done what it was to do, whatever becomes of its output.
    pub(in crate::backup) fn done(&mut self) {
        self.done = true;
    }

    /// The run is over.
    pub(super) fn end(&mut self, failure: Option<&Failure>) {
        self.ended_unix_s = now();
        match failure {
            Some(failure) if !self.done => {
                self.outcome = code_text(failure.code());
                failure.detail().clone_into(&mut self.detail);
                self.exit_code = failure.code().class.exit_code();
            }
            _ => DONE.clone_into(&mut self.outcome),
        }
    }

    pub(in crate::backup) fn is_done(&self) -> bool {
        self.outcome == DONE
    }

    /// The verb that was run. Monitoring goes by it: a restore test is a `verify` that does more.
    pub(in crate::backup) fn operation(&self) -> &str {
        match self.operation.as_str() {
            RESTORE_TEST => "verify",
            operation => operation,
        }
    }

    pub(in crate::backup) fn medium(&self) -> &str {
        &self.medium
    }

    /// The class of the error, 0 without one.
    pub(in crate::backup) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// So many bytes were archived.
    pub(in crate::backup) fn with_archived(&mut self, bytes: u64) {
        self.archived = Some(bytes);
    }

    /// Bytes of the set's files or of what was archived.
    pub(in crate::backup) fn size_bytes(&self) -> Option<u64> {
        let of_set = self.set.as_ref().map(|set| set.backup_size_bytes);
        of_set.or(self.archived)
    }

    /// Bytes of the set on the medium.
    pub(in crate::backup) fn stored_bytes(&self) -> Option<u64> {
        self.set.as_ref().map(|set| set.compressed_size_bytes)
    }

    /// When the run ended, and how long it took; seconds.
    pub(in crate::backup) fn times(&self) -> (u64, u64) {
        let took = self.ended_unix_s.saturating_sub(self.begun_unix_s);
        (self.ended_unix_s, took)
    }
}

impl SetFacts {
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
                .map(openers)
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

/// A directory by its absolute path; a URL as it is.
pub(in crate::backup) fn place(shown: &str) -> String {
    if shown.contains("://") {
        return shown.to_owned();
    }
    let absolute = std::path::absolute(shown);
    absolute.map_or_else(|_| shown.to_owned(), |path| path.display().to_string())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
