//! KMIP's encoding: tag, type, length, value (KMIP 1.4, section 9.1).
//!
//! Invariants: a decoded item is a view of the bytes it was decoded from, so a secret in it is not
//! copied; decoding is bounded by [`DEPTH_MAX`] and [`ITEMS_MAX`] whatever the bytes say, and takes
//! no byte more or less than there are.
//!
//! Must not: know what a tag means; panic.
#![expect(
    clippy::big_endian_bytes,
    reason = "KMIP's encoding is big-endian (section 9.1.1)"
)]

use strongroom_crypto::SecretBytes;
use strongroom_keyring::Error;

/// Deepest structure within structures.
const DEPTH_MAX: usize = 16;
/// Most items of a message.
const ITEMS_MAX: usize = 2048;
/// Every item begins with tag (3), type (1), length (4).
const HEAD_LEN: usize = 8;

const STRUCTURE: u8 = 1;
const INTEGER: u8 = 2;
const LONG: u8 = 3;
const BIG_INTEGER: u8 = 4;
const ENUMERATION: u8 = 5;
const BOOLEAN: u8 = 6;
const TEXT: u8 = 7;
const BYTES: u8 = 8;
const DATE_TIME: u8 = 9;
const INTERVAL: u8 = 10;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// One item.
#[derive(PartialEq, Eq)]
pub(crate) struct Item<'a> {
    /// What it is.
    pub(crate) tag: u32,
    /// What it holds.
    pub(crate) value: Value<'a>,
}

