//! Sessions with a TPM that an eavesdropper on the bus learns nothing from and cannot change
//! anything in.
//!
//! Source: TCG, "Trusted Platform Module Library", part 1, sections 19 (sessions) and 21 (parameter
//! encryption). The session key comes from a salt that only the TPM can open; every command and
//! answer has an HMAC; what is secret in them is hidden by XOR with a key stream of `KDFa` over the
//! session key, the object's authorization and both nonces.
//!
//! Must not: accept an answer whose HMAC does not hold.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_crypto::{MacKey, SecretBytes, SecretKey, kdfe_p256, random32, sha256};
use strongroom_format::code;
use strongroom_format::columns::tpm::{Fields, NULL, SHA256};
use strongroom_keyring::Error;

use super::Primary;
use super::link::{Failed, Link, PLAIN, SESSIONS, malformed};

const START_AUTH_SESSION: u32 = 0x176;
/// `TPM_RH_NULL`.
const NOTHING: u32 = 0x4000_0007;
/// `TPM_ALG_XOR`.
const XOR: u16 = 0x000a;
/// `TPM_SE_HMAC`, `TPM_SE_POLICY`.
pub(super) const HMAC: u8 = 0;
pub(super) const POLICY: u8 = 1;
// TPMA_SESSION: stays; the command's first parameter is hidden; the answer's is; it audits, which
// is what a session of a command without an authorization is for.
pub(super) const STAYS: u8 = 0x01;
pub(super) const HIDES_COMMAND: u8 = 0x20;
pub(super) const HIDES_ANSWER: u8 = 0x40;
pub(super) const AUDITS: u8 = 0x80;

/// A command in a session.
pub(super) struct Command<'a> {
    pub(super) code: u32,
    /// Its handles, and their names.
    pub(super) handles: &'a [(u32, &'a [u8])],
    /// The authorization of what the first handle names; empty where there is none.
    pub(super) auth: &'a SecretBytes,
    pub(super) attributes: u8,
    /// The first parameter, which is hidden; `None` when none is.
    pub(super) hidden: Option<&'a SecretBytes>,
    /// The other parameters.
    pub(super) open: &'a [u8],
    /// Whether the answer begins with a handle.
    pub(super) makes: bool,
}

/// What was answered.
pub(super) struct Answer {
    pub(super) handle: u32,
    pub(super) parameters: Vec<u8>,
    /// The first parameter, when the answer hides it.
    pub(super) hidden: Option<SecretBytes>,
}

pub(super) struct Session {
    pub(super) handle: u32,
    key: SecretKey,
    theirs: Vec<u8>,
}

impl Session {
    /// Begins a session of this kind, salted for the primary key.
    pub(super) fn start(link: &mut Link, kind: u8, primary: &Primary) -> Result<Self, Failed> {
        let (salt, point) = kdfe_p256(&primary.point, b"SECRET").map_err(|_| malformed())?;
        let ours = random32()?;
        let mut body = primary.handle.to_be_bytes().to_vec();
        body.extend_from_slice(&NOTHING.to_be_bytes());
        sized(&mut body, &ours);
        let mut secret = Vec::new();
        let (x, y) = point[1..].split_at(32);
        sized(&mut secret, x);
        sized(&mut secret, y);
        sized(&mut body, &secret);
        body.push(kind);
        for number in [XOR, SHA256, SHA256] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        let answer = link.command(PLAIN, START_AUTH_SESSION, &body)?;
        let mut fields = Fields(&answer);
        let handle = fields.uint32().ok_or_else(malformed)?;
        link.holds(handle);
        let theirs = fields.sized().ok_or_else(malformed)?.to_vec();
        let mac = MacKey::new(&salt)?;
        let mut key = mac.mac(&[
            &1_u32.to_be_bytes(),
            b"ATH\0",
            &theirs,
            &ours,
            &256_u32.to_be_bytes(),
        ]);
        let key = SecretKey::take(&mut key)?;
        Ok(Self {
            handle,
            key,
            theirs,
        })
    }

