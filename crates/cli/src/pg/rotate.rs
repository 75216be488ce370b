//! `strongroom pg rotate -D DIR`: a new data key, another key that opens the instance, or both.
//!
//! Invariant: what the configuration names opens the header at every moment. Another key is first
//! added to the old one, then named, and only then alone.
//!
//! Must not: leave an instance that neither the old nor the new key opens.

use clap::Args;
use strongroom_format::code;
use strongroom_keyring::Opener;
use strongroom_postgres_shield::convert;

use super::chosen::{ChosenKey, configure};
use super::convert::{Bars, ThreadsOption, amount, remarks};
use super::directory::{Directory, DirectoryOption};
use super::facts::Facts;
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
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.sealed()?;
        if !self.slots_only
            && let Some(pid) = directory.server()
        {
            return Err(directory.failure(&code::PG_RUNNING, &format!("process {pid}")));
        }
        let old = ChosenKey::required(self.key, context, &directory)?;
        let new = ChosenKey::for_rotation(self.new.into(), context, &directory)?;
        let configuration = new.as_ref().map(ChosenKey::configuration).transpose()?;
        let opener = old.opener()?;
        let under_way = convert::unfinished(&directory.path)?.is_some();
        let new_opener = match &new {
            Some(new) => Some(new.opener()?),
            None => None,
        };
        if let (Some(text), Some(new_opener), false) = (&configuration, &new_opener, under_way) {
            let (first, second) = (new_opener.recipient()?, opener.recipient()?);
            convert::rewrap(&directory.path, &opener, &[&first, &second])?;
            configure(&directory.path, text)?;
        }
        let line = if self.slots_only {
            slots(&directory, &opener, new_opener.as_ref())?
        } else {
            files(&directory, &self.threads, &opener, new_opener)?
        };
        let opened = new.as_ref().unwrap_or(&old).open(&directory)?;
        let facts = Facts::of(opened.header());
        let (openers, fingerprint) = (facts.openers_text(), facts.fingerprint);
        context
            .output
            .line(&format!("{line}: {openers}, fingerprint {fingerprint}"))?;
        context.output.flush()?;
        note("backups from before are still opened by the former key");
        if new.as_ref().is_some_and(|new| !new.is_unattended()) {
            warn(&code::PG_NO_SOURCE, &directory.shown());
        }
        Ok(())
    }
}

/// Slots for the new key alone, or for the same one anew.
fn slots(directory: &Directory, opener: &Opener, new: Option<&Opener>) -> Result<String, Failure> {
    let one = new.unwrap_or(opener);
    convert::rewrap(&directory.path, one, &[&one.recipient()?])?;
    Ok(format!("rewrapped {}", directory.shown()))
}

/// A new data key, for the new key alone if there is one.
fn files(
    directory: &Directory,
    threads: &ThreadsOption,
    opener: &Opener,
    new: Option<Opener>,
) -> Result<String, Failure> {
    let bars = Bars::new("sealing anew");
    let done = threads.run(&bars, |options| match &new {
        // The header knows the new key since it was rewrapped; an interrupted run may know the new
        // one only.
        Some(new) => convert::rotate(&directory.path, new, &[new], options),
        None => convert::rotate(&directory.path, opener, &[], options),
    });
    drop(bars);
    let report = done?;
    remarks(&report);
    Ok(format!(
        "rotated {}: {}",
        directory.shown(),
        amount(&report)
    ))
}
