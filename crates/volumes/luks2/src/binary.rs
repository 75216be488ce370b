//! The binary header: 4096 bytes before each of the two JSON areas. Read and checked, and changed
//! in memory.
//!
//! Bytes: docs/spec/luks2.md. Every byte is checked or covered by the checksum that is.
//!
//! Must not: decide which of the two copies counts; write to a device.
#![expect(clippy::big_endian_bytes, reason = "LUKS is big-endian")]

use strongroom_crypto::LuksHash;

use crate::error::LuksError;

/// Bytes of a binary header.
pub const BINARY_LEN: usize = 4096;
/// Sizes that header and JSON area together may have.
pub const HEADER_SIZES: [u64; 9] = [
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];

/// First bytes of the primary copy, in LUKS2 and in LUKS1.
pub const MAGIC_PRIMARY: [u8; 6] = *b"LUKS\xba\xbe";
/// First bytes of the secondary copy.
pub const MAGIC_SECONDARY: [u8; 6] = *b"SKUL\xba\xbe";

/// A field's offset and length.
type Field = (usize, usize);

const MAGIC: Field = (0, 6);
const VERSION_AT: usize = 6;
const HDR_SIZE_AT: usize = 8;
const SEQID: Field = (16, 8);
const LABEL: Field = (24, 48);
const CHECKSUM_ALG: Field = (72, 32);
/// LUKS1 has it in the same place.
const UUID: Field = (168, 40);
const SUBSYSTEM: Field = (208, 48);
const HDR_OFFSET_AT: usize = 256;
const PADDING: Field = (264, 184);
const CSUM: Field = (448, 64);
const TAIL: Field = (512, BINARY_LEN - 512);

/// Characters of a UUID.
const UUID_LEN: usize = 36;
/// Bytes from the beginning of a copy that [`label_in`], [`uuid_in`] and [`uuid_of_remains`] need.
pub const NAMES_LEN: usize = UUID.0 + UUID.1;

/// Which of the two copies of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// At the beginning.
    Primary,
    /// After the primary one.
    Secondary,
}

impl Which {
    /// Returns the first bytes of this copy of a header.
    fn magic(self) -> [u8; 6] {
        match self {
            Self::Primary => MAGIC_PRIMARY,
            Self::Secondary => MAGIC_SECONDARY,
        }
    }

    /// Returns its name in messages: `primary` or `secondary`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }
}

/// What the first bytes of a file or device are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// LUKS, and its version.
    Luks(u16),
    /// Something else.
    Other,
}

/// Returns what a file or device is, by its first 8 bytes: LUKS of some version (by the magic of
/// the primary header), or something else. Fewer than 8 bytes are something else.
#[must_use]
pub fn magic(head: &[u8]) -> Magic {
    let version = head
        .get(6..8)
        .and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
    match version {
        Some(version) if head.starts_with(&MAGIC_PRIMARY) => {
            Magic::Luks(u16::from_be_bytes(version))
        }
        _ => Magic::Other,
    }
}

/// A binary header whose fields are within their bounds. The checksum is not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Bytes of binary header and JSON area.
    pub size: u64,
    /// The sequence id, which each change raises.
    pub sequence: u64,
    /// A name, or empty.
    pub label: String,
    /// Another name, or empty.
    pub subsystem: String,
    /// The volume's UUID.
    pub uuid: String,
    hash: LuksHash,
    checksum: Vec<u8>,
}

