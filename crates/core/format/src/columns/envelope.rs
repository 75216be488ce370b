//! An envelope: one value, sealed under a column key, as it travels between the data owner and the
//! zone, and as it stands in dumps.
//!
//! 56 bytes of header, salt, nonce and lineage, in a result its number (8 bytes), the sealed bytes,
//! a tag of 16 bytes. The plaintext is PostgreSQL's binary form of the value; text, bytea and
//! numeric are padded (one byte 0x80, then zeros) to a multiple of 16, so that only that is known
//! of their length. In SQL text it is `sr1:` and base64 in the alphabet for URLs, without padding.
//! Specified in docs/spec/columns.md. Must not: seal anything.

use alloc::vec::Vec;

use super::kind::Kind;
use super::lineage::Lineage;
use crate::aad::{AssociatedData, Role, aad_layout};
use crate::header::Cipher;
use crate::layout::{array, layout, put, u64_at, zero_at};

/// What the text form begins with.
pub const ENVELOPE_PREFIX: &str = "sr1:";
/// Texts, byte strings and numerics are padded to a multiple of this.
pub const ENVELOPE_PAD: usize = 16;
/// Bytes that sealing adds: header, salt, nonce, tag.
pub const ENVELOPE_OVERHEAD: usize = 72;
/// Bytes that sealing adds to a result: those of every envelope, and its number.
pub const RESULT_OVERHEAD: usize = 80;
/// Label of an envelope's key; the input is a column key, the salt the envelope's.
pub const ENVELOPE_LABEL: &str = "strongroom/v1/envelope";
/// Prefix of what is hashed to the lineage that a column has by its name.
pub const LINEAGE_LABEL: &str = "strongroom/v1/lineage";
/// Envelopes that a writer seals under one salt.
pub const ENVELOPE_SALT_USES: u32 = 65_536;
/// The version that this code writes, and the only one that it reads.
pub const ENVELOPE_VERSION: u8 = 1;

layout! {
    /// Layout of an envelope's head.
    envelope_layout, 56, {
        VERSION @ 0, 1;
        KIND @ 1, 1;
        SEALER @ 2, 1;
        RESERVED @ 3, 1;
        KEY_ID @ 4, 16;
        SALT @ 20, 16;
        NONCE @ 36, 12;
        LINEAGE @ 48, 8;
    }
}

layout! {
    /// Layout of what a result has behind an envelope's head.
    result_layout, 8, {
        SERIAL @ 0, 8;
    }
}

/// Bytes of the longest head: a result's.
const HEAD_MAX: usize = envelope_layout::SIZE + result_layout::SIZE;
/// Bytes of the longest associated data: a result's, with its session and its number.
const ASSOCIATED_MAX: usize = aad_layout::SIZE + 16 + result_layout::SIZE;

/// Which end has sealed an envelope, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sealer {
    /// The data owner's client: a constant or a parameter.
    Client,
    /// The zone: a value that leaves it for a dump, another server, or nobody in particular.
    Zone,
    /// The zone, for the client of one session: a result.
    Session,
}

impl Sealer {
    /// Its number in an envelope.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Client => 1,
            Self::Zone => 2,
            Self::Session => 3,
        }
    }

    /// The sealer of this number. `None` for every other number.
    const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Client),
            2 => Some(Self::Zone),
            3 => Some(Self::Session),
            _ => None,
        }
    }
}

/// The head of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// Type of the value.
    pub kind: Kind,
    /// Which end has sealed it.
    pub sealer: Sealer,
    /// The column key.
    pub key_id: [u8; 16],
    /// The salt with which the envelope's key is derived from the column key.
    pub salt: [u8; 16],
    /// The nonce of AES-256-GCM, random.
    pub nonce: [u8; 12],
    /// The column whose value it is, or is to become.
    pub lineage: Lineage,
    /// A result's number in its session, from 1; 0 for every other envelope, which has none.
    pub serial: u64,
}

/// The bytes of a head or of associated data, whose length depends on the envelope.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

/// The bytes of an envelope's head.
pub type HeadBytes = Bytes<HEAD_MAX>;

impl<const MAX: usize> Bytes<MAX> {
    /// Joins two parts; one that does not fit is left out.
    fn joined(one: &[u8], other: &[u8]) -> Self {
        let mut bytes = [0; MAX];
        let mut len = 0_usize;
        for part in [one, other] {
            let end = len.saturating_add(part.len());
            if let Some(place) = bytes.get_mut(len..end) {
                place.copy_from_slice(part);
                len = end;
            }
        }
        Self { bytes, len }
    }
}

impl<const MAX: usize> core::ops::Deref for Bytes<MAX> {
    type Target = [u8];

