//! From the root key to the keys of the server: one each for the store's file, for records, for the keys that are kept.
//!
//! Invariants: N1, the root key is only ever input to HKDF, with the server's id as salt and a label; N2, every record is sealed under
//! a key of its path's own and bound to that path, every kept key under a key of its own id and bound to id, name and version.
//! Specified in docs/spec/keyserver.md, "Keys".
//!
//! Must not: let a key leave locked memory; know where the root key came from.

use strongroom_crypto::{GcmKey, OpenError, SecretBytes, SecretKey, hkdf, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;
use zeroize::Zeroizing;

const STORE: &[u8] = b"strongroom/v1/keyserver-store";
const RECORDS: &[u8] = b"strongroom/v1/keyserver-records";
const WRAPPING: &[u8] = b"strongroom/v1/keyserver-wrapping";
const CHECK: &[u8] = b"strongroom/v1/keyserver-check";
/// First bytes of the associated data of a kept key, and of a record.
const KEPT: &[u8] = b"strongroom/v1/kept-key\0";
const RECORD: &[u8] = b"strongroom/v1/record\0";

/// Length of nonce and tag together.
const OVERHEAD: usize = 12 + 16;
/// Rows of the audit log that share a sealing key, as a power of two: far below 2^32 messages.
const ROWS_PER_KEY: u32 = 20;

/// The id of a server: random, made with it, not secret.
pub type ServerId = [u8; 16];

/// The keys of an open server.
pub struct Keys {
    id: ServerId,
    records: SecretKey,
    wrapping: SecretKey,
}

impl Keys {
    /// Derives the keys.
    ///
    /// # Errors
    /// SR-5001 when there is no locked memory.
    pub fn of(root: &SecretKey, id: ServerId) -> Result<Self, Error> {
        Ok(Self {
            id,
            records: hkdf(root, &id, RECORDS)?,
            wrapping: hkdf(root, &id, WRAPPING)?,
        })
    }

    /// The key of the store's file, where it is a sealed SQLite database.
    ///
    /// # Errors
    /// As [`Keys::of`].
    pub fn of_store(root: &SecretKey, id: &ServerId) -> Result<SecretKey, Error> {
        Ok(hkdf(root, id, STORE)?)
    }

    /// A value that tells the root key from others and tells nothing else of it.
    ///
    /// # Errors
    /// As [`Keys::of`].
    pub fn check(root: &SecretKey, id: &ServerId) -> Result<[u8; 32], Error> {
        Ok(*hkdf(root, id, CHECK)?.expose())
    }

    /// Seals a record for its path.
    ///
    /// # Errors
    /// SR-5001.
    pub fn seal(&self, path: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        sealed(
            &self.key_of(path)?,
            &associated(RECORD, &[path.as_bytes()]),
            value,
        )
    }

    /// Opens a record of this path.
    ///
    /// # Errors
    /// SR-8435 when it does not authenticate: damaged, forged, or moved from another path.
    pub fn open(&self, path: &str, value: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let aad = associated(RECORD, &[path.as_bytes()]);
        opened(&self.key_of(path)?, &aad, value)?
            .ok_or_else(|| Error::new(&code::SERVER_STORE, format!("{path} does not open")))
    }

    /// Wraps one version of a kept key.
    ///
    /// # Errors
    /// SR-5001.
    pub fn wrap(&self, place: &Place<'_>, key: &SecretKey) -> Result<Vec<u8>, Error> {
        sealed(&self.wrapping_of(place)?, &place.associated(), key.expose())
    }

    /// Unwraps one version of a kept key.
    ///
    /// # Errors
    /// SR-8435 when it does not authenticate.
    pub fn unwrap(&self, place: &Place<'_>, wrapped: &[u8]) -> Result<SecretKey, Error> {
        let broken = || Error::new(&code::SERVER_STORE, format!("the key {}", place.name));
        let bytes = opened(&self.wrapping_of(place)?, &place.associated(), wrapped)?;
        let bytes = bytes.ok_or_else(broken)?;
        let mut key = Zeroizing::new([0; 32]);
        if bytes.len() != key.len() {
            return Err(broken());
        }
        key.copy_from_slice(&bytes);
        Ok(SecretKey::take(&mut key)?)
    }

    fn wrapping_of(&self, place: &Place<'_>) -> Result<SecretKey, Error> {
        Ok(hkdf(&self.wrapping, &place.id, place.name.as_bytes())?)
    }

    fn key_of(&self, path: &str) -> Result<SecretKey, Error> {
        // Rows are many: they share keys, block by block.
        let row = path.strip_prefix(crate::audit::PREFIX);
        let block = row
            .and_then(|n| n.parse::<u64>().ok())
            .map(|n| n >> ROWS_PER_KEY);
        let info = match block {
            Some(block) => format!("{}block/{block}", crate::audit::PREFIX),
            None => path.to_owned(),
        };
        Ok(hkdf(&self.records, &self.id, info.as_bytes())?)
    }
}

/// Where a kept key belongs.
pub struct Place<'a> {
    /// The key's random id, made when it was created.
    pub id: [u8; 16],
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: u32,
}

