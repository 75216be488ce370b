//! Key slots: one wrapped copy of an object's data key for one recipient. Specified in
//! docs/spec/header.md, "Key slots".
//!
//! Slots are packed records of varying length, in order, padded to 8 bytes; bytes after the last
//! are zero.
//! Must not: derive or unwrap anything.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::layout::{Field, array, bytes, is_zero, layout, put, u16_at, u32_at};

layout! {
    /// Layout of a slot's fixed part; the wrapped key, then the id, then the encrypted secret,
    /// follow it.
    slot_layout, 72, {
        KIND @ 0, 2;
        LENGTH @ 2, 2;
        KDF @ 4, 2;
        ID_LENGTH @ 6, 2;
        ARGON2_M_KIB @ 8, 4;
        ARGON2_T @ 12, 4;
        ARGON2_P @ 16, 4;
        KEY_VERSION @ 20, 4;
        SALT @ 24, 32;
        WRAPPED_LENGTH @ 56, 2;
        SECRET_LENGTH @ 58, 2;
        NONCE @ 60, 12;
    }
}

/// Longest key id, in bytes of UTF-8.
pub const ID_MAX: usize = 128;
/// Length of a data key wrapped with AES-256-GCM: key and tag.
pub const WRAPPED_GCM_LEN: usize = 48;

/// Length of a certificate's id: SHA-256 of its `SubjectPublicKeyInfo`.
pub const CERTIFICATE_ID_LEN: usize = 32;
/// Shortest encrypted secret, in bytes: RSA of 2048 bits.
pub const SECRET_LEN_MIN: usize = 256;
/// Longest encrypted secret, in bytes: RSA of 4096 bits.
pub const SECRET_LEN_MAX: usize = 512;

/// Argon2id cost (RFC 9106). Public: it stands in clear in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory in KiB.
    pub m_kib: u32,
    /// Passes.
    pub t: u32,
    /// Lanes.
    pub p: u32,
}

/// Who a slot is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotKind {
    /// A passphrase, stretched with Argon2id.
    Passphrase(Argon2Cost),
    /// A raw 32-byte key, through HKDF.
    Raw,
    /// A key of a keyring, by id and version, through HKDF.
    Keyring {
        /// The key's name in the keyring.
        id: String,
        /// The key's version, from 1.
        version: u32,
    },
    /// The private key of a certificate, through RSAES-OAEP and HKDF.
    Certificate {
        /// SHA-256 of the `SubjectPublicKeyInfo`.
        id: [u8; CERTIFICATE_ID_LEN],
        /// The slot's secret, encrypted for the public key; as long as the RSA modulus.
        secret: Vec<u8>,
    },
}

impl SlotKind {
    /// The number in the slot.
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Self::Passphrase(_) => 1,
            Self::Raw => 2,
            Self::Keyring { .. } => 3,
            Self::Certificate { .. } => 4,
        }
    }

    /// The word that reports and JSON output use for the kind.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Passphrase(_) => "passphrase",
            Self::Raw => "raw",
            Self::Keyring { .. } => "keyring",
            Self::Certificate { .. } => "certificate",
        }
    }
}

/// One key slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Who it is for.
    pub kind: SlotKind,
    /// Salt of the key derivation, random per slot.
    pub salt: [u8; 32],
    /// GCM nonce of the wrap.
    pub nonce: [u8; 12],
    /// The wrapped data key with its tag.
    pub wrapped: [u8; WRAPPED_GCM_LEN],
}

const KDF_ARGON2ID: u16 = 1;
const KDF_HKDF_SHA256: u16 = 2;
const KDF_OAEP_HKDF_SHA256: u16 = 3;

impl Slot {
    /// Parses the slot at the start of `area`, and returns it with the bytes after it. `None` when
    /// the record is cut short, of an unknown kind, or not exactly what [`Self::to_bytes`] writes.
    #[must_use]
    pub fn parse(area: &[u8]) -> Option<(Self, &[u8])> {
        use slot_layout as at;
        let length = usize::from(u16_at(area, at::LENGTH)?);
        let (record, tail) = (area.get(..length)?, area.get(length..)?);
        let id_length = usize::from(u16_at(record, at::ID_LENGTH)?);
        let secret_length = usize::from(u16_at(record, at::SECRET_LENGTH)?);
        let wrapped_length = usize::from(u16_at(record, at::WRAPPED_LENGTH)?);
        let expected = record_len(id_length, secret_length)?;
        if id_length > ID_MAX || wrapped_length != WRAPPED_GCM_LEN || length != expected {
            return None;
        }
        let wrapped = array(record, wrapped_field())?;
        let id = bytes(record, id_field(id_length)?)?;
        let secret = bytes(record, secret_field(id_length, secret_length)?)?;
        let used = secret_field(id_length, secret_length)?.offset;
        let padding = record.get(used.checked_add(secret_length)?..)?;
        let kind = parse_kind(record, id, secret)?;
        if !is_zero(padding) {
            return None;
        }
        let slot = Self {
            kind,
            salt: array(record, at::SALT)?,
            nonce: array(record, at::NONCE)?,
            wrapped,
        };
        Some((slot, tail))
    }

