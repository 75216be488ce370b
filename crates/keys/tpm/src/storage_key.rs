//! The TPM's storage key: the key under which objects are sealed.
//!
//! It is the primary ECC P-256 key of the owner hierarchy. The TPM derives it from its seed each
//! time, so nothing is kept in the TPM, and it is recognized by its name.
//!
//! Must not: use another template: another key would not load what was sealed before.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_format::columns::tpm::Fields;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::structures::{EMPTY_PASSWORD, SESSIONS, append_sized, object_name};

/// `TPM_RH_OWNER`.
const OWNER: u32 = 0x4000_0001;
/// `TPM_CC_CreatePrimary`.
const CREATE_PRIMARY: u32 = 0x131;
/// The template, as TCG's "EK Credential Profile" and "Provisioning Guidance" have it for ECC
/// P-256, up to the point: type, hash of its name, attributes (fixed to this TPM, made by it, no
/// lockout, restricted, decrypts), no policy, AES-128 in CFB, no scheme, the curve, no derivation.
const TEMPLATE: [u8; 22] = [
    0, 0x23, 0, 0x0b, 0, 3, 4, 0x72, 0, 0, 0, 6, 0, 0x80, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10,
];

/// The TPM's storage key, loaded.
pub(crate) struct StorageKey {
    pub(crate) handle: u32,
    pub(crate) name: Vec<u8>,
    /// Its public point, uncompressed (SEC 1).
    pub(crate) point: [u8; 65],
}

impl StorageKey {
    /// Has the TPM derive and load the key, and notes it for [`Connection::flush`]. Errors:
    /// [`Failure::Refused`] when the owner hierarchy has an authorization or is switched off;
    /// [`Failure::Malformed`] for another key than the template's; [`Failure::TimedOut`],
    /// [`Failure::System`] or [`Failure::OutOfStep`] by the connection.
    pub(crate) fn load(connection: &mut Connection) -> Result<Self, Failure> {
        let mut public = TEMPLATE.to_vec();
        // An empty point.
        public.extend_from_slice(&[0; 4]);
        let mut body = OWNER.to_be_bytes().to_vec();
        body.extend_from_slice(&EMPTY_PASSWORD);
        // No authorization and no data of its own.
        body.extend_from_slice(&[0, 4, 0, 0, 0, 0]);
        append_sized(&mut body, &public);
        body.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
        let response = connection.command(SESSIONS, CREATE_PRIMARY, &body)?;
        let mut fields = Fields(&response);
        let handle = fields.uint32().ok_or(Failure::Malformed)?;
        connection.flush_later(handle);
        let _len_of_parameters = fields.uint32();
        let public = fields.sized().ok_or(Failure::Malformed)?;
        let mut parts = Fields(public);
        if parts.bytes(TEMPLATE.len()) != Some(TEMPLATE.as_slice()) {
            return Err(Failure::Malformed);
        }
        let (x, y) = parts.sized().zip(parts.sized()).ok_or(Failure::Malformed)?;
        let mut point = [0; 65];
        point[0] = 4;
        for (coordinate, end) in [(x, 33_usize), (y, 65)] {
            let begin = end
                .checked_sub(coordinate.len())
                .filter(|at| *at >= end - 32);
            let place = begin.and_then(|begin| point.get_mut(begin..end));
            place.ok_or(Failure::Malformed)?.copy_from_slice(coordinate);
        }
        Ok(Self {
            handle,
            name: object_name(public),
            point,
        })
    }
}
