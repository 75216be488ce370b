//! Sealing a secret to conditions that the TPM checks, and unsealing it.
//!
//! Form: docs/spec/keyring.md, "Wrapped root keys". A mask of the registers (4 bytes,
//! little-endian), the name of the TPM's storage key (34 bytes), then public and private area of
//! the sealed object, each with a length (2 bytes, little-endian) before it.
//!
//! Must not: send a secret in clear to the TPM or read one from it in clear.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_crypto::{SecretBytes, SecretKey, sha256};
use strongroom_format::columns::tpm::{Fields, NULL};

use crate::clock;
use crate::connection::Connection;
use crate::failure::{Failure, is_format_one};
use crate::registers::Registers;
use crate::session::{
    CONTINUE, Command, ENCRYPTED_COMMAND, ENCRYPTED_RESPONSE, HMAC, POLICY, Session,
};
use crate::storage_key::StorageKey;
use crate::structures::{NO_SESSIONS, append_sized, object_name, register_selection};

// TPM_CC.
const CREATE: u32 = 0x153;
const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const POLICY_AUTH_VALUE: u32 = 0x16b;
const POLICY_PCR: u32 = 0x17f;
/// The beginning of a sealed object's public area: data, hash of its name, attributes (fixed to
/// this TPM and key, opened by its policy alone).
const PUBLIC_HEAD: [u8; 8] = [0, 8, 0, 0x0b, 0, 0, 0, 0x92];
const NAME_LEN: usize = 34;

/// What has to hold for the TPM to unseal, besides the registers.
#[derive(Clone, Copy)]
pub(crate) struct Conditions<'a> {
    /// The TPM's clock, in milliseconds, is before this.
    pub(crate) clock_before: Option<u64>,
    /// This authorization is given: a PIN's digest.
    pub(crate) authorization: Option<&'a SecretBytes>,
}

/// Seals a secret to the present values of the registers, and to the conditions. Returns the sealed
/// object in the form above; the TPM keeps nothing. What is loaded meanwhile is noted for
/// [`Connection::flush`]. Errors: [`Failure::NoRegisterBank`] when the TPM has no SHA-256
/// registers; those of [`StorageKey::load`] and [`Session::run`].
pub(crate) fn seal(
    connection: &mut Connection,
    registers: Registers,
    conditions: Conditions<'_>,
    secret: &SecretKey,
) -> Result<Vec<u8>, Failure> {
    let storage_key = StorageKey::load(connection)?;
    let mut session = Session::start(connection, HMAC, &storage_key)?;
    let values = registers.read(connection, &mut session)?;
    let empty = SecretBytes::with_capacity(0)?;
    let authorization = conditions.authorization.unwrap_or(&empty);
    let sensitive = sensitive_area(authorization, secret)?;
    let mut public = PUBLIC_HEAD.to_vec();
    append_sized(&mut public, &policy(registers, &values, conditions));
    public.extend_from_slice(&NULL.to_be_bytes());
    append_sized(&mut public, &[]);
    let mut parameters = Vec::new();
    append_sized(&mut parameters, &public);
    // No information from outside, no registers of the creation.
    parameters.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
    let created = session.run(
        connection,
        &Command {
            code: CREATE,
            handles: &[(storage_key.handle, &storage_key.name)],
            authorization: &empty,
            attributes: CONTINUE | ENCRYPTED_COMMAND,
            secret_parameter: Some(&sensitive),
            parameters: &parameters,
            returns_handle: false,
        },
    )?;
    let mut fields = Fields(&created.parameters);
    let parts = fields.sized().zip(fields.sized());
    let (private, public) = parts.ok_or(Failure::Malformed)?;
    let mut blob = registers.mask().to_le_bytes().to_vec();
    blob.extend_from_slice(&storage_key.name);
    for part in [public, private] {
        let len = u16::try_from(part.len()).map_err(|_| Failure::Malformed)?;
        blob.extend_from_slice(&len.to_le_bytes());
        blob.extend_from_slice(part);
    }
    Ok(blob)
}

/// Unseals what [`seal`] has sealed, under the same conditions. Errors:
/// [`Failure::NotSealedObject`] for bytes that are none; [`Failure::OtherTpm`] when another TPM
/// sealed it; [`Failure::NotLoaded`] when the TPM refuses the object itself; [`Failure::Refused`]
/// when registers, clock or authorization are not right; [`Failure::Malformed`] unless the secret
/// has 32 bytes; those of [`StorageKey::load`] and [`Session::run`].
pub(crate) fn unseal(
    connection: &mut Connection,
    conditions: Conditions<'_>,
    blob: &[u8],
) -> Result<SecretKey, Failure> {
    let sealed = SealedObject::parse(blob).ok_or(Failure::NotSealedObject)?;
    let storage_key = StorageKey::load(connection)?;
    if storage_key.name != sealed.storage_key {
        return Err(Failure::OtherTpm);
    }
    let object = load(connection, &storage_key, &sealed)?;
    let mut session = Session::start(connection, POLICY, &storage_key)?;
    let handle = session.handle.to_be_bytes();
    let mut body = handle.to_vec();
    append_sized(&mut body, &[]);
    body.extend_from_slice(&register_selection(sealed.registers.mask()));
    connection.command(NO_SESSIONS, POLICY_PCR, &body)?;
    if let Some(end) = conditions.clock_before {
        clock::assert_before(connection, session.handle, end)?;
    }
    if conditions.authorization.is_some() {
        connection.command(NO_SESSIONS, POLICY_AUTH_VALUE, &handle)?;
    }
    let empty = SecretBytes::with_capacity(0)?;
    let unsealed = session.run(
        connection,
        &Command {
            code: UNSEAL,
            handles: &[(object, &object_name(sealed.public))],
            authorization: conditions.authorization.unwrap_or(&empty),
            attributes: CONTINUE | ENCRYPTED_RESPONSE,
            secret_parameter: None,
            parameters: &[],
            returns_handle: false,
        },
    )?;
    let data = unsealed.secret_parameter.ok_or(Failure::Malformed)?;
    let mut key: [u8; 32] = data.as_slice().try_into().map_err(|_| Failure::Malformed)?;
    Ok(SecretKey::take(&mut key)?)
}

