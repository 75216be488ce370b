//! The keys that sign sets, and the keys by which a set must be signed: options of `create`,
//! `restore` and `verify`.
//!
//! Must not: take a file without a usable key to mean that no signature is required.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_backup::Chain;
use strongroom_crypto::{SigningKey, SigningKeyError, VerifyingKey};
use strongroom_format::{code, hex};
use strongroom_keyring::paths::open_to_read;
use strongroom_keyring::source::key_file;

use crate::failure::Failure;

/// Longest file that a public key is read from, in bytes.
const PUBLIC_MAX: u64 = 64 * 1024;

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
    /// SR-5001.
    pub(super) fn keys(&self) -> Result<Vec<VerifyingKey>, Failure> {
        self.files.iter().map(|path| public_key(path)).collect()
    }
}

/// Checks that every set of the chain is signed by one of `keys`, and returns the id of the key
/// that signed the newest one. Without keys nothing is checked, and `None` is returned. SR-7177 if
/// a set is not signed, SR-7178 if its signature does not fit.
pub(super) fn check_signers(
    chain: &mut Chain<'_>,
    keys: &[VerifyingKey],
) -> Result<Option<String>, Failure> {
    if keys.is_empty() {
        return Ok(None);
    }
    chain.check_signed_by(keys)?;
    Ok(chain.newest()?.signer().map(|id| hex::hex(&id)))
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
    pub(super) fn key(&self) -> Result<Option<SigningKey>, Failure> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        let pem = key_file(path)?;
        let key = SigningKey::from_pem(&pem).map_err(|error| signing_key_failure(path, error))?;
        Ok(Some(key))
    }
}

/// Reads an Ed25519 public key, or a certificate of one, from a PEM file. SR-7179 if it holds none
/// or is longer than 64 KiB, SR-1006 or SR-1007 if there is no such file; SR-5001.
fn public_key(path: &Path) -> Result<VerifyingKey, Failure> {
    let (file, length) = open_to_read(path)?;
    if length > PUBLIC_MAX {
        return Err(signing_key_failure(path, SigningKeyError::Malformed));
    }
    let mut pem = Vec::new();
    let read = file.take(PUBLIC_MAX).read_to_end(&mut pem);
    read.map_err(|error| Failure::io(path, &error))?;
    VerifyingKey::from_pem(&pem).map_err(|error| signing_key_failure(path, error))
}

/// Makes an SR-7179 failure about the file.
fn signing_key_failure(path: &Path, error: SigningKeyError) -> Failure {
    Failure::new(&code::SIGNATURE_KEY, format!("{}: {error}", path.display()))
}
