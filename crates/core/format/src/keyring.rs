//! The keyring file: an object header of kind `keyring`, then one authenticated body. Specified in
//! docs/spec/keyring.md.
//!
//! The body is readable without the root key except for the keys themselves.
//! Must not: wrap, unwrap or authenticate anything.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::certificate::{CERTIFICATES_MAX, CertificateRecord};
use crate::header::{WrappedKey, wrapped_layout};
use crate::layout::{bytes, is_zero, layout, put, u16_at, u32_at, u64_at, zero_at};

layout! {
    /// Layout of the body's fixed part; the provider's argument, the entries, the certificates and
    /// the MAC follow.
    body_layout, 40, {
        LENGTH @ 0, 4;
        ENTRY_COUNT @ 4, 4;
        GENERATION @ 8, 8;
        EXPORTED_GENERATION @ 16, 8;
        PROVIDER @ 24, 2;
        PROVIDER_ARGUMENT_LENGTH @ 26, 2;
        CERTIFICATE_COUNT @ 28, 4;
        RESERVED @ 32, 8;
    }
}

layout! {
    /// Layout of one key.
    entry_layout, 256, {
        NAME_LENGTH @ 0, 2;
        STATE @ 2, 2;
        PURPOSE @ 4, 2;
        RESERVED_A @ 6, 2;
        VERSION @ 8, 4;
        RESERVED_B @ 12, 4;
        CREATED @ 16, 8;
        NAME @ 24, 128;
        WRAPPED @ 152, 60;
        RESERVED_C @ 212, 44;
    }
}

/// Length of the body's MAC (HMAC-SHA256).
pub const BODY_MAC_LEN: usize = 32;
/// Most keys, counting versions, that a keyring holds.
pub const ENTRIES_MAX: usize = 65_536;
/// Longest key name, in bytes.
pub const NAME_MAX: usize = 128;
/// Longest provider argument, in bytes.
pub const PROVIDER_ARGUMENT_MAX: usize = 4096;

/// Whether a key may seal new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Seals and opens.
    Active,
    /// Opens only: an older version, or retired by its owner.
    Retired,
}

impl KeyState {
    /// The number in the entry.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Active => 1,
            Self::Retired => 2,
        }
    }

    /// The word used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Retired => "retired",
        }
    }
}

/// The only purpose so far: wrapping objects' data keys.
pub const PURPOSE_WRAP: u16 = 1;

/// One version of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's name.
    pub name: String,
    /// From 1, one more at each rotation.
    pub version: u32,
    /// Whether it may seal.
    pub state: KeyState,
    /// What it is for; [`PURPOSE_WRAP`].
    pub purpose: u16,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// The key, wrapped under the keyring's data key.
    pub wrapped: WrappedKey,
}

/// A structurally valid body. Not authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Raised by one at each write.
    pub generation: u64,
    /// The generation that was last exported; 0 if none was.
    pub exported_generation: u64,
    /// Provider number; strongroom-keyring gives it meaning.
    pub provider: u16,
    /// The provider's argument: a variable, a path, a command. Never a secret.
    pub provider_argument: String,
    /// Every version of every key, in order of creation.
    pub entries: Vec<Entry>,
    /// Every certificate, in order of creation.
    pub certificates: Vec<CertificateRecord>,
}

