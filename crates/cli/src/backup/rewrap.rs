//! `strongroom backup rewrap MEDIUM`: seals the existing sets and the archived log for other keys.
//!
//! Must not: report a set as rewrapped before its head is durable.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_backup::history::RunRecord;
use strongroom_backup::{
    Others, RewrappedMedium, fetch_opener, rewrap_medium, rewrap_set, set_recipients,
};
use strongroom_format::code;
use strongroom_keyring::{Keyring, Opener, Recipient};

use super::history::{self, HistoryOptions, Outlets};
use super::medium_name::store;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::{KeyOptions, NewKeyOptions};
use crate::keys;

/// Change who can open sets and archived log. Only their headers are written.
///
/// Sets that the key does not open are left as they are, and named; so are those that others can
/// open too, unless it is said what becomes of those.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup rewrap /mnt/backups --key-id old --new-key-id new
  strongroom backup rewrap /mnt/backups --key-id backups --new-certificate escrow --add"))]
pub(super) struct RewrapArgs {
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(value_name = "MEDIUM")]
    medium: PathBuf,
    /// One set only, by its position, and no log
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    set: Option<u32>,
    /// Rewrap what others can open too: they lose it
    #[arg(long)]
    drop_others: bool,
    /// Everyone who can open a set keeps it, the key that is named too: the new ones can open it as
    /// well
    #[arg(long, conflicts_with = "drop_others")]
    add: bool,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    new_key: NewKeyOptions,
    /// A certificate of the keyring; several, if it is given several times, also beside a new key
    #[arg(long, value_name = "NAME", help_heading = "New key options")]
    new_certificate: Vec<String>,
    #[command(flatten)]
    history: HistoryOptions,
}

impl RewrapArgs {
    /// Rewraps as [`Self::rewrap`] and records the run in the catalogue.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let outlets = Outlets {
            history: Some(self.history.clone()),
            ..Outlets::default()
        };
        history::run_and_note(context, "rewrap", &outlets, |context, record| {
            self.rewrap(context, record)
        })
    }

    /// Gives one set, or all sets and the archived log, key slots for the new keys, and prints how
    /// many. Objects that the key does not open, or that others can open too, are left as they are
    /// and noted; then the command fails at the end. Errors: SR-1001 without a new key or an old
    /// one, SR-7107 or SR-7126 for the set, SR-2002 or SR-2003 for the old key, SR-7132 if others
    /// can open it; SR-7106 for a head that cannot be read; the errors of the keys; SR-5001 when
    /// the system reports an error.
    fn rewrap(self, context: &mut Context, record: &mut RunRecord) -> Result<(), Failure> {
        let store = store(&self.medium)?;
        record.set_medium(store.as_ref());
        let keyring = context.keyring_path();
        let others = match (self.drop_others, self.add) {
            (true, _) => Others::Drop,
            (_, true) => Others::Keep,
            _ => Others::Refuse,
        };
        let old = match keys::source(self.key) {
            Some(key) => fetch_opener(&key, Some(keyring.clone()), false)?,
            None => private_keys(&keyring)?,
        };
        let new_key = keys::source(self.new_key.into());
        let new = set_recipients(new_key.as_ref(), &self.new_certificate, &keyring, &mut warn)?;
        let new: Vec<&Recipient> = new.iter().collect();
        if new.is_empty() {
            let text = "backup rewrap needs --new-certificate or one of --new-key-id, --new-key-env, --new-key-file, --new-key-command, --new-ask";
            return Err(Failure::usage(text));
        }
        if let Some(position) = self.set {
            rewrap_set(store.as_ref(), position, &old, &new, others)?;
            record.set_backup_set(store.as_ref(), position);
            record.mark_done();
            return context.output.line(&format!("rewrapped set {position}"));
        }
        let done = rewrap_medium(store.as_ref(), &old, &new, others)?;
        let text = format!("{} sets and {} files of the log", done.sets, done.files);
        record.set_detail(text.clone());
        context.output.line(&format!("rewrapped {text}"))?;
        context.output.flush()?;
        finish(done)
    }
}

/// Opens the keyring and returns an opener with the private keys of its certificates. SR-1001 if
/// there is no keyring, or none of its certificates has one; the errors of the keyring.
fn private_keys(keyring: &Path) -> Result<Opener, Failure> {
    if keyring.exists() {
        let keys = Keyring::open(keyring)?;
        if keys.certificates().iter().any(|held| held.has_private_key) {
            return Ok(keys.private_keys()?);
        }
    }
    let text = "backup rewrap needs one of --key-id, --key-env, --key-file, --key-command, --ask, or a certificate's private key in the keyring";
    Err(Failure::usage(text))
}

/// Notes every object that was left as it is, and why. Returns the error of the first head that
/// cannot be read, otherwise that of the first object that was left, otherwise success.
fn finish(done: RewrappedMedium) -> Result<(), Failure> {
    for (what, error) in &done.left {
        if error.code() == &code::OTHER_RECIPIENTS {
            note(&format!("{what} can be opened by others too"));
        } else {
            note(&format!("{what} is sealed for another key"));
        }
    }
    if let Some(bad) = done.unreadable.into_iter().next() {
        return Err(bad.error.into());
    }
    match done.left.into_iter().next() {
        Some((what, error)) => Err(error.with_prefix(&format!("{what}: ")).into()),
        None => Ok(()),
    }
}
