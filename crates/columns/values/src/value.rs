//! A value in the store's form, and the buffer that a result is written to.
//!
//! Invariants: equal bits for equal value and display scale (one canonical form each); the contents
//! of a [`Buf`] are zeroised when it is cleared, grown or dropped. Must not: know SQL, or print a
//! value (there is no `Debug` here).

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Field;
use zeroize::Zeroize;

use crate::time_zone::TimeZone;

/// A value in the store's form. It does not contain its kind: the caller knows it.
///
/// A word holds: bool 0 or 1; int4, int8 and date sign-extended; float8 its bits; timestamps
/// microseconds since 2000-01-01; times of day microseconds since midnight; a small numeric its
/// unscaled number in the upper 56 bits and its scale in the lower 7. Bytes hold: text, bytea and
/// uuid as they are; a jsonb's text as the server prints it; an interval's microseconds (8 bytes),
/// days (4), months (4), little-endian; any other numeric as `numeric.rs` writes it.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// Eight bytes.
    Word(u64),
    /// Any number of bytes.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Makes the value of a `boolean`.
    #[must_use]
    pub fn of_bool(value: bool) -> Self {
        Self::Word(u64::from(value))
    }

    /// An `integer`, or a `date` in days since 2000-01-01.
    #[must_use]
    pub fn of_int4(value: i32) -> Self {
        Self::of_int8(i64::from(value))
    }

    /// A `bigint`, or a timestamp in microseconds since 2000-01-01.
    #[must_use]
    pub const fn of_int8(value: i64) -> Self {
        Self::Word(value.cast_unsigned())
    }

    /// Makes the value of a `double precision`.
    #[must_use]
    pub const fn of_float8(value: f64) -> Self {
        Self::Word(value.to_bits())
    }

    /// Returns the word that it holds.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] if it is bytes.
    pub const fn word(self) -> Result<u64, Fault> {
        match self {
            Self::Word(word) => Ok(word),
            Self::Bytes(_) => Err(Fault::KindMismatch),
        }
    }

    /// Returns the bytes that it holds.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] when it is a word.
    pub const fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Word(_) => Err(Fault::KindMismatch),
        }
    }

    /// Returns the bytes that it holds, as text.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] when it is not UTF-8 bytes.
    pub fn text(self) -> Result<&'a str, Fault> {
        core::str::from_utf8(self.bytes()?).map_err(|_| Fault::KindMismatch)
    }

    /// Returns it as a `boolean`.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] when it is none.
    pub fn bool(self) -> Result<bool, Fault> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::KindMismatch),
        }
    }

    /// As an `integer`, or a `date` in days since 2000-01-01.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] when it is none.
    pub fn int4(self) -> Result<i32, Fault> {
        i32::try_from(self.int8()?).map_err(|_| Fault::KindMismatch)
    }

    /// As a `bigint`, or a timestamp in microseconds since 2000-01-01.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] when it is bytes.
    pub fn int8(self) -> Result<i64, Fault> {
        Ok(self.word()?.cast_signed())
    }

    /// Returns it as a `double precision`.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] when it is bytes.
    pub fn float8(self) -> Result<f64, Fault> {
        Ok(f64::from_bits(self.word()?))
    }
}

/// An argument of a function.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A confidential value.
    Value(Value<'a>),
    /// An integer in clear.
    Plain(i32),
    /// A field of a date or time, in clear.
    Field(Field),
}

/// The settings of the session that results depend on.
#[derive(Clone)]
pub struct Settings {
    /// The session's `TimeZone`.
    pub time_zone: TimeZone,
}

impl Settings {
    /// Returns the settings of a session whose time zone is UTC.
    #[must_use]
    pub const fn utc() -> Self {
        Self {
            time_zone: TimeZone::utc(),
        }
    }
}

/// A byte buffer whose contents are zeroised when it is grown, cleared or dropped.
#[derive(Default)]
pub struct Buf(Vec<u8>);

