//! The kinds of confidential values: one for each type of the extension. The numbers are on disk
//! and on the wire.
//!
//! Must not: know how a value is kept or computed.

/// The type of a confidential value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `enc_bool`, PostgreSQL's `boolean`.
    Bool = 1,
    /// `enc_int4`, PostgreSQL's `integer`.
    Int4 = 2,
    /// `enc_int8`, PostgreSQL's `bigint`.
    Int8 = 3,
    /// `enc_float8`, PostgreSQL's `double precision`.
    Float8 = 4,
    /// `enc_numeric`, PostgreSQL's `numeric`.
    Numeric = 5,
    /// `enc_text`, PostgreSQL's `text` with collation "C".
    Text = 6,
    /// `enc_bytea`, PostgreSQL's `bytea`.
    Bytea = 7,
    /// `enc_date`, PostgreSQL's `date`.
    Date = 8,
    /// `enc_timestamp`, PostgreSQL's `timestamp without time zone`.
    Timestamp = 9,
    /// `enc_timestamptz`, PostgreSQL's `timestamp with time zone`.
    Timestamptz = 10,
    /// `enc_interval`, PostgreSQL's `interval`; columns of it are opaque.
    Interval = 11,
    /// `enc_uuid`, PostgreSQL's `uuid`.
    Uuid = 12,
    /// `enc_time`, PostgreSQL's `time without time zone`.
    Time = 13,
    /// `enc_jsonb`, PostgreSQL's `jsonb`.
    Jsonb = 14,
}

impl Kind {
    /// Every kind, in order of number.
    pub const ALL: &[Self] = &[
        Self::Bool,
        Self::Int4,
        Self::Int8,
        Self::Float8,
        Self::Numeric,
        Self::Text,
        Self::Bytea,
        Self::Date,
        Self::Timestamp,
        Self::Timestamptz,
        Self::Interval,
        Self::Uuid,
        Self::Time,
        Self::Jsonb,
    ];

    /// The number on disk and on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind of this number. `None` for a number that no kind has.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.number() == number)
    }

    /// The name of PostgreSQL's type whose values these are, as in `pg_type`.
    #[must_use]
    pub const fn base(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Float8 => "float8",
            Self::Numeric => "numeric",
            Self::Text => "text",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
            Self::Interval => "interval",
            Self::Uuid => "uuid",
            Self::Time => "time",
            Self::Jsonb => "jsonb",
        }
    }

    /// The object id of PostgreSQL's type, fixed in `pg_type.dat`.
    #[must_use]
    pub const fn base_oid(self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Bytea => 17,
            Self::Int8 => 20,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Float8 => 701,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::Timestamptz => 1184,
            Self::Interval => 1186,
            Self::Numeric => 1700,
            Self::Uuid => 2950,
            Self::Jsonb => 3802,
        }
    }

    /// The length of every value's binary form in bytes; `None` for a kind whose values differ in
    /// length.
    #[must_use]
    pub const fn fixed_len(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int4 | Self::Date => Some(4),
            Self::Int8 | Self::Float8 | Self::Timestamp | Self::Timestamptz | Self::Time => Some(8),
            Self::Interval | Self::Uuid => Some(16),
            Self::Numeric | Self::Text | Self::Bytea | Self::Jsonb => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_found_again() {
        for (at, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.number()), at + 1);
            assert_eq!(Kind::from_number(kind.number()), Some(*kind));
        }
        assert_eq!(Kind::from_number(0), None);
        let next = u8::try_from(Kind::ALL.len() + 1).unwrap();
        assert_eq!(Kind::from_number(next), None);
    }
}
