//! The slots of a sealed rollback journal, each of which holds one chunk of SQLite's journal.
//! docs/spec/sqlite.md, "Rollback journal".
//!
//! Must not: know what a chunk means, or do I/O.

use strongroom_crypto::nonce12;
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::journal::{
    JOURNAL_CHUNK, journal_shadow_layout as shadow_at, journal_slot_layout as slot,
};
use strongroom_format::layout::{array, put, u16_at, u64_at, zero_at};

use crate::report::{report, report_error};
use crate::seal::{UnitKey, crypto_error};
use crate::sqlite_code::SqliteResult;

/// Appends the slot of one chunk: its length, which is authenticated but in clear, and its data,
/// padded with zeros.
pub(crate) fn seal_slot(
    key: &UnitKey,
    index: u64,
    chunk: &[u8],
    out: &mut Vec<u8>,
) -> SqliteResult<()> {
    let mut bytes = [0; slot::SIZE];
    let nonce = nonce12().map_err(|error| report_error(&crypto_error(&error)))?;
    let length = u16::try_from(chunk.len()).map_err(|_| report(&code::BUG, "journal chunk"))?;
    let start = slot::DATA.offset;
    bytes[start..start + chunk.len()].copy_from_slice(chunk);
    let data = &mut bytes[start..start + slot::DATA.len];
    let tag = key
        .seal_raw(&nonce, Role::Journal, index, u64::from(length), data)
        .map_err(|error| report_error(&error))?;
    let done = [
        put(&mut bytes, slot::NONCE, &nonce),
        put(&mut bytes, slot::LENGTH, &length.to_le_bytes()),
        put(&mut bytes, slot::TAG, &tag),
    ];
    assert!(done.iter().all(Option::is_some), "journal slot layout");
    out.extend_from_slice(&bytes);
    Ok(())
}

/// Opens a slot. Returns the chunk without its padding. `None`: not authentic.
pub(crate) fn open_slot(key: &UnitKey, index: u64, bytes: &mut [u8]) -> Option<Vec<u8>> {
    let nonce = array(bytes, slot::NONCE)?;
    let tag = array(bytes, slot::TAG)?;
    let length = u16_at(bytes, slot::LENGTH)?;
    if !zero_at(bytes, slot::RESERVED) || usize::from(length) > JOURNAL_CHUNK {
        return None;
    }
    let data = bytes.get_mut(slot::DATA.offset..slot::DATA.offset + slot::DATA.len)?;
    key.open_raw(&nonce, Role::Journal, index, u64::from(length), data, &tag)?;
    Some(data[..usize::from(length)].to_vec())
}

/// The shadow of a slot, which the free pair of marks holds while the slot of chunk `index` is
/// written again.
pub(crate) fn shadow_of(index: u64, slot: &[u8]) -> [u8; shadow_at::SIZE] {
    let mut out = [0; shadow_at::SIZE];
    let done = [
        put(&mut out, shadow_at::INDEX, &index.to_le_bytes()),
        put(&mut out, shadow_at::SLOT, slot),
    ];
    assert!(done.iter().all(Option::is_some), "journal shadow layout");
    out
}

/// Opens a shadow. Returns the chunk. `None`: the shadow is not of chunk `index`, or not authentic.
pub(crate) fn open_shadow(key: &UnitKey, index: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    if u64_at(bytes, shadow_at::INDEX)? != index {
        return None;
    }
    let mut slot: [u8; slot::SIZE] = array(bytes, shadow_at::SLOT)?;
    open_slot(key, index, &mut slot)
}

/// Copies the part of `from`, at logical offset `from_at`, that overlaps `out` at logical offset
/// `at`.
pub(crate) fn copy_overlap(out: &mut [u8], at: u64, from: &[u8], from_at: u64) {
    let start = at.max(from_at);
    let end = (at + out.len() as u64).min(from_at + from.len() as u64);
    if let (Ok(to), Ok(start), Some(len)) = (
        usize::try_from(start - at),
        usize::try_from(start - from_at),
        end.checked_sub(start),
    ) && let Ok(len) = usize::try_from(len)
    {
        out[to..to + len].copy_from_slice(&from[start..start + len]);
    }
}
