//! Checks the members of the JSON area against each other: every reference leads to something that
//! exists, no two areas overlap, a re-encryption is there with all its parts or not at all.
//!
//! Must not: look at the device. The bounds of the data are checked when a volume is opened,
//! because a header may be apart from its data.

use std::collections::BTreeSet;

use crate::binary::BINARY_LEN;
use crate::error::LuksError;
use crate::metadata::{Keyslot, KeyslotKind, Metadata, Segment, SegmentKind};
use crate::reencrypt::online_version;

/// Most bytes of key slot areas (cryptsetup's own bound).
const KEYSLOTS_SIZE_MAX: u64 = 128 << 20;

/// Checks all members against each other. `header_size` is the size of one copy in bytes.
///
/// # Errors
/// [`LuksError::Damaged`] with the member that breaks a rule, [`LuksError::Forged`] for a
/// re-encryption that is only half there.
pub(crate) fn check(metadata: &Metadata, header_size: u64) -> Result<(), LuksError> {
    config(metadata, header_size)?;
    areas(metadata, header_size)?;
    references(metadata)?;
    segments(metadata, header_size)?;
    reencryption(metadata)
}

/// Checks the sizes in `config`: that of the JSON area must be the header's, and that of the key
/// slot areas a multiple of 4096 bytes, at most 128 MiB. [`LuksError::Damaged`] otherwise.
fn config(metadata: &Metadata, header_size: u64) -> Result<(), LuksError> {
    let config = &metadata.config;
    if config.json_size != header_size.saturating_sub(BINARY_LEN as u64) {
        return Err(LuksError::damaged("config.json_size"));
    }
    if !config.keyslots_size.is_multiple_of(4096) || config.keyslots_size > KEYSLOTS_SIZE_MAX {
        return Err(LuksError::damaged("config.keyslots_size"));
    }
    Ok(())
}

/// Checks that the areas of the key slots lie within their part of the device, are large enough,
/// and do not overlap. [`LuksError::Damaged`] otherwise.
fn areas(metadata: &Metadata, header_size: u64) -> Result<(), LuksError> {
    let first = header_size.saturating_mul(2);
    let end = first.saturating_add(metadata.config.keyslots_size);
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for (number, slot) in &metadata.keyslots {
        let offset = || LuksError::damaged(format!("keyslots.{number}.area.offset"));
        let size = || LuksError::damaged(format!("keyslots.{number}.area.size"));
        let stop = slot.offset.checked_add(slot.size).ok_or_else(size)?;
        if slot.offset < first || !slot.offset.is_multiple_of(4096) {
            return Err(offset());
        }
        if slot.size == 0 || stop > end || slot.size < needed(slot) {
            return Err(size());
        }
        if taken
            .iter()
            .any(|&(from, to)| slot.offset < to && from < stop)
        {
            return Err(offset());
        }
        taken.push((slot.offset, stop));
    }
    Ok(())
}

/// Returns how many bytes a key slot's stripes fill, in whole sectors; 0 for a slot without a key.
fn needed(slot: &Keyslot) -> u64 {
    match &slot.kind {
        KeyslotKind::Luks2(luks2) => {
            let bytes = u64::from(slot.key_size) * u64::from(luks2.stripes);
            bytes.next_multiple_of(512)
        }
        _ => 0,
    }
}

/// Checks that digests and tokens name key slots and segments that exist, that none belongs to two
/// digests, and that every encrypted segment has a digest. [`LuksError::Damaged`] otherwise.
fn references(metadata: &Metadata) -> Result<(), LuksError> {
    let (mut slots, mut segments) = (BTreeSet::new(), BTreeSet::new());
    for (number, digest) in &metadata.digests {
        for slot in &digest.keyslots {
            if !metadata.keyslots.contains_key(slot) || !slots.insert(*slot) {
                return Err(LuksError::damaged(format!("digests.{number}.keyslots")));
            }
        }
        for segment in &digest.segments {
            let encrypted = metadata
                .segments
                .get(segment)
                .is_some_and(|segment| !matches!(segment.kind, SegmentKind::Linear));
            if !encrypted || !segments.insert(*segment) {
                return Err(LuksError::damaged(format!("digests.{number}.segments")));
            }
        }
    }
    for (number, token) in &metadata.tokens {
        if token
            .keyslots
            .iter()
            .any(|slot| !metadata.keyslots.contains_key(slot))
        {
            return Err(LuksError::damaged(format!("tokens.{number}.keyslots")));
        }
    }
    for (number, segment) in &metadata.segments {
        let encrypted = matches!(segment.kind, SegmentKind::Crypt { .. });
        if encrypted && !segments.contains(number) {
            let field = format!("segments.{number} (no digest)");
            return Err(LuksError::damaged(field));
        }
    }
    Ok(())
}

