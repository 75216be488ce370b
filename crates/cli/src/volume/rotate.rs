//! `strongroom volume rotate DEVICE`.
//!
//! Invariants V13 to V16 of docs/internals/volumes.md.
//!
//! Must not: leave out an opener that the user did not give up.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{KeySource, SourceContext};
use strongroom_luks2::OpenedBy;
use strongroom_volume::keys::{Keys, secret_of_token};
use strongroom_volume::outage::forget;
use strongroom_volume::reencrypt::{check_library, resume};
use strongroom_volume::report::{Change, note_unreported, report};
use strongroom_volume::secret::recovery_key;
use strongroom_volume::status::device_of;
use strongroom_volume::staying::{Given, GivenUp, begin_with};
use strongroom_volume::{Volume, active, openers, rotate};

use super::backup::store_backup_at_server;
use super::material::ProviderOptions;
use super::messages::StandardError;
use super::recovery::RecoveryOptions;
use super::tpm::TpmAddress;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;

/// Change the key of a volume: all data anew under a new volume key, or with --slots-only just what
/// opens it.
///
/// Run it again after it was stopped: it goes on.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume rotate /dev/vdb --online --recovery-file db-7.recovery"))]
pub(super) struct RotateArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// A new version of the key opens the volume; its data stay as they are
    #[arg(long, conflicts_with_all = ["online", "recovery_file", "new_recovery", "passphrase_file", "drop", "tpm"])]
    slots_only: bool,
    /// While the volume is open
    #[arg(long)]
    online: bool,
    /// The recovery key, so that it goes on opening the volume
    #[arg(long, value_name = "FILE")]
    recovery_file: Option<PathBuf>,
    /// A new recovery key instead of the present one
    #[arg(long, conflicts_with = "recovery_file")]
    new_recovery: bool,
    #[command(flatten)]
    recovery: RecoveryOptions,
    /// A passphrase of a slot, so that it goes on opening the volume; may be given again
    #[arg(long, value_name = "FILE")]
    passphrase_file: Vec<PathBuf>,
    /// This machine's TPM goes on opening the volume
    #[arg(long)]
    tpm: bool,
    #[command(flatten)]
    place: TpmAddress,
    /// A slot that need not open the volume afterwards; may be given again
    #[arg(long, value_name = "SLOT")]
    drop: Vec<u32>,
    #[command(flatten)]
    provider: ProviderOptions,
}

impl RotateArgs {
    /// With `--slots-only`, replaces the key slot by one of a new version of the key. Otherwise
    /// begins or continues the re-encryption of all data under a new volume key, with progress.
    /// Then renews the header backup at the key server, reports the change, and prints it; a
    /// passphrase that was kept for boots is removed first.
    /// Errors: SR-8323 without a token, SR-8320 if the volume is in use, SR-8329 for the library's
    /// version, SR-8338 if the secret of a slot is missing, SR-8328 if it was stopped; the errors
    /// of the key's source.
    pub(super) fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        self.path = device_of(&self.path);
        let mut volume = Volume::open_to_change(&self.path)?;
        let token = volume.token()?;
        let mut keys = self.provider.keys(context, Some(token.provider))?;
        forget(&token, &StandardError);
        if self.slots_only {
            return self.slots(context, &mut volume, keys.as_mut());
        }
        check_library()?;
        let active = active::name_of_open(&self.path, self.online)?;
        let secret = secret_of_token(keys.as_mut(), &token)?;
        if volume.metadata()?.is_reencrypting() {
            note("a re-encryption was begun before; it goes on");
        } else {
            self.begin(&mut volume, &secret, active.as_deref())?;
            store_backup_at_server(&self.path, keys.as_mut());
        }
        let mut progress = crate::progress::Progress::new("re-encrypted");
        let done = resume(
            &mut volume,
            &secret,
            active.as_deref(),
            &mut |size, offset| {
                progress.update(offset, size);
                true
            },
        )?;
        drop(volume);
        if !done {
            return Err(Failure::new(&code::VOLUME_ROTATING, "it was stopped"));
        }
        store_backup_at_server(&self.path, keys.as_mut());
        note_unreported(
            report(&self.path, keys.as_mut(), Change::Rotated),
            &StandardError,
        );
        context.output.line("all data are under a new volume key")
    }

    /// Makes a new version of the key open the volume, removes the slot of the former one, renews
    /// the header backup at the key server, reports the change, and prints both versions. SR-8328
    /// during a re-encryption; the errors of the key's source and of libcryptsetup.
    fn slots(
        &self,
        context: &mut Context,
        volume: &mut Volume,
        keys: &mut dyn Keys,
    ) -> Result<(), Failure> {
        let rotated = rotate::rotate_slots(volume, keys)?;
        store_backup_at_server(&self.path, keys);
        note_unreported(report(&self.path, keys, Change::Rotated), &StandardError);
        let what = if rotated.finished {
            "finished what was begun: "
        } else {
            ""
        };
        let (from, to) = (rotated.from, rotated.to);
        let line = format!("{what}key version {to} opens the volume, version {from} no longer");
        context.output.line(&line)
    }

    /// Begins a re-encryption, in which no data move yet. With `--new-recovery`, shows a new
    /// recovery key and adds a slot for it first. `secret` is that of the token's key; `active` is
    /// the name of the mapping if the volume is open.
    /// Errors: SR-8338 if the secret of a slot that is to stay is missing, SR-2002 if one does not
    /// fit; the errors of the secrets, of the place of the recovery key and of libcryptsetup.
    fn begin(
        &self,
        volume: &mut Volume,
        secret: &SecretBytes,
        active: Option<&str>,
    ) -> Result<(), Failure> {
        let mut given = self.given_secrets(volume)?;
        if self.new_recovery {
            // The new recovery key gets a slot with the old volume key first, so that it opens the
            // volume at every moment of the re-encryption.
            let place = self.recovery.place()?;
            let key = place.new_key(&self.path)?;
            openers::add_recovery(volume, secret, &key)?;
            given.push(Given {
                secret: key,
                opener: OpenedBy::Recovery,
            });
        }
        let given_up = GivenUp {
            slots: &self.drop,
            recovery_keys: self.new_recovery,
        };
        Ok(begin_with(volume, secret, &given, &given_up, active)?)
    }

    /// Fetches the secrets of the openers that the options name: of the TPM, of each passphrase
    /// file, and of the recovery key's file. SR-8361 if that is no recovery key; the errors of the
    /// TPM and of the files.
    fn given_secrets(&self, volume: &mut Volume) -> Result<Vec<Given>, Failure> {
        let mut given = Vec::new();
        if self.tpm {
            let secret = self.place.secret(volume)?;
            given.push(Given {
                secret,
                opener: OpenedBy::Tpm,
            });
        }
        for file in &self.passphrase_file {
            let secret = read_passphrase(file)?;
            given.push(Given {
                secret,
                opener: OpenedBy::Passphrase,
            });
        }
        if let Some(file) = &self.recovery_file {
            let secret = recovery_key(&read_passphrase(file)?)?;
            given.push(Given {
                secret,
                opener: OpenedBy::Recovery,
            });
        }
        Ok(given)
    }
}

/// Reads a passphrase from a file; one line end after it does not count. SR-2007 if it cannot be
/// read; SR-2042 if it is empty, longer than 1024 bytes or not UTF-8; SR-2011 if the file is longer
/// than 64 KiB.
fn read_passphrase(file: &Path) -> Result<SecretBytes, Failure> {
    Ok(KeySource::File(file.to_owned()).passphrase(&SourceContext::default())?)
}
