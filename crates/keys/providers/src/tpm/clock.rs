//! The TPM's clock: what it says, and "before this time" as a condition of what is sealed.
//!
//! Source: TCG, "Trusted Platform Module Library", part 1, section 36 (clock and time), part 3,
//! `TPM2_ReadClock`, `TPM2_PolicyCounterTimer`. The clock counts milliseconds while the TPM has
//! power; it goes on from where it was after a restart, nobody sets it back, and its owner can set
//! it forward. After a power cut it may lose what it had not written down: at most 2^22 ms, some 70
//! minutes.
//!
//! Must not: believe an answer outside a session.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use strongroom_crypto::{SecretBytes, sha256};
use strongroom_format::columns::tpm::Fields;

use super::link::{Failed, Link, PLAIN, malformed};
use super::session::{AUDITS, Command, HMAC, STAYS, Session};
use super::{Primary, sized};

// TPM_CC.
const READ_CLOCK: u32 = 0x181;
const POLICY_COUNTER_TIMER: u32 = 0x16d;
/// Where the clock stands in `TPMS_TIME_INFO`: behind the time since the TPM was switched on.
const CLOCK_AT: u16 = 8;
/// `TPM_EO_UNSIGNED_LT`.
const LESS: u16 = 5;

/// What the clock says, in milliseconds.
pub(super) fn now(link: &mut Link) -> Result<u64, Failed> {
    let primary = Primary::make(link)?;
    let mut session = Session::start(link, HMAC, &primary)?;
    let empty = SecretBytes::with_capacity(0)?;
    let command = Command {
        code: READ_CLOCK,
        handles: &[],
        auth: &empty,
        attributes: STAYS | AUDITS,
        hidden: None,
        open: &[],
        makes: false,
    };
    let answer = session.run(link, &command)?.parameters;
    let mut fields = Fields(&answer);
    fields.bytes(usize::from(CLOCK_AT));
    let clock = fields.bytes(8).and_then(|bytes| bytes.try_into().ok());
    Ok(clock.map(u64::from_be_bytes).ok_or_else(malformed)?)
}

/// What is compared, where it stands, and how.
fn condition(end: u64) -> ([u8; 8], [u8; 4]) {
    let mut place = [0; 4];
    place[..2].copy_from_slice(&CLOCK_AT.to_be_bytes());
    place[2..].copy_from_slice(&LESS.to_be_bytes());
    (end.to_be_bytes(), place)
}

/// The digest of a policy with "and the clock is before `end`".
pub(super) fn policy(digest: [u8; 32], end: u64) -> [u8; 32] {
    let (operand, place) = condition(end);
    let arguments = sha256(&[&operand, &place]);
    sha256(&[&digest, &POLICY_COUNTER_TIMER.to_be_bytes(), &arguments])
}

/// Has the TPM compare, in this policy's session.
pub(super) fn compare(link: &mut Link, session: u32, end: u64) -> Result<(), Failed> {
    let (operand, place) = condition(end);
    let mut body = session.to_be_bytes().to_vec();
    sized(&mut body, &operand);
    body.extend_from_slice(&place);
    link.command(PLAIN, POLICY_COUNTER_TIMER, &body)?;
    Ok(())
}
