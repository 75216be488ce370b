//! `strongroom volume enroll DEVICE passphrase|recovery|keyserver|keyring|tpm`.
//!
//! Must not: show anything but a new recovery key.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_luks2::Provider;
use strongroom_volume::escrow::renew_backup_after_change;
use strongroom_volume::host_keys::HostKeys;
use strongroom_volume::recovery_place::{RecoveryPlace as _, add_shown_recovery};
use strongroom_volume::{Volume, openers};

use super::material::ProviderOptions;
use super::messages::StandardError;
use super::recovery::RecoveryOptions;
use super::secret::{SecretOptions, new_passphrase};
use crate::context::Context;
use crate::failure::{Failure, warn};
use crate::help::tail;

/// Let something more open a volume, which is opened with the key of its token or as the options
/// say.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume enroll /dev/vdb passphrase"))]
pub(super) struct EnrollArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// What is to open it
    #[arg(value_name = "WHAT")]
    what: EnrolledOpener,
    /// The new passphrase, instead of asking
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
    /// The key's name, for keyserver and keyring [default: that of the token]
    #[arg(long, value_name = "NAME")]
    key_id: Option<String>,
    /// Registers (PCRs) whose present values the TPM has to have, as 7,11 [default: 7]
    #[arg(long, value_name = "NUMBERS")]
    pcrs: Option<String>,
    #[command(flatten)]
    recovery: RecoveryOptions,
    #[command(flatten)]
    secret: SecretOptions,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// What is to open it.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnrolledOpener {
    /// A passphrase, asked for on the terminal or from --new-passphrase-file
    Passphrase,
    /// A new recovery key
    Recovery,
    /// A key of the key server
    Keyserver,
    /// A key of the keyring
    Keyring,
    /// What this machine's TPM seals
    Tpm,
}

#[derive(Serialize)]
struct Enrolled {
    path: String,
    slot: u32,
}

impl EnrollArgs {
    /// Opens the volume with the secret of the options and adds a key slot for a passphrase, a
    /// recovery key, a key or the TPM; renews the header backup at the key server, and prints the
    /// slot's number. Warns with SR-8332 if the TPM opens it and no recovery key does.
    /// Errors: SR-8320 if the volume is attached elsewhere, SR-2002 if the secret opens no slot,
    /// SR-1001 for `--pcrs` without `tpm`, SR-8357 or SR-1002 for the place of the recovery key;
    /// the errors of the keys and of libcryptsetup.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        if self.pcrs.is_some() && self.what != EnrolledOpener::Tpm {
            return Err(Failure::usage("--pcrs is for tpm"));
        }
        let mut volume = Volume::open_to_change(&self.path)?;
        if self.what == EnrolledOpener::Recovery {
            self.recovery.check()?;
        }
        let opener = self.secret.opener(context, &self.provider);
        let (by, secret) = opener.secret(&mut volume)?;
        volume.try_by(by, &secret)?;
        let slot = match self.what {
            EnrolledOpener::Recovery => add_shown_recovery(&mut volume, &secret, &self.recovery)?.0,
            EnrolledOpener::Keyserver => {
                self.add_key(context, &mut volume, &secret, Provider::KeyServer)?
            }
            EnrolledOpener::Keyring => {
                self.add_key(context, &mut volume, &secret, Provider::Keyring)?
            }
            EnrolledOpener::Tpm => {
                let registers = self.pcrs.as_deref();
                let slot = self.secret.place.enroll(&mut volume, &secret, registers)?;
                if openers::lacks_recovery_key(&mut volume)? {
                    let path = self.path.display().to_string();
                    warn(&code::VOLUME_NO_RECOVERY, &path);
                }
                slot
            }
            EnrolledOpener::Passphrase => {
                let new = new_passphrase(self.new_passphrase_file.as_ref())?;
                openers::add_passphrase(&mut volume, &secret, &new)?
            }
        };
        drop(volume);
        renew_backup_after_change(&self.path, &opener.keys, &StandardError);
        let path = self.path.display().to_string();
        if self.json {
            return context.output.json(&Enrolled { path, slot });
        }
        context.output.line(&format!("key slot {slot}"))
    }

    /// Adds a key slot for the newest version of a key of `provider` and returns its number. The
    /// key is made if there is none of that name. `secret` opens the volume already. SR-1001 if
    /// neither `--key-id` nor a token names the key; the errors of the key's source and of
    /// libcryptsetup.
    fn add_key(
        &self,
        context: &Context,
        volume: &mut Volume,
        secret: &SecretBytes,
        provider: Provider,
    ) -> Result<u32, Failure> {
        let mut keys = HostKeys {
            provider: Some(provider),
            ..self.provider.host_keys(context)
        }
        .open(None)?;
        let named = || {
            let token = volume.metadata().ok()?.strongroom_token().ok()??;
            Some(token.1.key_id)
        };
        let key_id = self.key_id.clone().or_else(named);
        let key_id = key_id.ok_or_else(|| Failure::usage("name the key: --key-id NAME"))?;
        Ok(openers::add_key(volume, secret, keys.as_mut(), &key_id)?)
    }
}