impl Buf {
    /// Makes an empty buffer, which has no memory before something is appended.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Reserves memory for `more` bytes. If that means new memory, the old one is zeroised.
    pub fn reserve(&mut self, more: usize) {
        if self.0.capacity() - self.0.len() < more {
            let wanted = self
                .0
                .len()
                .saturating_add(more)
                .max(self.0.capacity().saturating_mul(2))
                .max(32);
            let mut grown = Vec::with_capacity(wanted);
            grown.extend_from_slice(&self.0);
            core::mem::swap(&mut self.0, &mut grown);
            grown.as_mut_slice().zeroize();
        }
    }

    /// Zeroises the contents and empties the buffer; its memory stays.
    pub fn clear(&mut self) {
        self.0.as_mut_slice().zeroize();
        self.0.clear();
    }

    /// Appends bytes. Memory that it grows out of is zeroised.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Appends one byte. Memory that it grows out of is zeroised.
    pub fn push(&mut self, byte: u8) {
        self.reserve(1);
        self.0.push(byte);
    }

    /// Returns the contents.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buf {
    /// Zeroises the contents.
    fn drop(&mut self) {
        self.clear();
    }
}

impl core::fmt::Write for Buf {
    /// Appends the text. Never fails.
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.extend(text.as_bytes());
        Ok(())
    }
}

/// An owned result. It is meant to be reused: its memory is kept, its contents are zeroised.
#[derive(Default)]
pub struct Out {
    word: u64,
    is_bytes: bool,
    bytes: Buf,
}

impl Out {
    /// Makes a result that holds the word 0.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            word: 0,
            is_bytes: false,
            bytes: Buf::new(),
        }
    }

    /// Returns the result, as a word or bytes.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        if self.is_bytes {
            Value::Bytes(self.bytes.as_slice())
        } else {
            Value::Word(self.word)
        }
    }

    /// Makes it a word; bytes that it held are zeroised.
    pub fn set_word(&mut self, word: u64) {
        if self.is_bytes {
            self.bytes.clear();
        }
        self.is_bytes = false;
        self.word = word;
    }

    /// Makes it an `integer`, or a `date` in days since 2000-01-01. Bytes that it held are
    /// zeroised.
    pub fn set_int4(&mut self, value: i32) {
        self.set_int8(i64::from(value));
    }

    /// Makes it a `bigint`, or a timestamp in microseconds since 2000-01-01. Bytes that it held are
    /// zeroised.
    pub fn set_int8(&mut self, value: i64) {
        self.set_word(value.cast_unsigned());
    }

    /// Makes it a `double precision`.
    pub fn set_float8(&mut self, value: f64) {
        self.set_word(value.to_bits());
    }

    /// Makes it a copy of these bytes. What it held is zeroised.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        self.begin(bytes.len()).extend(bytes);
    }

    /// Makes it a copy of `value`. What it held is zeroised.
    pub fn set(&mut self, value: Value<'_>) {
        match value {
            Value::Word(word) => self.set_word(word),
            Value::Bytes(bytes) => self.set_bytes(bytes),
        }
    }

    /// Makes it empty bytes, with memory for `len`, and returns the buffer to append to. What it
    /// held is zeroised.
    pub fn begin(&mut self, len: usize) -> &mut Buf {
        self.word.zeroize();
        self.is_bytes = true;
        self.bytes.clear();
        self.bytes.reserve(len);
        &mut self.bytes
    }
}

impl Drop for Out {
    /// Zeroises the word; the bytes zeroise themselves.
    fn drop(&mut self) {
        self.word.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_changes_its_form_and_keeps_nothing() {
        let mut out = Out::new();
        out.set_bytes(b"long enough to be on the heap, and longer than the first reservation");
        assert_eq!(out.value().bytes().unwrap().len(), 68);
        out.set_int4(-5);
        assert_eq!(out.value().int4().unwrap(), -5);
        assert!(out.value().bytes().is_err() && out.bytes.as_slice().is_empty());
        out.set(Value::Bytes(b""));
        assert_eq!(out.value().bytes().unwrap(), b"");
        assert!(out.value().word().is_err() && out.word == 0);
    }

    #[test]
    fn a_word_of_another_kind_is_refused() {
        assert!(Value::Word(2).bool().is_err());
        assert!(Value::of_int8(1 << 40).int4().is_err());
        assert!(Value::Bytes(&[0xff]).text().is_err());
    }
}
