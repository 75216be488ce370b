//! `strongroom volume backup DEVICE`: the header, sealed, to the key server, or as it is into a
//! file.
//!
//! Must not: leave an unsealed copy anywhere but in the file that was asked for.

use std::path::PathBuf;

use clap::Args;
use strongroom_volume::{Volume, escrow};

use super::material::ProviderOptions;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Back up a volume's header and key slots. Whoever has it and a key that opened the volume then
/// opens it for ever.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume backup /dev/vdb --out vdb.header"))]
pub(super) struct BackupArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// Write it into this new file, instead of sealing it and leaving it at the key server
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    provider: ProviderOptions,
}

impl BackupArgs {
    /// Copies header and key slots into the new file that was named, unsealed; or seals them and
    /// stores them at the key server, to which the volume is reported first. Prints nothing.
    /// Errors: SR-1006 or SR-8322 if there is no such volume, SR-1002 if the file exists; without
    /// `--out` SR-8323 without a token and SR-1001 if the key is in a keyring; the errors of the
    /// key server.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut volume = Volume::open(&self.path)?;
        if let Some(out) = &self.out {
            return Ok(volume.back_up_header(out)?);
        }
        let token = volume.token()?;
        let mut keys = self
            .provider
            .host_keys(context)
            .open(Some(token.provider))?;
        if !keys.keeps_headers() {
            let detail = "a keyring keeps no header backups: name a file with --out";
            return Err(Failure::usage(detail));
        }
        Ok(escrow::store_at_server(&mut volume, keys.as_mut())?)
    }
}
