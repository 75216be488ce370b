//! `strongroom volume open DEVICE [NAME]`.
//!
//! Must not: show a key.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_volume::{Volume, active};

use super::material::ProviderOptions;
use super::secret::SecretOptions;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Open a volume: /dev/mapper/NAME then holds its data.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume open /dev/vdb data"))]
pub(super) struct OpenArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// The mapping's name [default: the last part of the path]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    secret: SecretOptions,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Only try whether it opens; needs no device-mapper
    #[arg(long, conflicts_with = "name")]
    test: bool,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Opened {
    path: String,
    /// `null` for a test.
    mapping: Option<String>,
    slot: u32,
}

impl OpenArgs {
    /// Maps the volume as /dev/mapper/NAME and prints that path and the key slot; with `--test`
    /// only tries the secret. SR-1006 or SR-8322 if there is no such volume, SR-8337 if the name is
    /// not valid or taken, SR-2002 if the secret opens no slot, SR-8327 without device-mapper; the
    /// errors of the secret's source.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let name = match (&self.name, self.test) {
            (_, true) => None,
            (Some(name), _) => Some(name.clone()),
            (None, _) => Some(active::name_for(&self.path)),
        };
        if let Some(name) = &name {
            active::check_name(name)?;
        }
        let mut volume = Volume::open(&self.path)?;
        let opener = self.secret.opener(context, &self.provider);
        let (by, secret) = opener.secret(&mut volume)?;
        let slot = match &name {
            None => volume.try_by(by, &secret)?,
            Some(name) => active::open(&mut volume, name, (by, &secret), self.read_only)?,
        };
        let mapping = name.map(|name| active::path_of(&name).display().to_string());
        let opened = Opened {
            path: self.path.display().to_string(),
            mapping,
            slot,
        };
        if self.json {
            return context.output.json(&opened);
        }
        let what = opened.mapping.unwrap_or_else(|| "it opens".to_owned());
        context.output.line(&format!("{what} (key slot {slot})"))
    }
}
