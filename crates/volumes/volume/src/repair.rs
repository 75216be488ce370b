//! Finishes a re-encryption whose data are all under the new key, when libcryptsetup was stopped
//! before it had finished it.
//!
//! There are two such states. While the old key's slots exist, libcryptsetup 2.6.1 resumes from the
//! beginning when the volume is closed: it decrypts data with the old key that are under the new
//! one, and so destroys them. It is therefore never asked to resume; this module finishes instead.
//! Without the old slots, nothing opens the volume:
//!
//! libcryptsetup finishes a re-encryption by destroying the slots of the old key, and only then
//! removes the re-encryption from the header. Stopped in between, the header requires two keys and
//! has slots for one, under which all data are. The repair writes the header as the next step of
//! libcryptsetup would have: without the old key's digest, the saved segments, the slot that
//! recorded the progress, and the requirement. Slots and tokens of the new key stay as they are.
//!
//! Invariant: the new header is read and opened with the passphrase in memory before it is written
//! to the device, secondary copy first.
//!
//! Must not: touch a header in any other state.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use serde_json::{Map, Value};
use strongroom_crypto::{SecretBytes, fill_random};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{BINARY_LEN, Binary, LuksError, Metadata, Which, json_of, replace_json};

use crate::contents::{check_unused, open_exclusively};
use crate::create::MemoryFile;
use crate::device::Volume;
use crate::error::io;
use crate::escrow;
use crate::header::check_before_trying;

/// Returns whether a re-encryption is under way, all data are under the new key, and only its end
/// is missing.
pub(crate) fn all_data_moved(metadata: &Metadata) -> bool {
    slots_of_new_key(metadata).is_ok()
}

/// Returns the slots of the new key, when all data are under it and only the end of the
/// re-encryption is missing.
///
/// # Errors
/// SR-8331 in any other state, with the reason.
pub fn slots_of_new_key(metadata: &Metadata) -> Result<Vec<u32>, Error> {
    let no = |why: &str| Err(Error::new(&code::VOLUME_NO_REPAIR, why));
    if !metadata.is_reencrypting() {
        return no("no re-encryption is under way");
    }
    let segments = metadata.segments.iter();
    let data: Vec<_> = segments
        .filter(|(_, segment)| segment.flags.is_empty())
        .collect();
    let [(number, segment)] = data.as_slice() else {
        return no("data are under two keys");
    };
    let Some((last, wanted)) = metadata.segment_flagged("backup-final") else {
        return no("its end is not recorded");
    };
    if segment.cipher().is_none() || segment.size.is_some() {
        return no("its data are not one encrypted segment");
    }
    let same = segment.cipher() == wanted.cipher()
        && segment.offset == wanted.offset
        && segment.sector_size() == wanted.sector_size();
    let digest = metadata.digest_of_segment(**number);
    let digest_of_last = metadata.digest_of_segment(last);
    let (Some((digest, about)), true) = (digest, same) else {
        return no("not all data are under the new key");
    };
    if digest_of_last.map(|(last, _)| last) != Some(digest) {
        return no("not all data are under the new key");
    }
    let keys = metadata.key_slots();
    let mut slots = about.keyslots.clone();
    slots.retain(|slot| keys.contains(slot));
    if slots.is_empty() {
        return no("no slot holds the new key");
    }
    Ok(slots)
}

/// Finishes the re-encryption of a closed volume, when only its end is missing: rewrites the header
/// and overwrites the areas of the old key's slots. Returns the slot of the new key that `secret`
/// opens.
///
/// # Errors
/// SR-8331 when the header is in another state, or a copy of it is damaged; SR-2002 when `secret`
/// opens no slot of the new key; SR-8340 for a cipher that is not known to be safe, SR-8307 when
/// trying a slot would cost too much; SR-8320 when the volume is in use; SR-5001 when the system
/// reports an error.
pub fn repair(volume: &mut Volume, secret: &SecretBytes) -> Result<u32, Error> {
    slots_of_new_key(&volume.metadata()?)?;
    check_unused(volume.path())?;
    finish(volume, secret, false)
}

