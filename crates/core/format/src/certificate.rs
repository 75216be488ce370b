//! A certificate's record in a keyring: name, certificate in clear, private key sealed or absent.
//! Specified in docs/spec/keyring.md, "Certificates".
//!
//! Records vary in length, are padded to 8 bytes and follow one another.
//! Must not: look into a certificate, or seal or open a private key.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::keyring::{KeyState, NAME_MAX};
use crate::layout::{array, bytes, is_zero, layout, put, u16_at, u32_at, u64_at, zero_at};
use crate::slot::CERTIFICATE_ID_LEN;

layout! {
    /// Layout of a record's fixed part; the certificate, then the sealed private key, follow it.
    certificate_layout, 232, {
        LENGTH @ 0, 4;
        NAME_LENGTH @ 4, 2;
        STATE @ 6, 2;
        CREATED @ 8, 8;
        EXPORTED @ 16, 8;
        DER_LENGTH @ 24, 4;
        KEY_LENGTH @ 28, 4;
        ID @ 32, 32;
        NONCE @ 64, 12;
        TAG @ 76, 16;
        RESERVED @ 92, 12;
        NAME @ 104, 128;
    }
}

/// Most certificates that a keyring holds.
pub const CERTIFICATES_MAX: usize = 256;
/// Longest certificate, in bytes of DER.
pub const CERTIFICATE_DER_MAX: usize = 16_384;
/// Longest private key, in bytes of PKCS #8. RSA of 4096 bits takes 2.4 KiB.
pub const PRIVATE_KEY_MAX: usize = 8192;

/// A private key, sealed with AES-256-GCM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedPrivateKey {
    /// GCM nonce.
    pub nonce: [u8; 12],
    /// GCM tag.
    pub tag: [u8; 16],
    /// The sealed PKCS #8 encoding, as long as it is in clear.
    pub bytes: Vec<u8>,
}

/// One certificate of a keyring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRecord {
    /// The certificate's name in the keyring.
    pub name: String,
    /// Whether new objects may be sealed for it.
    pub state: KeyState,
    /// When it came into the keyring, in seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// When a copy of the private key was last proved to open, in seconds since the Unix epoch; 0:
    /// never.
    pub exported_unix_s: u64,
    /// SHA-256 of the `SubjectPublicKeyInfo`.
    pub id: [u8; CERTIFICATE_ID_LEN],
    /// The certificate, in DER.
    pub der: Vec<u8>,
    /// The private key, if the keyring holds it.
    pub key: Option<SealedPrivateKey>,
}

impl CertificateRecord {
    /// Parses the record at the start of `area`; returns it and what follows. `None` when it is cut
    /// short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(area: &[u8]) -> Option<(Self, &[u8])> {
        use certificate_layout as at;
        let length = usize::try_from(u32_at(area, at::LENGTH)?).ok()?;
        let (record, tail) = (area.get(..length)?, area.get(length..)?);
        let der_len = usize::try_from(u32_at(record, at::DER_LENGTH)?).ok()?;
        let key_len = usize::try_from(u32_at(record, at::KEY_LENGTH)?).ok()?;
        if length != record_len(der_len, key_len)? || !zero_at(record, at::RESERVED) {
            return None;
        }
        let (der, rest) = record.get(at::SIZE..)?.split_at_checked(der_len)?;
        let (sealed, padding) = rest.split_at_checked(key_len)?;
        let name_len = usize::from(u16_at(record, at::NAME_LENGTH)?);
        let name_area = bytes(record, at::NAME)?;
        let name = name_area.get(..name_len)?;
        if name.is_empty() || !is_zero(name_area.get(name_len..)?) || !is_zero(padding) {
            return None;
        }
        let exported_unix_s = u64_at(record, at::EXPORTED)?;
        let state = match u16_at(record, at::STATE)? {
            1 => KeyState::Active,
            2 => KeyState::Retired,
            _ => return None,
        };
        let key = parse_key(record, sealed, exported_unix_s)?;
        let parsed = Self {
            name: String::from(core::str::from_utf8(name).ok()?),
            state,
            created_unix_s: u64_at(record, at::CREATED)?,
            exported_unix_s,
            id: array(record, at::ID)?,
            der: der.to_vec(),
            key,
        };
        Some((parsed, tail))
    }

    /// The record's bytes. `None` when a length is beyond its limit, the name included, or when the
    /// private key is present but empty.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        use certificate_layout as at;
        let sealed = self.key.as_ref().map_or(&[][..], |key| &key.bytes);
        // A reader would take an empty key for none, and refuse the nonce and the tag.
        if self.key.is_some() == sealed.is_empty() {
            return None;
        }
        let length = record_len(self.der.len(), sealed.len())?;
        let mut out = vec![0; at::SIZE];
        let mut name = [0; NAME_MAX];
        name.get_mut(..self.name.len())?
            .copy_from_slice(self.name.as_bytes());
        let number = |len: usize| u32::try_from(len).ok().map(u32::to_le_bytes);
        let name_len = u16::try_from(self.name.len()).ok()?.to_le_bytes();
        put(&mut out, at::LENGTH, &number(length)?)?;
        put(&mut out, at::NAME_LENGTH, &name_len)?;
        put(&mut out, at::STATE, &self.state.number().to_le_bytes())?;
        put(&mut out, at::CREATED, &self.created_unix_s.to_le_bytes())?;
        put(&mut out, at::EXPORTED, &self.exported_unix_s.to_le_bytes())?;
        put(&mut out, at::DER_LENGTH, &number(self.der.len())?)?;
        put(&mut out, at::KEY_LENGTH, &number(sealed.len())?)?;
        put(&mut out, at::ID, &self.id)?;
        if let Some(key) = &self.key {
            put(&mut out, at::NONCE, &key.nonce)?;
            put(&mut out, at::TAG, &key.tag)?;
        }
        put(&mut out, at::NAME, &name)?;
        out.extend_from_slice(&self.der);
        out.extend_from_slice(sealed);
        out.resize(length, 0);
        Some(out)
    }
}

/// Returns the sealed private key of a record. `Some(None)` when there is none, and its nonce, its
/// tag and the time of its export are zero. `None` when the record has a value that no writer gives
/// it.
fn parse_key(record: &[u8], sealed: &[u8], exported: u64) -> Option<Option<SealedPrivateKey>> {
    use certificate_layout as at;
    if sealed.is_empty() {
        let nothing = zero_at(record, at::NONCE) && zero_at(record, at::TAG) && exported == 0;
        return nothing.then_some(None);
    }
    Some(Some(SealedPrivateKey {
        nonce: array(record, at::NONCE)?,
        tag: array(record, at::TAG)?,
        bytes: sealed.to_vec(),
    }))
}

/// The length of a record with its padding. `None` when the certificate or the private key has a
/// length that is not allowed.
fn record_len(der_len: usize, key_len: usize) -> Option<usize> {
    let within = (1..=CERTIFICATE_DER_MAX).contains(&der_len) && key_len <= PRIVATE_KEY_MAX;
    let sum = certificate_layout::SIZE
        .checked_add(der_len)?
        .checked_add(key_len)?;
    within.then(|| sum.checked_next_multiple_of(8)).flatten()
}
