//! The secret that opens a volume: one that was named, otherwise that of the key of its token,
//! otherwise that of a TPM.
//!
//! Must not: ask for anything itself; keep a secret.

use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{Metadata, Slots, StrongroomToken};

use crate::device::{By, Volume};
use crate::host_keys::HostKeys;
use crate::keys::secret_of_token;
use crate::notices::{Notices, summary};
use crate::restore::{Backup, token_of};
use crate::secret::recovery_key;
use crate::tpm;
use crate::tpm_place::TpmPlace;

/// Fetches what a person types, or has put into a file, for the volume at a path.
pub type Typed = Box<dyn Fn(&Path) -> Result<SecretBytes, Error>>;

/// What was named to open a volume.
pub enum NamedOpener {
    /// Nothing: what its tokens name.
    Token,
    /// This machine's TPM.
    Tpm,
    /// A passphrase.
    Passphrase(Typed),
    /// A recovery key.
    Recovery(Typed),
}

/// What opens a volume, with the sources of its keys.
pub struct VolumeOpener {
    /// What was named.
    pub named: NamedOpener,
    /// The TPM.
    pub tpm: TpmPlace,
    /// The sources of the token's key.
    pub keys: HostKeys,
}

impl VolumeOpener {
    /// Fetches the secret of a key slot: what was named, otherwise that of the key of Strongroom's
    /// token, otherwise that of the TPM when only the TPM has a token. Returns it with the slots
    /// that it is tried on: those of Strongroom's token when its key is used, otherwise all.
    ///
    /// # Errors
    /// SR-8324 when the header cannot be read; SR-8323 when there is no usable token; SR-8361 when
    /// what was typed is no recovery key; the errors of the key's source, of the TPM and of asking
    /// the person.
    pub fn secret(&self, volume: &mut Volume) -> Result<(By, SecretBytes), Error> {
        if self.is_tpm(volume)? {
            return Ok((By::Person, self.tpm.secret(volume)?));
        }
        if let Some(typed) = self.typed(volume.path())? {
            return Ok((By::Person, typed));
        }
        let token = volume.token()?;
        Ok((By::Token, self.secret_of_key(&token)?))
    }

    /// Returns whether the TPM opens the volume: because it was named, or nothing was named and
    /// only the TPM has a token. SR-8324 when the header cannot be read.
    fn is_tpm(&self, volume: &mut Volume) -> Result<bool, Error> {
        match self.named {
            NamedOpener::Tpm => Ok(true),
            NamedOpener::Passphrase(_) | NamedOpener::Recovery(_) => Ok(false),
            NamedOpener::Token => {
                let metadata = volume.metadata()?;
                let token = metadata.strongroom_token();
                Ok(token.is_ok_and(|token| token.is_none()) && tpm::opens(&metadata))
            }
        }
    }

    /// Fetches the passphrase or recovery key that was named for the volume at `path`. `None` when
    /// neither was.
    ///
    /// # Errors
    /// SR-8361 when what was typed is no recovery key; the errors of reading or asking for it.
    pub fn typed(&self, path: &Path) -> Result<Option<SecretBytes>, Error> {
        match &self.named {
            NamedOpener::Token | NamedOpener::Tpm => Ok(None),
            NamedOpener::Passphrase(typed) => typed(path).map(Some),
            NamedOpener::Recovery(typed) => recovery_key(&typed(path)?).map(Some),
        }
    }

    /// Returns the passphrase that the token's key makes. The caller tries it on a slot. SR-8400 or
    /// SR-8401 when the node's configuration cannot be used; SR-2003 when there is no such key or
    /// version; the other errors of the keyring or key server.
    fn secret_of_key(&self, token: &StrongroomToken) -> Result<SecretBytes, Error> {
        let mut keys = self.keys.open(Some(token.provider))?;
        secret_of_token(keys.as_mut(), token)
    }

    /// Returns the passphrase that a token of a header makes which libcryptsetup has not read, and
    /// the key slots that it is for: of the key that Strongroom's token names, or of the TPM when
    /// it was named or only it has a token. `path` names the volume in errors.
    ///
    /// # Errors
    /// SR-2001 when the volume has no such token; what the key's source or the TPM reports.
    pub fn secret_of_metadata(
        &self,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<(SecretBytes, Slots), Error> {
        let ours = token_of(metadata);
        let is_tpm = matches!(self.named, NamedOpener::Tpm);
        if is_tpm || (ours.is_none() && tpm::opens(metadata)) {
            let (secret, slots) = self.tpm.secret_of_metadata(path, metadata)?;
            return Ok((secret, Slots { only: Some(slots) }));
        }
        let Some(token) = ours else {
            let detail = "the volume has no token of Strongroom: give --passphrase or --recovery";
            return Err(Error::new(&code::NO_KEY, detail));
        };
        let only = Some(token.slots.clone());
        Ok((self.secret_of_key(token)?, Slots { only }))
    }

    /// Returns the secret that a header backup is opened with before it is written over the header
    /// of the volume at `path`: what was named, otherwise that of the key that its token names.
    /// `None` when there is no token, or, with a note, when that key cannot be fetched.
    ///
    /// # Errors
    /// The errors of fetching a secret that was named, such as SR-8361 for what is no recovery key.
    pub fn proof_of(
        &self,
        backup: &Backup,
        path: &Path,
        notices: &dyn Notices,
    ) -> Result<Option<SecretBytes>, Error> {
        if matches!(self.named, NamedOpener::Tpm) {
            let (secret, _) = self.tpm.secret_of_metadata(path, backup.metadata())?;
            return Ok(Some(secret));
        }
        let typed = self.typed(path)?;
        let Some(token) = backup.token().filter(|_| typed.is_none()) else {
            return Ok(typed);
        };
        let secret = self.secret_of_key(token);
        Ok(secret
            .inspect_err(|error| {
                let why = summary(error);
                notices.note(&format!("the backup was not opened with its key: {why}"));
            })
            .ok())
    }
}
