//! `strongroom backup restore MEDIUM --to DIR`: writes the files of a set.
//!
//! Must not: overwrite anything, unless `--delta` is given.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use strongroom_backup::history::{RunRecord, absolute_name};
use strongroom_backup::{
    Delta, Description, Kept, Owners, RestoreOptions, Restored, Sealing, check_signers, is_url,
    open_chain, restore_newest, with_key,
};
use strongroom_format::header::Cipher;
use strongroom_format::text::printable;
use strongroom_launch::owner;
use strongroom_postgres_instance::restored::NewInstance;

use super::history::{self, HistoryOptions, Outlets};
use super::medium_name::store;
use super::progress::{ProgressOptions, ProgressReporter};
use super::signature::SignedByOptions;
use super::threads::{thread_count, threads};
use super::until::UntilOptions;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::key_options::{InstanceKeyOptions, KeyOptions};
use crate::keys;
use crate::pg::given::{cipher, given_key, warn_about_key};
use crate::pg::programs::BindirOption;

/// Restore a set into a directory that is absent or empty, or with --delta over the one that it was
/// made of.
///
/// The directory appears when it is whole. What is restored is in plaintext; with --sealed a
/// PostgreSQL cluster becomes a sealed instance, and nothing of it is in clear on the disk at any
/// time but what `strongroom pg encrypt` leaves in clear.
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
    #[command(flatten)]
    signed_by: SignedByOptions,
    /// Where tablespaces go, each in a directory of its number [default: DIR.tablespaces]
    #[arg(long, value_name = "DIR")]
    tablespaces: Option<PathBuf>,
    #[command(flatten)]
    delta: DeltaOptions,
    #[command(flatten)]
    sealed: SealedOptions,
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

/// How a directory is treated that is there.
#[derive(Args)]
struct DeltaOptions {
    /// Restore over the directory that the set was made of: files that are what the set says are
    /// kept, everything else is replaced or removed, at once and at the end
    #[arg(long, conflicts_with = "sealed")]
    delta: bool,
    /// With --delta: also if the directory is not known to be what the set was made of; everything
    /// in it is lost that the set does not have
    #[arg(long, requires = "delta")]
    force: bool,
}

impl DeltaOptions {
    /// Returns how to restore over an existing directory; `None` without `--delta`. Medium, keyring
    /// and key file are named in it, because what is removed must not contain them.
    fn delta(&self, medium: &Path, keyring: &Path, key: &KeyOptions) -> Option<Delta> {
        let mut apart = vec![keyring.to_path_buf()];
        apart.extend((!is_url(medium)).then(|| medium.to_path_buf()));
        apart.extend(key.key_file.as_ref().map(PathBuf::from));
        self.delta.then_some(Delta {
            force: self.force,
            apart,
        })
    }
}

/// What a sealed instance is made with.
#[derive(Args)]
struct SealedOptions {
    /// Of a PostgreSQL cluster: seal every file as it is written, for a new instance with a data
    /// key of its own
    #[arg(long)]
    sealed: bool,
    /// With --sealed: aes-128-xts or aes-256-xts
    #[arg(long, value_name = "CIPHER", default_value = "aes-256-xts", requires = "sealed", value_parser = cipher)]
    cipher: Cipher,
    #[command(flatten)]
    key: InstanceKeyOptions,
}

impl SealedOptions {
    /// Makes the data key and header for a sealed instance at `to`, in memory, fetching the key for
    /// it; `None` without `--sealed`. SR-1001 for an instance key without `--sealed`, SR-2041
    /// without a key; the errors of the key.
    fn instance(&self, context: &Context, to: &Path) -> Result<Option<NewInstance>, Failure> {
        if !self.sealed {
            if self.key.is_given() {
                let detail = "--instance-key-... and --instance-ask are for --sealed";
                return Err(Failure::usage(detail));
            }
            return Ok(None);
        }
        let key = KeyOptions::from(self.key.clone());
        Ok(Some(NewInstance::new(
            given_key(key, context),
            self.cipher,
            to,
        )?))
    }
}

