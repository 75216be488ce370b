//! The JSON area as types: key slots, segments, digests, tokens, configuration.
//!
//! Read strictly: a member that is not known is refused wherever it could change what the bytes
//! mean. Tokens alone may hold anything. Names of ciphers, hashes and key slot types that are not
//! supported are kept: they are refused when they would be used, so that `inspect` can show them.
//! References between members are checked in `check.rs`. JSON that libcryptsetup has read and
//! checked is held to its rules only ([`Metadata::from_library`]).
//!
//! Must not: derive a key; believe a token, which anyone who can write to the device may have
//! written.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde_json::Value;

use crate::error::LuksError;
use crate::token::Token;
use crate::tree::{At, Rules, SLOTS_MAX, Tree, decimal};

/// Most segments: far more than re-encryption makes.
const SEGMENTS_MAX: u32 = 64;
/// Bytes of every salt of LUKS2.
pub(crate) const SALT_LEN: usize = 32;
/// Longest volume key, in bytes.
pub(crate) const KEY_LEN_MAX: u32 = 512;

/// The whole JSON area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Key slots by number.
    pub keyslots: BTreeMap<u32, Keyslot>,
    /// Tokens by number.
    pub tokens: BTreeMap<u32, Token>,
    /// Segments by number.
    pub segments: BTreeMap<u32, Segment>,
    /// Digests by number.
    pub digests: BTreeMap<u32, Digest>,
    /// Sizes, flags and requirements.
    pub config: Config,
}

/// A key slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyslot {
    /// Length of the volume key in bytes.
    pub key_size: u32,
    /// 0: tried only when named; 1: as most; 2: tried first.
    pub priority: u32,
    /// Offset of its area.
    pub offset: u64,
    /// Length of its area in bytes.
    pub size: u64,
    /// Its kind and the fields of that.
    pub kind: KeyslotKind,
}

/// The kind of a key slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyslotKind {
    /// A volume key that a passphrase opens.
    Luks2(Luks2Slot),
    /// No key: the area and the rules of a re-encryption under way.
    Reencrypt(ReencryptSlot),
    /// Of an unknown type; its name.
    Unknown(String),
}

/// A volume key that a passphrase opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Luks2Slot {
    /// Number of anti-forensic stripes.
    pub stripes: u32,
    /// Hash of their diffusion, by name.
    pub af_hash: String,
    /// Cipher of the area, by name.
    pub encryption: String,
    /// Length of the area's key in bytes.
    pub area_key_size: u32,
    /// Makes the area's key from the passphrase.
    pub kdf: Kdf,
    /// Its salt.
    pub salt: Vec<u8>,
}

/// A key derivation and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kdf {
    /// PBKDF2-HMAC.
    Pbkdf2 {
        /// Hash, by name.
        hash: String,
        /// Iterations.
        iterations: NonZeroU32,
    },
    /// Argon2i or Argon2id.
    Argon2 {
        /// `argon2i` or `argon2id`.
        id: bool,
        /// Passes.
        time: u32,
        /// Memory.
        memory_kib: u32,
        /// Lanes.
        cpus: u32,
    },
    /// Of another type, or without a member that its type needs; the type. Only in headers that
    /// libcryptsetup has read.
    Unknown(String),
}

impl Kdf {
    /// Returns its type as the header has it, as `argon2id`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pbkdf2 { .. } => "pbkdf2",
            Self::Argon2 { id: true, .. } => "argon2id",
            Self::Argon2 { id: false, .. } => "argon2i",
            Self::Unknown(kind) => kind,
        }
    }
}

/// The rules of a re-encryption under way, with the names that the header has for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReencryptSlot {
    /// `reencrypt`, `encrypt` or `decrypt`.
    pub mode: String,
    /// `forward` or `backward`.
    pub direction: String,
    /// `none`, `journal`, `checksum`, `datashift` and their mixtures.
    pub resilience: String,
    /// Hash of the checksums.
    pub hash: Option<String>,
    /// Unit of the checksums.
    pub sector_size: Option<u32>,
    /// How far data move, in bytes.
    pub shift_size: Option<u64>,
}

/// A part of the device with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its offset.
    pub offset: u64,
    /// Bytes; `None` means all that follows.
    pub size: Option<u64>,
    /// Flags of a re-encryption.
    pub flags: Vec<String>,
    /// How it is stored.
    pub kind: SegmentKind,
}