impl Binary {
    /// Reads and checks the fields of a binary header. `which` and `offset` say where it was read
    /// from, and must agree with its contents. Does not verify the checksum: see
    /// [`Binary::verify`].
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with the first field that breaks a rule.
    pub fn parse(bytes: &[u8; BINARY_LEN], which: Which, offset: u64) -> Result<Self, LuksError> {
        let fields = Fields(bytes);
        if fields.bytes(MAGIC) != which.magic() {
            return Err(LuksError::damaged("magic"));
        }
        if fields.u16(VERSION_AT) != 2 {
            return Err(LuksError::damaged("version"));
        }
        let size = fields.u64(HDR_SIZE_AT);
        if !HEADER_SIZES.contains(&size) || (which == Which::Secondary && size != offset) {
            return Err(LuksError::damaged("hdr_size"));
        }
        let sequence = fields.u64(SEQID.0);
        let label = fields.text(LABEL, "label")?;
        let hash = LuksHash::named(&fields.text(CHECKSUM_ALG, "checksum_alg")?)
            .ok_or_else(|| LuksError::damaged("checksum_alg"))?;
        let uuid = fields.text(UUID, "uuid")?;
        if !is_uuid(&uuid) {
            return Err(LuksError::damaged("uuid"));
        }
        let subsystem = fields.text(SUBSYSTEM, "subsystem")?;
        if fields.u64(HDR_OFFSET_AT) != offset {
            return Err(LuksError::damaged("hdr_offset"));
        }
        let (checksum, unused) = fields.bytes(CSUM).split_at(hash.len());
        if !all_zero(unused) {
            return Err(LuksError::damaged("csum"));
        }
        if !all_zero(fields.bytes(PADDING)) || !all_zero(fields.bytes(TAIL)) {
            return Err(LuksError::damaged("padding"));
        }
        Ok(Self {
            size,
            sequence,
            label,
            subsystem,
            uuid,
            hash,
            checksum: checksum.to_vec(),
        })
    }

    /// Returns the length of the JSON area in bytes.
    #[must_use]
    pub fn json_size(&self) -> u64 {
        self.size.saturating_sub(BINARY_LEN as u64)
    }

    /// Verifies the checksum over the binary header `bytes` and the JSON area `json`.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] when it differs.
    pub fn verify(&self, bytes: &[u8; BINARY_LEN], json: &[u8]) -> Result<(), LuksError> {
        if checksum(self.hash, bytes, json) == self.checksum {
            Ok(())
        } else {
            Err(LuksError::damaged("csum"))
        }
    }
}

/// Computes the checksum of a copy over its binary header and JSON area, with zeros in place of the
/// checksum itself.
fn checksum(hash: LuksHash, binary: &[u8; BINARY_LEN], json: &[u8]) -> Vec<u8> {
    let (before, rest) = binary.split_at(CSUM.0);
    let after = rest.get(CSUM.1..).unwrap_or_default();
    hash.digest_of(&[before, &[0; CSUM.1], after, json])
}

/// Replaces JSON text and sequence id of a copy of the header in memory, fills the rest of the JSON
/// area with zeros, and computes the checksum anew, with the algorithm that the copy names.
///
/// # Errors
/// [`LuksError::Damaged`] when the copy is too short or names no known algorithm, or when the text
/// does not fit with one zero byte after it. Nothing is changed then.
pub fn replace_json(copy: &mut [u8], json: &[u8], sequence: u64) -> Result<(), LuksError> {
    let (binary, area) = copy
        .split_first_chunk_mut::<BINARY_LEN>()
        .ok_or_else(|| LuksError::damaged("length"))?;
    let hash = LuksHash::named(&Fields(binary).text(CHECKSUM_ALG, "checksum_alg")?)
        .ok_or_else(|| LuksError::damaged("checksum_alg"))?;
    if json.len() >= area.len() {
        return Err(LuksError::damaged("JSON area (the text does not fit)"));
    }
    area.fill(0);
    copy_into(area, (0, json.len()), json);
    copy_into(binary, SEQID, &sequence.to_be_bytes());
    let sum = checksum(hash, binary, area);
    copy_into(binary, CSUM, &[0; CSUM.1]);
    copy_into(binary, (CSUM.0, sum.len()), &sum);
    Ok(())
}

/// Copies `bytes`, which have the field's length, into the field. Does nothing when the field is
/// not within `to`.
fn copy_into(to: &mut [u8], (at, len): Field, bytes: &[u8]) {
    if let Some(place) = to.get_mut(at..at + len) {
        place.copy_from_slice(bytes);
    }
}

