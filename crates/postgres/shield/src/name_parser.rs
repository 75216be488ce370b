//! Parses file names: decimal and hexadecimal numbers in exactly the form in which PostgreSQL
//! prints them.
//!
//! Invariants: nothing allocates, nothing panics on any bytes. A number that is too large, has a
//! leading zero where `%u` prints none, or lower-case digits where `%X` prints upper-case ones does
//! not match.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

/// The part of a name that was not parsed yet.
#[derive(Clone, Copy)]
pub(crate) struct NameParser<'name>(&'name [u8]);

impl<'name> NameParser<'name> {
    /// Begins to parse `name`.
    pub(crate) fn new(name: &'name [u8]) -> Self {
        Self(name)
    }

    /// Returns the part that was not parsed yet.
    pub(crate) fn rest(&self) -> &'name [u8] {
        self.0
    }

    /// Returns `Some` when the whole name was parsed, else `None`.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// Parses exactly `text`. `None`, and nothing is skipped, when something else is next.
    pub(crate) fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Skips `text` if it is next; returns whether it was.
    pub(crate) fn optional(&mut self, text: &[u8]) -> bool {
        self.expect(text).is_some()
    }

    /// Parses a number as `%u` prints it. `None` when no digit is next, for a leading zero, and for
    /// a number that does not fit 32 bits.
    pub(crate) fn decimal(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        let mut digits = 0_u32;
        while let Some((&byte @ b'0'..=b'9', rest)) = self.0.split_first() {
            if digits == 1 && value == 0 {
                return None;
            }
            let digit = u32::from(byte.checked_sub(b'0')?);
            value = value.checked_mul(10)?.checked_add(digit)?;
            digits = digits.checked_add(1)?;
            self.0 = rest;
        }
        (digits > 0).then_some(value)
    }

    /// Skips decimal digits, whose value does not matter. `None` when none is next.
    pub(crate) fn skip_digits(&mut self) -> Option<()> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit());
        self.skip(count.count())
    }

    /// Parses between `least` and `most` (at most 16) upper-case hexadecimal digits, as many as
    /// there are. `None` when there are fewer than `least`.
    pub(crate) fn hex(&mut self, least: usize, most: usize) -> Option<u64> {
        let mut value = 0_u64;
        let mut count = 0_usize;
        while count < most {
            let Some((&byte, rest)) = self.0.split_first() else {
                break;
            };
            let digit = match byte {
                b'0'..=b'9' => byte.checked_sub(b'0')?,
                b'A'..=b'F' => byte.checked_sub(b'A')?.checked_add(10)?,
                _ => break,
            };
            value = value.checked_mul(16)?.checked_add(u64::from(digit))?;
            count = count.checked_add(1)?;
            self.0 = rest;
        }
        (count >= least).then_some(value)
    }

    /// Skips hexadecimal digits of either case, whose value does not matter. `None` when none is
    /// next.
    pub(crate) fn skip_hex(&mut self) -> Option<()> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_hexdigit());
        self.skip(count.count())
    }

    /// Skips `count` bytes. `None` when `count` is 0, or fewer are left.
    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        (count > 0).then_some(())
    }
}

/// Returns the first component of a path, and what follows its `/`; `None` for the latter without a
/// `/`.
pub(crate) fn split_first_component(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|&byte| byte == b'/') {
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at.saturating_add(1)..),
        ),
        None => (path, None),
    }
}
