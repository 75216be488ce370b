//! `strongroom volume migrate SRC DST`.
//!
//! Must not: write to the source; say that a copy is one before it was compared.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_volume::migrate::{compare, is_read_only, migrate};

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::progress::Progress;

/// Copy a plain disk's file system onto the one of an open volume, and compare every byte. Run it
/// again to go on.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume migrate /mnt/old /srv/data"))]
pub(super) struct MigrateArgs {
    /// Where the plain file system is mounted, read-only
    #[arg(value_name = "SRC")]
    from: PathBuf,
    /// Where the volume's file system is mounted
    #[arg(value_name = "DST")]
    to: PathBuf,
    /// The source is not mounted read-only, but nobody writes to it
    #[arg(long)]
    quiet_source: bool,
    /// Copy nothing, only compare
    #[arg(long)]
    compare: bool,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// The result of a comparison that found no difference; a difference is an error.
#[derive(Serialize)]
struct Compared {
    alike: bool,
}

impl MigrateArgs {
    /// Copies the file system and compares every byte, with progress, notes what was left out, and
    /// prints how much it was, as text or JSON. With `--compare` only compares. Errors: SR-8320 if
    /// the source is mounted writable, without `--quiet-source`; SR-8334 if the two differ; SR-1003
    /// if they are the same; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        if self.compare {
            compare(&self.from, &self.to)?;
            if self.json {
                return context.output.json(&Compared { alike: true });
            }
            return context.output.line("alike");
        }
        if !self.quiet_source && !is_read_only(&self.from)? {
            let detail = format!(
                "{} is mounted writable: mount it read-only (mount -o remount,ro), or give --quiet-source if nothing writes to it",
                self.from.display()
            );
            return Err(Failure::new(&code::VOLUME_IN_USE, detail));
        }
        let mut progress = Progress::new("copied");
        let report = migrate(&self.from, &self.to, &mut |total, done| {
            progress.update(done, total.max(done));
            true
        })?;
        drop(progress);
        for left in &report.left_out {
            note(&format!("left out: {left}"));
        }
        if self.json {
            return context.output.json(&report);
        }
        context.output.line(&format!(
            "{} entries, {} bytes in {} files, all compared; {} files copied now",
            report.entries, report.bytes, report.files, report.copied
        ))
    }
}
