//! Layout of a container: a header of 64 bytes, then the file's bytes in authenticated chunks.
//!
//! Each chunk holds 4096 bytes except the last, which holds fewer, and may hold none: a file that
//! was cut after a whole chunk has no last chunk. An empty file has no header. Version 2 binds each
//! chunk to the name of the file as well. Specified in docs/spec/postgres.md. Must not: seal
//! anything, or know which name a path has.

use crate::FORMAT_VERSION;
use crate::aad::{AssociatedData, Role, aad_layout};
use crate::header::Cipher;
use crate::layout::{array, layout, put, u16_at, zero_at};

/// Length of a container's header, in bytes.
pub const CONTAINER_HEADER: usize = container_layout::SIZE;
/// Bytes of the file in a chunk that is not the last.
pub const CONTAINER_CHUNK: usize = 4096;
/// Bytes that sealing adds to a chunk: the nonce before it and the tag after it.
pub const CONTAINER_OVERHEAD: usize = 28;
/// Length of a chunk that is not the last, as it stands in the file.
pub const CONTAINER_SEALED: usize = 4124;
/// `VERSION` of a container that is not bound to its name.
pub const CONTAINER_UNBOUND: u16 = FORMAT_VERSION;
/// `VERSION` of a container that is bound to its name.
pub const CONTAINER_BOUND: u16 = 2;
/// Length of the digest of a container's name, in bytes: the beginning of a SHA-256 digest.
pub const CONTAINER_NAME: usize = container_aad_layout::NAME.len;
/// First bytes of a container.
pub const CONTAINER_MAGIC: [u8; 32] = *b"\x89STRONGROOM PG CONTAINER\r\n\x1a\n\0\0\0\0";

const HEADER: u64 = CONTAINER_HEADER as u64;
const CHUNK: u64 = CONTAINER_CHUNK as u64;
const OVERHEAD: u64 = CONTAINER_OVERHEAD as u64;
const SEALED: u64 = CONTAINER_SEALED as u64;
const _: () = assert!(CHUNK + OVERHEAD == SEALED, "a sealed chunk");

layout! {
    /// Layout of a container's header.
    container_layout, 64, {
        MAGIC @ 0, 32;
        VERSION @ 32, 2;
        RESERVED @ 34, 14;
        FILE_ID @ 48, 16;
    }
}

layout! {
    /// Layout of the associated data of a container that is bound to its name.
    container_aad_layout, 64, {
        PLACE @ 0, 48;
        NAME @ 48, 16;
    }
}

/// The header of a container, authenticated by each chunk's associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerHeader {
    /// Drawn at random when the file is made and each time it is emptied. An attacker who writes to
    /// the disk can choose it, so the name is not combined with it but has a field of its own.
    pub file_id: [u8; 16],
    /// Whether the chunks are bound to the file's name.
    pub bound: bool,
}

/// The associated data of a chunk.
#[derive(Clone, Copy, Debug)]
pub enum ChunkAad {
    /// Of a container that is not bound to its name.
    Unbound([u8; aad_layout::SIZE]),
    /// Of a container that is bound to its name.
    Bound([u8; container_aad_layout::SIZE]),
}

impl ChunkAad {
    /// The bytes of the associated data.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Unbound(bytes) => bytes,
            Self::Bound(bytes) => bytes,
        }
    }
}

impl ContainerHeader {
    /// Reads a header from the first 64 bytes. `None` unless it has the magic, a known version, and
    /// zeros in the reserved bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let magic: [u8; 32] = array(bytes, container_layout::MAGIC)?;
        let bound = match u16_at(bytes, container_layout::VERSION)? {
            CONTAINER_UNBOUND => false,
            CONTAINER_BOUND => true,
            _ => return None,
        };
        let sound = magic == CONTAINER_MAGIC && zero_at(bytes, container_layout::RESERVED);
        let file_id = array(bytes, container_layout::FILE_ID)?;
        sound.then_some(Self { file_id, bound })
    }

    /// Returns the header's bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CONTAINER_HEADER] {
        let mut out = [0; CONTAINER_HEADER];
        let version = if self.bound {
            CONTAINER_BOUND
        } else {
            CONTAINER_UNBOUND
        };
        let fields = [
            put(&mut out, container_layout::MAGIC, &CONTAINER_MAGIC),
            put(&mut out, container_layout::VERSION, &version.to_le_bytes()),
            put(&mut out, container_layout::FILE_ID, &self.file_id),
        ];
        // Lengths are constants of the table above; a mismatch is a programming error found by any
        // test.
        assert!(
            fields.iter().all(Option::is_some),
            "container header layout"
        );
        out
    }

    /// The associated data of chunk `index` of the file with this name; the name is left out of a
    /// container that is not bound to it. Which chunk is the last follows from its length, which
    /// the tag covers.
    #[must_use]
    pub fn chunk(&self, index: u64, name: &[u8; CONTAINER_NAME]) -> ChunkAad {
        let unit = AssociatedData {
            role: match self.bound {
                true => Role::PgNamedContainer,
                false => Role::PgContainer,
            },
            cipher: Cipher::Aes256Gcm.number(),
            unit_size: 4096,
            epoch: 0,
            object_id: self.file_id,
        };
        let unit = unit.at(index);
        if !self.bound {
            return ChunkAad::Unbound(unit);
        }
        let mut bytes = [0; container_aad_layout::SIZE];
        let fields = [
            put(&mut bytes, container_aad_layout::PLACE, &unit),
            put(&mut bytes, container_aad_layout::NAME, name),
        ];
        assert!(fields.iter().all(Option::is_some), "associated data layout");
        ChunkAad::Bound(bytes)
    }
}