impl Body {
    /// Parses the body, and returns it with the bytes that its MAC covers and the MAC. `None` when
    /// it is cut short or has a value that no writer gives it, or when bytes follow the MAC.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        use body_layout as at;
        let length = usize::try_from(u32_at(record, at::LENGTH)?).ok()?;
        let (covered, mac) = (record.get(..length)?, record.get(length..)?);
        let count = usize::try_from(u32_at(covered, at::ENTRY_COUNT)?).ok()?;
        let certificate_count = usize::try_from(u32_at(covered, at::CERTIFICATE_COUNT)?).ok()?;
        let argument_len = usize::from(u16_at(covered, at::PROVIDER_ARGUMENT_LENGTH)?);
        let within = count <= ENTRIES_MAX
            && certificate_count <= CERTIFICATES_MAX
            && argument_len <= PROVIDER_ARGUMENT_MAX;
        if mac.len() != BODY_MAC_LEN || !zero_at(covered, at::RESERVED) || !within {
            return None;
        }
        let variable = covered.get(at::SIZE..)?;
        let argument = variable.get(..argument_len)?;
        let padded = argument_len.checked_next_multiple_of(8)?;
        if !is_zero(variable.get(argument_len..padded)?) {
            return None;
        }
        let entries_len = count.checked_mul(entry_layout::SIZE)?;
        let (entries_bytes, rest) = variable.get(padded..)?.split_at_checked(entries_len)?;
        let certificates = parse_certificates(rest, certificate_count)?;
        let entries: Option<Vec<Entry>> = entries_bytes
            .chunks_exact(entry_layout::SIZE)
            .map(Entry::parse)
            .collect();
        let body = Self {
            generation: u64_at(covered, at::GENERATION)?,
            exported_generation: u64_at(covered, at::EXPORTED_GENERATION)?,
            provider: u16_at(covered, at::PROVIDER)?,
            provider_argument: String::from(core::str::from_utf8(argument).ok()?),
            entries: entries?,
            certificates,
        };
        Some((body, covered, mac))
    }

    /// The bytes that the MAC covers, without the MAC. `None` when there are too many entries or
    /// certificates, or a name or argument is too long.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        use body_layout as at;
        let argument = self.provider_argument.as_bytes();
        if argument.len() > PROVIDER_ARGUMENT_MAX
            || self.entries.len() > ENTRIES_MAX
            || self.certificates.len() > CERTIFICATES_MAX
        {
            return None;
        }
        let mut out = vec![0; at::SIZE];
        out.extend_from_slice(argument);
        out.resize(out.len().checked_next_multiple_of(8)?, 0);
        for entry in &self.entries {
            out.extend_from_slice(&entry.to_bytes()?);
        }
        for certificate in &self.certificates {
            out.extend_from_slice(&certificate.to_bytes()?);
        }
        let length = u32::try_from(out.len()).ok()?;
        let count = u32::try_from(self.entries.len()).ok()?;
        let certificate_count = u32::try_from(self.certificates.len()).ok()?;
        let argument_len = u16::try_from(argument.len()).ok()?;
        put(&mut out, at::LENGTH, &length.to_le_bytes())?;
        put(&mut out, at::ENTRY_COUNT, &count.to_le_bytes())?;
        put(&mut out, at::GENERATION, &self.generation.to_le_bytes())?;
        put(
            &mut out,
            at::EXPORTED_GENERATION,
            &self.exported_generation.to_le_bytes(),
        )?;
        put(&mut out, at::PROVIDER, &self.provider.to_le_bytes())?;
        put(
            &mut out,
            at::PROVIDER_ARGUMENT_LENGTH,
            &argument_len.to_le_bytes(),
        )?;
        put(
            &mut out,
            at::CERTIFICATE_COUNT,
            &certificate_count.to_le_bytes(),
        )?;
        Some(out)
    }
}

/// Parses exactly `count` records. `None` when one is cut short or has a value that no writer gives
/// it, or when bytes follow the last.
fn parse_certificates(area: &[u8], count: usize) -> Option<Vec<CertificateRecord>> {
    let mut rest = area;
    let mut found = Vec::new();
    for _ in 0..count {
        let (record, tail) = CertificateRecord::parse(rest)?;
        found.push(record);
        rest = tail;
    }
    rest.is_empty().then_some(found)
}

impl Entry {
    /// Parses an entry's 256 bytes. `None` when they have a value that no writer gives them, or the
    /// purpose is not known.
    fn parse(record: &[u8]) -> Option<Self> {
        use entry_layout as at;
        let name_len = usize::from(u16_at(record, at::NAME_LENGTH)?);
        let name_area = bytes(record, at::NAME)?;
        let name = name_area.get(..name_len)?;
        let reserved = [at::RESERVED_A, at::RESERVED_B, at::RESERVED_C];
        let canonical = reserved.into_iter().all(|field| zero_at(record, field))
            && is_zero(name_area.get(name_len..)?)
            && !name.is_empty();
        let state = match u16_at(record, at::STATE)? {
            1 => KeyState::Active,
            2 => KeyState::Retired,
            _ => return None,
        };
        let entry = Self {
            name: String::from(core::str::from_utf8(name).ok()?),
            version: u32_at(record, at::VERSION)?,
            state,
            purpose: u16_at(record, at::PURPOSE)?,
            created_unix_s: u64_at(record, at::CREATED)?,
            wrapped: WrappedKey::parse(bytes(record, at::WRAPPED)?)?,
        };
        (canonical && entry.version > 0 && entry.purpose == PURPOSE_WRAP).then_some(entry)
    }

    /// The entry's 256 bytes. `None` when the name is longer than [`NAME_MAX`].
    fn to_bytes(&self) -> Option<[u8; entry_layout::SIZE]> {
        use entry_layout as at;
        let mut out = [0; entry_layout::SIZE];
        let mut name = [0; NAME_MAX];
        name.get_mut(..self.name.len())?
            .copy_from_slice(self.name.as_bytes());
        put(
            &mut out,
            at::NAME_LENGTH,
            &u16::try_from(self.name.len()).ok()?.to_le_bytes(),
        )?;
        put(&mut out, at::STATE, &self.state.number().to_le_bytes())?;
        put(&mut out, at::PURPOSE, &self.purpose.to_le_bytes())?;
        put(&mut out, at::VERSION, &self.version.to_le_bytes())?;
        put(&mut out, at::CREATED, &self.created_unix_s.to_le_bytes())?;
        put(&mut out, at::NAME, &name)?;
        let wrapped: [u8; wrapped_layout::SIZE] = self.wrapped.to_bytes();
        put(&mut out, at::WRAPPED, &wrapped)?;
        Some(out)
    }
}
