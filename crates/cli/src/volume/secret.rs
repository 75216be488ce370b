//! The secret that opens a volume: made of the key that its token names, typed by a person, or made
//! of the key that the TPM unseals.
//!
//! Must not: take a secret from the command line.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{KeySource, SourceContext};
use strongroom_volume::device::By;
use strongroom_volume::keys::secret_of_token;
use strongroom_volume::secret::recovery_key;
use strongroom_volume::{Volume, tpm};

use super::material::ProviderOptions;
use super::tpm::TpmAddress;
use crate::context::Context;
use crate::failure::Failure;
use crate::keys;

/// What opens it, instead of the key that the volume's token names. At most one.
#[derive(Args, Clone, Default)]
#[group(required = false, multiple = false)]
pub(super) struct SecretOptions {
    /// Ask for a passphrase on the terminal
    #[arg(long, help_heading = "Opened by")]
    pub(super) passphrase: bool,
    /// A file that holds a passphrase; one line end after it does not count
    #[arg(long, value_name = "FILE", help_heading = "Opened by")]
    pub(super) passphrase_file: Option<PathBuf>,
    /// Ask for the recovery key on the terminal
    #[arg(long, help_heading = "Opened by")]
    pub(super) recovery: bool,
    /// A file that holds the recovery key
    #[arg(long, value_name = "FILE", help_heading = "Opened by")]
    pub(super) recovery_file: Option<PathBuf>,
    /// What this machine's TPM sealed
    #[arg(long, help_heading = "Opened by")]
    pub(super) tpm: bool,
    #[command(flatten)]
    pub(super) place: TpmAddress,
}

impl SecretOptions {
    /// Returns whether the options name no secret, so that the key of the volume's token, or the
    /// TPM of a volume without such a token, opens it.
    pub(super) fn is_token(&self) -> bool {
        !self.passphrase
            && !self.tpm
            && !self.recovery
            && self.passphrase_file.is_none()
            && self.recovery_file.is_none()
    }

    /// Returns on which slots the secret is tried: on those of Strongroom's token if its key is
    /// used, otherwise on all. SR-8324 if the header cannot be read.
    pub(super) fn by(&self, volume: &mut Volume) -> Result<By, Failure> {
        Ok(match self.is_token() && !self.is_tpm(volume)? {
            true => By::Token,
            false => By::Person,
        })
    }

    /// Fetches the secret of a key slot: a passphrase or recovery key that the options name,
    /// otherwise that of the key of Strongroom's token, otherwise that of the TPM.
    /// Errors: SR-8323 if there is no usable token, SR-1004 without a terminal, SR-8361 if it is no
    /// recovery key; the errors of the files, the key's source and the TPM.
    pub(super) fn secret(
        &self,
        context: &Context,
        volume: &mut Volume,
        provider: &ProviderOptions,
    ) -> Result<SecretBytes, Failure> {
        if self.is_tpm(volume)? {
            return self.place.secret(volume);
        }
        if self.is_token() {
            let token = volume.token()?;
            let mut keys = provider.keys(context, Some(token.provider))?;
            return Ok(secret_of_token(keys.as_mut(), &token)?);
        }
        self.typed(volume.path())?
            .ok_or_else(|| Failure::new(&code::NO_KEY, volume.path().display().to_string()))
    }

    /// Returns whether the TPM opens the volume: because `--tpm` was given, or no secret was named
    /// and only the TPM has a token. SR-8324 if the header cannot be read.
    fn is_tpm(&self, volume: &mut Volume) -> Result<bool, Failure> {
        if self.tpm || !self.is_token() {
            return Ok(self.tpm);
        }
        let metadata = volume.metadata()?;
        Ok(metadata
            .strongroom_token()
            .is_ok_and(|token| token.is_none())
            && tpm::opens(&metadata))
    }

    /// Fetches the passphrase or recovery key that the options name, from a file or at the
    /// terminal. `None` if they name none. SR-1004 without a terminal, SR-2007 for the file,
    /// SR-2042 if it is no usable text, SR-8361 if it is no recovery key.
    pub(super) fn typed(&self, path: &Path) -> Result<Option<SecretBytes>, Failure> {
        if self.is_token() || self.tpm {
            return Ok(None);
        }
        let typed = |source: KeySource, prompt: &str| {
            let about = SourceContext {
                prompt: format!("{prompt} of {}", path.display()),
                ..SourceContext::default()
            };
            let instead = match self.recovery {
                true => "--recovery-file FILE",
                false => "--passphrase-file FILE",
            };
            keys::passphrase(&source, &about, instead)
        };
        let secret = match (&self.passphrase_file, &self.recovery_file) {
            (Some(file), _) => typed(KeySource::File(file.clone()), "")?,
            (_, Some(file)) => recovery_key(&typed(KeySource::File(file.clone()), "")?)?,
            _ if self.recovery => recovery_key(&typed(KeySource::Ask, "Recovery key")?)?,
            _ => typed(KeySource::Ask, "Passphrase")?,
        };
        Ok(Some(secret))
    }
}

/// Fetches a new passphrase: from `file`, otherwise typed twice at the terminal. SR-1004 without a
/// terminal, SR-2011 if the two differ, SR-2007 for the file, SR-2042 if it is no usable text.
pub(super) fn new_passphrase(file: Option<&PathBuf>) -> Result<SecretBytes, Failure> {
    let about = SourceContext {
        creating: true,
        prompt: String::from("New passphrase of the volume"),
        ..SourceContext::default()
    };
    let source = file.map_or(KeySource::Ask, |file| KeySource::File(file.clone()));
    keys::passphrase(&source, &about, "--new-passphrase-file FILE")
}