/// Checks that there is a regular segment, that the numbers have no gap, that regular segments come
/// first and do not overlap, and that no data lie within the headers. [`LuksError::Damaged`]
/// otherwise.
fn segments(metadata: &Metadata, header_size: u64) -> Result<(), LuksError> {
    if metadata.segments.is_empty() {
        return Err(LuksError::damaged("segments"));
    }
    let areas_end = header_size
        .saturating_mul(2)
        .saturating_add(metadata.config.keyslots_size);
    let mut backups = false;
    let mut taken: Vec<(u64, u64)> = Vec::new();
    let count = metadata.segments.len();
    for ((number, segment), expected) in metadata.segments.iter().zip(0_u32..) {
        if *number != expected {
            return Err(LuksError::damaged(format!("segments.{expected}")));
        }
        // Offset 0 means that the data are apart from the header.
        if segment.offset != 0 && segment.offset < areas_end {
            return Err(LuksError::damaged(format!("segments.{number}.offset")));
        }
        if segment.is_backup() {
            backups = true;
            continue;
        }
        if backups {
            return Err(LuksError::damaged(format!("segments.{number}.flags")));
        }
        let last = regular_after(metadata, *number) == 0;
        let end = match segment.size {
            Some(size) => segment.offset.saturating_add(size),
            None if last => u64::MAX,
            None => return Err(LuksError::damaged(format!("segments.{number}.size"))),
        };
        if taken
            .iter()
            .any(|&(from, to)| segment.offset < to && from < end)
        {
            return Err(LuksError::damaged(format!("segments.{number}.offset")));
        }
        taken.push((segment.offset, end));
    }
    if taken.is_empty() || count > 64 {
        return Err(LuksError::damaged("segments"));
    }
    Ok(())
}

/// Returns how many regular segments have a higher number.
fn regular_after(metadata: &Metadata, number: u32) -> usize {
    let regular = metadata.regular_segments();
    regular.filter(|(other, _)| *other > number).count()
}

/// Checks that flags, key slot, requirement and digest of a re-encryption are all there, or none of
/// them: cryptsetup writes all of them in one header.
///
/// # Errors
/// [`LuksError::Forged`] otherwise, and when a segment is stored neither as before nor as after.
fn reencryption(metadata: &Metadata) -> Result<(), LuksError> {
    let forged = |text: &str| Err(LuksError::Forged(text.to_owned()));
    let mut slots = metadata.keyslots.iter();
    let mut rules = slots
        .by_ref()
        .filter(|(_, slot)| matches!(slot.kind, KeyslotKind::Reencrypt(_)));
    let (slot, more) = (rules.next(), rules.next().is_some());
    let marked = metadata
        .segments
        .values()
        .any(|segment| !segment.flags.is_empty());
    let required = metadata.config.requirements.iter();
    let online: Vec<u32> = required.filter_map(|name| online_version(name)).collect();
    if online.len() > 1 || more {
        return forged("more than one re-encryption");
    }
    let Some(&version) = online.first() else {
        if slot.is_some() || marked {
            return forged("segments or key slots of a re-encryption, but no requirement");
        }
        return Ok(());
    };
    let Some((&number, _)) = slot else {
        return forged("a re-encryption is required, but there are no rules for it");
    };
    let one = |flag: &str| {
        metadata
            .segments
            .values()
            .filter(|segment| segment.has(flag))
            .count()
            == 1
    };
    if !one("backup-previous") || !one("backup-final") {
        return forged("what was, or what will be, is missing");
    }
    if version >= 2 && metadata.digest_of_keyslot(number).is_none() {
        return forged("the rules carry no proof");
    }
    let (previous, last) = (
        metadata.segment_flagged("backup-previous"),
        metadata.segment_flagged("backup-final"),
    );
    for (_, segment) in metadata.regular_segments() {
        let alike = |other: Option<(u32, &Segment)>| {
            other.is_some_and(|(_, other)| stored_alike(segment, other))
        };
        let fine = match segment.has("in-reencryption") {
            true => alike(last),
            false => alike(last) || alike(previous),
        };
        if !fine {
            return forged("a segment is stored neither as before nor as after");
        }
    }
    Ok(())
}

/// Returns whether two segments have the same type, cipher and sector size, at whatever offset.
fn stored_alike(one: &Segment, other: &Segment) -> bool {
    match (&one.kind, &other.kind) {
        (
            SegmentKind::Crypt {
                encryption: one,
                sector_size,
                ..
            },
            SegmentKind::Crypt {
                encryption: other,
                sector_size: size,
                ..
            },
        ) => one == other && sector_size == size,
        (one, other) => one == other,
    }
}
