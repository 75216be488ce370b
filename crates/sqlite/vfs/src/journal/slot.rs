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

/// Seals chunk `index` as a slot and appends the slot to `out`: the chunk's length, which is
/// authenticated but in clear, and its data, padded with zeros. SR-5001 without random numbers,
/// SR-9001 if the chunk's length does not fit into 16 bits. Panics if the chunk is longer than a
/// slot.
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

/// Opens the slot of chunk `index` and returns the chunk without its padding. `None` if the slot is
/// not authentic or not canonical. `bytes` holds plaintext after a success.
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

/// Makes the shadow of a sealed slot, which the free pair of marks holds while the slot of chunk
/// `index` is written again. Writes nothing.
pub(crate) fn shadow_of(index: u64, slot: &[u8]) -> [u8; shadow_at::SIZE] {
    let mut out = [0; shadow_at::SIZE];
    let done = [
        put(&mut out, shadow_at::INDEX, &index.to_le_bytes()),
        put(&mut out, shadow_at::SLOT, slot),
    ];
    assert!(done.iter().all(Option::is_some), "journal shadow layout");
    out
}

/// Opens a shadow and returns the chunk. `None` if the shadow is not of chunk `index`, or is not
/// authentic.
pub(crate) fn open_shadow(key: &UnitKey, index: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    if u64_at(bytes, shadow_at::INDEX)? != index {
        return None;
    }
    let mut slot: [u8; slot::SIZE] = array(bytes, shadow_at::SLOT)?;
    open_slot(key, index, &mut slot)
}

/// Copies into `out`, which begins at logical offset `at`, that part of `from` which lies within
/// it; `from` begins at logical offset `from_at`. The rest of `out` stays as it is.
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