/// Returns the JSON text of a copy of the header, up to the first zero byte. Empty when the copy
/// has no JSON area.
#[must_use]
pub fn json_of(copy: &[u8]) -> &[u8] {
    let area = copy.get(BINARY_LEN..).unwrap_or_default();
    let end = area.iter().position(|&byte| byte == 0);
    area.get(..end.unwrap_or(area.len())).unwrap_or_default()
}

/// Returns the label in the first bytes of a LUKS2 volume, for the search for a device. Nothing
/// else is checked. `None` when they are not the beginning of a primary LUKS2 header, or the label
/// is not UTF-8.
#[must_use]
pub fn label_in(first: &[u8]) -> Option<String> {
    text_in(first, LABEL)
}

/// Returns the UUID in the first bytes of a LUKS2 volume, for the search for a device. Nothing else
/// is checked. `None` when they are not the beginning of a primary LUKS2 header, or it is not
/// UTF-8.
#[must_use]
pub fn uuid_in(first: &[u8]) -> Option<String> {
    text_in(first, UUID)
}

/// Returns the text of a field of a primary LUKS2 header up to its zero byte, or the whole field
/// when there is none. `None` when `first` is no such header or too short, or the text is not
/// UTF-8.
fn text_in(first: &[u8], (at, len): Field) -> Option<String> {
    if magic(first) != Magic::Luks(2) {
        return None;
    }
    let text = first.get(at..at + len)?;
    let text = text.split(|&byte| byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

/// Returns the UUID in a copy of a header, primary or secondary, of LUKS2 or LUKS1, whatever else
/// of the copy is damaged. `None` when the magic or a character of the UUID is wrong.
#[must_use]
pub fn uuid_of_remains(copy: &[u8]) -> Option<String> {
    if !copy.starts_with(&MAGIC_PRIMARY) && !copy.starts_with(&MAGIC_SECONDARY) {
        return None;
    }
    let text = std::str::from_utf8(copy.get(UUID.0..UUID.0 + UUID_LEN)?).ok()?;
    let fine = |c: char| c.is_ascii_hexdigit() || c == '-';
    text.chars().all(fine).then(|| text.to_owned())
}

/// Reads fields. One out of bounds is a programming error and reads as empty or zero.
struct Fields<'a>(&'a [u8; BINARY_LEN]);

impl<'a> Fields<'a> {
    /// Returns the bytes of a field; none when it is out of bounds.
    fn bytes(&self, (at, len): Field) -> &'a [u8] {
        self.0.get(at..at + len).unwrap_or_default()
    }

    /// Returns the big-endian number of 16 bits at `at`; 0 when that is out of bounds.
    fn u16(&self, at: usize) -> u16 {
        self.bytes((at, 2)).try_into().map_or(0, u16::from_be_bytes)
    }

    /// Returns the big-endian number of 64 bits at `at`; 0 when that is out of bounds.
    fn u64(&self, at: usize) -> u64 {
        self.bytes((at, 8)).try_into().map_or(0, u64::from_be_bytes)
    }

    /// Returns the text of a field: UTF-8 that ends in a zero byte, with only zeros after it.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with `name` when it has another form.
    fn text(&self, field: Field, name: &str) -> Result<String, LuksError> {
        let bytes = self.bytes(field);
        let end = bytes.iter().position(|&byte| byte == 0);
        let (text, rest) = end
            .and_then(|end| bytes.split_at_checked(end))
            .ok_or_else(|| LuksError::damaged(name))?;
        match std::str::from_utf8(text) {
            Ok(text) if all_zero(rest) => Ok(text.to_owned()),
            _ => Err(LuksError::damaged(name)),
        }
    }
}

/// Returns whether all bytes are zero; true for none.
fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Returns whether a text is a UUID: 36 characters, hexadecimal digits and hyphens in their places.
fn is_uuid(text: &str) -> bool {
    text.len() == UUID_LEN
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
