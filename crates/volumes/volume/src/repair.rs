//! Ends a re-encryption whose data are all under the new key, when libcryptsetup was stopped before
//! it had ended it.
//!
//! Two states. With the old key's slots still there, libcryptsetup 2.6.1 goes on at the beginning
//! when the volume is closed: it reads data under the old key that are under the new one, and
//! destroys them. So it is never asked to; this ends it instead. Without them nothing opens the
//! volume:
//!
//! libcryptsetup ends a re-encryption by destroying the slots of the old key, and only then takes
//! out of the header that one is under way. Stopped between, the header asks for two keys and has
//! one. All data are under that one. The repair writes the header as the next step of libcryptsetup
//! would have: without the old key's digest, the saved segments, the slot that remembered how far
//! it was, and the requirement. Slots and tokens stay as they are.
//!
//! Invariant: the new header is read, and opened with the passphrase, in memory before it goes onto
//! the device, second copy first.
//!
//! Must not: touch a header in any other state.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use serde_json::{Map, Value};
use strongroom_crypto::{SecretBytes, fill_random, sha256};
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::create::Memory;
use crate::device::Volume;
use crate::escrow;
use crate::header::Metadata;
use crate::look::{check_unused, exclusively, io};

/// Of a LUKS2 binary header (LUKS2 On-Disk Format Specification, section 2.1): its length, and
/// places in it.
pub(crate) const BINARY_LEN: usize = 4096;
const SIZE_AT: usize = 8;
const SEQUENCE_AT: usize = 16;
const ALGORITHM_AT: usize = 72;
const CHECKSUM_AT: usize = 448;
const CHECKSUM_LEN: usize = 64;
/// Longest header of those that are allowed.
const HEADER_MAX: usize = 4 << 20;

/// Whether all data are under the new key, and only the end is missing.
pub(crate) fn all_moved(metadata: &Metadata) -> bool {
    check(metadata).is_ok()
}

/// The slots of the new key, when all data are under it and only the end of the re-encryption is
/// missing.
///
/// # Errors
/// SR-8331, with the reason.
pub fn check(metadata: &Metadata) -> Result<Vec<u32>, Error> {
    let no = |why: &str| Err(Error::new(&code::VOLUME_NO_REPAIR, why));
    if !metadata.is_reencrypting() {
        return no("no re-encryption is under way");
    }
    let plain: Vec<_> = metadata
        .segments
        .iter()
        .filter(|(_, segment)| segment.flags.is_empty())
        .collect();
    let [(number, segment)] = plain.as_slice() else {
        return no("data are under two keys");
    };
    let with_flag = |flag: &str| {
        let mut found = metadata
            .segments
            .iter()
            .filter(|(_, segment)| segment.flags.iter().any(|there| there == flag));
        found.next().map(|(number, segment)| (*number, segment))
    };
    let Some((last, finally)) = with_flag("backup-final") else {
        return no("its end is not recorded");
    };
    if segment.kind != "crypt" || segment.size != "dynamic" {
        return no("its data are not one encrypted segment");
    }
    let same = segment.encryption == finally.encryption
        && segment.offset == finally.offset
        && segment.sector_size == finally.sector_size
        && finally.kind == "crypt";
    let digest_of = |segment: u32| {
        let segment = segment.to_string();
        let mut digests = metadata.digests.iter();
        digests
            .find(|(_, digest)| digest.segments.contains(&segment))
            .map(|(number, _)| *number)
    };
    let digest = digest_of(**number);
    if !same || digest.is_none() || digest != digest_of(last) {
        return no("not all data are under the new key");
    }
    let digest = digest.and_then(|digest| metadata.digests.get(&digest));
    let slots = digest
        .map(|digest| digest.keyslots.clone())
        .unwrap_or_default();
    let keys = metadata.key_slots();
    let slots: Vec<u32> = slots.iter().filter_map(|slot| slot.parse().ok()).collect();
    let slots: Vec<u32> = slots
        .into_iter()
        .filter(|slot| keys.contains(slot))
        .collect();
    if slots.is_empty() {
        return no("no slot holds the new key");
    }
    Ok(slots)
}

/// Mends it. `secret` opens a slot of the new key.
///
/// # Errors
/// SR-8331, SR-2002, SR-8320, SR-5001.
pub fn repair(volume: &mut Volume, secret: &SecretBytes) -> Result<u32, Error> {
    check(&volume.metadata()?)?;
    check_unused(volume.path())?;
    end(volume, secret, false)
}

