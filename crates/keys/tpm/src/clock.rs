//! The TPM's clock: reading it, and "before this time" as a condition of unsealing.
//!
//! Source: TCG, "Trusted Platform Module Library", part 1, section 36 (clock and time), part 3,
//! `TPM2_ReadClock`, `TPM2_PolicyCounterTimer`. The clock counts milliseconds while the TPM has
//! power and goes on from where it was after a restart. Nobody can set it back; its owner can set
//! it forward. After a power cut it may lose what it had not written to its memory: at most 2^22
//! ms, some 70 minutes.
//!
//! Must not: believe an answer outside a session.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_crypto::{SecretBytes, sha256};
use strongroom_format::columns::tpm::Fields;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::session::{AUDIT, CONTINUE, Command, HMAC, Session};
use crate::storage_key::StorageKey;
use crate::structures::{NO_SESSIONS, append_sized};

// TPM_CC.
const READ_CLOCK: u32 = 0x181;
const POLICY_COUNTER_TIMER: u32 = 0x16d;
/// The offset of the clock in `TPMS_TIME_INFO`: after the time since the TPM was switched on.
const CLOCK_OFFSET: u16 = 8;
/// `TPM_EO_UNSIGNED_LT`.
const UNSIGNED_LESS_THAN: u16 = 5;

/// Reads the TPM's clock, in milliseconds, in a session that authenticates the answer. Errors:
/// [`Failure::NotAuthentic`] when it was changed on the way; [`Failure::Malformed`]; those of the
/// connection.
pub(crate) fn read(connection: &mut Connection) -> Result<u64, Failure> {
    let storage_key = StorageKey::load(connection)?;
    let mut session = Session::start(connection, HMAC, &storage_key)?;
    let empty = SecretBytes::with_capacity(0)?;
    let command = Command {
        code: READ_CLOCK,
        handles: &[],
        authorization: &empty,
        attributes: CONTINUE | AUDIT,
        secret_parameter: None,
        parameters: &[],
        returns_handle: false,
    };
    let parameters = session.run(connection, &command)?.parameters;
    let mut fields = Fields(&parameters);
    fields.bytes(usize::from(CLOCK_OFFSET));
    fields.uint64().ok_or(Failure::Malformed)
}

/// Returns the operand of the comparison "the clock is before `end`", then its offset and
/// operation.
fn comparison(end: u64) -> ([u8; 8], [u8; 4]) {
    let mut how = [0; 4];
    how[..2].copy_from_slice(&CLOCK_OFFSET.to_be_bytes());
    how[2..].copy_from_slice(&UNSIGNED_LESS_THAN.to_be_bytes());
    (end.to_be_bytes(), how)
}

/// Returns the digest of a policy to which "and the clock is before `end`" is added. `end` is in
/// milliseconds.
pub(crate) fn add_to_policy(digest: [u8; 32], end: u64) -> [u8; 32] {
    let (operand, how) = comparison(end);
    let arguments = sha256(&[&operand, &how]);
    sha256(&[&digest, &POLICY_COUNTER_TIMER.to_be_bytes(), &arguments])
}

/// Has the TPM check in a policy session that its clock is before `end`, in milliseconds. Errors:
/// [`Failure::Refused`] when it is not; those of the connection.
pub(crate) fn assert_before(
    connection: &mut Connection,
    session: u32,
    end: u64,
) -> Result<(), Failure> {
    let (operand, how) = comparison(end);
    let mut body = session.to_be_bytes().to_vec();
    append_sized(&mut body, &operand);
    body.extend_from_slice(&how);
    connection.command(NO_SESSIONS, POLICY_COUNTER_TIMER, &body)?;
    Ok(())
}