/// Notes that a PostgreSQL cluster will be restored in plaintext, and what to give instead. Writes
/// nothing for other sets. A set does not say whether its server was sealed.
fn say_in_clear(description: &Description, to: &Path) {
    if description.postgres.is_none() {
        return;
    }
    note(&format!(
        "the cluster will lie in clear in {}, whether its server was sealed or not; to have it sealed as it is written, stop this and add \
         --sealed and one of --instance-key-id, --instance-key-env, --instance-key-file, --instance-key-command, --instance-ask",
        to.display()
    ));
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
    /// Returns to whom the restored files belong and whether they keep special mode bits. SR-1001
    /// for these options without root, or for a user that does not exist.
    fn ownership(&self) -> Result<Kept, Failure> {
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

/// A recovery replays what it is handed by `wal-fetch`, which the set's signature says nothing of.
const LOG_IS_NOT_SIGNED: &str = "the archived log that the recovery replays is not signed: whoever can write to the medium and has the \
     certificate, or the key, can have made it";

/// Notes the user, machine and software that the set names as its maker, and whether the key
/// `signer` has signed that. Nothing else proves it, because a certificate is enough to make a set.
fn say_who_made(description: &Description, signer: Option<&str>) {
    let Description {
        user_name,
        machine_name,
        software,
        ..
    } = description;
    let proof = match signer {
        Some(id) => format!("it is signed by the key {id}"),
        None => String::from("nothing proves that"),
    };
    note(&printable(&format!(
        "the set says that it was made by {user_name} on {machine_name} with {software}; {proof}"
    )));
}

#[derive(Serialize)]
struct Report {
    position: u32,
    path: String,
    files: u64,
    size_bytes: u64,
    kept_files: u64,
    tablespaces: Option<String>,
    set: Description,
}

impl RestoreArgs {
    /// Restores a set as [`Self::fill`] and records the run in the catalogue.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let outlets = Outlets {
            history: Some(self.history.clone()),
            ..Outlets::default()
        };
        history::run_and_note(context, "restore", &outlets, |context, record| {
            self.fill(context, record)
        })
    }

    /// Opens the set and those that it builds on, checks its signer if one was named, restores it
    /// with progress, and prints what was restored. Notes who made it, and that it is in plaintext.
    /// What the run has done is put into `record`. Errors: SR-7107 if there is no such set, SR-7113
    /// if the directory is not empty, SR-7177 or SR-7178 for the signature, SR-7108 to SR-7112 for
    /// damage, SR-7122 for the recovery target; the errors of the keys; SR-5001 when the system
    /// reports an error.
    fn fill(self, context: &mut Context, record: &mut RunRecord) -> Result<(), Failure> {
        let store = store(&self.medium)?;
        record.set_medium(store.as_ref());
        let keyring = context.keyring_path();
        let signers = self.signed_by.keys()?;
        let mut chain = with_key(keys::source(self.key.clone()).as_ref(), &keyring, |key| {
            open_chain(store.as_ref(), self.set, key)
        })?;
        let signer = check_signers(&mut chain, &signers)?;
        let set = chain.newest()?;
        record.set_backup_set(store.as_ref(), set.position());
        record.set_detail(absolute_name(&self.to.display().to_string()));
        let total = chain.size_bytes();
        let facts = set.description().postgres.as_ref();
        let recovery = self
            .until
            .settings(facts, &self.medium, &self.key, &keyring)?;
        let instance = self.sealed.instance(context, &self.to)?;
        let unattended = instance.as_ref().map(NewInstance::is_unattended);
        let sealing = instance.map(|instance| -> Arc<dyn Sealing> { Arc::new(instance) });
        let options = RestoreOptions {
            to: self.to.clone(),
            tablespaces: self.tablespaces.clone(),
            threads: threads(self.threads),
            recovery,
            kept: self.owners.ownership()?,
            sealing,
            delta: self.delta.delta(&self.medium, &keyring, &self.key),
            stop: None,
        };
        say_who_made(set.description(), signer.as_deref());
        if signer.is_some() && options.recovery.is_some() {
            note(LOG_IS_NOT_SIGNED);
        }
        if unattended.is_none() {
            say_in_clear(set.description(), &self.to);
        }
        let left_to_root =
            rustix::process::geteuid().is_root() && options.kept.owners == Owners::Mine;
        let mut progress = ProgressReporter::new("restore", self.progress).with_total(total);
        let programs = |major| self.programs.find(major);
        let restored = restore_newest(&chain, &options, &programs, &mut |bytes| {
            progress.update(bytes);
        })?;
        record.mark_done();
        progress.finish();
        if let Some(unattended) = unattended {
            warn_about_key(unattended, &self.to);
        }
        let position = set.position();
        self.report(context, position, restored, unattended.is_some())?;
        if left_to_root && facts.is_some() && !self.json {
            note(
                "the files belong to root, as whom no server runs: --owner USER gives them to the server's user",
            );
        }
        Ok(())
    }

    /// Prints what was restored, as text or JSON. Notes what could not be removed, and where
    /// tablespaces are. `sealed`: it became a sealed instance. SR-5001 if standard output cannot be
    /// written.
    fn report(
        &self,
        context: &mut Context,
        position: u32,
        restored: Restored,
        sealed: bool,
    ) -> Result<(), Failure> {
        if let Some(left) = restored.left {
            note(&format!(
                "what was there before could not be removed whole: {}",
                left.display()
            ));
        }
        let tablespaces = restored.tablespaces.map(|path| path.display().to_string());
        if self.json {
            return context.output.json(&Report {
                position,
                path: self.to.display().to_string(),
                files: restored.files,
                size_bytes: restored.bytes,
                kept_files: restored.kept,
                tablespaces,
                set: restored.description,
            });
        }
        let mut more = String::new();
        if sealed {
            more.push_str(", sealed");
        }
        if self.delta.delta {
            more.push_str(&format!("; {} files were kept", restored.kept));
        }
        context.output.line(&format!(
            "restored set {position} to {}: {} files, {} bytes{more}",
            self.to.display(),
            restored.files,
            restored.bytes,
        ))?;
        context.output.flush()?;
        if let Some(tablespaces) = tablespaces {
            note(&format!("the tablespaces are in {tablespaces}"));
        }
        Ok(())
    }
}
