//! Keys that are derived from the root key: one for the store's file, one for records, one for
//! wrapping the keys that clients fetch. Specified in docs/spec/keyserver.md, "Keys".
//!
//! Invariants:
//! - N1: The root key is only used as input to HKDF, with the server's id as salt and a label.
//! - N2: Every record is sealed under a key that is derived for its path, with the path as
//!   associated data. Every key that clients fetch is wrapped under a key that is derived for its
//!   id and name, with id, name and version as associated data.
//!
//! Must not: let a key leave locked memory; know where the root key came from.

use strongroom_crypto::{GcmKey, OpenError, SecretKey, hkdf, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;
use zeroize::Zeroizing;

const STORE: &[u8] = b"strongroom/v1/keyserver-store";
const RECORDS: &[u8] = b"strongroom/v1/keyserver-records";
const WRAPPING: &[u8] = b"strongroom/v1/keyserver-wrapping";
const CHECK: &[u8] = b"strongroom/v1/keyserver-check";
/// The first bytes of the associated data of a wrapped key, and of a record.
const WRAPPED_KEY: &[u8] = b"strongroom/v1/kept-key\0";
const RECORD: &[u8] = b"strongroom/v1/record\0";

/// The length of nonce and tag together.
const OVERHEAD: usize = 12 + 16;
/// The binary logarithm of the number of rows of the audit log that share a key. It is far below
/// the 2^32 messages that AES-GCM allows for one key with random nonces.
const ROWS_PER_KEY_LOG2: u32 = 20;

/// The name of the root key in its keyring.
pub const ROOT_KEY_NAME: &str = "keyserver";

/// The id of a server: 16 random bytes, not secret.
pub type ServerId = [u8; 16];

/// The keys of an open server.
pub struct Keys {
    id: ServerId,
    records: SecretKey,
    wrapping: SecretKey,
}

impl Keys {
    /// Derives the keys of an open server from the root key and the server's id.
    ///
    /// # Errors
    /// SR-5001 when there is no locked memory.
    pub fn derive(root: &SecretKey, id: ServerId) -> Result<Self, Error> {
        Ok(Self {
            id,
            records: hkdf(root, &id, RECORDS)?,
            wrapping: hkdf(root, &id, WRAPPING)?,
        })
    }

    /// Derives the key of the store's file, where that is a sealed SQLite database.
    ///
    /// # Errors
    /// SR-5001 when there is no locked memory.
    pub fn derive_store_key(root: &SecretKey, id: &ServerId) -> Result<SecretKey, Error> {
        Ok(hkdf(root, id, STORE)?)
    }

    /// Derives a check value, which distinguishes the root key from others and reveals nothing else
    /// of it.
    ///
    /// # Errors
    /// SR-5001 when there is no locked memory.
    pub fn check_value(root: &SecretKey, id: &ServerId) -> Result<[u8; 32], Error> {
        Ok(*hkdf(root, id, CHECK)?.expose())
    }

    /// Seals a record for its path: nonce, ciphertext and tag.
    ///
    /// # Errors
    /// SR-5001 without random numbers or locked memory.
    pub fn seal(&self, path: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        seal_bytes(
            &self.record_key(path)?,
            &associated_data(RECORD, &[path.as_bytes()]),
            value,
        )
    }

    /// Opens a record of this path into memory that is wiped.
    ///
    /// # Errors
    /// SR-8435 when it is not authentic: damaged, forged, or moved from another path; SR-5001
    /// without locked memory.
    pub fn open(&self, path: &str, value: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let aad = associated_data(RECORD, &[path.as_bytes()]);
        open_bytes(&self.record_key(path)?, &aad, value)?
            .ok_or_else(|| Error::new(&code::SERVER_STORE, format!("{path} does not open")))
    }

    /// Wraps one version of a key, bound to its id, name and version.
    ///
    /// # Errors
    /// SR-5001 without random numbers or locked memory.
    pub fn wrap(&self, context: &WrapContext<'_>, key: &SecretKey) -> Result<Vec<u8>, Error> {
        seal_bytes(
            &self.wrapping_key(context)?,
            &context.associated_data(),
            key.expose(),
        )
    }

    /// Unwraps one version of a key into locked memory.
    ///
    /// # Errors
    /// SR-8435 when it is not authentic: damaged, or of another id, name, version or server;
    /// SR-5001 when the system reports an error.
    pub fn unwrap(&self, context: &WrapContext<'_>, wrapped: &[u8]) -> Result<SecretKey, Error> {
        let broken = || Error::new(&code::SERVER_STORE, format!("the key {}", context.name));
        let bytes = open_bytes(
            &self.wrapping_key(context)?,
            &context.associated_data(),
            wrapped,
        )?;
        let bytes = bytes.ok_or_else(broken)?;
        let mut key = Zeroizing::new([0; 32]);
        if bytes.len() != key.len() {
            return Err(broken());
        }
        key.copy_from_slice(&bytes);
        Ok(SecretKey::take(&mut key)?)
    }

    /// Derives the key that wraps all versions of one key, from its id and name. SR-5001 without
    /// locked memory.
    fn wrapping_key(&self, context: &WrapContext<'_>) -> Result<SecretKey, Error> {
        Ok(hkdf(&self.wrapping, &context.id, context.name.as_bytes())?)
    }

    /// Derives the key that seals the record at a path. 2^20 consecutive rows of the audit log
    /// share a key. SR-5001 without locked memory.
    fn record_key(&self, path: &str) -> Result<SecretKey, Error> {
        // Consecutive rows of the audit log share a key.
        let row = path.strip_prefix(crate::audit::PREFIX);
        let block = row
            .and_then(|n| n.parse::<u64>().ok())
            .map(|n| n >> ROWS_PER_KEY_LOG2);
        let info = match block {
            Some(block) => format!("{}block/{block}", crate::audit::PREFIX),
            None => path.to_owned(),
        };
        Ok(hkdf(&self.records, &self.id, info.as_bytes())?)
    }
}

/// What a wrapped key is bound to.
pub struct WrapContext<'a> {
    /// The key's random id.
    pub id: [u8; 16],
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: u32,
}

