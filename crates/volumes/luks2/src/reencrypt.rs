//! Verifies a re-encryption's metadata by its digest, which only someone with the volume keys can
//! compute.
//!
//! Without this check, an attacker with write access to the device can pretend that a decryption is
//! under way, and the owner's next `open` writes data out in clear (CVE-2021-4122). The
//! serialisation is cryptsetup's: docs/spec/luks2.md.
//!
//! Must not: continue a re-encryption.
#![expect(clippy::big_endian_bytes, reason = "LUKS is big-endian")]

use std::collections::BTreeMap;

use strongroom_crypto::{LuksHash, SecretBytes, pbkdf2_matches};

use crate::error::LuksError;
use crate::metadata::{KeyslotKind, Metadata, Segment, SegmentKind};

/// Returns the version in the name of the requirement of an online re-encryption: 1, which has no
/// digest, or 2 to 9, which have one. `None` for any other requirement.
#[must_use]
pub fn online_version(requirement: &str) -> Option<u32> {
    match requirement.strip_prefix("online-reencrypt")? {
        "" => Some(1),
        rest => match rest.strip_prefix("-v")?.as_bytes() {
            [digit @ b'2'..=b'9'] => Some(u32::from(digit - b'0')),
            _ => None,
        },
    }
}

/// Returns the numbers of the digests of the old and the new volume key of a re-encryption, of
/// those that encrypt a segment. [`verify`] needs both keys. Empty when no re-encryption is
/// recorded.
#[must_use]
pub fn keys_needed(metadata: &Metadata) -> Vec<u32> {
    let mut needed: Vec<u32> = Vec::new();
    for flag in ["backup-previous", "backup-final"] {
        let segment = metadata.segment_flagged(flag);
        let digest = segment.and_then(|(number, _)| metadata.digest_of_segment(number));
        if let Some((digest, _)) = digest
            && !needed.contains(&digest)
        {
            needed.push(digest);
        }
    }
    needed
}

/// Verifies the digest over the re-encryption's metadata. `keys` are the volume keys, each under
/// the number of its own digest. Succeeds when the header requires no online re-encryption.
///
/// # Errors
/// [`LuksError::Forged`] when the digest does not match, or a part of the metadata is missing;
/// [`LuksError::Reencrypting`] when its version has no digest, or a key that is needed is not in
/// `keys`; [`LuksError::Unsupported`] for an unknown hash or type of segment.
pub fn verify(metadata: &Metadata, keys: &BTreeMap<u32, SecretBytes>) -> Result<(), LuksError> {
    let required = metadata.config.requirements.iter();
    let Some(version) = required.filter_map(|name| online_version(name)).next() else {
        return Ok(());
    };
    if version < 2 {
        return Err(LuksError::Reencrypting(
            "its metadata carries no proof and cannot be verified",
        ));
    }
    let found = metadata
        .keyslots
        .iter()
        .find_map(|(&number, slot)| match &slot.kind {
            KeyslotKind::Reencrypt(_) => metadata.digest_of_keyslot(number),
            _ => None,
        });
    let Some((_, digest)) = found else {
        return Err(LuksError::Forged("the rules carry no proof".to_owned()));
    };
    let hash = LuksHash::named(&digest.hash)
        .ok_or_else(|| LuksError::Unsupported(format!("hash {} of a digest", digest.hash)))?;
    let proved = serialised(metadata, version, keys)?;
    if pbkdf2_matches(
        hash,
        &proved,
        &digest.salt,
        digest.iterations,
        &digest.digest,
    ) {
        Ok(())
    } else {
        let text = "its digest does not match the metadata";
        Err(LuksError::Forged(text.to_owned()))
    }
}