/// How a segment is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Encrypted.
    Crypt {
        /// Added to the number of each 512-byte unit to make its tweak.
        iv_tweak: u64,
        /// Cipher, by name.
        encryption: String,
        /// Unit of encryption in bytes.
        sector_size: u32,
        /// The kind of integrity protection, if there is any.
        integrity: Option<String>,
    },
    /// In clear.
    Linear,
    /// Of an unknown type; its name.
    Unknown(String),
}

/// Proves which volume key is the right one, by its PBKDF2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Key slots that hold this key.
    pub keyslots: Vec<u32>,
    /// Segments that it encrypts.
    pub segments: Vec<u32>,
    /// Hash of PBKDF2, by name.
    pub hash: String,
    /// Iterations.
    pub iterations: NonZeroU32,
    /// Salt.
    pub salt: Vec<u8>,
    /// PBKDF2 of the key.
    pub digest: Vec<u8>,
}

/// Sizes, flags and requirements of the whole volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of the JSON area.
    pub json_size: u64,
    /// Bytes of all key slot areas together.
    pub keyslots_size: u64,
    /// How the volume is to be activated.
    pub flags: Vec<String>,
    /// Features that a program must know to open the volume.
    pub requirements: Vec<String>,
}

impl Metadata {
    /// Reads a JSON area strictly: one object, then zeros to the end, one at least. References
    /// between members are not checked here.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with the member that breaks a rule.
    pub(crate) fn parse(area: &[u8]) -> Result<Self, LuksError> {
        let broken = || LuksError::damaged("JSON area");
        let end = area.iter().position(|&byte| byte == 0).ok_or_else(broken)?;
        let (text, rest) = area.split_at_checked(end).ok_or_else(broken)?;
        if rest.iter().any(|&byte| byte != 0) || !text.starts_with(b"{") {
            return Err(broken());
        }
        let tree: Tree = serde_json::from_slice(text).map_err(|_| broken())?;
        Self::of(&At::root(&tree, Rules::Own))
    }

    /// Reads the JSON that libcryptsetup shows of a header. What a newer version of it accepts
    /// passes, as far as it is not needed here.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] with the member that is missing or has another type.
    pub fn from_library(json: &Value) -> Result<Self, LuksError> {
        let tree = Tree::from(json);
        Self::of(&At::root(&tree, Rules::OfLibrary))
    }

    /// Reads the whole JSON by the rules of `root`. [`LuksError::Damaged`] with the first bad
    /// member.
    fn of(root: &At<'_>) -> Result<Self, LuksError> {
        root.only(&["keyslots", "tokens", "segments", "digests", "config"])?;
        Ok(Self {
            keyslots: numbered(&root.member("keyslots")?, SLOTS_MAX, keyslot)?,
            tokens: numbered(&root.member("tokens")?, SLOTS_MAX, Token::read)?,
            segments: numbered(&root.member("segments")?, SEGMENTS_MAX, segment)?,
            digests: numbered(&root.member("digests")?, SLOTS_MAX, digest)?,
            config: config(&root.member("config")?)?,
        })
    }

    /// Returns the digest of the key that encrypts a segment, and its number. `None` when none
    /// does.
    #[must_use]
    pub fn digest_of_segment(&self, segment: u32) -> Option<(u32, &Digest)> {
        let mut found = self.digests.iter();
        found
            .find(|(_, digest)| digest.segments.contains(&segment))
            .map(|(&number, digest)| (number, digest))
    }

    /// Returns the digest of the key in a key slot, and its number. `None` when there is none.
    #[must_use]
    pub fn digest_of_keyslot(&self, keyslot: u32) -> Option<(u32, &Digest)> {
        let mut found = self.digests.iter();
        found
            .find(|(_, digest)| digest.keyslots.contains(&keyslot))
            .map(|(&number, digest)| (number, digest))
    }

    /// Returns the first segment with that flag, and its number. `None` when there is none.
    #[must_use]
    pub fn segment_flagged(&self, flag: &str) -> Option<(u32, &Segment)> {
        let mut found = self.segments.iter();
        found
            .find(|(_, segment)| segment.has(flag))
            .map(|(&number, segment)| (number, segment))
    }

