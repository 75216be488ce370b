//! `strongroom backup expire MEDIUM --keep N`: retention.
//!
//! Must not: decide what is kept; that is strongroom-backup's.

use std::path::PathBuf;

use clap::Args;
use strongroom_backup::expire;
use strongroom_backup::history::RunRecord;

use super::history::{self, HistoryOptions, Outlets};
use super::medium_name::store;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Remove all sets but the newest, and the archived log that none of those left can use.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup expire /mnt/backups --keep 7 --dry-run"))]
pub(super) struct ExpireArgs {
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(value_name = "MEDIUM")]
    medium: PathBuf,
    /// How many sets to keep, beside those that have not expired
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// Remove nothing; say what would be
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    history: HistoryOptions,
}

impl ExpireArgs {
    /// Removes sets as [`Self::remove`] and, unless it is a dry run, records the run in the
    /// catalogue.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let outlets = Outlets {
            history: (!self.dry_run).then(|| self.history.clone()),
            ..Outlets::default()
        };
        history::run_and_note(context, "expire", &outlets, |context, record| {
            self.remove(context, record)
        })
    }

    /// Removes all expired sets but the newest ones and those that these build on, and the log that
    /// is then of no use, and prints what was removed. With `--dry-run` only prints it. SR-7101 or
    /// SR-7102 for the medium, SR-7106 if the head of a set cannot be read; SR-5001 when the system
    /// reports an error.
    fn remove(self, context: &mut Context, record: &mut RunRecord) -> Result<(), Failure> {
        let store = store(&self.medium)?;
        record.set_medium(store.as_ref());
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let expired = expire(store.as_ref(), keep, self.dry_run)?;
        let sets: Vec<String> = expired.sets.iter().map(u32::to_string).collect();
        let (log, list) = (expired.log.len(), sets.join(", "));
        record.set_detail(format!("sets {list}; {log} files of the log"));
        record.mark_done();
        let verb = if self.dry_run {
            "would remove"
        } else {
            "removed"
        };
        for set in &expired.sets {
            context.output.line(&format!("{verb} set {set}"))?;
        }
        context.output.line(&format!(
            "{verb} {} sets and {log} files of the log",
            expired.sets.len()
        ))
    }
}
