//! As much of a LUKS2 header as the disk needs to know when it is written: magic and sequence
//! number of the binary header.
//!
//! Must not: know anything else of the format; crates/volumes/luks2 does.

/// The sequence number of a primary binary header, when these are the first bytes of one.
#[must_use]
pub fn sequence(bytes: &[u8]) -> Option<u64> {
    let magic = bytes.get(..6)?;
    let number = bytes.get(16..24)?;
    let version = bytes.get(6..8)?;
    (magic == b"LUKS\xba\xbe" && version == [0, 2])
        .then(|| number.try_into().map(u64::from_be_bytes).ok())?
}