/// Ends a re-encryption whose data are all under the new key. `in_use`: the volume is open.
pub(crate) fn end(volume: &mut Volume, secret: &SecretBytes, in_use: bool) -> Result<u32, Error> {
    let metadata = volume.metadata()?;
    let slots = check(&metadata)?;
    metadata.check_tried(&slots)?;
    let path = volume.path().to_owned();
    let mut opened = Err(Error::new(&code::WRONG_KEY, path.display().to_string()));
    for slot in slots {
        opened = volume.volume_key(Some(slot), secret).map(drop);
        if opened.is_ok() {
            break;
        }
    }
    opened?;
    let mut bytes = escrow::header(volume)?;
    let size = usize::try_from(number(&bytes, SIZE_AT)).unwrap_or(usize::MAX);
    if size > HEADER_MAX || 2 * size > bytes.len() || size <= BINARY_LEN {
        return Err(Error::new(&code::VOLUME_NO_REPAIR, "its header's size"));
    }
    let (first, rest) = bytes.split_at_mut(size);
    let second = rest.get_mut(..size).unwrap_or_default();
    // libcryptsetup has put a damaged copy right when it read the header; if it could not, neither
    // can this.
    if !checksum_holds(first) || !checksum_holds(second) {
        let detail = "a copy of its header is damaged";
        return Err(Error::new(&code::VOLUME_NO_REPAIR, detail));
    }
    let (json, gone) = mended(first.get(BINARY_LEN..).unwrap_or_default())?;
    let sequence = number(first, SEQUENCE_AT).max(number(second, SEQUENCE_AT)) + 1;
    for copy in [&mut *first, second] {
        write_copy(copy, &json, sequence)?;
    }
    let slot = tried(&bytes, volume, secret)?;
    let device = if in_use {
        let options = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path);
        options.map_err(|error| io(&path, error))?
    } else {
        exclusively(&path, true)?
    };
    put(
        &device,
        bytes.get(size..2 * size).unwrap_or_default(),
        size as u64,
    )
    .and_then(|()| put(&device, bytes.get(..size).unwrap_or_default(), 0))
    .map_err(|error| io(&path, error))?;
    // Slots of the old key: nothing names them any more.
    for (at, len) in gone {
        let len = usize::try_from(len).unwrap_or_default();
        if at >= 2 * size as u64 && at.saturating_add(len as u64) <= bytes.len() as u64 {
            let mut random = vec![0; len];
            fill_random(&mut random)?;
            put(&device, &random, at).map_err(|error| io(&path, error))?;
        }
    }
    *volume = Volume::open(&path)?;
    Ok(slot)
}

/// Reads the mended header in memory, and opens it.
fn tried(bytes: &[u8], volume: &Volume, secret: &SecretBytes) -> Result<u32, Error> {
    let memory = Memory::of(bytes.len() as u64)?;
    let failed = |error| Error::io("memory for a header", error);
    memory.file.write_all_at(bytes, 0).map_err(failed)?;
    let mut copy = Volume::detached(&memory.path, volume.path())?;
    copy.test(None, secret)
}

fn put(device: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    device.write_all_at(bytes, at)?;
    device.sync_all()
}

/// Areas of key slots: place and length.
type Areas = Vec<(u64, u64)>;

