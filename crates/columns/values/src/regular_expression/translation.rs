//! An advanced regular expression of PostgreSQL, written as the `regex` crate has it
//! (`src/backend/regex/regc_lex.c`, `regcomp.c`).
//!
//! Each character of the pattern is written by its code point, so that nothing of it can mean
//! something else to the crate. Must not: recurse deeper than [`DEPTH_MAX`].

use std::fmt::Write as _;

use strongroom_columns_ring::Fault;

/// Parentheses within one another.
const DEPTH_MAX: usize = 50;
/// The greatest number of a quantifier (`DUPMAX`).
const DUPMAX: u32 = 255;

/// A pattern that is being translated.
pub(super) struct Translation<'p> {
    /// What is left of the pattern.
    pub(super) rest: &'p str,
    /// What was written so far.
    pub(super) out: String,
    /// Whether ASCII letters match in either case.
    pub(super) fold: bool,
    depth: usize,
}

/// What a backslash and what follows it stand for.
pub(super) enum Escape {
    /// A character.
    Character(char),
    /// A class, as ranges between brackets, and whether it stands for all other characters.
    Class(&'static str, bool),
    /// A place between characters, as the crate has it.
    Place(&'static str),
}

/// Returns the pattern as the `regex` crate has it; with `fold`, for texts whose ASCII letters
/// match in either case. `Fault::RegexInvalid` for a pattern that PostgreSQL refuses,
/// `Fault::RegexNotComputed` for what the crate has not.
pub(super) fn translate(pattern: &str, fold: bool) -> Result<String, Fault> {
    let mut translation = Translation {
        rest: pattern,
        out: String::with_capacity(pattern.len() * 8),
        fold,
        depth: 0,
    };
    if let Some(rest) = pattern.strip_prefix("***") {
        match rest.chars().next() {
            Some('=') => {
                rest[1..].chars().for_each(|c| translation.literal(c));
                return Ok(translation.out);
            }
            Some(':') => translation.rest = &rest[1..],
            Some('?') => return Err(Fault::RegexNotComputed),
            _ => return Err(Fault::RegexInvalid),
        }
    }
    translation.options()?;
    translation.alternatives()?;
    match translation.rest {
        "" => Ok(translation.out),
        // A parenthesis that closes none.
        _ => Err(Fault::RegexInvalid),
    }
}

impl Translation<'_> {
    /// The next character, which stays.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Takes the next character. `None` at the pattern's end.
    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    /// Takes `part` if the pattern goes on with it, and returns whether it did.
    pub(super) fn take(&mut self, part: &str) -> bool {
        let rest = self.rest.strip_prefix(part);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Writes a character that stands for itself.
    fn literal(&mut self, c: char) {
        if self.fold && c.is_ascii_alphabetic() {
            let (lower, upper) = (c.to_ascii_lowercase(), c.to_ascii_uppercase());
            self.write(&format!("[{lower}{upper}]"));
        } else {
            self.code_point(c);
        }
    }

    /// Writes a character by its code point, in brackets or outside.
    pub(super) fn code_point(&mut self, c: char) {
        self.write(&format!("\\x{{{:x}}}", u32::from(c)));
    }

    /// Appends to what is written.
    pub(super) fn write(&mut self, part: &str) {
        self.out.push_str(part);
    }

    /// Reads the options at the beginning, such as `(?i)` (`prefixes` in `regc_lex.c`).
    fn options(&mut self) -> Result<(), Fault> {
        let Some(options) = self.rest.strip_prefix("(?") else {
            return Ok(());
        };
        if !options.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Ok(());
        }
        let (letters, rest) = options.split_once(')').ok_or(Fault::RegexInvalid)?;
        for letter in letters.chars() {
            match letter {
                'i' => self.fold = true,
                'c' => self.fold = false,
                // What is so without the option.
                's' | 't' => {}
                'b' | 'e' | 'm' | 'n' | 'p' | 'q' | 'w' | 'x' => {
                    return Err(Fault::RegexNotComputed);
                }
                _ => return Err(Fault::RegexInvalid),
            }
        }
        self.rest = rest;
        Ok(())
    }

    /// Reads alternatives up to a closing parenthesis or the pattern's end.
    fn alternatives(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::RegexNotComputed);
        }
        self.write("(?:");
        loop {
            match self.peek() {
                None | Some(')') => break,
                Some('|') => {
                    self.next();
                    self.write("|");
                }
                Some(_) => self.part()?,
            }
        }
        self.write(")");
        self.depth -= 1;
        Ok(())
    }

    /// Reads one atom with its quantifier, or one constraint, which has none.
    fn part(&mut self) -> Result<(), Fault> {
        match self.next() {
            None => return Ok(()),
            Some('*' | '+' | '?') => return Err(Fault::RegexInvalid),
            Some('{') if self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                return Err(Fault::RegexInvalid);
            }
            Some('^') => return self.place("\\A"),
            Some('$') => return self.place("\\z"),
            Some('.') => self.write("."),
            Some('(') => self.group()?,
            Some('[') => self.brackets()?,
            Some('\\') => match self.escape()? {
                Escape::Character(c) => self.literal(c),
                Escape::Class(ranges, others) => {
                    let negation = if others { "^" } else { "" };
                    self.write(&format!("[{negation}{ranges}]"));
                }
                Escape::Place(place) => return self.place(place),
            },
            Some(c) => self.literal(c),
        }
        self.quantifier()
    }

    /// Writes a constraint. `Fault::RegexInvalid` if a quantifier follows.
    fn place(&mut self, place: &str) -> Result<(), Fault> {
        self.write(place);
        if self.is_quantifier_next() {
            return Err(Fault::RegexInvalid);
        }
        Ok(())
    }

    /// Reads a group, from behind its parenthesis.
    fn group(&mut self) -> Result<(), Fault> {
        if self.take("?") {
            match self.next() {
                Some(':') => {}
                Some('=' | '!' | '<' | '#') => return Err(Fault::RegexNotComputed),
                _ => return Err(Fault::RegexInvalid),
            }
        }
        self.alternatives()?;
        if self.take(")") {
            Ok(())
        } else {
            Err(Fault::RegexInvalid)
        }
    }

    /// Whether the pattern goes on with a quantifier.
    fn is_quantifier_next(&self) -> bool {
        let mut rest = self.rest.chars();
        match rest.next() {
            Some('*' | '+' | '?') => true,
            Some('{') => rest.next().is_some_and(|c| c.is_ascii_digit()),
            _ => false,
        }
    }

    /// Reads the quantifier of an atom, if it has one.
    fn quantifier(&mut self) -> Result<(), Fault> {
        if !self.is_quantifier_next() {
            return Ok(());
        }
        match self.next() {
            Some('*') => self.write("*"),
            Some('+') => self.write("+"),
            Some('?') => self.write("?"),
            _ => self.bounds()?,
        }
        // Whether few or many are preferred does not matter.
        self.take("?");
        if self.is_quantifier_next() {
            return Err(Fault::RegexInvalid);
        }
        Ok(())
    }

    /// Reads `m}`, `m,}` or `m,n}`.
    fn bounds(&mut self) -> Result<(), Fault> {
        let least = self.number()?;
        let mut greatest = Some(least);
        if self.take(",") {
            greatest = match self.peek() {
                Some('}') => None,
                _ => Some(self.number()?),
            };
        }
        if !self.take("}") || greatest.is_some_and(|greatest| greatest < least) {
            return Err(Fault::RegexInvalid);
        }
        let greatest = greatest.map_or_else(String::new, |greatest| greatest.to_string());
        write!(self.out, "{{{least},{greatest}}}").map_err(|_| Fault::RegexNotComputed)
    }

    /// Reads a number of at most [`DUPMAX`] (`scannum`).
    fn number(&mut self) -> Result<u32, Fault> {
        let mut number = 0;
        let mut digits = 0;
        while number < DUPMAX
            && let Some(digit) = self.peek().and_then(|c| c.to_digit(10))
        {
            self.next();
            number = number * 10 + digit;
            digits += 1;
        }
        let more = self.peek().is_some_and(|c| c.is_ascii_digit());
        if digits == 0 || more || number > DUPMAX {
            return Err(Fault::RegexInvalid);
        }
        Ok(number)
    }

    /// Reads what follows a backslash (`lexescape`).
    pub(super) fn escape(&mut self) -> Result<Escape, Fault> {
        let c = self.next().ok_or(Fault::RegexInvalid)?;
        if !c.is_ascii_alphanumeric() {
            return Ok(Escape::Character(c));
        }
        Ok(match c {
            'a' => Escape::Character('\x07'),
            'b' => Escape::Character('\x08'),
            'B' => Escape::Character('\\'),
            'e' => Escape::Character('\x1b'),
            'f' => Escape::Character('\x0c'),
            'n' => Escape::Character('\n'),
            'r' => Escape::Character('\r'),
            't' => Escape::Character('\t'),
            'v' => Escape::Character('\x0b'),
            'd' | 'D' => Escape::Class("0-9", c == 'D'),
            's' | 'S' => Escape::Class("\\t-\\r\\x20", c == 'S'),
            'w' | 'W' => Escape::Class("0-9A-Z_a-z", c == 'W'),
            'A' => Escape::Place("\\A"),
            'Z' => Escape::Place("\\z"),
            'm' => Escape::Place("(?-u:\\b{start})"),
            'M' => Escape::Place("(?-u:\\b{end})"),
            'y' => Escape::Place("(?-u:\\b)"),
            // Places within a word, characters by their numbers, and back references.
            'Y' | 'c' | 'u' | 'U' | 'x' | '0'..='9' => return Err(Fault::RegexNotComputed),
            _ => return Err(Fault::RegexInvalid),
        })
    }
}
