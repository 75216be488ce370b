//! `strongroom pg rotate -D DIR`: a new data key, another key that opens the instance, or both.
//!
//! Must not: convert anything itself.

use clap::Args;
use strongroom_format::code;
use strongroom_postgres_instance::conversion::{Rotation, rotate};

use super::convert::{Bars, ThreadsOption, amount, remarks};
use super::directory::DirectoryOption;
use super::given::given_key;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::{KeyOptions, NewKeyOptions};

/// Give a stopped instance a new data key, and if wanted another key that opens it.
///
/// Every file is sealed again; a run that was interrupted is completed by the same command. With
/// --slots-only no file is touched: only who may open the instance changes, and the server may be
/// running. Without a --new- option the same key opens it afterwards; strongroom.conf is changed to
/// name the new one.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg rotate -D /srv/pg/data --slots-only --new-key-file /etc/strongroom/new.key"))]
pub(super) struct RotateArgs {
    #[command(flatten)]
    pub(super) directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    new: NewKeyOptions,
    /// Change who may open it, and no file
    #[arg(long)]
    slots_only: bool,
    #[command(flatten)]
    threads: ThreadsOption,
}

impl RotateArgs {
    /// Gives the stopped instance a new data key and seals every file again, or with `--slots-only`
    /// only replaces its key slots, and prints that. A new key, if one is given, opens it
    /// afterwards; SR-7020 is a warning that the server cannot find it by itself.
    /// Errors: SR-7003 or SR-7004 if it is being converted or is not sealed, SR-7008 while a server
    /// runs (not with `--slots-only`); the errors of the keys and of the conversion.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.sealed()?;
        let key = given_key(self.key, context);
        let new = given_key(self.new.into(), context);
        let what = match self.slots_only {
            true => Rotation::SlotsOnly,
            false => Rotation::DataKey,
        };
        let bars = Bars::new("sealing anew");
        let done = self
            .threads
            .run(&bars, |options| rotate(&directory, key, new, what, options));
        drop(bars);
        let rotated = done?;
        let shown = directory.shown();
        let line = match &rotated.report {
            Some(report) => {
                remarks(report);
                format!("rotated {shown}: {}", amount(report))
            }
            None => format!("rewrapped {shown}"),
        };
        let (openers, fingerprint) = (rotated.facts.openers_text(), rotated.facts.fingerprint);
        context
            .output
            .line(&format!("{line}: {openers}, fingerprint {fingerprint}"))?;
        context.output.flush()?;
        note("backups from before are still opened by the former key");
        if rotated.needs_key_at_start {
            warn(&code::PG_NO_SOURCE, &shown);
        }
        Ok(())
    }
}