    /// Iterates over the segments of data in the order of their numbers, without those that only
    /// describe the state before or after a re-encryption.
    pub fn regular_segments(&self) -> impl Iterator<Item = (u32, &Segment)> {
        let regular = self
            .segments
            .iter()
            .filter(|(_, segment)| !segment.is_backup());
        regular.map(|(&number, segment)| (number, segment))
    }
}

impl Segment {
    /// Returns its cipher, as `aes-xts-plain64`. `None` when it is not encrypted, or of an unknown
    /// type.
    #[must_use]
    pub fn cipher(&self) -> Option<&str> {
        match &self.kind {
            SegmentKind::Crypt { encryption, .. } => Some(encryption),
            _ => None,
        }
    }

    /// Returns its unit of encryption in bytes. `None` as for [`Segment::cipher`].
    #[must_use]
    pub fn sector_size(&self) -> Option<u32> {
        match self.kind {
            SegmentKind::Crypt { sector_size, .. } => Some(sector_size),
            _ => None,
        }
    }

    /// Returns the kind of its integrity protection, as `hmac(sha256)`. `None` when it has none.
    #[must_use]
    pub fn integrity(&self) -> Option<&str> {
        match &self.kind {
            SegmentKind::Crypt { integrity, .. } => integrity.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the segment has that flag.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    /// Returns whether it only describes the state before or after a re-encryption.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("backup-"))
    }
}

/// Reads an object whose members' names are decimal numbers below `bound`, each with `read`.
/// [`LuksError::Damaged`] for any other name.
fn numbered<T>(
    object: &At<'_>,
    bound: u32,
    read: impl Fn(&At<'_>) -> Result<T, LuksError>,
) -> Result<BTreeMap<u32, T>, LuksError> {
    let mut map = BTreeMap::new();
    for (name, member) in object.members()? {
        let number = decimal(name).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|&number| number < bound);
        let number = number.ok_or_else(|| member.refused())?;
        map.insert(number, read(&member)?);
    }
    Ok(map)
}

/// Reads a key slot; its priority is 1 unless it says so. [`LuksError::Damaged`] for a bad member.
fn keyslot(slot: &At<'_>) -> Result<Keyslot, LuksError> {
    let (kind, key_size) = (slot.member("type")?, slot.member("key_size")?);
    let area = slot.member("area")?;
    let priority = slot.optional("priority")?;
    let kind = match kind.text()? {
        "luks2" => KeyslotKind::Luks2(luks2(slot, &area)?),
        "reencrypt" => KeyslotKind::Reencrypt(reencrypt(slot, &area)?),
        name => KeyslotKind::Unknown(name.to_owned()),
    };
    let priority = priority.map_or(Ok(1), |priority| match priority.u32()? {
        known @ 0..=2 => Ok(known),
        _ => Err(priority.refused()),
    })?;
    Ok(Keyslot {
        key_size: bounded(&key_size, KEY_LEN_MAX)?,
        priority,
        offset: area.member("offset")?.u64_text()?,
        size: area.member("size")?.u64_text()?,
        kind,
    })
}

/// Reads the parts of a key slot that holds a key. [`LuksError::Damaged`] for a bad member.
fn luks2(slot: &At<'_>, area: &At<'_>) -> Result<Luks2Slot, LuksError> {
    slot.only(&["type", "key_size", "af", "area", "kdf", "priority"])?;
    area.only(&["type", "offset", "size", "encryption", "key_size"])?;
    expected(&area.member("type")?, "raw")?;
    let af = slot.member("af")?;
    af.only(&["type", "stripes", "hash"])?;
    expected(&af.member("type")?, "luks1")?;
    let kdf = slot.member("kdf")?;
    Ok(Luks2Slot {
        // cryptsetup has only ever written 4000, and computes with 4000 whatever is here.
        stripes: {
            let stripes = af.member("stripes")?;
            stripes.must_be_known(stripes.u32()? == 4000)?;
            stripes.u32()?
        },
        af_hash: af.member("hash")?.text()?.to_owned(),
        encryption: area.member("encryption")?.text()?.to_owned(),
        area_key_size: bounded(&area.member("key_size")?, KEY_LEN_MAX)?,
        salt: kdf.member("salt")?.base64(&[SALT_LEN])?,
        kdf: match self::kdf(&kdf) {
            Err(_) if kdf.rules == Rules::OfLibrary => {
                Kdf::Unknown(kdf.member("type")?.text()?.to_owned())
            }
            read => read?,
        },
    })
}

/// Reads PBKDF2, Argon2i or Argon2id. [`LuksError::Damaged`] for anything else.
fn kdf(kdf: &At<'_>) -> Result<Kdf, LuksError> {
    match kdf.member("type")?.text()? {
        "pbkdf2" => {
            kdf.only(&["type", "hash", "iterations", "salt"])?;
            Ok(Kdf::Pbkdf2 {
                hash: kdf.member("hash")?.text()?.to_owned(),
                iterations: positive(&kdf.member("iterations")?)?,
            })
        }
        kind @ ("argon2i" | "argon2id") => {
            kdf.only(&["type", "time", "memory", "cpus", "salt"])?;
            Ok(Kdf::Argon2 {
                id: kind == "argon2id",
                time: positive(&kdf.member("time")?)?.get(),
                memory_kib: positive(&kdf.member("memory")?)?.get(),
                cpus: positive(&kdf.member("cpus")?)?.get(),
            })
        }
        _ => Err(kdf.member("type")?.refused()),
    }
}

/// Reads the parts of a key slot of a re-encryption. [`LuksError::Damaged`] for a bad member.
fn reencrypt(slot: &At<'_>, area: &At<'_>) -> Result<ReencryptSlot, LuksError> {
    slot.only(&["type", "key_size", "mode", "direction", "area", "priority"])?;
    let resilience = area.member("type")?;
    let (checksum, shift) = match resilience.text()? {
        "none" | "journal" => (false, false),
        "checksum" => (true, false),
        "datashift" | "datashift-journal" => (false, true),
        "datashift-checksum" => (true, true),
        _ => {
            resilience.must_be_known(false)?;
            (false, false)
        }
    };
    let mut names = vec!["type", "offset", "size"];
    if checksum {
        names.extend(["hash", "sector_size"]);
    }
    if shift {
        names.push("shift_size");
    }
    area.only(&names)?;
    let sector_size = || -> Result<u32, LuksError> {
        let size = area.member("sector_size")?;
        match size.u32()? {
            bytes if bytes >= 512 && bytes.is_power_of_two() => Ok(bytes),
            _ => Err(size.refused()),
        }
    };
    let shift_size = || -> Result<u64, LuksError> {
        let size = area.member("shift_size")?;
        match size.u64_text()? {
            bytes if bytes > 0 && bytes.is_multiple_of(512) => Ok(bytes),
            _ => Err(size.refused()),
        }
    };
    Ok(ReencryptSlot {
        mode: one_of(&slot.member("mode")?, &["reencrypt", "encrypt", "decrypt"])?,
        direction: one_of(&slot.member("direction")?, &["forward", "backward"])?,
        resilience: resilience.text()?.to_owned(),
        hash: match checksum {
            true => Some(area.member("hash")?.text()?.to_owned()),
            false => None,
        },
        sector_size: checksum.then(sector_size).transpose()?,
        shift_size: shift.then(shift_size).transpose()?,
    })
}

/// Reads a segment of data. [`LuksError::Damaged`] for a bad member.
fn segment(segment: &At<'_>) -> Result<Segment, LuksError> {
    /// Every mark that a re-encryption makes.
    const FLAGS: [&str; 4] = [
        "backup-previous",
        "backup-final",
        "backup-moved-segment",
        "in-reencryption",
    ];
    const COMMON: [&str; 4] = ["type", "offset", "size", "flags"];
    let flags = segment.optional("flags")?;
    for flag in flags
        .iter()
        .map(At::list)
        .collect::<Result<Vec<_>, _>>()?
        .concat()
    {
        flag.must_be_known(FLAGS.contains(&flag.text()?))?;
    }
    let flags = flags.map_or(Ok(Vec::new()), |flags| flags.texts())?;
    let (offset, size) = (segment.member("offset")?, segment.member("size")?);
    let bytes = match size.text()? {
        "dynamic" => None,
        _ => Some(size.u64_text()?),
    };
    if bytes.is_some_and(|bytes| bytes == 0 || !bytes.is_multiple_of(512)) {
        return Err(size.refused());
    }
    let start = offset.u64_text()?;
    if !start.is_multiple_of(512) || start.checked_add(bytes.unwrap_or(0)).is_none() {
        return Err(offset.refused());
    }
    let kind = match segment.member("type")?.text()? {
        "crypt" => {
            let crypt = ["iv_tweak", "encryption", "sector_size", "integrity"];
            segment.only(&[COMMON, crypt].concat())?;
            crypt_segment(segment, bytes)?
        }
        "linear" => {
            segment.only(&COMMON)?;
            SegmentKind::Linear
        }
        name => SegmentKind::Unknown(name.to_owned()),
    };
    Ok(Segment {
        offset: start,
        size: bytes,
        flags,
        kind,
    })
}

/// Reads how a segment is encrypted; `bytes` is its length. [`LuksError::Damaged`] for a bad
/// member.
fn crypt_segment(segment: &At<'_>, bytes: Option<u64>) -> Result<SegmentKind, LuksError> {
    let sector = segment.member("sector_size")?;
    let sector_size = sector.u32()?;
    if !(512..=4096).contains(&sector_size) || !sector_size.is_power_of_two() {
        return Err(sector.refused());
    }
    if bytes.is_some_and(|bytes| !bytes.is_multiple_of(u64::from(sector_size))) {
        return Err(segment.member("size")?.refused());
    }
    let integrity = match segment.optional("integrity")? {
        Some(integrity) => Some(integrity.member("type")?.text()?.to_owned()),
        None => None,
    };
    Ok(SegmentKind::Crypt {
        iv_tweak: segment.member("iv_tweak")?.u64_text()?,
        encryption: segment.member("encryption")?.text()?.to_owned(),
        sector_size,
        integrity,
    })
}

/// Reads a digest. [`LuksError::Damaged`] for a bad member.
fn digest(digest: &At<'_>) -> Result<Digest, LuksError> {
    let names = [
        "type",
        "keyslots",
        "segments",
        "hash",
        "iterations",
        "salt",
        "digest",
    ];
    digest.only(&names)?;
    expected(&digest.member("type")?, "pbkdf2")?;
    Ok(Digest {
        keyslots: digest.member("keyslots")?.numbers()?,
        segments: digest.member("segments")?.numbers()?,
        hash: digest.member("hash")?.text()?.to_owned(),
        iterations: positive(&digest.member("iterations")?)?,
        salt: digest.member("salt")?.base64(&[SALT_LEN])?,
        digest: digest.member("digest")?.base64(&[20, 32, 48, 64])?,
    })
}

/// Reads the member `config`. [`LuksError::Damaged`] for a bad member.
fn config(config: &At<'_>) -> Result<Config, LuksError> {
    config.only(&["json_size", "keyslots_size", "flags", "requirements"])?;
    let requirements = match config.optional("requirements")? {
        Some(requirements) => {
            requirements.only(&["mandatory"])?;
            let mandatory = requirements.optional("mandatory")?;
            mandatory.map_or(Ok(Vec::new()), |list| list.texts())?
        }
        None => Vec::new(),
    };
    let flags = config.optional("flags")?;
    Ok(Config {
        json_size: config.member("json_size")?.u64_text()?,
        keyslots_size: config.member("keyslots_size")?.u64_text()?,
        flags: flags.map_or(Ok(Vec::new()), |flags| flags.texts())?,
        requirements,
    })
}

/// Checks that a value is this text. [`LuksError::Damaged`] if not.
fn expected(value: &At<'_>, text: &str) -> Result<(), LuksError> {
    if value.text()? == text {
        Ok(())
    } else {
        Err(value.refused())
    }
}

/// Returns the value's text. [`LuksError::Damaged`] when it is not among `texts`.
fn one_of(value: &At<'_>, texts: &[&str]) -> Result<String, LuksError> {
    let text = value.text()?;
    if texts.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(value.refused())
    }
}

/// Reads a number of 32 bits. [`LuksError::Damaged`] for zero.
fn positive(value: &At<'_>) -> Result<NonZeroU32, LuksError> {
    NonZeroU32::new(value.u32()?).ok_or_else(|| value.refused())
}

/// Reads a number. [`LuksError::Damaged`] when it is not from 1 to `most`.
fn bounded(value: &At<'_>, most: u32) -> Result<u32, LuksError> {
    match value.u32()? {
        number if (1..=most).contains(&number) => Ok(number),
        _ => Err(value.refused()),
    }
}
