//! `strongroom volume repair DEVICE`.
//!
//! Must not: touch a header that is not in the one state that can be repaired.

use std::path::PathBuf;

use clap::Args;
use strongroom_volume::escrow::renew_backup_after_change;
use strongroom_volume::{Volume, repair};

use super::material::ProviderOptions;
use super::messages::StandardError;
use super::secret::SecretOptions;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Mend a header that a re-encryption left with one of two keys when it was stopped at its very
/// end.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume repair /dev/vdb"))]
pub(super) struct RepairArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// Keep the header as it was in this new file
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    #[command(flatten)]
    secret: SecretOptions,
    #[command(flatten)]
    provider: ProviderOptions,
}

impl RepairArgs {
    /// Finishes a re-encryption whose data were all moved when it was stopped, renews the header
    /// backup at the key server, and prints the key slot that opens the volume. With `--backup`,
    /// saves the header to a new file first. Errors: SR-8331 if the header is not in this state,
    /// SR-2002 if the secret opens no slot of the new key, SR-8320 if the volume is in use; the
    /// errors of the secret's source; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut volume = Volume::open_to_change(&self.path)?;
        repair::slots_of_new_key(&volume.metadata()?)?;
        let opener = self.secret.opener(context, &self.provider);
        let (_, secret) = opener.secret(&mut volume)?;
        if let Some(backup) = &self.backup {
            volume.back_up_header(backup)?;
        }
        let slot = repair::repair(&mut volume, &secret)?;
        drop(volume);
        renew_backup_after_change(&self.path, &opener.keys, &StandardError);
        context
            .output
            .line(&format!("mended; key slot {slot} opens it"))
    }
}
