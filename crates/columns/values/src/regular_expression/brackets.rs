//! Bracket expressions, such as `[^a-z[:digit:]]` (`bracket` in `src/backend/regex/regcomp.c`).
//!
//! Must not: know a character that is not ASCII as a letter, as collation "C" does not.

use strongroom_columns_ring::Fault;

use super::translation::{Escape, Translation};

/// The ranges of each class, without brackets.
const CLASSES: &[(&str, &str)] = &[
    ("alnum", "0-9A-Za-z"),
    ("alpha", "A-Za-z"),
    ("ascii", "\\x00-\\x7f"),
    ("blank", "\\t\\x20"),
    ("cntrl", "\\x00-\\x1f\\x7f"),
    ("digit", "0-9"),
    ("graph", "!-~"),
    ("lower", "a-z"),
    ("print", "\\x20-~"),
    ("punct", "!-/:-@\\[-`{-~"),
    ("space", "\\t-\\r\\x20"),
    ("upper", "A-Z"),
    ("word", "0-9A-Z_a-z"),
    ("xdigit", "0-9A-Fa-f"),
];

impl Translation<'_> {
    /// Reads a bracket expression from behind its first bracket.
    pub(super) fn brackets(&mut self) -> Result<(), Fault> {
        if self.rest.starts_with("[:<:]]") || self.rest.starts_with("[:>:]]") {
            return Err(Fault::RegexNotComputed);
        }
        self.write("[");
        if self.take("^") {
            self.write("^");
        }
        let mut first = true;
        while first || self.peek() != Some(']') {
            self.item(first)?;
            first = false;
        }
        self.next();
        self.write("]");
        Ok(())
    }

    /// Reads a character, a range or a class. `first`: whether it stands at the beginning, where
    /// `]` and `-` stand for themselves.
    fn item(&mut self, first: bool) -> Result<(), Fault> {
        if self.take("[:") {
            return self.class();
        }
        let from = match self.next() {
            None => return Err(Fault::RegexInvalid),
            Some('[') => self.bracket()?,
            Some('-') if !first && self.peek() != Some(']') => return Err(Fault::RegexInvalid),
            Some('\\') => match self.escape()? {
                Escape::Character(c) => c,
                Escape::Class(ranges, others) => {
                    let negation = if others { "^" } else { "" };
                    self.write(&format!("[{negation}{ranges}]"));
                    return Ok(());
                }
                Escape::Place(_) => return Err(Fault::RegexInvalid),
            },
            Some(c) => c,
        };
        let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
        if !is_range {
            self.range(from, from);
            return Ok(());
        }
        self.next();
        let to = match self.next() {
            None => return Err(Fault::RegexInvalid),
            Some('[') => self.bracket()?,
            Some('\\') => match self.escape()? {
                Escape::Character(c) => c,
                Escape::Class(..) | Escape::Place(_) => return Err(Fault::RegexInvalid),
            },
            Some(c) => c,
        };
        if from > to {
            return Err(Fault::RegexInvalid);
        }
        self.range(from, to);
        Ok(())
    }

    /// The bracket that was read, as a character; `Fault::RegexNotComputed` if it begins a
    /// collating element or an equivalence class, `Fault::RegexInvalid` if it begins the end of a
    /// range that is a class.
    fn bracket(&self) -> Result<char, Fault> {
        match self.peek() {
            Some('.' | '=') => Err(Fault::RegexNotComputed),
            Some(':') => Err(Fault::RegexInvalid),
            _ => Ok('['),
        }
    }

    /// Reads the name of a class, from behind its colon.
    fn class(&mut self) -> Result<(), Fault> {
        let (name, rest) = self.rest.split_once(":]").ok_or(Fault::RegexInvalid)?;
        let name = match name {
            "lower" | "upper" if self.fold => "alpha",
            name => name,
        };
        let class = CLASSES.iter().find(|(known, _)| *known == name);
        self.write(class.ok_or(Fault::RegexInvalid)?.1);
        self.rest = rest;
        // A range that begins with a class.
        if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
            return Err(Fault::RegexInvalid);
        }
        Ok(())
    }

    /// Writes a range of characters and, if case does not matter, the other case of its ASCII
    /// letters.
    fn range(&mut self, from: char, to: char) {
        self.code_point(from);
        self.write("-");
        self.code_point(to);
        if !self.fold {
            return;
        }
        for letter in ('a'..='z').chain('A'..='Z') {
            let other = if letter.is_ascii_lowercase() {
                letter.to_ascii_uppercase()
            } else {
                letter.to_ascii_lowercase()
            };
            if (from..=to).contains(&letter) {
                self.code_point(other);
            }
        }
    }
}
