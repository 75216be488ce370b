//! Rows as JSON: one array of objects per statement, one object per line.
//!
//! Numbers are numbers, blobs are strings of hexadecimal digits, NULL is null. A second column of
//! the same name becomes `name:1`, as JSON readers keep only one member of a name. Infinity, which
//! JSON lacks, is a string.

use std::io::{self, Write};

use rusqlite::types::ValueRef;
use strongroom_format::hex::hex;

use super::renderer::{Renderer, real_text};

pub(crate) struct Json<'w> {
    to: &'w mut dyn Write,
    /// The member names, as JSON strings.
    names: Vec<String>,
    rows: u64,
}

impl<'w> Json<'w> {
    /// Returns a writer of JSON. Names that occur twice are made unique.
    pub(crate) fn new(to: &'w mut dyn Write, names: &[String]) -> Self {
        Self {
            to,
            names: unique(names).iter().map(|name| quoted(name)).collect(),
            rows: 0,
        }
    }
}

impl Renderer for Json<'_> {
    /// Writes one object, the first time after the opening bracket. Fails with the output's error.
    fn row(&mut self, cells: &[ValueRef<'_>]) -> io::Result<()> {
        let mut line = String::from(if self.rows == 0 { "[{" } else { ",\n{" });
        self.rows += 1;
        for (index, (name, cell)) in self.names.iter().zip(cells).enumerate() {
            if index > 0 {
                line.push(',');
            }
            line.push_str(name);
            line.push(':');
            line.push_str(&value(*cell));
        }
        line.push('}');
        self.to.write_all(line.as_bytes())
    }

    /// Closes the array; writes an empty one if there was no row. Fails with the output's error.
    fn end(&mut self) -> io::Result<()> {
        self.to
            .write_all(if self.rows == 0 { b"[]\n" } else { b"]\n" })
    }
}

/// Returns a value as JSON. Text that is not UTF-8 gets replacement characters.
fn value(cell: ValueRef<'_>) -> String {
    match cell {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(value) => value.to_string(),
        ValueRef::Real(value) if value.is_infinite() => quoted(&real_text(value)),
        ValueRef::Real(value) => real_text(value),
        ValueRef::Text(text) => quoted(&String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => quoted(&hex(bytes)),
    }
}

/// Returns a text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Makes names unique: a name that occurs again gets `:1`, `:2` and so on.
fn unique(names: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let mut candidate = name.clone();
        let mut number = 0;
        while out.contains(&candidate) {
            number += 1;
            candidate = format!("{name}:{number}");
        }
        out.push(candidate);
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_become_unique() {
        let names = ["a", "b", "a", "a:1", "a"].map(str::to_owned);
        assert_eq!(super::unique(&names), ["a", "b", "a:1", "a:1:1", "a:2"]);
    }
}
