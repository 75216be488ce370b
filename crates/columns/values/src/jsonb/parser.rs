//! Reads the text of a document, as PostgreSQL's parser of JSON does (src/common/jsonapi.c) with
//! the actions of `jsonb_in` (src/backend/utils/adt/jsonb.c).
//!
//! The first error in the order of reading is the one that counts: a scalar is taken only when the
//! token behind it was read. Does not recurse. Must not: accept what that parser refuses, or put
//! any of the text into an error.

use strongroom_format::columns::block::VALUE_MAX;
use strongroom_format::hex::hex_digit;

use super::{DEPTH_MAX, Document, Node, Span};
use crate::input::Unreadable;
use crate::numeric::forms;
use crate::value::{Buf, Out};

/// The most characters of a number that is copied as it is written. No numeric of so few digits
/// overflows.
const SHORT_NUMBER_MAX: usize = 300;

/// The most values of a document, those of members that a later one replaces included. Each but the
/// last is followed by a comma in the text.
const NODES_MAX: usize = VALUE_MAX / 2 + 1;

/// A token of JSON.
#[derive(Clone, Copy)]
enum Token<'t> {
    End,
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Comma,
    Colon,
    Null,
    Bool(bool),
    Number(&'t str),
    /// A string without its escapes, in the document's texts.
    String(Span),
}

/// A container whose end was not read yet.
enum Open {
    Array(Vec<usize>),
    /// The members, and the name of the one whose value is being read.
    Object(Vec<(Span, usize)>, Span),
}

/// Reads a document. `Unreadable::Syntax` for a text that is none, `Unreadable::ZeroCharacter` for
/// one with `\u0000`, `Unreadable::TooDeep` above [`DEPTH_MAX`] containers within one another,
/// `Unreadable::TooBig` for a number that is no numeric, `Unreadable::TooLong` when its numbers
/// have more digits than a value has bytes.
pub(super) fn document(text: &str) -> Result<Document, Unreadable> {
    let mut document = Document {
        texts: Buf::new(),
        nodes: Vec::new(),
        root: 0,
    };
    document.texts.reserve(text.len().min(VALUE_MAX));
    let mut parser = Parser {
        rest: text,
        document,
        open: Vec::new(),
    };
    let mut token = parser.next()?;
    loop {
        let (begun, behind) = parser.begin(token)?;
        token = match begun {
            Some(node) => match parser.end(node, behind)? {
                Some(next) => next,
                None => return Ok(parser.document),
            },
            None => behind,
        };
    }
}

struct Parser<'t> {
    rest: &'t str,
    document: Document,
    open: Vec<Open>,
}

impl<'t> Parser<'t> {
    /// Takes the beginning of a value, and reads the token behind it. Returns the node of a value
    /// that is whole, which is a scalar or an empty container, with that token. `None` for a
    /// container, with the first token of its first value.
    fn begin(&mut self, token: Token<'t>) -> Result<(Option<usize>, Token<'t>), Unreadable> {
        let nested = matches!(token, Token::ObjectBegin | Token::ArrayBegin);
        if nested && self.open.len() >= DEPTH_MAX {
            return Err(Unreadable::TooDeep);
        }
        let behind = match token {
            Token::ObjectBegin | Token::ArrayBegin | Token::Null | Token::Bool(_) => self.next()?,
            Token::Number(_) | Token::String(_) => self.next()?,
            _ => return Err(Unreadable::Syntax),
        };
        let node = match (token, behind) {
            (Token::ObjectBegin, Token::ObjectEnd) => Node::Object(Vec::new()),
            (Token::ArrayBegin, Token::ArrayEnd) => Node::Array(Vec::new()),
            (Token::ArrayBegin, _) => {
                self.open.push(Open::Array(Vec::new()));
                return Ok((None, behind));
            }
            (Token::ObjectBegin, _) => {
                let (name, first) = self.name(behind)?;
                self.open.push(Open::Object(Vec::new(), name));
                return Ok((None, first));
            }
            (Token::Bool(value), _) => Node::Bool(value),
            (Token::Number(text), _) => Node::Number(self.number(text)?),
            (Token::String(span), _) => Node::String(span),
            _ => Node::Null,
        };
        let behind = match node {
            Node::Object(_) | Node::Array(_) => self.next()?,
            _ => behind,
        };
        Ok((Some(self.add(node)?), behind))
    }

