//! Types of the random statements, and values of them.
//!
//! Must not: hold a value that PostgreSQL would write in two ways.

use fastrand::Rng;

use super::generator::Generator;

/// A base type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Int4,
    Int8,
    Float8,
    Numeric,
    Text,
    Bytea,
    Date,
    Timestamp,
    Bool,
    Uuid,
    Time,
}

use Type::{Bool, Bytea, Date, Float8, Int4, Int8, Numeric, Text, Time, Timestamp, Uuid};

/// The columns that both tables have, with their types.
pub(crate) const COLUMNS: &[(&str, Type)] = &[
    ("i", Int4),
    ("l", Int8),
    ("f", Float8),
    ("n", Numeric),
    ("s", Text),
    ("b", Bytea),
    ("d", Date),
    ("ts", Timestamp),
    ("o", Bool),
    ("k", Uuid),
    ("c", Time),
];

/// PostgreSQL's name of the type.
pub(crate) fn name(of: Type) -> &'static str {
    match of {
        Int4 => "int4",
        Int8 => "int8",
        Float8 => "float8",
        Numeric => "numeric",
        Text => "text",
        Bytea => "bytea",
        Date => "date",
        Timestamp => "timestamp",
        Bool => "bool",
        Uuid => "uuid",
        Time => "time",
    }
}

pub(crate) fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    let at = random.usize(0..of.len());
    *of.get(at).expect("a list that is not empty")
}

impl Generator {
    /// A literal, as an application writes it.
    pub(crate) fn literal(&mut self, of: Type) -> String {
        let plain = self.text_of(of);
        match of {
            Int4 | Int8 | Numeric => plain,
            Float8 => format!("{plain}::float8"),
            Text => format!("'{plain}'"),
            Bytea => format!("'{plain}'::bytea"),
            Date => format!("date '{plain}'"),
            Timestamp => format!("timestamp '{plain}'"),
            Bool => plain,
            Uuid => format!("uuid '{plain}'"),
            Time => format!("time '{plain}'"),
        }
    }

    /// A value's text form, often one that a row has.
    pub(crate) fn text_of(&mut self, of: Type) -> String {
        match of {
            Int4 => self
                .one(&["0", "1", "-1", "2", "7", "-3", "100", "12345", "2147483647"])
                .to_owned(),
            Int8 => self
                .one(&["0", "1", "-5", "9000000000", "-9000000000", "77"])
                .to_owned(),
            Float8 => self
                .one(&["0", "1.5", "-2.25", "0.125", "1000000", "-0.75"])
                .to_owned(),
            Numeric => self
                .one(&[
                    "0.00",
                    "1.50",
                    "-2.25",
                    "99999999999999999999.5",
                    "0.001",
                    "10",
                    "3.14159",
                    "-7.0",
                ])
                .to_owned(),
            Text => self
                .one(&[
                    "", "a", "ab", "Ab", "abc", "zebra", "%", "x_y", "äöü", " pad ",
                ])
                .to_owned(),
            Bytea => self
                .one(&["\\\\x", "\\\\x00", "\\\\xdeadbeef", "\\\\x6162"])
                .replace("\\\\", "\\"),
            Date => self
                .one(&["2000-01-01", "1999-12-31", "2024-02-29", "1815-12-10"])
                .to_owned(),
            Timestamp => self
                .one(&[
                    "2000-01-01 00:00:00",
                    "2024-02-29 12:34:56.789",
                    "1969-07-20 20:17:40",
                ])
                .to_owned(),
            Bool => self.one(&["true", "false"]).to_owned(),
            Uuid => self
                .one(&[
                    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                    "00000000-0000-0000-0000-000000000000",
                    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12",
                    "ffffffff-ffff-ffff-ffff-ffffffffffff",
                ])
                .to_owned(),
            Time => self
                .one(&[
                    "00:00:00",
                    "12:34:56.789",
                    "23:59:59.999999",
                    "24:00:00",
                    "08:15:00",
                ])
                .to_owned(),
        }
    }
}