    /// The slot's record. `None` when the id is longer than [`ID_MAX`], or the secret is not as
    /// long as an RSA modulus that may be used.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        use slot_layout as at;
        let zero = Argon2Cost {
            m_kib: 0,
            t: 0,
            p: 0,
        };
        let none: &[u8] = &[];
        let (kdf, cost, id, version, secret) = match &self.kind {
            SlotKind::Passphrase(cost) => (KDF_ARGON2ID, *cost, none, 0, none),
            SlotKind::Raw => (KDF_HKDF_SHA256, zero, none, 0, none),
            SlotKind::Keyring { id, version } => {
                (KDF_HKDF_SHA256, zero, id.as_bytes(), *version, none)
            }
            SlotKind::Certificate { id, secret } if secret_is_valid(secret) => (
                KDF_OAEP_HKDF_SHA256,
                zero,
                id.as_slice(),
                0,
                secret.as_slice(),
            ),
            SlotKind::Certificate { .. } => return None,
        };
        if id.len() > ID_MAX {
            return None;
        }
        let mut out = vec![0; record_len(id.len(), secret.len())?];
        let length = u16::try_from(out.len()).ok()?;
        put(&mut out, at::KIND, &self.kind.number().to_le_bytes())?;
        put(&mut out, at::LENGTH, &length.to_le_bytes())?;
        put(&mut out, at::KDF, &kdf.to_le_bytes())?;
        put(
            &mut out,
            at::ID_LENGTH,
            &u16::try_from(id.len()).ok()?.to_le_bytes(),
        )?;
        put(&mut out, at::ARGON2_M_KIB, &cost.m_kib.to_le_bytes())?;
        put(&mut out, at::ARGON2_T, &cost.t.to_le_bytes())?;
        put(&mut out, at::ARGON2_P, &cost.p.to_le_bytes())?;
        put(&mut out, at::KEY_VERSION, &version.to_le_bytes())?;
        put(&mut out, at::SALT, &self.salt)?;
        put(
            &mut out,
            at::WRAPPED_LENGTH,
            &u16::try_from(WRAPPED_GCM_LEN).ok()?.to_le_bytes(),
        )?;
        put(
            &mut out,
            at::SECRET_LENGTH,
            &u16::try_from(secret.len()).ok()?.to_le_bytes(),
        )?;
        put(&mut out, at::NONCE, &self.nonce)?;
        put(&mut out, wrapped_field(), &self.wrapped)?;
        put(&mut out, id_field(id.len())?, id)?;
        put(&mut out, secret_field(id.len(), secret.len())?, secret)?;
        Some(out)
    }
}

/// Reads the kind of a slot from its record, its id and its encrypted secret. `None` when its
/// number is not known, or when a field has a value that this kind does not have.
fn parse_kind(record: &[u8], id: &[u8], secret: &[u8]) -> Option<SlotKind> {
    use slot_layout as at;
    let kdf = u16_at(record, at::KDF)?;
    let version = u32_at(record, at::KEY_VERSION)?;
    let cost = Argon2Cost {
        m_kib: u32_at(record, at::ARGON2_M_KIB)?,
        t: u32_at(record, at::ARGON2_T)?,
        p: u32_at(record, at::ARGON2_P)?,
    };
    let no_cost = cost
        == Argon2Cost {
            m_kib: 0,
            t: 0,
            p: 0,
        };
    let kind = u16_at(record, at::KIND)?;
    if secret.is_empty() == (kind == 4) {
        return None;
    }
    match (kind, kdf) {
        (1, KDF_ARGON2ID) if id.is_empty() && version == 0 => Some(SlotKind::Passphrase(cost)),
        (2, KDF_HKDF_SHA256) if id.is_empty() && version == 0 && no_cost => Some(SlotKind::Raw),
        (3, KDF_HKDF_SHA256) if !id.is_empty() && version > 0 && no_cost => {
            let id = String::from(core::str::from_utf8(id).ok()?);
            Some(SlotKind::Keyring { id, version })
        }
        (4, KDF_OAEP_HKDF_SHA256) if secret_is_valid(secret) && version == 0 && no_cost => {
            Some(SlotKind::Certificate {
                id: id.try_into().ok()?,
                secret: secret.to_vec(),
            })
        }
        _ => None,
    }
}

/// Where the wrapped key is in a slot's record.
const fn wrapped_field() -> Field {
    Field {
        name: "WRAPPED",
        offset: slot_layout::SIZE,
        len: WRAPPED_GCM_LEN,
    }
}

/// Where an id of `len` bytes is in a slot's record. `None` only on overflow.
fn id_field(len: usize) -> Option<Field> {
    Some(Field {
        name: "ID",
        offset: slot_layout::SIZE.checked_add(WRAPPED_GCM_LEN)?,
        len,
    })
}

/// Where an encrypted secret of `len` bytes is in a slot's record, after an id of `id_length`
/// bytes. `None` only on overflow.
fn secret_field(id_length: usize, len: usize) -> Option<Field> {
    let id = id_field(id_length)?;
    Some(Field {
        name: "SECRET",
        offset: id.offset.checked_add(id.len)?,
        len,
    })
}

/// Whether an encrypted secret has the length of an RSA modulus that may be used: 2048 to 4096
/// bits, a multiple of 64.
fn secret_is_valid(secret: &[u8]) -> bool {
    (SECRET_LEN_MIN..=SECRET_LEN_MAX).contains(&secret.len()) && secret.len().is_multiple_of(8)
}

/// The length of a slot's record with its padding. `None` when it overflows.
fn record_len(id_length: usize, secret_length: usize) -> Option<usize> {
    slot_layout::SIZE
        .checked_add(WRAPPED_GCM_LEN)?
        .checked_add(id_length)?
        .checked_add(secret_length)?
        .checked_next_multiple_of(8)
}