/// The physical offset in bytes at which chunk `index` begins. `None` when no file is that long.
#[must_use]
pub fn chunk_offset(index: u64) -> Option<u64> {
    index.checked_mul(SEALED)?.checked_add(HEADER)
}

/// The length in bytes of a container that holds `logical` bytes; 0 for none. `None` when no file
/// is that long.
#[must_use]
pub fn container_physical(logical: u64) -> Option<u64> {
    if logical == 0 {
        return Some(0);
    }
    let whole = logical.checked_div(CHUNK)?;
    let rest = logical.checked_rem(CHUNK)?;
    chunk_offset(whole)?
        .checked_add(rest)?
        .checked_add(OVERHEAD)
}

/// How many bytes a container of `physical` bytes holds. `None` when no container has that length:
/// it was cut short.
#[must_use]
pub fn container_logical(physical: u64) -> Option<u64> {
    let logical = container_capacity(physical);
    (container_physical(logical) == Some(physical)).then_some(logical)
}

/// The most bytes that a container of at most `physical` bytes can hold: the size that is reported
/// for a container that was cut short.
#[must_use]
pub fn container_capacity(physical: u64) -> u64 {
    let body = physical.saturating_sub(HEADER);
    let whole = body.checked_div(SEALED).unwrap_or(0);
    let rest = body.checked_rem(SEALED).unwrap_or(0);
    let held = whole.saturating_mul(CHUNK);
    match rest.checked_sub(OVERHEAD) {
        Some(last) => held.saturating_add(last),
        // No room for the last chunk's nonce and tag: the chunk before it must be the last, one
        // byte short of whole.
        None => held.saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_canonical_or_refused() {
        for bound in [false, true] {
            let header = ContainerHeader {
                file_id: [7; 16],
                bound,
            };
            let mut bytes = header.to_bytes();
            assert_eq!(ContainerHeader::parse(&bytes), Some(header));
            assert_eq!(ContainerHeader::parse(&bytes[..63]), None);
            // All before FILE_ID, which may be anything. Two bits of VERSION make the other
            // version.
            for bit in 0..48 * 8 {
                let (at, mask) = (bit / 8, 1 << (bit % 8));
                bytes[at] ^= mask;
                assert_eq!(ContainerHeader::parse(&bytes), None, "bit {bit}");
                bytes[at] ^= mask;
            }
        }
    }

    #[test]
    fn only_a_bound_container_has_its_name_in_the_associated_data() {
        let of = |bound, name| {
            let header = ContainerHeader {
                file_id: [7; 16],
                bound,
            };
            header.chunk(3, &[name; CONTAINER_NAME])
        };
        assert_eq!(of(false, 1).as_bytes(), of(false, 2).as_bytes());
        assert_eq!(of(false, 1).as_bytes().len(), 48);
        assert_eq!(&of(true, 1).as_bytes()[48..], &[1; 16]);
        assert_eq!(&of(true, 1).as_bytes()[..4], b"PGCN");
        assert_eq!(&of(false, 1).as_bytes()[..4], b"PGCT");
    }

    #[test]
    fn sizes_are_each_others_inverse() {
        let mut possible = 0;
        for physical in 0..20_000 {
            let fits = container_capacity(physical);
            let needs = container_physical(fits).unwrap();
            assert!(needs <= physical, "{physical}: {fits} bytes need {needs}");
            assert!(container_physical(fits + 1).unwrap() > physical);
            if let Some(logical) = container_logical(physical) {
                assert_eq!(container_physical(logical), Some(physical));
                possible += 1;
            }
        }
        assert_eq!(possible, container_capacity(19_999) + 1);
    }

    #[test]
    fn a_file_cut_after_a_whole_chunk_is_found() {
        assert_eq!(container_logical(64), None);
        assert_eq!(
            container_logical(64 + 28),
            None,
            "an empty file has no header"
        );
        assert_eq!(container_logical(64 + 4124), None);
        assert_eq!(container_logical(64 + 4124 + 28), Some(4096));
        assert_eq!(container_logical(64 + 29), Some(1));
    }
}
