//! Random expressions of each type.

use super::generator::Generator;
use super::values::Type::{self, Date, Float8, Int4, Numeric, Text, Time, Timestamp, Uuid};

impl Generator {
    pub(super) fn arithmetic(&mut self, of: Type, below: u32) -> String {
        let (one, two) = (self.value(of, below), self.value(of, below));
        let (safe, risky): (&[&str], &[&str]) = match of {
            // Sums of numbers of this size do not overflow a NUMERIC; everything else may.
            Numeric => (&["+", "-", "*"], &["+", "-", "*", "/", "%"]),
            Float8 => (&["+", "-"], &["+", "-", "*", "/"]),
            _ => (&[], &["+", "-", "*", "/", "%"]),
        };
        match self.one(if self.risky {
            risky
        } else if safe.is_empty() {
            &["negated"]
        } else {
            safe
        }) {
            "negated" => {
                let column = self.column(of);
                format!("(- {column})")
            }
            operator => format!("({one} {operator} {two})"),
        }
    }

    pub(super) fn int4(&mut self, below: u32) -> String {
        match self.random.u32(0..8) {
            6 => format!(
                "({} {} {})",
                self.data(Int4, below),
                self.one(&["&", "|", "#", "<<", ">>"]),
                self.value(Int4, 0)
            ),
            7 => format!("(~ {})", self.data(Int4, below)),
            0 => format!("length({})", self.data(Text, below)),
            1 => format!(
                "strpos({}, {})",
                self.data(Text, below),
                self.data(Text, below)
            ),
            2 => format!("({} - {})", self.data(Date, below), self.data(Date, below)),
            3 => format!("octet_length({})", self.data(Text, below)),
            _ => self.arithmetic(Int4, below),
        }
    }

    pub(super) fn float8(&mut self, below: u32) -> String {
        match self.random.u32(0..6) {
            3 => format!(
                "date_part('{}', {})",
                self.one(&["hour", "minute", "second", "epoch"]),
                self.data(Time, below)
            ),
            0 => format!(
                "{}({})",
                self.one(&["floor", "ceil", "trunc", "round", "abs", "sign"]),
                self.data(Float8, below)
            ),
            1 if self.risky => format!("sqrt({})", self.data(Float8, below)),
            2 => format!(
                "date_part('{}', {})",
                self.one(&["year", "dow", "hour", "epoch"]),
                self.data(Timestamp, below)
            ),
            _ => self.arithmetic(Float8, below),
        }
    }

    pub(super) fn numeric(&mut self, below: u32) -> String {
        match self.random.u32(0..7) {
            3 => format!(
                "extract({} from {})",
                self.one(&["hour", "milliseconds", "second", "epoch"]),
                self.data(Time, below)
            ),
            0 => format!(
                "round({}, {})",
                self.data(Numeric, below),
                self.random.u32(0..4)
            ),
            1 => format!(
                "{}({})",
                self.one(&["floor", "ceil", "abs", "sign", "trunc"]),
                self.data(Numeric, below)
            ),
            2 => format!(
                "extract({} from {})",
                self.one(&["year", "month", "day", "quarter", "week", "doy"]),
                self.data(Date, below)
            ),
            _ => self.arithmetic(Numeric, below),
        }
    }

    pub(super) fn text(&mut self, below: u32) -> String {
        let one = self.data(Text, below);
        match self.random.u32(0..10) {
            8 => format!("({})::text", self.data(Time, below)),
            9 => format!("({})::text", self.data(Uuid, below)),
            0 => format!(
                "{}({one})",
                self.one(&["upper", "lower", "reverse", "btrim", "ltrim", "rtrim"])
            ),
            1 => format!(
                "substring({one} from {} for {})",
                self.random.u32(0..4),
                self.random.u32(0..4)
            ),
            2 => format!(
                "{}({one}, {})",
                self.one(&["left", "right"]),
                self.random.i32(-2..4)
            ),
            3 => format!(
                "replace({one}, {}, {})",
                self.value(Text, 0),
                self.value(Text, 0)
            ),
            4 => format!(
                "{}({one}, {}, {})",
                self.one(&["lpad", "rpad"]),
                self.random.u32(0..6),
                self.value(Text, 0)
            ),
            5 => format!(
                "split_part({one}, {}, {})",
                self.value(Text, 0),
                self.random.u32(1..3)
            ),
            _ => format!("({one} || {})", self.data(Text, below)),
        }
    }

    pub(super) fn date(&mut self, below: u32) -> String {
        let one = self.data(Date, below);
        let days = self.random.i32(-400..400);
        match self.random.u32(0..2) {
            0 => format!("({one} + {days})"),
            _ => format!("({one} - {days})"),
        }
    }

    pub(super) fn timestamp(&mut self, below: u32) -> String {
        let interval = self.one(&["1 month", "-3 days", "2 years 5 hours", "90 minutes"]);
        let zone = self.one(&["UTC", "America/New_York", "+05:30"]);
        match self.random.u32(0..5) {
            4 if self.chance(2) => {
                format!("({} + {})", self.data(Time, below), self.data(Date, below))
            }
            4 => format!("({} + {})", self.data(Date, below), self.value(Time, 0)),
            0 if self.chance(2) => {
                format!("(interval '{interval}' + {})", self.data(Date, below))
            }
            0 => format!("({} + interval '{interval}')", self.data(Date, below)),
            1 => format!(
                "date_trunc('{}', {})",
                self.one(&["month", "year", "hour", "day"]),
                self.data(Timestamp, below)
            ),
            2 => format!(
                "({} AT TIME ZONE 'Europe/Berlin' AT TIME ZONE '{zone}')",
                self.data(Timestamp, below)
            ),
            _ => format!("({} - interval '{interval}')", self.data(Timestamp, below)),
        }
    }

    /// A uuid from a column, or from a text; another text than a uuid's is an error.
    pub(super) fn uuid(&mut self, below: u32) -> String {
        if self.risky && self.chance(4) {
            return format!("({})::uuid", self.data(Text, below));
        }
        let one = self.data(Uuid, below);
        match self.random.u32(0..2) {
            0 => format!("(upper(({one})::text)::uuid)"),
            _ => one,
        }
    }

    /// A time of day; `date_trunc` makes an interval of it, which is cast back.
    pub(super) fn time(&mut self, below: u32) -> String {
        let interval = self.one(&["90 minutes", "-1 day 3 hours", "2 mons 00:00:00.5"]);
        let one = self.data(Time, below);
        match self.random.u32(0..6) {
            0 => format!("({one} + interval '{interval}')"),
            1 => format!("({one} - interval '{interval}')"),
            2 => format!("(interval '{interval}' + {one})"),
            3 => format!("({})::time", self.data(Timestamp, below)),
            4 => format!("({one} - {})::time", self.data(Time, below)),
            _ => format!(
                "(date_trunc('{}', {one})::time)",
                self.one(&["hour", "minute", "second"])
            ),
        }
    }
}
