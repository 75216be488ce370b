//! `jsonb`: src/backend/utils/adt/jsonb.c and `jsonb_util.c`.
//!
//! A document is kept as the text that the server prints for it: of members with one name the last
//! one, in order of their names' lengths and then bytes, numbers as numerics. Two documents with
//! one text are therefore the same, and those whose numbers differ in trailing zeros only are
//! equal.
//! Must not: keep anything of the text that was read but for that.

mod access;
mod parser;

use core::cmp::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::block::VALUE_MAX;

pub(crate) use access::{Form, contains, element, exists, member};

use crate::binary::check_text;
use crate::input::Unreadable;
use crate::numeric::{arithmetic, forms};
use crate::value::{Buf, Out, Value};

/// How many containers may be within one another. The server's limit depends on its stack, and is
/// some thousands.
const DEPTH_MAX: usize = 1024;
/// The version of the binary form, its first byte.
const VERSION: u8 = 1;

/// A part of a document's texts.
#[derive(Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
}

/// A value of a document. Values within it are the numbers of other nodes.
enum Node {
    Null,
    Bool(bool),
    /// The digits that the server prints.
    Number(Span),
    /// The characters, without escapes.
    String(Span),
    Array(Vec<usize>),
    /// The members in their order, each name once.
    Object(Vec<(Span, usize)>),
}

/// A document. Its texts are zeroised when it is dropped.
pub(crate) struct Document {
    texts: Buf,
    nodes: Vec<Node>,
    root: usize,
}

/// Reads the text of a document into `out`. Fails as [`parser::document`] does, and with
/// `Unreadable::TooLong` if the server's text of it is longer than a value can be.
pub(crate) fn parse(text: &str, out: &mut Out) -> Result<(), Unreadable> {
    let document = parser::document(text)?;
    let buf = out.begin(text.len().min(VALUE_MAX));
    document.print(document.root, Digits::All, buf)
}

/// Reads the binary form, which is a version and the text. `Unreadable::Binary` for another
/// version.
pub(crate) fn receive(bytes: &[u8], out: &mut Out) -> Result<(), Unreadable> {
    match bytes.split_first() {
        Some((&VERSION, text)) => parse(check_text(text)?, out),
        _ => Err(Unreadable::Binary),
    }
}

/// Appends the binary form of a document. `Fault::KindMismatch` if the value is not bytes.
pub(crate) fn send(value: Value<'_>, buf: &mut Buf) -> Result<(), Fault> {
    let text = value.bytes()?;
    buf.reserve(text.len() + 1);
    buf.push(VERSION);
    buf.extend(text);
    Ok(())
}

/// The fault of a cast for a text that is no document.
pub(crate) const fn fault(why: Unreadable) -> Fault {
    match why {
        Unreadable::ZeroCharacter => Fault::JsonZero,
        Unreadable::TooDeep => Fault::JsonTooDeep,
        Unreadable::TooBig => Fault::NumericOverflow,
        Unreadable::TooLong => Fault::StringTooLong,
        _ => Fault::InvalidJson,
    }
}

/// Compares two documents (`compareJsonbContainers`), texts in them by their bytes.
/// `Fault::KindMismatch` if one is no document.
pub(crate) fn compare(a: Value<'_>, b: Value<'_>) -> Result<Ordering, Fault> {
    if a.bytes()? == b.bytes()? {
        return Ok(Ordering::Equal);
    }
    Document::of(a)?.compare(&Document::of(b)?)
}

/// Appends bytes that equal documents have in common: the text, with the least scale of each
/// number. `Fault::KindMismatch` if the value is no document.
pub(crate) fn token_bytes(value: Value<'_>, token: &mut Buf) -> Result<(), Fault> {
    let document = Document::of(value)?;
    let printed = document.print(document.root, Digits::Significant, token);
    printed.map_err(fault)
}

/// Which digits of a number are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    /// Those that the server prints.
    All,
    /// Without the zeros at the end of a fraction.
    Significant,
}

impl Document {
    /// The document of a value. `Fault::KindMismatch` if it is none.
    pub(crate) fn of(value: Value<'_>) -> Result<Self, Fault> {
        parser::document(value.text()?).map_err(|_| Fault::KindMismatch)
    }

    /// Compares this document with another one (`compareJsonbContainers`).
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, Fault> {
        // A scalar is an array of one element for the server, which it compares with the number of
        // elements first: an empty array is less than every scalar.
        let elements = |document: &Self| match document.root() {
            Some(Node::Array(items)) => Some((items.len(), 1)),
            Some(Node::Object(_)) | None => None,
            Some(_) => Some((1, 0)),
        };
        match (elements(self), elements(other)) {
            (Some(one), Some(other)) if one.1 != other.1 => Ok(one.cmp(&other)),
            (Some((_, 0)), None) => Ok(Ordering::Less),
            (None, Some((_, 0))) => Ok(Ordering::Greater),
            _ => order((self, self.root), (other, other.root)),
        }
    }

    fn root(&self) -> Option<&Node> {
        self.nodes.get(self.root)
    }

    fn text(&self, of: Span) -> &[u8] {
        self.texts.as_slice().get(of.from..of.to).unwrap_or(&[])
    }

    /// The members in the order of the server (`lengthCompareJsonbStringValue`), of one name the
    /// last.
    fn sorted(&self, mut members: Vec<(Span, usize)>) -> Vec<(Span, usize)> {
        let name = |member: &(Span, usize)| self.text(member.0);
        members.reverse();
        members.sort_by(|a, b| {
            let lengths = name(a).len().cmp(&name(b).len());
            lengths.then_with(|| name(a).cmp(name(b)))
        });
        members.dedup_by(|later, kept| name(later) == name(kept));
        members
    }

