//! `strongroom volume rotate DEVICE`.
//!
//! Must not: take a secret from the command line.

use std::path::PathBuf;

use clap::Args;
use strongroom_volume::recovery_place::RecoveryPlace;
use strongroom_volume::rotation::{StayingSecrets, rotate_data, rotate_key};
use strongroom_volume::status::device_of;

use super::material::ProviderOptions;
use super::messages::StandardError;
use super::recovery::RecoveryOptions;
use super::tpm::TpmAddress;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::progress::Progress;

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
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = device_of(&self.path);
        let keys = self.provider.host_keys(context);
        if self.slots_only {
            let rotated = rotate_key(&path, &keys, &StandardError)?;
            let what = if rotated.finished {
                "finished what was begun: "
            } else {
                ""
            };
            let (from, to) = (rotated.from, rotated.to);
            let line = format!("{what}key version {to} opens the volume, version {from} no longer");
            return context.output.line(&line);
        }
        let tpm = self.place.place();
        let new_recovery: Option<&dyn RecoveryPlace> = match self.new_recovery {
            true => Some(&self.recovery),
            false => None,
        };
        let stays = StayingSecrets {
            tpm: self.tpm.then_some(&tpm),
            passphrase_files: &self.passphrase_file,
            recovery_file: self.recovery_file.as_deref(),
            new_recovery,
            given_up: &self.drop,
        };
        let mut progress = Progress::new("re-encrypted");
        let reencrypted = move |size, offset| {
            progress.update(offset, size);
            true
        };
        rotate_data(
            &path,
            &keys,
            &stays,
            self.online,
            reencrypted,
            &StandardError,
        )?;
        context.output.line("all data are under a new volume key")
    }
}
