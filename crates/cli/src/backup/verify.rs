//! `strongroom backup verify MEDIUM`: checks that every segment of a set is authentic and every
//! file has its digest.
//!
//! Must not: claim more than was checked.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::drill::DrillReport;
use strongroom_backup::history::RunRecord;
use strongroom_backup::{
    ArchivedLog, Description, LogCheck, Verified, check_log, check_signers, open_chain,
    verified_by_restore, verify_chain, with_kept_key,
};
use strongroom_format::text::printable;

use super::drill::DrillOptions;
use super::history::{self, HistoryOptions, Outlets};
use super::medium_name::store;
use super::metrics::MetricsOptions;
use super::progress::{ProgressOptions, ProgressReporter};
use super::signature::SignedByOptions;
use super::threads::{thread_count, threads};
use crate::context::Context;
use crate::failure::{ErrorJson, Failure};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

/// Read a set to its end: every segment is authenticated and decompressed, every file's digest
/// compared. Of the archived log that follows it, every segment is opened and its pages compared
/// with its name.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup verify /mnt/backups --key-id backups"))]
pub(super) struct VerifyArgs {
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(value_name = "MEDIUM")]
    medium: PathBuf,
    /// The set's position [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    set: Option<u32>,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    signed_by: SignedByOptions,
    #[command(flatten)]
    test: DrillOptions,
    /// Threads that open and decompress, 1 to 64 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    progress: ProgressOptions,
    #[command(flatten)]
    metrics: MetricsOptions,
    #[command(flatten)]
    history: HistoryOptions,
}

#[derive(Serialize)]
struct Report {
    position: u32,
    ok: bool,
    error: Option<ErrorJson>,
    missing_log: Vec<String>,
    wrong_log: Vec<String>,
    segments: u64,
    files: u64,
    size_bytes: u64,
    not_checked: Vec<String>,
    builds_on: Vec<u32>,
    restore_test: Option<DrillReport>,
    /// The id of the key that has signed every set of the chain, if that was checked.
    signed_by: Option<String>,
    set: Description,
}

impl VerifyArgs {
    /// Verifies a set as [`Self::verify_and_print`] and records the run in the catalogue and the
    /// metrics.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let outlets = Outlets {
            history: Some(self.history.clone()),
            key_id: self.key.key_id.clone(),
            metrics: self.metrics.file(),
        };
        history::run_and_note(context, "verify", &outlets, |context, record| {
            self.verify_and_print(context, record)
        })
    }

    /// Verifies the set and prints the result as text or JSON. Errors: SR-7130 if archived log is
    /// missing, SR-7174 if some does not match its name; the errors of [`Self::verify_set`], after
    /// which nothing is printed.
    fn verify_and_print(
        self,
        context: &mut Context,
        record: &mut RunRecord,
    ) -> Result<(), Failure> {
        let json = self.json;
        let found = self.verify_set(context, record)?;
        let gap = found.log.as_ref().and_then(LogCheck::error);
        let gap = gap.map(Failure::from);
        if gap.is_none() {
            record.mark_done();
        }
        if json {
            context.output.json(&found.report(gap.as_ref()))?;
            context.output.flush()?;
            return gap.map_or(Ok(()), |gap| Err(gap.reported_in_json()));
        }
        context.output.text(&found.text())?;
        context.output.flush()?;
        gap.map_or(Ok(()), Err)
    }

    /// Opens the set and those that it builds on, checks its signer if one was named, reads
    /// everything to its end and compares it, and checks the archived log; with `--restore-test`
    /// restores it and starts a server instead. Shows progress.
    /// Errors: SR-7107 if there is no such set, SR-7177 or SR-7178 for the signature, SR-7108 to
    /// SR-7112 for damage; the errors of the key and of the restore test. Log that is missing or
    /// wrong is in the result.
    fn verify_set(self, context: &Context, record: &mut RunRecord) -> Result<VerifiedSet, Failure> {
        let store = store(&self.medium)?;
        record.set_medium(store.as_ref());
        if self.test.is_wanted() {
            record.mark_restore_test();
        }
        let keyring = context.keyring_path();
        let signers = self.signed_by.keys()?;
        let ((mut chain, log), key) =
            with_kept_key(keys::source(self.key).as_ref(), &keyring, |key| {
                let chain = open_chain(store.as_ref(), self.set, key)?;
                // Now, since a timeline's history is sealed too.
                let log = check_log(store.as_ref(), chain.newest()?.description(), key);
                Ok((chain, log))
            })?;
        let signer = check_signers(&mut chain, &signers)?;
        let newest = chain.newest()?;
        record.set_backup_set(store.as_ref(), newest.position());
        let threads = threads(self.threads);
        if !self.test.is_wanted() {
            let mut progress =
                ProgressReporter::new("verify", self.progress).with_total(chain.size_bytes());
            let (verified, bases) =
                verify_chain(&chain, threads, &mut |bytes| progress.update(bytes))?;
            progress.finish();
            let log = log?;
            return Ok(VerifiedSet {
                verified: note_unsigned_log(verified, signer.as_ref(), log.as_ref()),
                bases,
                log,
                drilled: None,
                signer,
            });
        }
        let (log, described, key) = (log?, newest.description(), key.as_ref());
        let archive = ArchivedLog::of_set(store.as_ref(), described, log.as_ref(), key)?;
        let archive = archive.as_ref();
        let drilled = self.test.run(&chain, archive, threads, self.progress)?;
        // The restore has read all of it.
        let (verified, bases) = verified_by_restore(&chain)?;
        Ok(VerifiedSet {
            verified: note_unsigned_log(verified, signer.as_ref(), log.as_ref()),
            bases,
            log,
            drilled: Some(drilled),
            signer,
        })
    }
}

