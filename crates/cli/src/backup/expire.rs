//! `strongroom backup expire MEDIUM --keep N`: retention.
//!
//! Must not: decide what is kept; that is strongroom-backup's.

use std::path::PathBuf;

use clap::Args;
use strongroom_backup::expire;

use super::history::{self, Entry, HistoryOptions, Told};
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
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let told = Told {
            history: (!self.dry_run).then(|| self.history.clone()),
            ..Told::default()
        };
        history::told(context, "expire", &told, |context, entry| {
            self.remove(context, entry)
        })
    }

    fn remove(self, context: &mut Context, entry: &mut Entry) -> Result<(), Failure> {
        let store = store(&self.medium)?;
        entry.on(store.as_ref());
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let expired = expire(store.as_ref(), keep, self.dry_run)?;
        let sets: Vec<String> = expired.sets.iter().map(u32::to_string).collect();
        let (log, list) = (expired.log.len(), sets.join(", "));
        entry.with_detail(format!("sets {list}; {log} files of the log"));
        entry.done();
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