    /// The bytes.
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl EnvelopeHeader {
    /// Reads the head of a whole envelope. `None` for an unknown version, kind or sealer, for a
    /// reserved byte that is not zero, for a lineage that the sealer does not give, for a result
    /// without a number, and for fewer bytes than the shortest envelope has.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [version] = array(bytes, envelope_layout::VERSION)?;
        let [kind] = array(bytes, envelope_layout::KIND)?;
        let [sealer] = array(bytes, envelope_layout::SEALER)?;
        let sealer = Sealer::from_number(sealer)?;
        let lineage = Lineage::of(u64_at(bytes, envelope_layout::LINEAGE)?);
        let other = match sealer {
            Sealer::Client => Lineage::CLIENT,
            Sealer::Zone | Sealer::Session => Lineage::RESULT,
        };
        let (serial, shortest) = match sealer {
            Sealer::Client | Sealer::Zone => (0, ENVELOPE_OVERHEAD),
            Sealer::Session => {
                let behind = bytes.get(envelope_layout::SIZE..)?;
                (u64_at(behind, result_layout::SERIAL)?, RESULT_OVERHEAD)
            }
        };
        let sound = version == ENVELOPE_VERSION
            && zero_at(bytes, envelope_layout::RESERVED)
            && (lineage == other || lineage.is_column())
            && (serial > 0) == (sealer == Sealer::Session)
            && bytes.len() >= shortest;
        let header = Self {
            kind: Kind::from_number(kind)?,
            sealer,
            key_id: array(bytes, envelope_layout::KEY_ID)?,
            salt: array(bytes, envelope_layout::SALT)?,
            nonce: array(bytes, envelope_layout::NONCE)?,
            lineage,
            serial,
        };
        sound.then_some(header)
    }

    /// Whether the bytes are an envelope of a later version, which this code cannot read, as far as
    /// their first byte and their length tell. Asked when [`Self::parse`] gives `None`; nothing is
    /// authenticated.
    #[must_use]
    pub fn is_newer(bytes: &[u8]) -> bool {
        let version = bytes.first().copied().unwrap_or_default();
        version > ENVELOPE_VERSION && bytes.len() >= ENVELOPE_OVERHEAD
    }

    /// Returns the head's bytes, as they are written, a result's with its number. The sealed bytes
    /// follow them.
    #[must_use]
    pub fn to_bytes(&self) -> HeadBytes {
        let mut out = [0; envelope_layout::SIZE];
        let fields = [
            put(&mut out, envelope_layout::VERSION, &[ENVELOPE_VERSION]),
            put(&mut out, envelope_layout::KIND, &[self.kind.number()]),
            put(&mut out, envelope_layout::SEALER, &[self.sealer.number()]),
            put(&mut out, envelope_layout::KEY_ID, &self.key_id),
            put(&mut out, envelope_layout::SALT, &self.salt),
            put(&mut out, envelope_layout::NONCE, &self.nonce),
            put(
                &mut out,
                envelope_layout::LINEAGE,
                &self.lineage.number().to_le_bytes(),
            ),
        ];
        // Lengths are constants of the table above; a mismatch is a programming error found by any
        // test.
        assert!(fields.iter().all(Option::is_some), "envelope layout");
        let serial = self.serial.to_le_bytes();
        Bytes::joined(&out, if self.is_result() { &serial } else { &[] })
    }

    /// The head's length in bytes.
    #[must_use]
    pub const fn head_len(&self) -> usize {
        if self.is_result() {
            HEAD_MAX
        } else {
            envelope_layout::SIZE
        }
    }

    /// The associated data, with the column key's id as object id, the kind and 256 times the
    /// sealer as position, and the lineage as the extra word; behind that, for a result, the number
    /// of `session`, which is of no account otherwise, and its own.
    #[must_use]
    pub fn associated_data(&self, session: &[u8; 16]) -> Bytes<ASSOCIATED_MAX> {
        let place = AssociatedData {
            role: Role::Envelope,
            cipher: Cipher::Aes256Gcm.number(),
            unit_size: 0,
            epoch: 0,
            object_id: self.key_id,
        };
        let position = u64::from(self.kind.number()) | u64::from(self.sealer.number()) << 8;
        let all = place.at_with(position, self.lineage.number());
        let mut behind = [0; 24];
        let (own, number) = behind.split_at_mut(16);
        own.copy_from_slice(session);
        number.copy_from_slice(&self.serial.to_le_bytes());
        Bytes::joined(&all, if self.is_result() { &behind } else { &[] })
    }

    /// Whether it is sealed for the client of one session.
    const fn is_result(&self) -> bool {
        matches!(self.sealer, Sealer::Session)
    }
}

/// Whether values of this kind differ in length, and therefore are padded before they are sealed:
/// text, bytea, numeric and jsonb.
pub(super) const fn is_padded(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Bytea | Kind::Numeric | Kind::Jsonb)
}

/// Appends the padding that a value of this kind gets before it is sealed: a byte 0x80 and zeros to
/// a multiple of 16. Nothing for a kind of fixed length.
pub fn pad(kind: Kind, value: &mut Vec<u8>) {
    if is_padded(kind) {
        value.push(0x80);
        while !value.len().is_multiple_of(ENVELOPE_PAD) {
            value.push(0);
        }
    }
}