impl Place<'_> {
    fn associated(&self) -> Vec<u8> {
        let version = self.version.to_le_bytes();
        associated(KEPT, &[&self.id, &version, self.name.as_bytes()])
    }
}

fn associated(label: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut out = label.to_vec();
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// Nonce, ciphertext, tag.
fn sealed(under: &SecretKey, aad: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
    let nonce = nonce12()?;
    // In one allocation, so that the plaintext is overwritten by its ciphertext and nowhere else.
    let mut out = Vec::with_capacity(value.len().saturating_add(OVERHEAD));
    out.extend_from_slice(&nonce);
    out.extend_from_slice(value);
    let tag = GcmKey::new(under)?.seal(&nonce, aad, out.get_mut(12..).unwrap_or_default())?;
    out.extend_from_slice(&tag);
    Ok(out)
}

/// `None` when it does not authenticate.
fn opened(
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

/// Secret bytes in the form of lower-case hexadecimal digits.
///
/// # Errors
/// SR-5001.
pub fn secret_hex(bytes: &[u8]) -> Result<SecretBytes, Error> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = SecretBytes::with_capacity(bytes.len().saturating_mul(2))?;
    for (pair, byte) in text.as_mut_slice().chunks_exact_mut(2).zip(bytes) {
        if let [high, low] = pair {
            *high = DIGITS[usize::from(byte >> 4)];
            *low = DIGITS[usize::from(byte & 15)];
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::of(&SecretKey::take(&mut [7; 32]).unwrap(), [9; 16]).unwrap()
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
        // Rows of one block share a key; they are bound to their numbers all the same.
        let row = keys.seal("audit/00000000000000000001", b"row").unwrap();
        assert!(keys.open("audit/00000000000000000002", &row).is_err());
        assert!(keys.open("audit/00000000000000000001", &row).is_ok());
    }

    #[test]
    fn a_kept_key_opens_for_its_id_name_and_version_only() {
        let keys = keys();
        let place = |id: u8, name: &'static str, version| Place {
            id: [id; 16],
            name,
            version,
        };
        let key = SecretKey::generate().unwrap();
        let wrapped = keys.wrap(&place(1, "a", 1), &key).unwrap();
        assert_eq!(wrapped.len(), 60);
        assert!(
            keys.unwrap(&place(1, "a", 1), &wrapped)
                .unwrap()
                .ct_eq(&key)
        );
        for other in [place(2, "a", 1), place(1, "b", 1), place(1, "a", 2)] {
            assert!(keys.unwrap(&other, &wrapped).is_err());
        }
        let other = Keys::of(&SecretKey::take(&mut [7; 32]).unwrap(), [8; 16]).unwrap();
        assert!(other.unwrap(&place(1, "a", 1), &wrapped).is_err());
    }
}
