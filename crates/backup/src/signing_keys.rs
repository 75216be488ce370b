//! The keys that sign sets, and those by which a set must be signed, from their files.
//!
//! Must not: take a file without a usable key to mean that no signature is required.

use std::io::Read as _;
use std::path::Path;

use strongroom_crypto::{SigningKey, SigningKeyError, VerifyingKey};
use strongroom_format::{code, hex};
use strongroom_keyring::paths::open_to_read;
use strongroom_keyring::source::key_file;

use crate::chain::Chain;
use crate::{Error, Result};

/// Longest file that a public key is read from, in bytes.
const PUBLIC_MAX: u64 = 64 * 1024;

/// Reads the Ed25519 private key that signs sets, in PEM without a passphrase. A file that others
/// can read is noted by [`key_file`], for a warning.
///
/// # Errors
/// SR-2007 when the file cannot be read; SR-7179 when it holds no such key.
pub fn read_signing_key(path: &Path) -> Result<SigningKey> {
    let pem = key_file(path)?;
    SigningKey::from_pem(&pem).map_err(|error| unusable(path, &error))
}

/// Reads an Ed25519 public key, or a certificate of one, from a PEM file.
///
/// # Errors
/// SR-7179 when it holds none or is longer than 64 KiB; SR-1006 or SR-1007 when there is no such
/// file; SR-5001 when the system reports an error.
pub fn read_public_key(path: &Path) -> Result<VerifyingKey> {
    let (file, length) = open_to_read(path)?;
    if length > PUBLIC_MAX {
        return Err(unusable(path, &SigningKeyError::Malformed));
    }
    let mut pem = Vec::new();
    let read = file.take(PUBLIC_MAX).read_to_end(&mut pem);
    read.map_err(|error| Error::on_path(path, error))?;
    VerifyingKey::from_pem(&pem).map_err(|error| unusable(path, &error))
}

/// Makes the error SR-7179 about the file.
fn unusable(path: &Path, error: &SigningKeyError) -> Error {
    Error::new(&code::SIGNATURE_KEY, format!("{}: {error}", path.display()))
}

/// Checks that every set of the chain is signed by one of `keys`, and returns the id of the key
/// that signed the newest one. Without keys nothing is checked, and `None` is returned.
///
/// # Errors
/// SR-7177 when a set is not signed, SR-7178 when its signature does not fit.
pub fn check_signers(chain: &mut Chain<'_>, keys: &[VerifyingKey]) -> Result<Option<String>> {
    if keys.is_empty() {
        return Ok(None);
    }
    chain.check_signed_by(keys)?;
    Ok(chain.newest()?.signer().map(|id| hex::hex(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_keyring::durable;

    /// The public key of RFC 8410, section 10.1.
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn a_public_key_that_is_too_long_cut_or_changed_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let read = |bytes: &[u8]| {
            durable::replace(&path, bytes, 0o600).unwrap();
            read_public_key(&path)
        };
        let mut text = PUBLIC.as_bytes().to_vec();
        assert!(read(&text).is_ok());
        for cut in 0..text.len() - 2 {
            let error = read(&text[..cut]).err().unwrap();
            assert_eq!(error.code(), &code::SIGNATURE_KEY, "{cut}");
        }
        // Within the base64 of the algorithm's name.
        text[35] ^= 1;
        assert_eq!(read(&text).err().unwrap().code(), &code::SIGNATURE_KEY);
        text[35] ^= 1;
        text.resize(usize::try_from(PUBLIC_MAX).unwrap() + 1, b'\n');
        assert_eq!(read(&text).err().unwrap().code(), &code::SIGNATURE_KEY);
    }
}