impl WrapContext<'_> {
    /// Returns the associated data of a wrapped key: a label, id, version and name.
    fn associated_data(&self) -> Vec<u8> {
        let version = self.version.to_le_bytes();
        associated_data(WRAPPED_KEY, &[&self.id, &version, self.name.as_bytes()])
    }
}

/// Concatenates a label and the parts, without their lengths. So that no two lists give the same
/// bytes, only the last part may vary in length.
fn associated_data(label: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut out = label.to_vec();
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// Seals a value with AES-256-GCM under a random nonce. Returns nonce, ciphertext and tag. SR-5001
/// without random numbers or memory.
fn seal_bytes(under: &SecretKey, aad: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
    let nonce = nonce12()?;
    // One allocation: the plaintext is encrypted in place, and no copy of it remains. It is wiped
    // if it cannot be encrypted.
    let mut out = Zeroizing::new(Vec::with_capacity(value.len().saturating_add(OVERHEAD)));
    out.extend_from_slice(&nonce);
    out.extend_from_slice(value);
    let tag = GcmKey::new(under)?.seal(&nonce, aad, out.get_mut(12..).unwrap_or_default())?;
    out.extend_from_slice(&tag);
    Ok(std::mem::take(&mut *out))
}

/// Opens nonce, ciphertext and tag into memory that is wiped. `None` when they are not authentic or
/// too short. SR-5001 without memory for the key.
fn open_bytes(
    under: &SecretKey,
    aad: &[u8],
    value: &[u8],
) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some((nonce, rest)) = value.split_first_chunk::<12>() else {
        return Ok(None);
    };
    let Some((body, tag)) = rest.split_last_chunk::<16>() else {
        return Ok(None);
    };
    let mut out = Zeroizing::new(body.to_vec());
    match GcmKey::new(under)?.open(nonce, aad, &mut out, tag) {
        Ok(()) => Ok(Some(out)),
        Err(OpenError) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::derive(&SecretKey::take(&mut [7; 32]).unwrap(), [9; 16]).unwrap()
    }

    #[test]
    fn a_record_opens_at_its_path_only() {
        let keys = keys();
        let sealed = keys.seal("nodes/a", b"value").unwrap();
        assert_eq!(keys.open("nodes/a", &sealed).unwrap().as_slice(), b"value");
        assert!(keys.open("nodes/b", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(keys.open("nodes/a", &changed).is_err(), "byte {at}");
            assert!(keys.open("nodes/a", &sealed[..at]).is_err(), "cut at {at}");
        }
        // Rows that share a key are still bound to their numbers.
        let row = keys.seal("audit/00000000000000000001", b"row").unwrap();
        assert!(keys.open("audit/00000000000000000002", &row).is_err());
        assert!(keys.open("audit/00000000000000000001", &row).is_ok());
    }

    #[test]
    fn a_wrapped_key_opens_for_its_id_name_and_version_only() {
        let keys = keys();
        let context = |id: u8, name: &'static str, version| WrapContext {
            id: [id; 16],
            name,
            version,
        };
        let key = SecretKey::generate().unwrap();
        let wrapped = keys.wrap(&context(1, "a", 1), &key).unwrap();
        assert_eq!(wrapped.len(), 60);
        assert!(
            keys.unwrap(&context(1, "a", 1), &wrapped)
                .unwrap()
                .ct_eq(&key)
        );
        for other in [context(2, "a", 1), context(1, "b", 1), context(1, "a", 2)] {
            assert!(keys.unwrap(&other, &wrapped).is_err());
        }
        let other = Keys::derive(&SecretKey::take(&mut [7; 32]).unwrap(), [8; 16]).unwrap();
        assert!(other.unwrap(&context(1, "a", 1), &wrapped).is_err());
    }
}
