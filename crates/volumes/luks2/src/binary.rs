//! The binary header: 4096 bytes before each of the two JSON areas.
//!
//! Bytes: docs/spec/luks2.md. Every byte is checked or covered by the checksum that is.
//!
//! Must not: decide which of the two copies counts.
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

const MAGIC_PRIMARY: [u8; 6] = *b"LUKS\xba\xbe";
const MAGIC_SECONDARY: [u8; 6] = *b"SKUL\xba\xbe";

/// Which of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// At the beginning.
    Primary,
    /// Behind the primary one.
    Secondary,
}

impl Which {
    fn magic(self) -> [u8; 6] {
        match self {
            Self::Primary => MAGIC_PRIMARY,
            Self::Secondary => MAGIC_SECONDARY,
        }
    }

    /// In words.
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

/// Looks at the first bytes.
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
    /// Raised at each change.
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
    /// Reads the header of a copy that stands at `offset`.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with the field.
    pub fn parse(bytes: &[u8; BINARY_LEN], which: Which, offset: u64) -> Result<Self, LuksError> {
        let fields = Fields(bytes);
        if fields.take(0, 6) != which.magic() {
            return Err(LuksError::damaged("magic"));
        }
        if fields.u16(6) != 2 {
            return Err(LuksError::damaged("version"));
        }
        let size = fields.u64(8);
        if !HEADER_SIZES.contains(&size) || (which == Which::Secondary && size != offset) {
            return Err(LuksError::damaged("hdr_size"));
        }
        let sequence = fields.u64(16);
        let label = fields.text(24, 48, "label")?;
        let hash = LuksHash::named(&fields.text(72, 32, "checksum_alg")?)
            .ok_or_else(|| LuksError::damaged("checksum_alg"))?;
        let uuid = fields.text(168, 40, "uuid")?;
        if !is_uuid(&uuid) {
            return Err(LuksError::damaged("uuid"));
        }
        let subsystem = fields.text(208, 48, "subsystem")?;
        if fields.u64(256) != offset {
            return Err(LuksError::damaged("hdr_offset"));
        }
        let (checksum, unused) = fields.take(448, 64).split_at(hash.len());
        if !all_zero(unused) {
            return Err(LuksError::damaged("csum"));
        }
        if !all_zero(fields.take(264, 184)) || !all_zero(fields.take(512, BINARY_LEN - 512)) {
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

    /// Bytes of the JSON area.
    #[must_use]
    pub fn json_size(&self) -> u64 {
        self.size.saturating_sub(BINARY_LEN as u64)
    }

    /// Verifies the checksum over header and JSON area.
    ///
    /// # Errors
    /// [`LuksError::Damaged`].
    pub fn verify(&self, bytes: &[u8; BINARY_LEN], json: &[u8]) -> Result<(), LuksError> {
        let (before, rest) = bytes.split_at(448);
        let after = rest.get(64..).unwrap_or_default();
        if self.hash.digest_of(&[before, &[0; 64], after, json]) == self.checksum {
            Ok(())
        } else {
            Err(LuksError::damaged("csum"))
        }
    }
}

/// Fixed places; out of bounds is a programming error and reads as nothing.
struct Fields<'a>(&'a [u8; BINARY_LEN]);

impl<'a> Fields<'a> {
    fn take(&self, at: usize, len: usize) -> &'a [u8] {
        self.0.get(at..at + len).unwrap_or_default()
    }

    fn u16(&self, at: usize) -> u16 {
        self.take(at, 2).try_into().map_or(0, u16::from_be_bytes)
    }

    fn u64(&self, at: usize) -> u64 {
        self.take(at, 8).try_into().map_or(0, u64::from_be_bytes)
    }

    /// UTF-8 that ends in a zero byte, and zeros after it.
    fn text(&self, at: usize, len: usize, name: &str) -> Result<String, LuksError> {
        let bytes = self.take(at, len);
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

fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// 36 characters: hexadecimal digits and hyphens where they belong.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
