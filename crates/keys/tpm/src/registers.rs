//! The platform configuration registers (PCRs) of the SHA-256 bank: which ones, and their values.
//!
//! Must not: believe a value outside a session.

use strongroom_crypto::SecretBytes;
use strongroom_format::columns::tpm::{Fields, PCRS};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::session::{AUDIT, CONTINUE, Command, Session};
use crate::structures::register_selection;

/// `TPM_CC_PCR_Read`.
const PCR_READ: u32 = 0x17e;

/// A choice of registers, at least one. The default is register 7, which says whether the firmware
/// let an unsigned system start: what most machines seal to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers(u32);

impl Default for Registers {
    /// Chooses register 7.
    fn default() -> Self {
        Self(1 << 7)
    }
}

impl Registers {
    /// Parses numbers from 0 to 23 with commas between them.
    ///
    /// # Errors
    /// A text that says what the form is, and does not repeat the given one.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut mask = 0;
        for number in text.split(',') {
            let number: Option<u8> = number.parse().ok().filter(|number| *number < PCRS);
            let number = number.ok_or("pcrs are numbers from 0 to 23 with commas between them")?;
            mask |= 1_u32 << number;
        }
        Ok(Self(mask))
    }

    /// Makes a choice of registers from a mask, whose bit n means register n. `None` if no bit is
    /// set, or one above bit 23.
    pub(crate) fn from_mask(mask: u32) -> Option<Self> {
        (mask != 0 && mask >> PCRS == 0).then_some(Self(mask))
    }

    /// Returns the choice as a mask: bit n is register n.
    pub(crate) fn mask(self) -> u32 {
        self.0
    }

    /// Reads the present values, 32 bytes each, one after another in order of number, as the TPM
    /// authenticates them in the session. Errors: [`Failure::NoRegisterBank`] when it has no such
    /// value; those of [`Session::run`].
    pub(crate) fn read(
        self,
        connection: &mut Connection,
        session: &mut Session,
    ) -> Result<Vec<u8>, Failure> {
        let empty = SecretBytes::with_capacity(0)?;
        let mut values = Vec::new();
        for number in (0..PCRS).filter(|number| self.0 & 1 << number != 0) {
            let wanted = register_selection(1 << number);
            let command = Command {
                code: PCR_READ,
                handles: &[],
                authorization: &empty,
                attributes: CONTINUE | AUDIT,
                secret_parameter: None,
                parameters: &wanted,
                returns_handle: false,
            };
            let parameters = session.run(connection, &command)?.parameters;
            let mut fields = Fields(&parameters);
            let _update_counter = fields.uint32();
            let is_wanted = fields.bytes(wanted.len()) == Some(&wanted);
            let is_one = fields.uint32() == Some(1);
            let value = fields
                .sized()
                .filter(|value| is_wanted && is_one && value.len() == 32);
            values.extend_from_slice(value.ok_or(Failure::NoRegisterBank)?);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_lists_name_registers_that_exist() {
        assert_eq!(Registers::parse("7"), Ok(Registers::default()));
        assert_eq!(Registers::parse("0,23").map(Registers::mask), Ok(0x80_0001));
        for text in ["", "7,", "24", "-1", "x"] {
            assert!(Registers::parse(text).is_err(), "{text}");
        }
        assert_eq!(Registers::from_mask(0x80), Some(Registers::default()));
        assert_eq!(Registers::from_mask(0), None);
        assert_eq!(Registers::from_mask(1 << 24), None);
    }
}