    /// Takes a value that is whole and all containers that end behind it. Returns the first token
    /// of the next value, or `None` at the end of the document.
    fn end(
        &mut self,
        mut node: usize,
        mut token: Token<'t>,
    ) -> Result<Option<Token<'t>>, Unreadable> {
        loop {
            match (self.open.last_mut(), token) {
                (None, Token::End) => {
                    self.document.root = node;
                    return Ok(None);
                }
                (Some(Open::Array(items)), Token::Comma) => {
                    items.push(node);
                    return self.next().map(Some);
                }
                (Some(Open::Array(items)), Token::ArrayEnd) => items.push(node),
                (Some(Open::Object(members, name)), Token::Comma) => {
                    members.push((*name, node));
                    let token = self.next()?;
                    let (next, first) = self.name(token)?;
                    if let Some(Open::Object(_, name)) = self.open.last_mut() {
                        *name = next;
                    }
                    return Ok(Some(first));
                }
                (Some(Open::Object(members, name)), Token::ObjectEnd) => {
                    members.push((*name, node));
                }
                _ => return Err(Unreadable::Syntax),
            }
            token = self.next()?;
            node = match self.open.pop() {
                Some(Open::Array(items)) => self.add(Node::Array(items))?,
                Some(Open::Object(members, _)) => {
                    let members = self.document.sorted(members);
                    self.add(Node::Object(members))?
                }
                None => return Err(Unreadable::Syntax),
            };
        }
    }

    /// Takes the name of a member and its colon. Returns the name and the first token of the value.
    fn name(&mut self, token: Token<'t>) -> Result<(Span, Token<'t>), Unreadable> {
        let Token::String(name) = token else {
            return Err(Unreadable::Syntax);
        };
        match self.next()? {
            Token::Colon => Ok((name, self.next()?)),
            _ => Err(Unreadable::Syntax),
        }
    }

    /// Adds a value of the document, and returns its number. `Unreadable::TooLong` beyond as many
    /// values as a text of the greatest length can have: a node takes 32 times what a short value
    /// takes in the text.
    fn add(&mut self, node: Node) -> Result<usize, Unreadable> {
        let number = self.document.nodes.len();
        if number >= NODES_MAX {
            return Err(Unreadable::TooLong);
        }
        self.document.nodes.push(node);
        Ok(number)
    }

    /// Adds the text that the server prints for a number.
    fn number(&mut self, text: &str) -> Result<Span, Unreadable> {
        let texts = &mut self.document.texts;
        let from = texts.as_slice().len();
        let is_printed =
            text.len() <= SHORT_NUMBER_MAX && !text.starts_with("-0") && !text.contains(['e', 'E']);
        if is_printed {
            texts.extend(text.as_bytes());
        } else {
            let mut number = Out::new();
            forms::parse(text, &mut number)?;
            forms::print(number.value(), texts).map_err(|_| Unreadable::TooBig)?;
            // A few characters are a hundred thousand digits.
            if texts.as_slice().len() > VALUE_MAX.saturating_mul(2) {
                return Err(Unreadable::TooLong);
            }
        }
        let to = texts.as_slice().len();
        Ok(Span { from, to })
    }

    /// Reads the next token.
    fn next(&mut self) -> Result<Token<'t>, Unreadable> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token::End);
        };
        let single = match first {
            '{' => Token::ObjectBegin,
            '}' => Token::ObjectEnd,
            '[' => Token::ArrayBegin,
            ']' => Token::ArrayEnd,
            ',' => Token::Comma,
            ':' => Token::Colon,
            '"' => return self.string(),
            '-' | '0'..='9' => return self.digits(),
            _ => return self.word(),
        };
        self.rest = &self.rest[1..];
        Ok(single)
    }

    /// Reads `null`, `true` or `false`.
    fn word(&mut self) -> Result<Token<'t>, Unreadable> {
        let end = self.rest.find(|c| !is_of_word(c));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        match word {
            "null" => Ok(Token::Null),
            "true" => Ok(Token::Bool(true)),
            "false" => Ok(Token::Bool(false)),
            _ => Err(Unreadable::Syntax),
        }
    }

    /// Reads a number (`json_lex_number`), which is not looked at yet.
    fn digits(&mut self) -> Result<Token<'t>, Unreadable> {
        let all = self.rest;
        let unsigned = all.strip_prefix('-').unwrap_or(all);
        let mut rest = match unsigned.strip_prefix('0') {
            Some(rest) => rest,
            None => some_digits(unsigned)?,
        };
        if let Some(fraction) = rest.strip_prefix('.') {
            rest = some_digits(fraction)?;
        }
        if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
            rest = some_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))?;
        }
        if rest.starts_with(is_of_word) {
            return Err(Unreadable::Syntax);
        }
        self.rest = rest;
        Ok(Token::Number(&all[..all.len() - rest.len()]))
    }

    /// Reads a string, and adds it to the texts without its escapes.
    fn string(&mut self) -> Result<Token<'t>, Unreadable> {
        let texts = &mut self.document.texts;
        let from = texts.as_slice().len();
        let mut rest = &self.rest[1..];
        loop {
            let special = rest.find(|c| matches!(c, '"' | '\\' | '\0'..='\x1f'));
            let (plain, at) = rest.split_at(special.ok_or(Unreadable::Syntax)?);
            texts.extend(plain.as_bytes());
            if let Some(behind) = at.strip_prefix('"') {
                self.rest = behind;
                let to = texts.as_slice().len();
                return Ok(Token::String(Span { from, to }));
            }
            let escape = at.strip_prefix('\\').ok_or(Unreadable::Syntax)?;
            rest = unescape(escape, texts)?;
        }
    }
}

