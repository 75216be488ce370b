//! The private keys of a keyring's certificates: sealing, opening, and moving them from one keyring
//! to another.
//!
//! Invariant K18: a private key is in clear in locked memory only, is bound to its certificate and
//! its keyring, and is never replaced by another.
//!
//! Must not: know what a certificate is used for.

use std::collections::BTreeSet;

use strongroom_crypto::{CertificateError, GcmKey, PrivateKey, SecretBytes};
use strongroom_format::aad::{Role, aad_layout};
use strongroom_format::certificate::{CERTIFICATES_MAX, CertificateRecord, SealedPrivateKey};
use strongroom_format::code;
use strongroom_format::keyring::Body;
use strongroom_format::slot::CERTIFICATE_ID_LEN;

use crate::certificate_info::CertificateInfo;
use crate::entries::name_is_valid;
use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::object::Object;
use crate::purpose::Purpose;
use crate::wrap::key_aad;

/// Opens and parses the private key of a record. Errors: SR-2031 when the keyring does not hold it;
/// SR-2005 when it does not authenticate, or is another certificate's; SR-5001 when the system
/// reports an error.
pub(crate) fn read_key(object: &Object, record: &CertificateRecord) -> Result<PrivateKey, Error> {
    let absent = || Error::new(&code::CERT_NO_KEY, record.name.as_str());
    let pkcs8 = open_key(object, record)?.ok_or_else(absent)?;
    let key = PrivateKey::from_der(pkcs8.as_slice());
    match key {
        Ok(key) if key.id() == record.id => Ok(key),
        Err(CertificateError::Crypto(error)) => Err(Error::from(error)),
        _ => Err(Error::damaged_keyring(&format!(
            "the private key of certificate {}",
            record.name
        ))),
    }
}

/// Derives the key that seals the private key of this certificate, and returns it with the
/// associated data for a private key of `len` bytes (docs/spec/keyring.md, "Certificates"). Errors:
/// SR-5001 without memory for keys.
fn sealing_key(
    object: &Object,
    id: &[u8; CERTIFICATE_ID_LEN],
    len: usize,
) -> Result<(GcmKey, [u8; aad_layout::SIZE]), Error> {
    let key = object.derive(object.epoch(), Purpose::KeyringCertificates, &[0; 32], id)?;
    let position = u64::try_from(len).unwrap_or(u64::MAX);
    let aad = key_aad(Role::KeyringCertificate, object.epoch(), object.object_id());
    Ok((GcmKey::new(&key)?, aad.at(position)))
}

/// Seals a private key, given as PKCS #8, for the certificate of this id, under a fresh nonce.
/// Errors: SR-5001 without randomness or memory for keys.
pub(crate) fn seal_key(
    object: &Object,
    id: &[u8; CERTIFICATE_ID_LEN],
    pkcs8: &SecretBytes,
) -> Result<SealedPrivateKey, Error> {
    let (key, aad) = sealing_key(object, id, pkcs8.len())?;
    let nonce = System.nonce()?;
    // Sealed in locked memory, and copied afterwards.
    let mut bytes = SecretBytes::with_capacity(pkcs8.len())?;
    bytes.as_mut_slice().copy_from_slice(pkcs8.as_slice());
    let tag = key.seal(&nonce, &aad, bytes.as_mut_slice())?;
    Ok(SealedPrivateKey {
        nonce,
        tag,
        bytes: bytes.as_slice().to_vec(),
    })
}

/// Opens the private key of a record, as PKCS #8. `None` when there is none. Errors: SR-2005 when
/// it does not authenticate; SR-5001 when the system reports an error.
pub(crate) fn open_key(
    object: &Object,
    record: &CertificateRecord,
) -> Result<Option<SecretBytes>, Error> {
    let Some(sealed) = &record.key else {
        return Ok(None);
    };
    let (key, aad) = sealing_key(object, &record.id, sealed.bytes.len())?;
    let mut bytes = SecretBytes::with_capacity(sealed.bytes.len())?;
    bytes.as_mut_slice().copy_from_slice(&sealed.bytes);
    key.open(&sealed.nonce, &aad, bytes.as_mut_slice(), &sealed.tag)
        .map_err(|_| {
            Error::damaged_keyring(&format!("the private key of certificate {}", record.name))
        })?;
    Ok(Some(bytes))
}

/// Seals the private key of a record, which is sealed for the keyring `from`, for the keyring `to`.
/// Does nothing when there is none. Errors: SR-2005 when it does not authenticate; SR-5001 when the
/// system reports an error.
pub(crate) fn reseal_key(
    from: &Object,
    to: &Object,
    record: &mut CertificateRecord,
) -> Result<(), Error> {
    if let Some(pkcs8) = open_key(from, record)? {
        record.key = Some(seal_key(to, &record.id, &pkcs8)?);
    }
    Ok(())
}

/// Adds the certificates of an export to `body`, and private keys that are missing there. Returns
/// those that changed. Errors: SR-2025 when a name belongs to another public key here; SR-2024 when
/// the keyring is full; SR-2005 when a private key does not authenticate; SR-5001 when the system
/// reports an error.
pub(crate) fn merge_certificates(
    object: &Object,
    body: &mut Body,
    source: &Object,
    theirs: &[CertificateRecord],
) -> Result<Vec<CertificateInfo>, Error> {
    let mut changed = Vec::new();
    for record in theirs {
        let known = body
            .certificates
            .iter_mut()
            .find(|held| held.id == record.id);
        let pkcs8 = open_key(source, record)?;
        match known {
            Some(ours) if ours.key.is_none() && pkcs8.is_some() => {
                ours.key = pkcs8
                    .map(|key| seal_key(object, &ours.id, &key))
                    .transpose()?;
                ours.exported_unix_s = record.exported_unix_s;
                changed.push(CertificateInfo::of(ours));
            }
            Some(_) => {}
            None => {
                check_free(body, &record.name)?;
                let mut added = record.clone();
                reseal_key(source, object, &mut added)?;
                changed.push(CertificateInfo::of(&added));
                body.certificates.push(added);
            }
        }
    }
    Ok(changed)
}

/// Checks that certificates' names are valid, and that no name and no public key occurs twice.
/// Errors: SR-2005 when one of these does not hold.
pub(crate) fn check_records(records: &[CertificateRecord]) -> Result<(), Error> {
    let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let fine = records.iter().all(|record| {
        name_is_valid(&record.name) && names.insert(&record.name) && ids.insert(record.id)
    });
    match fine {
        true => Ok(()),
        false => Err(Error::damaged_keyring("a certificate's name or id")),
    }
}

/// Checks that there is room for another certificate, and that none has this name. Errors: SR-2024
/// when there is no room; SR-2025 when the name is taken.
pub(crate) fn check_free(body: &Body, name: &str) -> Result<(), Error> {
    if body.certificates.len() >= CERTIFICATES_MAX {
        return Err(Error::new(&code::KEYRING_FULL, ""));
    }
    match body.certificates.iter().any(|held| held.name == name) {
        true => Err(Error::new(&code::CERT_EXISTS, name)),
        false => Ok(()),
    }
}