/// What an item holds.
#[derive(PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Items.
    Structure(Vec<Item<'a>>),
    /// 32 bits, signed.
    Integer(i32),
    /// A value of an enumeration.
    Enumeration(u32),
    /// UTF-8.
    Text(&'a str),
    /// Bytes; may be a secret.
    Bytes(&'a [u8]),
    /// A type whose value nothing here uses: only its form is checked.
    Other,
}

impl<'a> Item<'a> {
    /// Returns the first item of this tag directly within a structure. `None` when there is none,
    /// or this is no structure.
    pub(crate) fn find(&self, tag: u32) -> Option<&Self> {
        self.all(tag).next()
    }

    /// Iterates over the items of this tag directly within a structure; over none for what is no
    /// structure.
    pub(crate) fn all(&self, tag: u32) -> impl Iterator<Item = &Self> {
        let items = match &self.value {
            Value::Structure(items) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter(move |item| item.tag == tag)
    }

    /// Returns the text of the first item of this tag directly within a structure. `None` when
    /// there is none, or it is no text.
    pub(crate) fn text(&self, tag: u32) -> Option<&'a str> {
        match self.find(tag)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the bytes of the first item of this tag directly within a structure. `None` when
    /// there is none, or it is not of type bytes.
    pub(crate) fn bytes(&self, tag: u32) -> Option<&'a [u8]> {
        match self.find(tag)?.value {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the value of the first item of this tag directly within a structure. `None` when
    /// there is none, or it is no enumeration.
    pub(crate) fn choice(&self, tag: u32) -> Option<u32> {
        match self.find(tag)?.value {
            Value::Enumeration(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the number of the first item of this tag directly within a structure. `None` when
    /// there is none, or it is no 32-bit integer.
    pub(crate) fn integer(&self, tag: u32) -> Option<i32> {
        match self.find(tag)?.value {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }
}

/// Parses bytes that are exactly one item, with all items in it, of at most 16 structures in one
/// another and 2048 items. Values are views of `bytes`, not copies.
///
/// # Errors
/// [`Malformed`], also for bytes left over.
pub(crate) fn decode(bytes: &[u8]) -> Result<Item<'_>, Malformed> {
    let mut decoder = Decoder { items: 0 };
    let (item, rest) = decoder.item(bytes, 0)?;
    match rest.is_empty() {
        true => Ok(item),
        false => Err(Malformed),
    }
}

/// Returns the length in bytes of a whole message, whose first 8 bytes, which hold that length, are
/// `head`. Not bounded: the caller compares it with its own limit.
pub(crate) fn length(head: &[u8; HEAD_LEN]) -> usize {
    let [_, _, _, _, a, b, c, d] = *head;
    usize::try_from(u32::from_be_bytes([a, b, c, d]))
        .map_or(usize::MAX, |length| length.saturating_add(HEAD_LEN))
}

struct Decoder {
    items: usize,
}

impl Decoder {
    /// Parses the item that the bytes begin with, and returns it with the bytes that follow it.
    /// `depth` is the number of structures around it. Errors: when bytes are missing, padding is
    /// not zero, or there are more than 2048 items or 16 structures in one another.
    fn item<'a>(
        &mut self,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<(Item<'a>, &'a [u8]), Malformed> {
        self.items += 1;
        if self.items > ITEMS_MAX || depth > DEPTH_MAX {
            return Err(Malformed);
        }
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(Malformed)?;
        let [a, b, c, kind, ..] = *head;
        let tag = u32::from_be_bytes([0, a, b, c]);
        let length = length(head).checked_sub(HEAD_LEN).ok_or(Malformed)?;
        let padded = length.checked_next_multiple_of(8).ok_or(Malformed)?;
        let (body, rest) = rest.split_at_checked(padded).ok_or(Malformed)?;
        let (body, padding) = body.split_at_checked(length).ok_or(Malformed)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Malformed);
        }
        let value = self.value(kind, body, depth)?;
        Ok((Item { tag, value }, rest))
    }

    /// Parses the value of an item of type `kind`, items of a structure included. Errors: when the
    /// length does not fit the type, the type is unknown, or a text is not UTF-8.
    fn value<'a>(
        &mut self,
        kind: u8,
        body: &'a [u8],
        depth: usize,
    ) -> Result<Value<'a>, Malformed> {
        let four = || <[u8; 4]>::try_from(body).map_err(|_| Malformed);
        let sized = |good: bool| match good {
            true => Ok(Value::Other),
            false => Err(Malformed),
        };
        match kind {
            STRUCTURE => {
                let (mut items, mut rest) = (Vec::new(), body);
                while !rest.is_empty() {
                    let (item, behind) = self.item(rest, depth + 1)?;
                    items.push(item);
                    rest = behind;
                }
                Ok(Value::Structure(items))
            }
            INTEGER => Ok(Value::Integer(i32::from_be_bytes(four()?))),
            ENUMERATION => Ok(Value::Enumeration(u32::from_be_bytes(four()?))),
            TEXT => Ok(Value::Text(
                std::str::from_utf8(body).map_err(|_| Malformed)?,
            )),
            BYTES => Ok(Value::Bytes(body)),
            BOOLEAN => sized(matches!(body, [0, 0, 0, 0, 0, 0, 0, 0 | 1])),
            LONG | DATE_TIME => sized(body.len() == 8),
            BIG_INTEGER => sized(!body.is_empty() && body.len().is_multiple_of(8)),
            INTERVAL => sized(body.len() == 4),
            _ => Err(Malformed),
        }
    }
}

/// Writes a message into locked memory.
pub(crate) struct Encoder {
    held: SecretBytes,
    length: usize,
}

impl Encoder {
    /// Makes an encoder with `room` bytes of locked memory for its message. Errors: SR-5001 when
    /// there is no memory for keys.
    pub(crate) fn new(room: usize) -> Result<Self, Error> {
        Ok(Self {
            held: SecretBytes::with_capacity(room)?,
            length: 0,
        })
    }

    /// Returns the message. `None` when it did not fit into the room of [`Encoder::new`]; the
    /// methods that append do not fail.
    pub(crate) fn finish(mut self) -> Option<SecretBytes> {
        if self.length > self.held.len() {
            return None;
        }
        self.held.truncate(self.length);
        Some(self.held)
    }

    /// Appends a structure with the items that `fill` appends.
    pub(crate) fn structure(&mut self, tag: u32, fill: impl FnOnce(&mut Self)) {
        let at = self.length;
        self.head(tag, STRUCTURE, 0);
        fill(self);
        let length = self.length.saturating_sub(at).saturating_sub(HEAD_LEN);
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        let place = self.held.as_mut_slice().get_mut(at.saturating_add(4)..);
        if let Some(place) = place.and_then(|place| place.get_mut(..4)) {
            place.copy_from_slice(&length);
        }
    }

    /// Appends an item of type integer (32 bits).
    pub(crate) fn integer(&mut self, tag: u32, value: i32) {
        self.item(tag, INTEGER, &value.to_be_bytes());
    }

    /// Appends an item of type enumeration.
    pub(crate) fn choice(&mut self, tag: u32, value: u32) {
        self.item(tag, ENUMERATION, &value.to_be_bytes());
    }

    /// Appends an item of type text.
    pub(crate) fn text(&mut self, tag: u32, value: &str) {
        self.item(tag, TEXT, value.as_bytes());
    }

    /// Appends an item of type bytes.
    pub(crate) fn bytes(&mut self, tag: u32, value: &[u8]) {
        self.item(tag, BYTES, value);
    }

    /// Appends an item of this type: its head, the value, and zeros up to a multiple of 8 bytes.
    fn item(&mut self, tag: u32, kind: u8, body: &[u8]) {
        self.head(tag, kind, body.len());
        self.put(body);
        let padding = body.len().next_multiple_of(8) - body.len();
        self.put(&[0; 8][..padding]);
    }

    /// Appends tag, type and length of an item.
    fn head(&mut self, tag: u32, kind: u8, length: usize) {
        let [_, a, b, c] = tag.to_be_bytes();
        self.put(&[a, b, c, kind]);
        self.put(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }

    /// Appends bytes. If they do not all fit, none of them is written, but all are counted, so that
    /// [`Encoder::finish`] returns `None`.
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(place) = self.held.as_mut_slice().get_mut(self.length..end) {
            place.copy_from_slice(bytes);
        }
        self.length = end;
    }
}

/// Decodes any bytes, for the fuzzer: they are accepted or refused, and nothing panics.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(item) = decode(bytes) {
        assert!(bytes.len() >= HEAD_LEN && item.tag <= 0xff_ff_ff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(fill: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::new(4096).unwrap();
        fill(&mut encoder);
        encoder.finish().unwrap().as_slice().to_vec()
    }

    #[test]
    fn the_examples_of_the_standard() {
        // KMIP 1.4, section 9.1.2.
        let integer = encode(|to| to.integer(0x42_00_20, 8));
        assert_eq!(integer, *b"\x42\x00\x20\x02\0\0\0\x04\0\0\0\x08\0\0\0\0");
        let choice = encode(|to| to.choice(0x42_00_20, 255));
        assert_eq!(choice, *b"\x42\x00\x20\x05\0\0\0\x04\0\0\0\xff\0\0\0\0");
        let text = encode(|to| to.text(0x42_00_20, "Hello World"));
        assert_eq!(text, *b"\x42\x00\x20\x07\0\0\0\x0bHello World\0\0\0\0\0");
        let bytes = encode(|to| to.bytes(0x42_00_20, &[1, 2, 3]));
        assert_eq!(bytes, *b"\x42\x00\x20\x08\0\0\0\x03\x01\x02\x03\0\0\0\0\0");
        let structure = encode(|to| {
            to.structure(0x42_00_20, |to| {
                to.choice(0x42_00_04, 254);
                to.integer(0x42_00_05, 255);
            });
        });
        assert_eq!(
            structure,
            *b"\x42\x00\x20\x01\0\0\0\x20\x42\x00\x04\x05\0\0\0\x04\0\0\0\xfe\0\0\0\0\
               \x42\x00\x05\x02\0\0\0\x04\0\0\0\xff\0\0\0\0"
        );
        for other in [
            b"\x42\x00\x20\x03\0\0\0\x08\x01\xb6\x9b\x4b\xa5\x74\x92\x00".as_slice(),
            b"\x42\x00\x20\x04\0\0\0\x10\0\0\0\0\x03\xfd\x35\xeb\x6b\xc2\xdf\x46\x18\x08\0\0",
            b"\x42\x00\x20\x06\0\0\0\x08\0\0\0\0\0\0\0\x01",
            b"\x42\x00\x20\x09\0\0\0\x08\0\0\0\0\x47\xda\x67\xf8",
            b"\x42\x00\x20\x0a\0\0\0\x04\0\x0d\x2f\0\0\0\0\0",
        ] {
            let item = decode(other).ok().unwrap();
            assert!(item.tag == 0x42_00_20 && item.value == Value::Other);
        }
    }

    fn message() -> Vec<u8> {
        encode(|to| {
            to.structure(0x42_00_7b, |to| {
                to.integer(1, -7);
                to.structure(2, |to| {
                    to.text(3, "caf\u{e9}");
                    to.bytes(4, b"secret bytes");
                    to.choice(5, 9);
                });
                to.integer(1, 8);
            });
        })
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = message();
        let item = decode(&bytes).ok().unwrap();
        assert_eq!(item.tag, 0x42_00_7b);
        assert_eq!((item.integer(1), item.all(1).count()), (Some(-7), 2));
        let inner = item.find(2).unwrap();
        assert_eq!(inner.text(3), Some("caf\u{e9}"));
        assert_eq!(inner.bytes(4), Some(b"secret bytes".as_slice()));
        assert_eq!(inner.choice(5), Some(9));
        assert!(inner.choice(4).is_none() && inner.integer(5).is_none() && inner.text(9).is_none());
        let head = bytes[..8].try_into().unwrap();
        assert_eq!(length(head), bytes.len());
    }

    #[test]
    fn no_cut_and_no_changed_length_passes_or_panics() {
        let bytes = message();
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end} bytes");
        }
        assert!(decode(&[bytes.as_slice(), &[0; 8]].concat()).is_err());
        for at in 0..bytes.len() {
            for value in [0, 1, 7, 8, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                fuzz(&changed);
            }
        }
        // Every byte of padding is zero.
        let mut padded = encode(|to| to.integer(1, 1));
        padded[15] = 1;
        assert!(decode(&padded).is_err());
        assert!(
            decode(b"\x42\0\x20\x0b\0\0\0\0").is_err(),
            "a type that is not known"
        );
        assert!(decode(b"\x42\0\x20\x06\0\0\0\x08\0\0\0\0\0\0\0\x02").is_err());
        assert!(decode(b"\x42\0\x20\x08\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn depth_and_number_are_bounded() {
        fn nested(to: &mut Encoder, depth: usize) {
            if depth > 0 {
                to.structure(1, |to| nested(to, depth - 1));
            }
        }
        assert!(decode(&encode(|to| nested(to, DEPTH_MAX + 1))).is_ok());
        assert!(decode(&encode(|to| nested(to, DEPTH_MAX + 2))).is_err());
        let many = |number: usize| {
            let items = b"\0\0\x01\x01\0\0\0\0".repeat(number);
            let length = u32::try_from(items.len()).unwrap().to_be_bytes();
            [b"\0\0\x02\x01".as_slice(), &length, &items].concat()
        };
        assert!(decode(&many(ITEMS_MAX - 1)).is_ok());
        assert!(decode(&many(ITEMS_MAX)).is_err());
    }

    #[test]
    fn what_does_not_fit_is_seen() {
        let mut encoder = Encoder::new(23).unwrap();
        encoder.bytes(1, &[9; 16]);
        assert!(encoder.finish().is_none());
    }
}