/// Loads a sealed object into the TPM, to be flushed later, and returns its handle. Errors:
/// [`Failure::NotLoaded`] when the TPM refuses the object itself; those of [`Session::run`].
fn load(
    connection: &mut Connection,
    storage_key: &StorageKey,
    sealed: &SealedObject<'_>,
) -> Result<u32, Failure> {
    let mut session = Session::start(connection, HMAC, storage_key)?;
    let mut parameters = Vec::new();
    append_sized(&mut parameters, sealed.private);
    append_sized(&mut parameters, sealed.public);
    let empty = SecretBytes::with_capacity(0)?;
    let loaded = session.run(
        connection,
        &Command {
            code: LOAD,
            handles: &[(storage_key.handle, &storage_key.name)],
            authorization: &empty,
            attributes: CONTINUE,
            secret_parameter: None,
            parameters: &parameters,
            returns_handle: true,
        },
    );
    match loaded {
        Ok(loaded) => Ok(loaded.handle),
        // The code is about the object, not about the TPM's state.
        Err(Failure::Refused(number)) if is_format_one(number) => Err(Failure::NotLoaded(number)),
        Err(failure) => Err(failure),
    }
}

/// Returns `TPMS_SENSITIVE_CREATE` in locked memory: authorization and data, each after its length.
fn sensitive_area(authorization: &SecretBytes, secret: &SecretKey) -> Result<SecretBytes, Failure> {
    let mut area = SecretBytes::with_capacity(2 + authorization.len() + 2 + 32)?;
    let mut rest = area.as_mut_slice();
    for part in [authorization.as_slice(), secret.expose()] {
        let len = u16::try_from(part.len()).map_err(|_| Failure::Malformed)?;
        for bytes in [&len.to_be_bytes()[..], part] {
            let (to, behind) = rest.split_at_mut(bytes.len());
            to.copy_from_slice(bytes);
            rest = behind;
        }
    }
    Ok(area)
}

/// Computes the digest of the policy "these registers have these values, the clock is before that,
/// and the authorization was given" (part 3, `TPM2_PolicyPCR`, `TPM2_PolicyCounterTimer`,
/// `TPM2_PolicyAuthValue`). Conditions that are `None` are left out.
fn policy(registers: Registers, values: &[u8], conditions: Conditions<'_>) -> [u8; 32] {
    let parts = [
        &[0; 32],
        &POLICY_PCR.to_be_bytes()[..],
        &register_selection(registers.mask()),
        &sha256(&[values]),
    ];
    let mut digest = sha256(&parts);
    if let Some(end) = conditions.clock_before {
        digest = clock::add_to_policy(digest, end);
    }
    match conditions.authorization {
        Some(_) => sha256(&[&digest, &POLICY_AUTH_VALUE.to_be_bytes()]),
        None => digest,
    }
}

struct SealedObject<'a> {
    registers: Registers,
    /// The name of the storage key.
    storage_key: &'a [u8],
    public: &'a [u8],
    private: &'a [u8],
}

impl<'a> SealedObject<'a> {
    /// Splits a sealed object into its parts. `None` when it is malformed, or has bytes at its end.
    fn parse(blob: &'a [u8]) -> Option<Self> {
        let (registers, rest) = blob.split_first_chunk::<4>()?;
        let registers = Registers::from_mask(u32::from_le_bytes(*registers))?;
        let (storage_key, rest) = rest.split_at_checked(NAME_LEN)?;
        let (public, rest) = split_area(rest)?;
        let (private, rest) = split_area(rest)?;
        rest.is_empty().then_some(Self {
            registers,
            storage_key,
            public,
            private,
        })
    }
}

/// Reads an area that has its length (2 bytes, little-endian) before it. Returns the area without
/// the length, and the bytes that follow it. `None` when it is cut short.
fn split_area(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_whole_or_refused() {
        let mut blob = 0x80_u32.to_le_bytes().to_vec();
        blob.extend_from_slice(&[9; NAME_LEN]);
        blob.extend_from_slice(&[2, 0, 1, 2, 1, 0, 3]);
        let read = SealedObject::parse(&blob).unwrap();
        assert_eq!((read.public, read.private), (&[1, 2][..], &[3][..]));
        for cut in 0..blob.len() {
            assert!(SealedObject::parse(&blob[..cut]).is_none(), "{cut}");
        }
        blob.push(0);
        assert!(SealedObject::parse(&blob).is_none());
    }
}