/// The JSON area with the re-encryption taken out, as text; and the areas of slots of the old key.
fn mended(area: &[u8]) -> Result<(Vec<u8>, Areas), Error> {
    let bad = || Error::new(&code::VOLUME_NO_REPAIR, "its metadata");
    let end = area
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(area.len());
    let mut json: Value =
        serde_json::from_slice(area.get(..end).unwrap_or_default()).map_err(|_| bad())?;
    let member = |json: &Value, name: &str| json.get(name).and_then(Value::as_object).cloned();
    let mut segments = member(&json, "segments").ok_or_else(bad)?;
    segments.retain(|_, segment| segment.get("flags").is_none());
    let mut digests = member(&json, "digests").ok_or_else(bad)?;
    let mut old = Vec::new();
    digests.retain(|_, digest| {
        let had_segments = !names(digest, "segments").is_empty();
        keep_known(digest, "segments", &segments);
        let is_old = had_segments && names(digest, "segments").is_empty();
        if is_old {
            old.extend(names(digest, "keyslots"));
        }
        !is_old
    });
    let mut keyslots = member(&json, "keyslots").ok_or_else(bad)?;
    let mut gone = Vec::new();
    keyslots.retain(|number, slot| {
        if old.contains(number) {
            let place = |name: &str| slot.get("area")?.get(name)?.as_str()?.parse().ok();
            gone.extend(place("offset").zip(place("size")));
            return false;
        }
        slot.get("type").and_then(Value::as_str) != Some("reencrypt")
    });
    for digest in digests.values_mut() {
        keep_known(digest, "keyslots", &keyslots);
    }
    digests.retain(|_, digest| {
        !names(digest, "segments").is_empty() || !names(digest, "keyslots").is_empty()
    });
    let mut tokens = member(&json, "tokens").unwrap_or_default();
    for token in tokens.values_mut() {
        keep_known(token, "keyslots", &keyslots);
    }
    let config = json
        .get_mut("config")
        .and_then(Value::as_object_mut)
        .ok_or_else(bad)?;
    config.remove("requirements");
    let parts = [
        ("segments", segments),
        ("keyslots", keyslots),
        ("digests", digests),
        ("tokens", tokens),
    ];
    let whole = json.as_object_mut().ok_or_else(bad)?;
    for (name, part) in parts {
        whole.insert(name.to_owned(), Value::Object(part));
    }
    let text = serde_json::to_vec(&json).map_err(|_| bad())?;
    Ok((text, gone))
}

/// A list of names.
fn names(of: &Value, list: &str) -> Vec<String> {
    let list = of.get(list).and_then(Value::as_array);
    let names = list.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

fn keep_known(of: &mut Value, list: &str, known: &Map<String, Value>) {
    if let Some(list) = of.get_mut(list).and_then(Value::as_array_mut) {
        list.retain(|name| name.as_str().is_some_and(|name| known.contains_key(name)));
    }
}

/// Whether a copy of the header is whole.
fn checksum_holds(copy: &[u8]) -> bool {
    let (binary, area) = copy.split_at(BINARY_LEN.min(copy.len()));
    let mut binary = binary.to_vec();
    if let Some(checksum) = binary.get_mut(CHECKSUM_AT..CHECKSUM_AT + CHECKSUM_LEN) {
        checksum.fill(0);
    }
    let digest = sha256(&[&binary, area]);
    copy.get(CHECKSUM_AT..CHECKSUM_AT + digest.len()) == Some(digest.as_slice())
}

/// Puts JSON, sequence number and checksum into a copy of the header.
pub(crate) fn write_copy(copy: &mut [u8], json: &[u8], sequence: u64) -> Result<(), Error> {
    let bad = |what: &str| Error::new(&code::VOLUME_NO_REPAIR, what);
    let algorithm = copy.get(ALGORITHM_AT..ALGORITHM_AT + 7);
    if algorithm != Some(b"sha256\0".as_slice()) {
        return Err(bad("its checksum is not SHA-256"));
    }
    let (binary, area) = copy.split_at_mut(BINARY_LEN);
    if json.len() >= area.len() {
        return Err(bad("its metadata do not fit"));
    }
    area.fill(0);
    area.get_mut(..json.len())
        .unwrap_or_default()
        .copy_from_slice(json);
    set_number(binary, SEQUENCE_AT, sequence);
    let checksum = binary
        .get_mut(CHECKSUM_AT..CHECKSUM_AT + CHECKSUM_LEN)
        .ok_or_else(|| bad("its length"))?;
    checksum.fill(0);
    let digest = sha256(&[binary, area]);
    let place = binary.get_mut(CHECKSUM_AT..CHECKSUM_AT + digest.len());
    place.unwrap_or_default().copy_from_slice(&digest);
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).unwrap_or_default();
    bytes.try_into().map(u64::from_be_bytes).unwrap_or_default()
}

#[expect(clippy::big_endian_bytes, reason = "LUKS2 headers are big-endian")]
fn set_number(bytes: &mut [u8], at: usize, number: u64) {
    let place = bytes.get_mut(at..at + 8);
    place
        .unwrap_or_default()
        .copy_from_slice(&number.to_be_bytes());
}