/// Whether the server takes the character for one of a word, and so for a part of what stands
/// before it (`JSON_ALPHANUMERIC_CHAR`).
const fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

/// The text behind one or more digits. `Unreadable::Syntax` if there is none.
fn some_digits(text: &str) -> Result<&str, Unreadable> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == text.len() {
        Err(Unreadable::Syntax)
    } else {
        Ok(rest)
    }
}

/// Appends the character that an escape stands for, whose backslash was read, to `texts`. Returns
/// the text behind it; behind both halves of a surrogate pair.
fn unescape<'t>(escape: &'t str, texts: &mut Buf) -> Result<&'t str, Unreadable> {
    let plain = match escape.as_bytes().first() {
        Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'u') => return unescape_unicode(&escape[1..], texts),
        _ => return Err(Unreadable::Syntax),
    };
    texts.push(plain);
    Ok(&escape[1..])
}

/// Appends the character whose four digits follow. Fails as [`document`] does.
fn unescape_unicode<'t>(digits: &'t str, texts: &mut Buf) -> Result<&'t str, Unreadable> {
    let (unit, mut rest) = four_digits(digits)?;
    let code = match unit {
        0 => return Err(Unreadable::ZeroCharacter),
        0xd800..=0xdbff => {
            let second = rest.strip_prefix("\\u").ok_or(Unreadable::Syntax)?;
            let (low, behind) = four_digits(second)?;
            if !(0xdc00..=0xdfff).contains(&low) {
                return Err(Unreadable::Syntax);
            }
            rest = behind;
            0x1_0000 + ((unit & 0x3ff) << 10 | low & 0x3ff)
        }
        _ => unit,
    };
    let character = char::from_u32(code).ok_or(Unreadable::Syntax)?;
    texts.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(rest)
}

/// The number of four hexadecimal digits, and the text behind them. `Unreadable::Syntax` if there
/// are fewer.
fn four_digits(text: &str) -> Result<(u32, &str), Unreadable> {
    let digits = text.as_bytes().get(..4).ok_or(Unreadable::Syntax)?;
    let mut number = 0;
    for digit in digits {
        number = number << 4 | u32::from(hex_digit(*digit).ok_or(Unreadable::Syntax)?);
    }
    Ok((number, &text[4..]))
}