/// Returns the length of a value of this kind without its padding; all of `padded` for a kind of
/// fixed length, which has none. `None` when the padding is not the one that [`pad`] appends.
#[must_use]
pub fn unpadded(kind: Kind, padded: &[u8]) -> Option<usize> {
    if !is_padded(kind) {
        return Some(padded.len());
    }
    let len = padded.iter().rposition(|byte| *byte != 0)?;
    let short = padded.len().checked_sub(len)? <= ENVELOPE_PAD;
    let sound =
        padded.len().is_multiple_of(ENVELOPE_PAD) && padded.get(len) == Some(&0x80) && short;
    sound.then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_head_is_canonical_or_refused() {
        let header = EnvelopeHeader {
            kind: Kind::Date,
            sealer: Sealer::Client,
            key_id: [7; 16],
            salt: [8; 16],
            nonce: [9; 12],
            lineage: Lineage::of(0x1122_3344_5566_7788 | 2),
            serial: 0,
        };
        let mut bytes = vec![0; ENVELOPE_OVERHEAD];
        bytes[..56].copy_from_slice(&header.to_bytes());
        assert_eq!(EnvelopeHeader::parse(&bytes), Some(header));
        assert_eq!(EnvelopeHeader::parse(&bytes[..71]), None);
        // Each end has a lineage for what belongs to no column.
        for (sealer, lineage, sound) in [
            (Sealer::Client, Lineage::CLIENT, true),
            (Sealer::Client, Lineage::RESULT, false),
            (Sealer::Zone, Lineage::RESULT, true),
            (Sealer::Zone, Lineage::CLIENT, false),
        ] {
            let header = EnvelopeHeader {
                sealer,
                lineage,
                ..header
            };
            bytes[..56].copy_from_slice(&header.to_bytes());
            let parsed = EnvelopeHeader::parse(&bytes);
            assert_eq!(parsed, sound.then_some(header), "{sealer:?}");
        }
        bytes[..56].copy_from_slice(&header.to_bytes());
        for (at, value) in [
            (0, 2),
            (1, 0),
            (1, u8::try_from(Kind::ALL.len() + 1).unwrap()), // a kind that does not exist
            (2, 0),
            (2, 3), // a result, which is longer
            (2, 4),
            (3, 1),
            (48, 0x8b), // a class that does not exist
        ] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert_eq!(EnvelopeHeader::parse(&bad), None, "byte {at}");
            assert_eq!(EnvelopeHeader::is_newer(&bad), at == 0, "byte {at}");
        }
        assert!(!EnvelopeHeader::is_newer(&bytes));
        bytes[0] = 2;
        assert!(!EnvelopeHeader::is_newer(&bytes[..71]), "too short for one");
        assert!(!EnvelopeHeader::is_newer(&[]));
    }

    #[test]
    fn a_result_has_a_number_and_is_of_one_session() {
        let result = EnvelopeHeader {
            kind: Kind::Date,
            sealer: Sealer::Session,
            key_id: [7; 16],
            salt: [8; 16],
            nonce: [9; 12],
            lineage: Lineage::RESULT,
            serial: 0x0102_0304,
        };
        let mut bytes = vec![0; RESULT_OVERHEAD];
        bytes[..64].copy_from_slice(&result.to_bytes());
        assert_eq!(EnvelopeHeader::parse(&bytes), Some(result));
        assert_eq!(EnvelopeHeader::parse(&bytes[..79]), None);
        bytes[56..64].fill(0);
        assert_eq!(EnvelopeHeader::parse(&bytes), None, "without a number");
        let (one, other) = ([1; 16], [2; 16]);
        assert_ne!(
            *result.associated_data(&one),
            *result.associated_data(&other)
        );
        let next = EnvelopeHeader {
            serial: 5,
            ..result
        };
        assert_ne!(*result.associated_data(&one), *next.associated_data(&one));
        let dumped = EnvelopeHeader {
            sealer: Sealer::Zone,
            serial: 0,
            ..result
        };
        assert_eq!(
            *dumped.associated_data(&one),
            *dumped.associated_data(&other)
        );
        assert_eq!(dumped.to_bytes().len(), 56);
    }

    #[test]
    fn padding_comes_off_again_and_nothing_else_does() {
        for len in 0..40 {
            let mut value: Vec<u8> = (0..len)
                .map(|at| if at % 3 == 0 { 0 } else { 0x80 })
                .collect();
            pad(Kind::Text, &mut value);
            assert!(value.len().is_multiple_of(ENVELOPE_PAD) && value.len() > len);
            assert_eq!(unpadded(Kind::Text, &value), Some(len));
        }
        // Numerics of up to twelve digits (8 bytes, and 2 for each group of four) are of one
        // length, zero among them.
        for groups in 0..=3 {
            let mut value = vec![1; 8 + 2 * groups];
            pad(Kind::Numeric, &mut value);
            assert_eq!(value.len(), 16, "{groups} groups");
        }
        for bad in [&[][..], &[0; 16], &[1; 16], &[0x80; 15]] {
            assert_eq!(unpadded(Kind::Bytea, bad), None);
        }
        let mut long = vec![0; 32];
        long[3] = 0x80;
        assert_eq!(unpadded(Kind::Text, &long), None, "a block too much");
        assert_eq!(unpadded(Kind::Int4, &[0, 0, 0, 0]), Some(4));
    }
}
