//! Sessions with a TPM in which an eavesdropper on the bus learns nothing and cannot change
//! anything unnoticed.
//!
//! Source: TCG, "Trusted Platform Module Library", part 1, sections 19 (sessions) and 21 (parameter
//! encryption). The session key comes from a salt that only the TPM can decrypt. Every command and
//! response has an HMAC. A secret parameter is encrypted by XOR with a key stream of `KDFa` over
//! the session key, the object's authorization and both nonces.
//!
//! Must not: accept a response whose HMAC does not verify.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_crypto::{MacKey, SecretBytes, SecretKey, kdfe_p256, random32, sha256};
use strongroom_format::columns::tpm::{Fields, SHA256};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::storage_key::StorageKey;
use crate::structures::{NO_SESSIONS, SESSIONS, append_sized};

/// `TPM_CC_StartAuthSession`.
const START_AUTH_SESSION: u32 = 0x176;
/// `TPM_RH_NULL`.
const NULL_HANDLE: u32 = 0x4000_0007;
/// `TPM_ALG_XOR`.
const XOR: u16 = 0x000a;
/// `TPM_SE_HMAC`: a session that authenticates commands.
pub(crate) const HMAC: u8 = 0;
/// `TPM_SE_POLICY`: a session that authorizes by a policy.
pub(crate) const POLICY: u8 = 1;
// TPMA_SESSION.
/// `continueSession`: the session remains after the command.
pub(crate) const CONTINUE: u8 = 0x01;
/// `decrypt`: the first parameter of the command is encrypted.
pub(crate) const ENCRYPTED_COMMAND: u8 = 0x20;
/// `encrypt`: the first parameter of the response is encrypted.
pub(crate) const ENCRYPTED_RESPONSE: u8 = 0x40;
/// `audit`: what a session has to be for a command that needs no authorization.
pub(crate) const AUDIT: u8 = 0x80;

/// A command in a session.
pub(crate) struct Command<'a> {
    pub(crate) code: u32,
    /// Its handles, and the names of what they refer to.
    pub(crate) handles: &'a [(u32, &'a [u8])],
    /// The authorization of what the first handle refers to; empty where there is none.
    pub(crate) authorization: &'a SecretBytes,
    pub(crate) attributes: u8,
    /// The first parameter, where it is encrypted.
    pub(crate) secret_parameter: Option<&'a SecretBytes>,
    /// The other parameters.
    pub(crate) parameters: &'a [u8],
    /// Whether the response begins with a handle.
    pub(crate) returns_handle: bool,
}

/// What the TPM answered to a command in a session.
pub(crate) struct Response {
    /// 0 where the command returns none.
    pub(crate) handle: u32,
    pub(crate) parameters: Vec<u8>,
    /// The first parameter, decrypted, where it came encrypted.
    pub(crate) secret_parameter: Option<SecretBytes>,
}

pub(crate) struct Session {
    pub(crate) handle: u32,
    key: SecretKey,
    /// The nonce of the TPM's last response.
    tpm_nonce: Vec<u8>,
}

impl Session {
    /// Starts a session of a kind, [`HMAC`] or [`POLICY`], with a salt that is encrypted for the
    /// storage key, so that only the TPM knows the session's key too. It is noted for
    /// [`Connection::flush`]. Errors: [`Failure::Malformed`] for a response or a point that is not
    /// valid; [`Failure::Refused`], [`Failure::TimedOut`], [`Failure::System`] or
    /// [`Failure::OutOfStep`] by the connection.
    pub(crate) fn start(
        connection: &mut Connection,
        kind: u8,
        storage_key: &StorageKey,
    ) -> Result<Self, Failure> {
        let (salt, point) =
            kdfe_p256(&storage_key.point, b"SECRET").map_err(|_| Failure::Malformed)?;
        let our_nonce = random32()?;
        let mut body = storage_key.handle.to_be_bytes().to_vec();
        body.extend_from_slice(&NULL_HANDLE.to_be_bytes());
        append_sized(&mut body, &our_nonce);
        let mut encrypted_salt = Vec::new();
        let (x, y) = point[1..].split_at(32);
        append_sized(&mut encrypted_salt, x);
        append_sized(&mut encrypted_salt, y);
        append_sized(&mut body, &encrypted_salt);
        body.push(kind);
        for algorithm in [XOR, SHA256, SHA256] {
            body.extend_from_slice(&algorithm.to_be_bytes());
        }
        let response = connection.command(NO_SESSIONS, START_AUTH_SESSION, &body)?;
        let mut fields = Fields(&response);
        let handle = fields.uint32().ok_or(Failure::Malformed)?;
        connection.flush_later(handle);
        let tpm_nonce = fields.sized().ok_or(Failure::Malformed)?.to_vec();
        // KDFa (part 1, section 11.4.10.2).
        let mut key = MacKey::new(&salt)?.mac(&[
            &1_u32.to_be_bytes(),
            b"ATH\0",
            &tpm_nonce,
            &our_nonce,
            &256_u32.to_be_bytes(),
        ]);
        let key = SecretKey::take(&mut key)?;
        Ok(Self {
            handle,
            key,
            tpm_nonce,
        })
    }

