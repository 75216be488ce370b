//! What opens a volume, as the options name it: the key that its token names, what a person types,
//! or the TPM.
//!
//! Must not: take a secret from the command line.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_keyring::{Error, KeySource, SourceContext};
use strongroom_volume::volume_opener::{NamedOpener, VolumeOpener};

use super::material::ProviderOptions;
use super::tpm::TpmAddress;
use crate::context::Context;
use crate::keys;

/// What opens it, instead of the key that the volume's token names. At most one.
#[derive(Args, Clone, Default)]
#[group(required = false, multiple = false)]
pub(super) struct SecretOptions {
    /// Ask for a passphrase on the terminal
    #[arg(long, help_heading = "Opened by")]
    passphrase: bool,
    /// A file that holds a passphrase; one line end after it does not count
    #[arg(long, value_name = "FILE", help_heading = "Opened by")]
    passphrase_file: Option<PathBuf>,
    /// Ask for the recovery key on the terminal
    #[arg(long, help_heading = "Opened by")]
    recovery: bool,
    /// A file that holds the recovery key
    #[arg(long, value_name = "FILE", help_heading = "Opened by")]
    recovery_file: Option<PathBuf>,
    /// What this machine's TPM sealed
    #[arg(long, help_heading = "Opened by")]
    tpm: bool,
    #[command(flatten)]
    pub(super) place: TpmAddress,
}

impl SecretOptions {
    /// Returns what opens the volume, as these options and those of the keys name it. Nothing is
    /// asked for yet.
    pub(super) fn opener(&self, context: &Context, provider: &ProviderOptions) -> VolumeOpener {
        VolumeOpener {
            named: self.named(),
            tpm: self.place.place(),
            keys: provider.host_keys(context),
        }
    }

    /// Returns the opener that the options name. Fetches nothing: what is typed is read from its
    /// file, or asked for at the terminal, when the volume is opened.
    fn named(&self) -> NamedOpener {
        let is_recovery = self.recovery || self.recovery_file.is_some();
        let file = self
            .passphrase_file
            .as_ref()
            .or(self.recovery_file.as_ref());
        let source = match file {
            Some(file) => KeySource::File(file.clone()),
            None if self.tpm => return NamedOpener::Tpm,
            None if self.passphrase || self.recovery => KeySource::Ask,
            None => return NamedOpener::Token,
        };
        let (what, instead) = match is_recovery {
            true => ("Recovery key", "--recovery-file FILE"),
            false => ("Passphrase", "--passphrase-file FILE"),
        };
        let typed = Box::new(move |path: &Path| {
            let about = SourceContext {
                prompt: format!("{what} of {}", path.display()),
                ..SourceContext::default()
            };
            keys::passphrase(&source, &about, instead)
        });
        match is_recovery {
            true => NamedOpener::Recovery(typed),
            false => NamedOpener::Passphrase(typed),
        }
    }
}

/// Fetches a new passphrase: from `file`, otherwise typed twice at the terminal. SR-1004 without a
/// terminal, SR-2011 if the two differ, SR-2007 for the file, SR-2042 if it is no usable text.
pub(super) fn new_passphrase(file: Option<&PathBuf>) -> Result<SecretBytes, Error> {
    let about = SourceContext {
        creating: true,
        prompt: String::from("New passphrase of the volume"),
        ..SourceContext::default()
    };
    let source = file.map_or(KeySource::Ask, |file| KeySource::File(file.clone()));
    keys::passphrase(&source, &about, "--new-passphrase-file FILE")
}
