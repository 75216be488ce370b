//! The TPM's structures as this crate writes them into commands.
//!
//! Must not: send a command.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_crypto::sha256;
use strongroom_format::columns::tpm::{SHA256, selected};

/// `TPM_ST_NO_SESSIONS`: the tag of a command without authorizations.
pub(crate) const NO_SESSIONS: u16 = 0x8001;
/// `TPM_ST_SESSIONS`: the tag of a command with authorizations.
pub(crate) const SESSIONS: u16 = 0x8002;
/// The authorization area of one password session (`TPM_RS_PW`) with no nonce, no attributes and an
/// empty password; its length before it.
pub(crate) const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];

/// Appends a `TPM2B`: the length in two bytes, then the bytes.
pub(crate) fn append_sized(to: &mut Vec<u8>, bytes: &[u8]) {
    // What is written here is shorter than a command.
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&len.to_be_bytes());
    to.extend_from_slice(bytes);
}

/// Returns `TPML_PCR_SELECTION` of these registers of the SHA-256 bank; bit n of the mask is
/// register n.
pub(crate) fn register_selection(mask: u32) -> Vec<u8> {
    let mut bytes = 1_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&SHA256.to_be_bytes());
    bytes.push(3);
    bytes.extend_from_slice(&selected(mask));
    bytes
}

/// Computes the name of an object: the number of the hash algorithm, then the hash of its public
/// area.
pub(crate) fn object_name(public_area: &[u8]) -> Vec<u8> {
    [&SHA256.to_be_bytes()[..], &sha256(&[public_area])].concat()
}