/// Finishes a re-encryption of which only the end is missing, as [`repair`] does, also of a volume
/// that is open (`in_use`). Returns the slot that `secret` opens. The new header is tried in memory
/// first, and written secondary copy first. `volume` is read anew afterwards. SR-8331 when the
/// header is in another state or damaged; SR-2002 when `secret` opens no slot of the new key;
/// SR-8340, SR-8307 and SR-5001 as [`repair`].
pub(crate) fn finish(
    volume: &mut Volume,
    secret: &SecretBytes,
    in_use: bool,
) -> Result<u32, Error> {
    let metadata = volume.metadata()?;
    let slots = slots_of_new_key(&metadata)?;
    check_before_trying(&metadata, &slots)?;
    let path = volume.path().to_owned();
    let mut opened = Err(Error::new(&code::WRONG_KEY, path.display().to_string()));
    for slot in slots {
        opened = volume.volume_key(Some(slot), secret).map(drop);
        if opened.is_ok() {
            break;
        }
    }
    opened?;
    let mut bytes = escrow::read_header(volume)?;
    // libcryptsetup has repaired a damaged copy when it read the header; where it could not, this
    // cannot either.
    let damaged = |_| {
        let detail = "a copy of its header is damaged";
        Error::new(&code::VOLUME_NO_REPAIR, detail)
    };
    let primary = whole_copy(&bytes, Which::Primary, 0).map_err(damaged)?;
    let secondary = whole_copy(&bytes, Which::Secondary, primary.size).map_err(damaged)?;
    let size = usize::try_from(primary.size).unwrap_or(usize::MAX);
    let (first, rest) = bytes.split_at_mut(size);
    let second = rest.get_mut(..size).unwrap_or_default();
    let (json, gone) = without_reencryption(json_of(first))?;
    let sequence = primary.sequence.max(secondary.sequence) + 1;
    for copy in [&mut *first, second] {
        let changed = replace_json(copy, &json, sequence);
        changed.map_err(|error| Error::new(&code::VOLUME_NO_REPAIR, error.detail()))?;
    }
    let slot = open_in_memory(&bytes, volume, secret)?;
    let device = if in_use {
        let options = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path);
        options.map_err(|error| io(&path, error))?
    } else {
        open_exclusively(&path, true)?
    };
    write_durably(
        &device,
        bytes.get(size..2 * size).unwrap_or_default(),
        size as u64,
    )
    .and_then(|()| write_durably(&device, bytes.get(..size).unwrap_or_default(), 0))
    .map_err(|error| io(&path, error))?;
    // The areas of the old key's slots, which nothing names any more, are overwritten.
    for (at, len) in gone {
        let len = usize::try_from(len).unwrap_or_default();
        if at >= 2 * size as u64 && at.saturating_add(len as u64) <= bytes.len() as u64 {
            let mut random = vec![0; len];
            fill_random(&mut random)?;
            write_durably(&device, &random, at).map_err(|error| io(&path, error))?;
        }
    }
    *volume = Volume::open(&path)?;
    Ok(slot)
}

/// Returns the binary part of a copy of the header in `header`, after its checksum was verified.
///
/// # Errors
/// [`LuksError::Damaged`] with the field.
fn whole_copy(header: &[u8], which: Which, offset: u64) -> Result<Binary, LuksError> {
    let damaged = || LuksError::Damaged("length".to_owned());
    let start = usize::try_from(offset).map_err(|_| damaged())?;
    let copy = header.get(start..).ok_or_else(damaged)?;
    let (binary, json) = copy.split_first_chunk::<BINARY_LEN>().ok_or_else(damaged)?;
    let about = Binary::parse(binary, which, offset)?;
    let len = usize::try_from(about.json_size()).map_err(|_| damaged())?;
    about.verify(binary, json.get(..len).ok_or_else(damaged)?)?;
    Ok(about)
}

/// Opens the header in `bytes` with the passphrase, in memory. Returns the slot that it opens.
///
/// # Errors
/// SR-2002 when it opens none; as [`Volume::detached`].
fn open_in_memory(bytes: &[u8], volume: &Volume, secret: &SecretBytes) -> Result<u32, Error> {
    let memory = MemoryFile::with_len(bytes.len() as u64)?;
    let failed = |error| Error::io("memory for a header", error);
    memory.file.write_all_at(bytes, 0).map_err(failed)?;
    let mut copy = Volume::detached(&memory.path, volume.path())?;
    copy.try_secret(None, secret)
}

/// Writes all of `bytes` at offset `at`, and syncs.
fn write_durably(device: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    device.write_all_at(bytes, at)?;
    device.sync_all()
}

/// Areas of key slots: offset and length in bytes.
type Areas = Vec<(u64, u64)>;

/// Returns the header's JSON without the re-encryption, its slot, and the old key's slots; and the
/// areas of the old key's slots.
///
/// # Errors
/// SR-8331 when the JSON has another form than libcryptsetup writes.
fn without_reencryption(json: &[u8]) -> Result<(Vec<u8>, Areas), Error> {
    let bad = || Error::new(&code::VOLUME_NO_REPAIR, "its metadata");
    let mut json: Value = serde_json::from_slice(json).map_err(|_| bad())?;
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

/// Returns the texts in the list `list` of an object; empty when there is no such list.
fn names(of: &Value, list: &str) -> Vec<String> {
    let list = of.get(list).and_then(Value::as_array);
    let names = list.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// Removes from the list `list` of an object what is no member's name in `known`.
fn keep_known(of: &mut Value, list: &str, known: &Map<String, Value>) {
    if let Some(list) = of.get_mut(list).and_then(Value::as_array_mut) {
        list.retain(|name| name.as_str().is_some_and(|name| known.contains_key(name)));
    }
}
