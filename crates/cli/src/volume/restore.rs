//! `strongroom volume restore DEVICE --from FILE | --from-server`: puts a header back that `backup`
//! has saved.
//!
//! Must not: write a header that was not checked; drop an opener that the user did not name.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_format::hex::from_hex;
use strongroom_luks2::Provider;
use strongroom_volume::restore::{Allowed, Backup, restore, token_on};

use super::material::ProviderOptions;
use super::messages::StandardError;
use super::secret::SecretOptions;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;

/// Put a volume's header and key slots back, from a backup that is checked first.
///
/// Slots that were removed since the backup open the volume again. A header that is there and is
/// another volume's, or has another volume key, is given up only when --confirm names it.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume restore /dev/vdb --from vdb.header --recovery-file db-7.recovery"))]
#[command(group = clap::ArgGroup::new("backup").required(true).args(["from", "from_server"]))]
pub(super) struct RestoreArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// What `strongroom volume backup --out` or `cryptsetup luksHeaderBackup` wrote
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// What was left at the key server
    #[arg(long, conflicts_with_all = ["passphrase", "passphrase_file", "recovery", "recovery_file", "tpm"])]
    from_server: bool,
    /// The volume's object id, where its header does not tell it any more: `create --json` and the
    /// fleet page do
    #[arg(long, value_name = "HEX", requires_all = ["from_server", "key_id"])]
    object_id: Option<String>,
    /// The name of its key, as above
    #[arg(long, value_name = "NAME", requires = "object_id")]
    key_id: Option<String>,
    /// Give up the header of this volume, which is on the device
    #[arg(long, value_name = "UUID")]
    confirm: Option<String>,
    /// Give up whatever else is on the device
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    secret: SecretOptions,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Report {
    path: String,
    uuid: String,
    bytes: u64,
    /// The slot that opens; `null` when nothing was given to try.
    slot: Option<u32>,
}

impl RestoreArgs {
    /// Writes a header and key slots back to the device, from a file or the key server, after they
    /// were checked and, if there is a secret, opened with it; prints the volume's UUID. Warns with
    /// SR-8309 if one copy in the backup was damaged.
    /// Errors: SR-8354 for the backup, SR-2002 if the secret does not open it, SR-8320 if the
    /// device is in use, SR-8353 if something else on it would be lost; SR-8360 if it is not known
    /// which volume it was; the errors of the secret and the key server.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let opener = self.secret.opener(context, &self.provider);
        let (backup, proof) = match &self.from {
            Some(file) => {
                let backup = Backup::load(file, &self.path)?;
                let proof = opener.proof_of(&backup, &self.path, &StandardError)?;
                (backup, proof)
            }
            None => {
                let (object_id, key_id) = self.which()?;
                // Not the source that a token names: a keyring keeps no backups.
                let mut keys = opener.keys.open(Some(Provider::KeyServer))?;
                let (backup, secret) =
                    Backup::at_server(keys.as_mut(), &object_id, &key_id, &self.path)?;
                (backup, Some(secret))
            }
        };
        if let Some(text) = backup.mended() {
            warn(&code::LUKS_ONE_COPY, &format!("the backup: {text}"));
        }
        let allowed = Allowed {
            volume: self.confirm.as_deref(),
            anything_else: self.overwrite,
        };
        let restored = restore(&self.path, &backup, proof.as_ref(), allowed)?;
        if restored.slot.is_none() {
            note(
                "nothing was given to open the backup with: try it now with `strongroom volume open --test`",
            );
        }
        let report = Report {
            path: self.path.display().to_string(),
            uuid: restored.uuid,
            bytes: restored.bytes,
            slot: restored.slot,
        };
        if self.json {
            return context.output.json(&report);
        }
        context.output.line(&format!(
            "volume {}: header and key slots are back, {} bytes",
            report.uuid, report.bytes
        ))
    }

    /// Returns the volume's object id and the name of its key: from the options, otherwise from
    /// what can be read of its header. SR-1001 if the id is not 32 hexadecimal digits, SR-8360 if
    /// the device has no token, SR-1006 if there is no device.
    fn which(&self) -> Result<([u8; 16], String), Failure> {
        if let (Some(id), Some(key)) = (&self.object_id, &self.key_id) {
            let id = from_hex(&id.to_ascii_lowercase()).and_then(|id| id.try_into().ok());
            let id = id.ok_or_else(|| Failure::usage("--object-id: 32 hexadecimal digits"))?;
            return Ok((id, key.clone()));
        }
        let token = token_on(&self.path)?;
        Ok((token.object_id, token.key_id))
    }
}
