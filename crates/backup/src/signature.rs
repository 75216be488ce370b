//! The signature of a set: it proves who made the set, which the seal does not. It is an object
//! beside the set's families.
//!
//! Invariants: B27: a set whose signature was checked was made by the holder of the key, at this
//! position of this medium, with every byte of its families; a signed set has its signature before
//! it has its head.
//!
//! Must not: decide whose key is trusted; take a set without a signature for a signed one.

use strongroom_crypto::{SigningKey, VerifyingKey};
use strongroom_format::backup::RecordError;
use strongroom_format::backup_signature::{SignatureRecord, signature_layout};
use strongroom_format::{code, hex};

use crate::head::UnopenedHead;
use crate::medium::is_foreign;
use crate::medium_head::MediumHead;
use crate::store::{Store, is_misfit};
use crate::{Error, Result};

/// The name of the object with a set's signature.
pub(crate) fn signature_name(set_id: &str) -> String {
    format!("data/{set_id}.signature")
}

/// Signs the backup set `set_id`, and stores the signature beside the set's families. `head` is the
/// content of the set's head, its record and its description, which is stored afterwards. If
/// another set took the position that an earlier `head` named, that one's signature is replaced.
/// SR-7146 if another process has changed the signature; errors of the store.
pub(crate) fn store_signature(
    store: &dyn Store,
    key: &SigningKey,
    set_id: [u8; 16],
    head: &[u8],
) -> Result<()> {
    let mut record = SignatureRecord {
        set_id,
        key_id: key.public().id(),
        signature: [0; 64],
    };
    record.signature = key.sign(&record.message(head))?;
    let bytes = record.to_bytes();
    let name = signature_name(&hex::hex(&set_id));
    let failed = |error| Error::io(format!("{}/{name}", store.shown()), error);
    if store.create_new(&name, &bytes).map_err(failed)? {
        return Ok(());
    }
    let read = store.read_version(&name, signature_layout::SIZE as u64);
    let replaced = match read.map_err(failed)? {
        Some((_, seen)) => store.replace(&name, &bytes, &seen),
        None => store.create_new(&name, &bytes),
    };
    match replaced.map_err(failed)? {
        true => Ok(()),
        // The name is random: nobody else writes there.
        false => Err(Error::new(&code::OBJECT_CHANGED, name)),
    }
}

/// Checks the signature of a backup set against the public keys `keys`, before anything of the set
/// is written. Returns the id of the key that has signed it: SHA-256 of its
/// `SubjectPublicKeyInfo`. `head` is the set's head as it was read from `store`, the medium.
///
/// # Errors
/// SR-7177 when the set has no signature; SR-7178 when the signature is damaged or another set's,
/// is by none of `keys`, does not verify, or does not cover every byte, and when the set was made
/// on another medium; SR-7102 when `medium.json` is damaged; SR-3002 when the signature is of a
/// newer format version; SR-5001 when reading fails.
pub(crate) fn check_signature(
    store: &dyn Store,
    head: &UnopenedHead,
    keys: &[VerifyingKey],
) -> Result<[u8; 32]> {
    let description = &head.description;
    let set_id = &description.set_id;
    let name = signature_name(set_id);
    let shown = format!("{}/{name}", store.shown());
    let bad = |why: &str| Error::new(&code::SET_SIGNATURE, format!("{shown}: {why}"));
    let bytes = match store.read(&name, signature_layout::SIZE as u64) {
        Err(error) if is_misfit(&error) => return Err(bad(&error.to_string())),
        read => read.map_err(|error| Error::io(shown.as_str(), error))?,
    };
    let bytes = bytes.ok_or_else(|| {
        let detail = format!("set {set_id}: there is no {shown}");
        Error::new(&code::SET_UNSIGNED, detail)
    })?;
    let record = SignatureRecord::parse(&bytes).map_err(|error| match error {
        RecordError::Newer(version) => {
            Error::new(&code::NEWER_FORMAT, format!("{shown}: version {version}"))
        }
        _ => bad("it is damaged"),
    })?;
    if hex::hex(&record.set_id) != *set_id {
        return Err(bad("it is of another set"));
    }
    let key = keys.iter().find(|key| key.id() == record.key_id);
    let key = key.ok_or_else(|| {
        let by = hex::hex(&record.key_id);
        bad(&format!(
            "it says that it is by the key {by}, which was not named"
        ))
    })?;
    let verified = key.verify(&record.message(head.after_header()), &record.signature);
    verified.map_err(|_| bad("it does not hold for this set and that key"))?;
    // One host may sign the sets of several media, so that the medium is compared too.
    let medium = MediumHead::read(store)?;
    let medium = medium.ok_or_else(|| bad("the medium does not say which one it is"))?;
    if is_foreign(Some(&medium), description) {
        let made_on = &description.medium_id;
        return Err(bad(&format!(
            "the set was made on another medium, {made_on}"
        )));
    }
    // Digests of heads and tags alone do not suffice: with the set's key, somebody could make other
    // data that has them.
    let facts = description.postgres.as_ref();
    let manifest = facts.and_then(|facts| facts.manifest_object.as_ref());
    let mut ends = description.families.iter().chain(manifest);
    if ends.any(|end| end.bytes_digest.is_none()) {
        return Err(bad("it does not cover every byte of the set"));
    }
    Ok(key.id())
}

#[cfg(test)]
mod tests {
    use strongroom_crypto::SecretBytes;

    use super::*;
    use crate::LocalStore;

    /// RFC 8410, section 10.3.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    /// Made with the Python package `cryptography` from docs/spec/backup.md, "Signatures".
    const VECTOR: &str = "5352424b5349471a0100010000000000000102030405060708090a0b0c0d0e0f\
        a1e9156054e04fac899ae9f275132cdc07a5dbc4ea2c2ad3a1ffc6e0d253681f\
        1184cbaf05255b7f8ec0863cceb7bb9c69cd35442a5269ba317efbff0cdc4c9f\
        10f8bade121959e83f209d431ff8751fa1be99037e013000fcc97c64ee11fe09";

    #[test]
    fn signatures_are_those_of_the_specification() {
        let place = tempfile::tempdir().unwrap();
        let store = LocalStore::new(place.path());
        store.prepare().unwrap();
        let pem = SecretBytes::take(&mut PRIVATE.as_bytes().to_vec()).unwrap();
        let key = SigningKey::from_pem(&pem).unwrap();
        let mut set_id = [0; 16];
        let mut head = [0; 66];
        (0_u8..).zip(&mut set_id).for_each(|(at, byte)| *byte = at);
        (0_u8..).zip(&mut head).for_each(|(at, byte)| *byte = at);
        head[64..].copy_from_slice(b"{}");
        let name = signature_name(&hex::hex(&set_id));
        // The second one replaces the first: its position was taken.
        store_signature(&store, &key, set_id, b"another position").unwrap();
        store_signature(&store, &key, set_id, &head).unwrap();
        let made = store.read(&name, 1000).unwrap().unwrap();
        assert_eq!(hex::hex(&made), VECTOR);
    }
}
