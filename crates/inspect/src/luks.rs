//! The header of a LUKS volume: what opens the volume, how it is encrypted, and which change is
//! under way.
//!
//! Must not: trust a token, or show text of the header that a terminal would obey.

use std::fs::File;
use std::path::Path;

use strongroom_format::hex::hex;
use strongroom_format::text::printable;
use strongroom_keyring::Error;
use strongroom_luks2::{
    CopyState, Found, Kdf, Keyslot, KeyslotKind, LuksError, Metadata, SegmentKind, Token, TpmToken,
    Which, online_version, read,
};

use crate::report::{FileKind, LuksReport, LuksSegmentReport, LuksSlotReport, LuksTokenReport};

/// Reads the LUKS header at `path` and returns kind, header and problem (`None` when the header has
/// none). LUKS1 and a file without such a header have no header and no problem; a file or header
/// that cannot be read has the kind `luks2-damaged`.
pub(crate) fn describe(path: &Path) -> (FileKind, Option<LuksReport>, Option<Error>) {
    let found = match File::open(path) {
        Ok(file) => read(&file),
        Err(error) => {
            return (
                FileKind::Luks2Damaged,
                None,
                Some(Error::on_path(path, error)),
            );
        }
    };
    let failure = |error: LuksError| {
        Error::new(error.code(), error.detail()).with_prefix(&format!("{}: ", path.display()))
    };
    match found {
        Ok(found) => (FileKind::Luks2, Some(report(&found)), None),
        Err(LuksError::Luks1) => (FileKind::Luks1, None, None),
        Err(LuksError::NotLuks) => (FileKind::Unknown, None, None),
        Err(error) => (FileKind::Luks2Damaged, None, Some(failure(error))),
    }
}

/// Returns the fields of a LUKS2 header as they are reported.
fn report(found: &Found) -> LuksReport {
    let (binary, metadata) = (&found.header.binary, &found.header.metadata);
    let requirements = &metadata.config.requirements;
    LuksReport {
        uuid: binary.uuid.clone(),
        label: nonempty(&binary.label),
        subsystem: nonempty(&binary.subsystem),
        sequence: binary.sequence,
        primary: copy_state_text(&found.primary),
        secondary: copy_state_text(&found.secondary),
        used: match found.from {
            Which::Primary => "primary",
            Which::Secondary => "secondary",
        },
        warning: found.warning(),
        segments: metadata
            .regular_segments()
            .map(|(_, segment)| LuksSegmentReport {
                offset_bytes: segment.offset,
                size_bytes: segment.size,
                cipher: match &segment.kind {
                    SegmentKind::Crypt { encryption, .. } => printable(encryption),
                    SegmentKind::Linear => "none".to_owned(),
                    SegmentKind::Unknown(name) => printable(name),
                },
                sector_size: segment.sector_size(),
                integrity: segment.integrity().map(printable),
            })
            .collect(),
        slots: metadata
            .keyslots
            .iter()
            .map(|(&number, slot)| slot_report(metadata, number, slot))
            .collect(),
        tokens: metadata
            .tokens
            .iter()
            .map(|(&number, token)| token_report(number, token))
            .collect(),
        flags: metadata
            .config
            .flags
            .iter()
            .map(|flag| printable(flag))
            .collect(),
        requirements: requirements.iter().map(|name| printable(name)).collect(),
        reencryption: requirements
            .iter()
            .any(|name| online_version(name).is_some() || name == "offline-reencrypt"),
    }
}

/// Returns a key slot as it is reported: what opens it, its key derivation, and whether it opens
/// data.
fn slot_report(metadata: &Metadata, number: u32, slot: &Keyslot) -> LuksSlotReport {
    let (kind, kdf) = match &slot.kind {
        KeyslotKind::Luks2(luks2) => (opener(metadata, number), Some(kdf_text(&luks2.kdf))),
        KeyslotKind::Reencrypt(rules) => (
            format!("re-encryption: {}, {}", rules.mode, rules.resilience),
            None,
        ),
        KeyslotKind::Unknown(name) => (format!("not known: {}", printable(name)), None),
    };
    let digest = metadata.digest_of_keyslot(number);
    let bound = digest.is_some_and(|(_, digest)| !digest.segments.is_empty());
    LuksSlotReport {
        slot: number,
        opener: kind,
        key_bits: u64::from(slot.key_size) * 8,
        kdf,
        priority: slot.priority,
        opens_data: bound,
    }
}

/// Returns what opens the slot: of the tokens that name it, the kind of the one with the lowest
/// number, with control characters escaped; "passphrase" if no token names it.
fn opener(metadata: &Metadata, number: u32) -> String {
    let mut tokens = metadata.tokens.values();
    let token = tokens.find(|token| token.keyslots.contains(&number));
    token.map_or_else(|| "passphrase".to_owned(), |token| printable(&token.kind))
}

/// Returns the key derivation function and its costs as text.
fn kdf_text(kdf: &Kdf) -> String {
    match kdf {
        Kdf::Pbkdf2 { hash, iterations } => {
            format!("pbkdf2-{}, {iterations} iterations", printable(hash))
        }
        Kdf::Argon2 {
            time,
            memory_kib,
            cpus,
            ..
        } => {
            let name = kdf.name();
            format!("{name}, {memory_kib} KiB, {time} passes, {cpus} lanes")
        }
        Kdf::Unknown(name) => format!("not known: {}", printable(name)),
    }
}

/// Returns a token as it is reported. Key and servers are those of Strongroom's token, registers
/// those of a TPM's.
fn token_report(number: u32, token: &Token) -> LuksTokenReport {
    let ours = token.strongroom();
    LuksTokenReport {
        token: number,
        kind: printable(&token.kind),
        slots: token.keyslots.clone(),
        object_id: ours.map(|ours| hex(&ours.object_id)),
        key_id: ours.map(|ours| ours.key_id.clone()),
        key_version: ours.map(|ours| ours.key_version),
        provider: ours.map(|ours| ours.provider.name().to_owned()),
        servers: ours.map(|ours| ours.servers.clone()),
        pcrs: token.tpm().map(TpmToken::registers),
    }
}

/// Returns the state of one copy of the header as text.
fn copy_state_text(copy: &CopyState) -> String {
    match copy {
        CopyState::Good(sequence) => format!("whole, sequence id {sequence}"),
        CopyState::Damaged(field) => format!("damaged: {}", printable(field)),
        CopyState::Absent => "absent".to_owned(),
    }
}

/// Returns the text with control characters escaped; `None` if it is empty.
fn nonempty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| printable(text))
}