    /// Runs a command.
    pub(super) fn run(&mut self, link: &mut Link, command: &Command<'_>) -> Result<Answer, Failed> {
        let value = joined(&self.key, command.auth)?;
        let mac = MacKey::of_password(&value)?;
        let ours = random32()?;
        let mut parameters = Vec::new();
        if let Some(hidden) = command.hidden {
            let len = u16::try_from(hidden.len()).map_err(|_| malformed())?;
            parameters.extend_from_slice(&len.to_be_bytes());
            parameters.extend_from_slice(hidden.as_slice());
            // In clear for the length of this call's next line, in a buffer that is overwritten by
            // it.
            crossed(
                &mac,
                &ours,
                &self.theirs,
                parameters.get_mut(2..).unwrap_or_default(),
            );
        }
        parameters.extend_from_slice(command.open);
        let code = command.code.to_be_bytes();
        let mut hashed: Vec<&[u8]> = vec![&code];
        hashed.extend(command.handles.iter().map(|(_, name)| *name));
        hashed.push(&parameters);
        let digest = sha256(&hashed);
        let attributes = [command.attributes];
        let proof = mac.mac(&[&digest, &ours, &self.theirs, &attributes]);
        let mut body = Vec::new();
        for (handle, _) in command.handles {
            body.extend_from_slice(&handle.to_be_bytes());
        }
        let mut area = self.handle.to_be_bytes().to_vec();
        sized(&mut area, &ours);
        area.push(command.attributes);
        sized(&mut area, &proof);
        let len = u32::try_from(area.len()).map_err(|_| malformed())?;
        body.extend_from_slice(&len.to_be_bytes());
        body.extend_from_slice(&area);
        body.extend_from_slice(&parameters);
        let answer = link.command(SESSIONS, command.code, &body)?;
        self.answered(link, command, &answer, &mac, &ours)
    }

    fn answered(
        &mut self,
        link: &mut Link,
        command: &Command<'_>,
        answer: &[u8],
        mac: &MacKey,
        ours: &[u8; 32],
    ) -> Result<Answer, Failed> {
        let mut fields = Fields(answer);
        let mut handle = 0;
        if command.makes {
            handle = fields.uint32().ok_or_else(malformed)?;
            link.holds(handle);
        }
        let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
        let parameters = len
            .and_then(|len| fields.bytes(len))
            .ok_or_else(malformed)?;
        let theirs = fields.sized().ok_or_else(malformed)?;
        let attributes = fields.bytes(1).ok_or_else(malformed)?;
        let proof: Option<&[u8; 32]> = fields.sized().and_then(|proof| proof.try_into().ok());
        let digest = sha256(&[&[0; 4], &command.code.to_be_bytes(), parameters]);
        let proof = proof.filter(|proof| {
            mac.verify(&[&digest, theirs, ours, attributes], proof) && fields.is_empty()
        });
        if proof.is_none() {
            let detail = "the TPM's answer is not authentic: something between this host and the TPM changed it";
            return Err(Error::new(&code::PROVIDER_ANSWER, detail).into());
        }
        self.theirs = theirs.to_vec();
        let hidden = match command.attributes & HIDES_ANSWER {
            0 => None,
            _ => {
                let first = Fields(parameters).sized().ok_or_else(malformed)?;
                let mut copy = SecretBytes::with_capacity(first.len())?;
                copy.as_mut_slice().copy_from_slice(first);
                crossed(mac, theirs, ours, copy.as_mut_slice());
                Some(copy)
            }
        };
        Ok(Answer {
            handle,
            parameters: parameters.to_vec(),
            hidden,
        })
    }
}

/// XOR with the key stream of `KDFa`: in place, and back again by the same.
fn crossed(mac: &MacKey, newer: &[u8], older: &[u8], bytes: &mut [u8]) {
    let bits = u32::try_from(bytes.len() * 8)
        .unwrap_or_default()
        .to_be_bytes();
    for (number, block) in (1_u32..).zip(bytes.chunks_mut(32)) {
        let stream = mac.mac(&[&number.to_be_bytes(), b"XOR\0", newer, older, &bits]);
        block
            .iter_mut()
            .zip(stream)
            .for_each(|(byte, cross)| *byte ^= cross);
    }
}

fn joined(key: &SecretKey, auth: &SecretBytes) -> Result<SecretBytes, Failed> {
    let mut value = SecretBytes::with_capacity(32 + auth.len())?;
    let (first, second) = value.as_mut_slice().split_at_mut(32);
    first.copy_from_slice(key.expose());
    second.copy_from_slice(auth.as_slice());
    Ok(value)
}

/// Appends a `TPM2B`.
pub(super) fn sized(to: &mut Vec<u8>, bytes: &[u8]) {
    // What is written here is shorter than a command.
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&len.to_be_bytes());
    to.extend_from_slice(bytes);
}

/// `TPM_ALG_NULL` as bytes.
pub(super) const fn null() -> [u8; 2] {
    NULL.to_be_bytes()
}
