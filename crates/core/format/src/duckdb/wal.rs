//! The first record of a DuckDB write-ahead log, which is in clear.
//!
//! It is an object of DuckDB's binary serialiser: field numbers of two bytes, numbers in LEB128,
//! `ff ff` at the end.
//! Must not: read any further record.

/// How entries of the log are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalVersion {
    /// In clear.
    Plain,
    /// Encrypted one by one.
    Encrypted,
    /// A version that is not known.
    Other(u64),
}

/// What the first record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalHead {
    /// How entries are kept.
    pub version: WalVersion,
    /// Identifier of the database that the log belongs to, if the record has it.
    pub identifier: Option<[u8; 16]>,
    /// Iteration of the checkpoint that the log follows, if the record has it.
    pub iteration: Option<u64>,
    /// Length of the record, in bytes.
    pub len: usize,
}

/// Type of the record: `WAL_VERSION`.
const WAL_VERSION_TYPE: u64 = 98;
/// Number that ends an object.
const END: u16 = 0xffff;

impl WalHead {
    /// Parses the beginning of a log. `None` when that is not such a record, or has a field that is
    /// not known.
    #[must_use]
    pub fn parse(log: &[u8]) -> Option<Self> {
        let mut rest = log;
        (field_number(&mut rest)? == 100 && leb128(&mut rest)? == WAL_VERSION_TYPE).then_some(())?;
        (field_number(&mut rest)? == 101).then_some(())?;
        let version = match leb128(&mut rest)? {
            2 => WalVersion::Plain,
            3 => WalVersion::Encrypted,
            other => WalVersion::Other(other),
        };
        let (mut identifier, mut iteration) = (None, None);
        loop {
            match field_number(&mut rest)? {
                102 if identifier.is_none() => identifier = Some(sixteen_bytes(&mut rest)?),
                103 if iteration.is_none() => iteration = Some(leb128(&mut rest)?),
                END => break,
                _ => return None,
            }
        }
        Some(Self {
            version,
            identifier,
            iteration,
            len: log.len().checked_sub(rest.len())?,
        })
    }
}

/// Takes the number of a field, two bytes, off the front of `rest`. `None` when they are not there.
fn field_number(rest: &mut &[u8]) -> Option<u16> {
    let (first, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(u16::from_le_bytes(*first))
}

/// Takes a number in LEB128, of at most ten bytes, off the front of `rest`. `None` when it is cut
/// short or does not fit into 64 bits.
fn leb128(rest: &mut &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    for place in 0..10_u32 {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u64::from(byte & 0x7f);
        let shift = place.checked_mul(7)?;
        let shifted = bits.checked_shl(shift)?;
        // What does not fit in 64 bits is refused.
        (shifted.checked_shr(shift)? == bits).then_some(())?;
        value |= shifted;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes a list of sixteen numbers, each of which is a byte, off the front of `rest`. `None` for
/// any other list.
fn sixteen_bytes(rest: &mut &[u8]) -> Option<[u8; 16]> {
    (leb128(rest)? == 16).then_some(())?;
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = u8::try_from(leb128(rest)?).ok()?;
    }
    Some(bytes)
}