    /// Appends the text of a node (`JsonbToCString`). `Unreadable::TooLong` when a value cannot be
    /// so long. Recurses at most [`DEPTH_MAX`] times.
    fn print(&self, node: usize, digits: Digits, buf: &mut Buf) -> Result<(), Unreadable> {
        match self.nodes.get(node) {
            None | Some(Node::Null) => buf.extend(b"null"),
            Some(Node::Bool(true)) => buf.extend(b"true"),
            Some(Node::Bool(false)) => buf.extend(b"false"),
            Some(Node::Number(of)) if digits == Digits::All => buf.extend(self.text(*of)),
            Some(Node::Number(of)) => buf.extend(significant(self.text(*of))),
            Some(Node::String(of)) => print_string(self.text(*of), buf),
            Some(Node::Array(items)) => {
                buf.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        buf.extend(b", ");
                    }
                    self.print(*item, digits, buf)?;
                }
                buf.push(b']');
            }
            Some(Node::Object(members)) => {
                buf.push(b'{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        buf.extend(b", ");
                    }
                    print_string(self.text(*name), buf);
                    buf.extend(b": ");
                    self.print(*value, digits, buf)?;
                }
                buf.push(b'}');
            }
        }
        if buf.as_slice().len() > VALUE_MAX {
            return Err(Unreadable::TooLong);
        }
        Ok(())
    }
}

/// A number's digits without the zeros at the end of its fraction.
fn significant(number: &[u8]) -> &[u8] {
    if !number.contains(&b'.') {
        return number;
    }
    let end = number.iter().rposition(|byte| *byte != b'0');
    let kept = number.get(..=end.unwrap_or(0)).unwrap_or(number);
    kept.strip_suffix(b".").unwrap_or(kept)
}

/// Appends a string in quotes, with the server's escapes (`escape_json`).
fn print_string(text: &[u8], buf: &mut Buf) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    buf.push(b'"');
    for part in text.chunk_by(|_, next| !is_escaped(*next)) {
        let plain = match part {
            [8, rest @ ..] => (&b"\\b"[..], rest),
            [12, rest @ ..] => (&b"\\f"[..], rest),
            [b'\n', rest @ ..] => (&b"\\n"[..], rest),
            [b'\r', rest @ ..] => (&b"\\r"[..], rest),
            [b'\t', rest @ ..] => (&b"\\t"[..], rest),
            [b'"', rest @ ..] => (&b"\\\""[..], rest),
            [b'\\', rest @ ..] => (&b"\\\\"[..], rest),
            [control @ ..=0x1f, rest @ ..] => {
                buf.extend(b"\\u00");
                buf.push(DIGITS[usize::from(control >> 4)]);
                buf.push(DIGITS[usize::from(control & 15)]);
                (&b""[..], rest)
            }
            rest => (&b""[..], rest),
        };
        buf.extend(plain.0);
        buf.extend(plain.1);
    }
    buf.push(b'"');
}

/// Whether a byte of a string is printed as an escape.
const fn is_escaped(byte: u8) -> bool {
    matches!(byte, 0..=0x1f | b'"' | b'\\')
}

/// The order of two values of documents. Recurses at most [`DEPTH_MAX`] times.
fn order(a: (&Document, usize), b: (&Document, usize)) -> Result<Ordering, Fault> {
    let (Some(one), Some(other)) = (a.0.nodes.get(a.1), b.0.nodes.get(b.1)) else {
        return Err(Fault::KindMismatch);
    };
    match (one, other) {
        (Node::Bool(one), Node::Bool(other)) => Ok(one.cmp(other)),
        (Node::String(one), Node::String(other)) => Ok(a.0.text(*one).cmp(b.0.text(*other))),
        (Node::Number(one), Node::Number(other)) => numbers(a.0.text(*one), b.0.text(*other)),
        (Node::Array(one), Node::Array(other)) => {
            for (one, other) in one.iter().zip(other).filter(|_| one.len() == other.len()) {
                let found = order((a.0, *one), (b.0, *other))?;
                if found.is_ne() {
                    return Ok(found);
                }
            }
            Ok(one.len().cmp(&other.len()))
        }
        (Node::Object(one), Node::Object(other)) => {
            for (one, other) in one.iter().zip(other).filter(|_| one.len() == other.len()) {
                let names = a.0.text(one.0).cmp(b.0.text(other.0));
                if names.is_ne() {
                    return Ok(names);
                }
                let found = order((a.0, one.1), (b.0, other.1))?;
                if found.is_ne() {
                    return Ok(found);
                }
            }
            Ok(one.len().cmp(&other.len()))
        }
        _ => Ok(rank(one).cmp(&rank(other))),
    }
}

/// The place of a value's type in the order of types (`enum jbvType`).
const fn rank(node: &Node) -> u8 {
    match node {
        Node::Null => 0,
        Node::String(_) => 1,
        Node::Number(_) => 2,
        Node::Bool(_) => 3,
        Node::Array(_) => 4,
        Node::Object(_) => 5,
    }
}

/// The order of two numbers in the form that the server prints.
fn numbers(a: &[u8], b: &[u8]) -> Result<Ordering, Fault> {
    let parsed = |digits: &[u8]| {
        let text = core::str::from_utf8(digits).map_err(|_| Fault::KindMismatch)?;
        let mut number = Out::new();
        forms::parse(text, &mut number).map_err(|_| Fault::KindMismatch)?;
        Ok(number)
    };
    arithmetic::compare(parsed(a)?.value(), parsed(b)?.value())
}

#[cfg(test)]
mod tests;
