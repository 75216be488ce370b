//! `strongroom backup restore MEDIUM --to DIR`: a set as files again.
//!
//! Must not: write over anything.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::{Chain, Description, Kept, Owners, RestoreOptions, Restored, open_chain};

use super::history::{self, Entry, HistoryOptions, Told};
use super::progress::{ProgressOptions, Watch};
use super::until::UntilOptions;
use super::{store, thread_count, threads, with_key};
use crate::args::KeyOptions;
use crate::failure::{Failure, note, printable};
use crate::help::tail;
use crate::pg::programs::BindirOption;
use crate::{Context, keyring, owner};

/// Restore a set into a directory that is absent or empty.
///
/// The directory appears when it is whole. What is restored is in plaintext.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup restore /mnt/backups --to /srv/restored --key-id backups"))]
pub(super) struct RestoreArgs {
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(value_name = "MEDIUM")]
    medium: PathBuf,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The set's position [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    set: Option<u32>,
    #[command(flatten)]
    key: KeyOptions,
    /// Where tablespaces go, each in a directory of its number [default: DIR.tablespaces]
    #[arg(long, value_name = "DIR")]
    tablespaces: Option<PathBuf>,
    #[command(flatten)]
    owners: OwnerOptions,
    #[command(flatten)]
    until: UntilOptions,
    #[command(flatten)]
    programs: BindirOption,
    /// Threads that open and decompress, 1 to 64 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    progress: ProgressOptions,
    #[command(flatten)]
    history: HistoryOptions,
}

/// Whose a restore by root becomes.
#[derive(Args)]
struct OwnerOptions {
    /// As root: give everything to this user and its group [default: root keeps it]
    #[arg(long, value_name = "USER", conflicts_with = "keep_owners")]
    owner: Option<String>,
    /// As root: give everything to the users and groups that the set names, as numbers
    #[arg(long)]
    keep_owners: bool,
    /// As root: keep set-user-ID, set-group-ID and sticky bits
    #[arg(long)]
    keep_special_bits: bool,
}

impl OwnerOptions {
    fn kept(&self) -> Result<Kept, Failure> {
        let asked = self.owner.is_some() || self.keep_owners || self.keep_special_bits;
        if asked && !rustix::process::geteuid().is_root() {
            let detail = "--owner, --keep-owners and --keep-special-bits are for root";
            return Err(Failure::usage(detail));
        }
        let owners = match &self.owner {
            Some(name) => owner::user_and_group(name)
                .map(|(user, group)| Owners::Given { user, group })
                .ok_or_else(|| Failure::usage(&format!("there is no user {name}")))?,
            None if self.keep_owners => Owners::OfSet,
            None => Owners::Mine,
        };
        Ok(Kept {
            owners,
            special_bits: self.keep_special_bits,
        })
    }
}

/// Who made a set, in its own words. Its seal tells that nobody without the key changed it; to make
/// one takes no more than the certificate.
fn say_who_made(description: &Description) {
    let Description {
        user_name,
        machine_name,
        software,
        ..
    } = description;
    note(&printable(&format!(
        "the set says that it was made by {user_name} on {machine_name} with {software}; nothing proves that"
    )));
}

#[derive(Serialize)]
struct Report {
    position: u32,
    path: String,
    files: u64,
    size_bytes: u64,
    tablespaces: Option<String>,
    set: Description,
}

impl RestoreArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let told = Told {
            history: Some(self.history.clone()),
            ..Told::default()
        };
        history::told(context, "restore", &told, |context, entry| {
            self.fill(context, entry)
        })
    }

    fn fill(self, context: &mut Context, entry: &mut Entry) -> Result<(), Failure> {
        let store = store(&self.medium)?;
        entry.on(store.as_ref());
        let keyring = keyring::path(context);
        let chain = with_key(self.key.clone(), &keyring, |key| {
            open_chain(store.as_ref(), self.set, key)
        })?;
        let set = chain.newest()?;
        entry.with_set(store.as_ref(), set.position());
        entry.with_detail(history::place(&self.to.display().to_string()));
        let total = chain.size_bytes();
        let facts = set.description().postgres.as_ref();
        let recovery = self
            .until
            .settings(facts, &self.medium, &self.key, &keyring)?;
        let options = RestoreOptions {
            to: self.to.clone(),
            tablespaces: self.tablespaces,
            threads: threads(self.threads),
            recovery,
            kept: self.owners.kept()?,
            stop: None,
        };
        say_who_made(set.description());
        let left_to_root =
            rustix::process::geteuid().is_root() && options.kept.owners == Owners::Mine;
        let mut progress = Watch::new("restore", self.progress).of(total);
        let restored = restored(&chain, &options, &self.programs, &mut |bytes| {
            progress.update(bytes);
        })?;
        entry.done();
        progress.finish();
        let tablespaces = restored.tablespaces.map(|path| path.display().to_string());
        if self.json {
            return context.output.json(&Report {
                position: set.position(),
                path: self.to.display().to_string(),
                files: restored.files,
                size_bytes: restored.bytes,
                tablespaces,
                set: restored.description,
            });
        }
        context.output.line(&format!(
            "restored set {} to {}: {} files, {} bytes",
            set.position(),
            self.to.display(),
            restored.files,
            restored.bytes
        ))?;
        context.output.flush()?;
        if left_to_root && restored.description.postgres.is_some() {
            note(
                "the files belong to root, as whom no server runs: --owner USER gives them to the server's user",
            );
        }
        if let Some(tablespaces) = tablespaces {
            note(&format!("the tablespaces are in {tablespaces}"));
        }
        Ok(())
    }
}

/// Restores a set, with those that it builds on.
pub(super) fn restored(
    chain: &Chain<'_>,
    options: &RestoreOptions,
    programs: &BindirOption,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored, Failure> {
    let set = chain.newest()?;
    if !chain.is_incremental() {
        return Ok(strongroom_backup::restore(set, options, progress)?);
    }
    let facts = set.description().postgres.as_ref();
    let major = facts.map(|facts| facts.server_version / 10_000);
    let combine = programs.find(major)?.join("pg_combinebackup");
    Ok(strongroom_backup::restore_chain(
        chain, options, &combine, progress,
    )?)
}