/// Returns the bytes that the digest is computed over: `v` and the version as a digit, the volume
/// keys, the fields of the re-encryption's key slot, and the saved segments.
///
/// # Errors
/// [`LuksError::Forged`] when a part of the metadata is missing; [`LuksError::Reencrypting`] when a
/// key that is needed is not in `keys`; [`LuksError::Unsupported`] for an unknown type of segment.
fn serialised(
    metadata: &Metadata,
    version: u32,
    keys: &BTreeMap<u32, SecretBytes>,
) -> Result<SecretBytes, LuksError> {
    let needed = keys_needed(metadata);
    if needed.is_empty() {
        return Err(LuksError::Forged(
            "neither end of it is encrypted".to_owned(),
        ));
    }
    let keys: Option<Vec<&SecretBytes>> = needed.iter().map(|digest| keys.get(digest)).collect();
    let Some(keys) = keys else {
        let text = "the key that was given does not open both sides of it, so its metadata could not be verified";
        return Err(LuksError::Reencrypting(text));
    };
    let mut public = rules(metadata)?;
    for flag in ["backup-previous", "backup-final", "backup-moved-segment"] {
        if let Some((_, segment)) = metadata.segment_flagged(flag) {
            append_segment(&mut public, segment)?;
        }
    }
    let head = format!("v{version}").into_bytes();
    let mut parts: Vec<&[u8]> = vec![&head];
    parts.extend(keys.iter().map(|key| key.as_slice()));
    parts.push(&public);
    let len = parts.iter().map(|part| part.len()).sum();
    let mut whole = SecretBytes::with_capacity(len)?;
    let mut at = 0;
    for part in parts {
        if let Some(room) = whole.as_mut_slice().get_mut(at..at + part.len()) {
            room.copy_from_slice(part);
        }
        at += part.len();
    }
    Ok(whole)
}

/// Serialises the fields of the re-encryption's key slot as cryptsetup does: mode, direction,
/// resilience, area, and what the resilience needs.
///
/// # Errors
/// [`LuksError::Forged`] when there is no such slot, or a name is empty or over 64 bytes.
fn rules(metadata: &Metadata) -> Result<Vec<u8>, LuksError> {
    let found = metadata
        .keyslots
        .values()
        .find_map(|slot| match &slot.kind {
            KeyslotKind::Reencrypt(rules) => Some((slot, rules)),
            _ => None,
        });
    let Some((slot, rules)) = found else {
        return Err(LuksError::Forged("there are no rules".to_owned()));
    };
    let mut out = Vec::new();
    append_text(&mut out, &rules.mode)?;
    append_text(&mut out, &rules.direction)?;
    append_text(&mut out, &rules.resilience)?;
    out.extend(slot.offset.to_be_bytes());
    out.extend(slot.size.to_be_bytes());
    if let Some(hash) = &rules.hash {
        append_text(&mut out, hash)?;
    }
    if let Some(size) = rules.sector_size {
        out.extend(size.to_be_bytes());
    }
    if let Some(size) = rules.shift_size {
        out.extend(size.to_be_bytes());
    }
    Ok(out)
}

/// Appends a segment's fields to `out` as cryptsetup serialises them.
///
/// # Errors
/// [`LuksError::Unsupported`] for an unknown type; [`LuksError::Forged`] when a name is empty or
/// over 64 bytes.
fn append_segment(out: &mut Vec<u8>, segment: &Segment) -> Result<(), LuksError> {
    let kind = match &segment.kind {
        SegmentKind::Crypt { .. } => "crypt",
        SegmentKind::Linear => "linear",
        SegmentKind::Unknown(name) => {
            return Err(LuksError::Unsupported(format!("segment type {name}")));
        }
    };
    append_text(out, kind)?;
    out.extend(segment.offset.to_be_bytes());
    match segment.size {
        Some(size) => out.extend(size.to_be_bytes()),
        None => append_text(out, "dynamic")?,
    }
    if let SegmentKind::Crypt {
        iv_tweak,
        encryption,
        sector_size,
        ..
    } = &segment.kind
    {
        out.extend(iv_tweak.to_be_bytes());
        append_text(out, encryption)?;
        out.extend(sector_size.to_be_bytes());
    }
    Ok(())
}

/// Appends a text without its length, as cryptsetup does.
///
/// # Errors
/// [`LuksError::Forged`] when it is empty or over 64 bytes.
fn append_text(out: &mut Vec<u8>, text: &str) -> Result<(), LuksError> {
    if text.is_empty() || text.len() > 64 {
        return Err(LuksError::Forged("a name is empty or too long".to_owned()));
    }
    out.extend(text.as_bytes());
    Ok(())
}