/// The result for a set, for the sets that it builds on, and for the log that follows it.
struct VerifiedSet {
    verified: Verified,
    bases: Vec<Verified>,
    log: Option<LogCheck>,
    drilled: Option<DrillReport>,
    /// Whose signature every set was found to have.
    signer: Option<String>,
}

impl VerifiedSet {
    /// Returns the JSON result. `gap` is the failure of the archived log, if there is one.
    fn report(self, gap: Option<&Failure>) -> Report {
        let Verified {
            position,
            description,
            segments,
            files,
            bytes,
            mut not_checked,
        } = self.verified;
        not_checked.extend(self.log.iter().flat_map(|log| log.not_checked.clone()));
        let of_log = self.log.map(|log| (log.missing, log.wrong));
        let (missing_log, wrong_log) = of_log.unwrap_or_default();
        Report {
            position,
            ok: gap.is_none(),
            error: gap.map(Failure::json),
            missing_log,
            wrong_log,
            segments,
            files,
            size_bytes: bytes,
            not_checked,
            builds_on: self.bases.iter().map(|base| base.position).collect(),
            restore_test: self.drilled,
            signed_by: self.signer,
            set: description,
        }
    }

    /// Returns the result as text for people.
    fn text(&self) -> String {
        let mut text = String::new();
        for each in self.bases.iter().chain([&self.verified]) {
            text.push_str(&format!(
                "set {}: {} segments, {} files, {} bytes: good\n",
                each.position, each.segments, each.files, each.bytes
            ));
        }
        if let Some(id) = &self.signer {
            text.push_str(&format!("  signed by: {id}\n"));
        }
        for item in &self.verified.not_checked {
            text.push_str(&format!("  not checked: {}\n", printable(item)));
        }
        if let Some(drilled) = &self.drilled {
            text.push_str(&drill_text(drilled));
        }
        if let Some(log) = &self.log {
            text.push_str(&log_text(log));
        }
        text
    }
}

/// Adds to what was not checked that the set's signature does not cover the archived log, if a
/// signature was checked and there is log.
fn note_unsigned_log(
    mut verified: Verified,
    signer: Option<&String>,
    log: Option<&LogCheck>,
) -> Verified {
    if signer.is_some() && log.is_some() {
        let what = "the origin of the archived log: only sets are signed";
        verified.not_checked.push(String::from(what));
    }
    verified
}

/// Returns the result of the restore test as text for people.
fn drill_text(drilled: &DrillReport) -> String {
    let mut text = String::from("restore test: passed\n");
    for item in &drilled.checked {
        text.push_str(&format!("  checked: {item}\n"));
    }
    for item in &drilled.not_checked {
        text.push_str(&format!("  not checked: {item}\n"));
    }
    for line in drilled.answer.iter().flat_map(|answer| answer.lines()) {
        text.push_str(&format!("  answer: {}\n", printable(line)));
    }
    text
}

/// Returns the result for the archived log as text for people.
fn log_text(log: &LogCheck) -> String {
    let mut text = String::new();
    if let (0, Some(newest)) = (log.missing_count, &log.newest) {
        let count = log.segments;
        text.push_str(&format!(
            "log: {count} segments follow, up to {newest}, none is missing\n"
        ));
    }
    if log.looked_into > 0 {
        let good = log.looked_into;
        text.push_str(&format!(
            "  checked: the pages of {good} archived segments\n"
        ));
        text.push_str("  not checked: the records in them, which a recovery reads\n");
    }
    for item in &log.wrong {
        text.push_str(&format!("  wrong: {}\n", printable(item)));
    }
    for item in &log.not_checked {
        text.push_str(&format!("  not checked: {}\n", printable(item)));
    }
    text
}
