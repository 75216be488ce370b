//! The errors of text and binary forms, and small functions that all parsers share.
//!
//! Must not: contain any part of the input.

use strongroom_format::columns::Kind;

/// Why a text or binary form is not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The type's input function does not accept it.
    Syntax,
    /// A value that the type does not hold, or a field that no date or time has.
    OutOfRange,
    /// A part of an interval that is out of range.
    FieldOutOfRange,
    /// The digits after `\x` are not a hexadecimal number of bytes.
    Hexadecimal,
    /// A numeric with more digits than numerics have.
    TooBig,
    /// PostgreSQL may know what this means; this code does not, and does not guess.
    Unsupported,
    /// Not the type's binary form.
    Binary,
    /// Text that is not UTF-8, or has a zero byte.
    Encoding,
    /// A document with `\u0000`, which stands for a character that text does not have.
    ZeroCharacter,
    /// A document that is nested too deeply.
    TooDeep,
    /// A document that is longer than a confidential value can be.
    TooLong,
}

impl Unreadable {
    /// The SQLSTATE that the server gives for this, for a value of `kind`.
    #[must_use]
    pub const fn sqlstate(self, kind: Kind) -> &'static str {
        let temporal = matches!(
            kind,
            Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz | Kind::Interval
        );
        match self {
            Self::Syntax if temporal => "22007",
            Self::Syntax => "22P02",
            Self::OutOfRange if temporal => "22008",
            Self::OutOfRange | Self::TooBig => "22003",
            Self::FieldOutOfRange => "22015",
            Self::Hexadecimal => "22023",
            Self::Unsupported => "0A000",
            Self::Binary => "22P03",
            Self::Encoding => "22021",
            Self::ZeroCharacter => "22P05",
            Self::TooDeep => "54001",
            Self::TooLong => "54000",
        }
    }

    /// The message to report, without any of the text that was read.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Syntax => "invalid input syntax for the type",
            Self::OutOfRange => "value is out of range for the type",
            Self::FieldOutOfRange => "interval field value out of range",
            Self::Hexadecimal => "invalid hexadecimal data",
            Self::TooBig => "value overflows numeric format",
            Self::Unsupported => "this form of a literal is not supported for confidential values",
            Self::Binary => "invalid binary form of the type",
            Self::Encoding => "invalid byte sequence for encoding \"UTF8\"",
            Self::ZeroCharacter => "unsupported Unicode escape sequence",
            Self::TooDeep => "the document is nested too deeply",
            Self::TooLong => "the document is longer than a confidential value can be",
        }
    }
}

/// Whether C's `isspace` is true of it in the locale "C".
pub(crate) const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// The rest of the text after `prefix`, compared without regard to the case of ASCII letters.
/// `None` if it does not begin with it.
pub(crate) fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}