    /// Runs a command, its secret parameter encrypted, and verifies the response. Errors:
    /// [`Failure::NotAuthentic`] when the response's HMAC does not verify; [`Failure::Refused`],
    /// [`Failure::TimedOut`], [`Failure::System`] or [`Failure::OutOfStep`] by the connection.
    pub(crate) fn run(
        &mut self,
        connection: &mut Connection,
        command: &Command<'_>,
    ) -> Result<Response, Failure> {
        let mac = MacKey::of_password(&joined(&self.key, command.authorization)?)?;
        let our_nonce = random32()?;
        let mut parameters = Vec::new();
        if let Some(secret) = command.secret_parameter {
            let len = u16::try_from(secret.len()).map_err(|_| Failure::Malformed)?;
            parameters.extend_from_slice(&len.to_be_bytes());
            parameters.extend_from_slice(secret.as_slice());
            // In clear until the next line overwrites it where it is.
            xor_with_kdfa(
                &mac,
                &our_nonce,
                &self.tpm_nonce,
                parameters.get_mut(2..).unwrap_or_default(),
            );
        }
        parameters.extend_from_slice(command.parameters);
        let code = command.code.to_be_bytes();
        let mut hashed: Vec<&[u8]> = vec![&code];
        hashed.extend(command.handles.iter().map(|(_, name)| *name));
        hashed.push(&parameters);
        let digest = sha256(&hashed);
        let attributes = [command.attributes];
        let hmac = mac.mac(&[&digest, &our_nonce, &self.tpm_nonce, &attributes]);
        let mut body = Vec::new();
        for (handle, _) in command.handles {
            body.extend_from_slice(&handle.to_be_bytes());
        }
        let mut authorization_area = self.handle.to_be_bytes().to_vec();
        append_sized(&mut authorization_area, &our_nonce);
        authorization_area.push(command.attributes);
        append_sized(&mut authorization_area, &hmac);
        let len = u32::try_from(authorization_area.len()).map_err(|_| Failure::Malformed)?;
        body.extend_from_slice(&len.to_be_bytes());
        body.extend_from_slice(&authorization_area);
        body.extend_from_slice(&parameters);
        let response = connection.command(SESSIONS, command.code, &body)?;
        self.verify(connection, command, &response, &mac, &our_nonce)
    }

    /// Verifies the HMAC of a response, takes its nonce for the next command, and decrypts its
    /// first parameter where that is encrypted. A handle in it is noted for [`Connection::flush`]
    /// even if the HMAC does not verify. Errors: [`Failure::NotAuthentic`]; [`Failure::Malformed`].
    fn verify(
        &mut self,
        connection: &mut Connection,
        command: &Command<'_>,
        response: &[u8],
        mac: &MacKey,
        our_nonce: &[u8; 32],
    ) -> Result<Response, Failure> {
        let mut fields = Fields(response);
        let mut handle = 0;
        if command.returns_handle {
            handle = fields.uint32().ok_or(Failure::Malformed)?;
            connection.flush_later(handle);
        }
        let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
        let parameters = len
            .and_then(|len| fields.bytes(len))
            .ok_or(Failure::Malformed)?;
        let tpm_nonce = fields.sized().ok_or(Failure::Malformed)?;
        let attributes = fields.bytes(1).ok_or(Failure::Malformed)?;
        let hmac: Option<&[u8; 32]> = fields.sized().and_then(|hmac| hmac.try_into().ok());
        // The hash covers the response code, which is 0.
        let digest = sha256(&[&[0; 4], &command.code.to_be_bytes(), parameters]);
        let is_authentic = hmac.is_some_and(|hmac| {
            mac.verify(&[&digest, tpm_nonce, our_nonce, attributes], hmac) && fields.is_empty()
        });
        if !is_authentic {
            return Err(Failure::NotAuthentic);
        }
        self.tpm_nonce = tpm_nonce.to_vec();
        let secret_parameter = match command.attributes & ENCRYPTED_RESPONSE {
            0 => None,
            _ => {
                let encrypted = Fields(parameters).sized().ok_or(Failure::Malformed)?;
                let mut secret = SecretBytes::with_capacity(encrypted.len())?;
                secret.as_mut_slice().copy_from_slice(encrypted);
                xor_with_kdfa(mac, tpm_nonce, our_nonce, secret.as_mut_slice());
                Some(secret)
            }
        };
        Ok(Response {
            handle,
            parameters: parameters.to_vec(),
            secret_parameter,
        })
    }
}

/// Combines bytes in place with the key stream of `KDFa` by XOR. Encrypts and decrypts.
fn xor_with_kdfa(mac: &MacKey, newer_nonce: &[u8], older_nonce: &[u8], bytes: &mut [u8]) {
    let bits = u32::try_from(bytes.len() * 8)
        .unwrap_or_default()
        .to_be_bytes();
    for (counter, block) in (1_u32..).zip(bytes.chunks_mut(32)) {
        let counter = counter.to_be_bytes();
        let stream = mac.mac(&[&counter, b"XOR\0", newer_nonce, older_nonce, &bits]);
        block
            .iter_mut()
            .zip(stream)
            .for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// Returns the key of the session's HMACs, in locked memory: the session key, then the
/// authorization. Fails only without memory for keys.
fn joined(key: &SecretKey, authorization: &SecretBytes) -> Result<SecretBytes, Failure> {
    let mut value = SecretBytes::with_capacity(32 + authorization.len())?;
    let (first, second) = value.as_mut_slice().split_at_mut(32);
    first.copy_from_slice(key.expose());
    second.copy_from_slice(authorization.as_slice());
    Ok(value)
}
