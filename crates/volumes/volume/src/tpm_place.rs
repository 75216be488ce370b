//! A TPM at an address, which is opened when a volume needs its key.
//!
//! Invariant V3: the address is the caller's, never a token's.
//!
//! Must not: keep an unsealed key.

use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_keyring::Error;
use strongroom_luks2::Metadata;

use crate::device::Volume;
use crate::tpm::{OpenTpm, opening, secret_of_metadata};

/// Where the TPM is, and how it is opened.
#[derive(Clone)]
pub struct TpmPlace {
    /// Its address; `None`: this machine's.
    pub tcti: Option<String>,
    /// Opens it.
    pub open: OpenTpm,
}

impl TpmPlace {
    /// Has the TPM unseal its key of the volume, and returns the passphrase that is made of it,
    /// after it was tried on the volume's slots.
    ///
    /// # Errors
    /// What opening the TPM reports, such as SR-2019 for the address; as [`opening`].
    pub fn secret(&self, volume: &mut Volume) -> Result<SecretBytes, Error> {
        let tpm = (self.open)(self.tcti.as_deref(), None)?;
        opening(volume, &|sealed| tpm.unseal(sealed))
    }

    /// Has the TPM unseal its key of a volume whose header libcryptsetup has not read. Returns the
    /// passphrase that is made of it, with the slots that it is for, and does not try it. `path`
    /// names the volume in errors.
    ///
    /// # Errors
    /// What opening the TPM reports; as [`secret_of_metadata`].
    pub fn secret_of_metadata(
        &self,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<(SecretBytes, Vec<u32>), Error> {
        let tpm = (self.open)(self.tcti.as_deref(), None)?;
        secret_of_metadata(path, metadata, &|sealed| tpm.unseal(sealed))
    }
}
