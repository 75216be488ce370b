//! The keys that sign sets, and the keys by which a set must be signed: options of `create`,
//! `restore` and `verify`.
//!
//! Must not: take a file without a usable key to mean that no signature is required.

use std::path::PathBuf;

use clap::Args;
use strongroom_backup::{Error, read_public_key, read_signing_key};
use strongroom_crypto::{SigningKey, VerifyingKey};

/// Whose signature a set must have.
#[derive(Args)]
pub(super) struct SignedByOptions {
    /// Refuse the set unless the key of this file has signed it: an Ed25519 public key or its
    /// certificate, in PEM; given several times, any of the keys
    #[arg(long = "signed-by", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl SignedByOptions {
    /// Reads the public keys from the files that `--signed-by` names. Empty if no signature is
    /// required. SR-7179 if a file holds no such key, SR-1006 or SR-1007 if there is no such file;
    /// SR-5001 when the system reports an error.
    pub(super) fn keys(&self) -> Result<Vec<VerifyingKey>, Error> {
        self.files
            .iter()
            .map(|path| read_public_key(path))
            .collect()
    }
}

/// Who signs the set that is made.
#[derive(Args)]
pub(super) struct SignKeyOption {
    /// Sign the set with the Ed25519 private key of this file, in PEM without a passphrase
    #[arg(long = "sign-key", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl SignKeyOption {
    /// Reads the private key that signs the set; `None` without `--sign-key`. A file that others
    /// can read is a warning at the end of the command. SR-2007 if it cannot be read, SR-7179 if it
    /// holds no such key.
    pub(super) fn key(&self) -> Result<Option<SigningKey>, Error> {
        self.file.as_deref().map(read_signing_key).transpose()
    }
}
