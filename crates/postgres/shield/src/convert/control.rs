//! Parses the fields of the control file that a conversion needs.
//!
//! PostgreSQL's `ControlFileData` (`src/include/catalog/pg_control.h`) on machines with 8-byte
//! alignment; the offsets below are equal in versions 15 to 18 except for the checksum's, which
//! moved in 18. The known value of `floatFormat` just before them shows that the layout is the
//! expected one.
//!
//! Must not: change a control file.

use strongroom_format::code;
use strongroom_keyring::Error;

/// The bytes of the file that PostgreSQL uses; only these are read.
pub(super) const USED: usize = 296;

/// Offsets, in bytes.
const VERSION: usize = 8;
const CATALOG_VERSION: usize = 12;
const STATE: usize = 16;
const FLOAT_FORMAT: usize = 208;
const BLOCK_SIZE: usize = 216;
const SEGMENT_BLOCKS: usize = 220;
const WAL_BLOCK_SIZE: usize = 224;
const DATA_CHECKSUM_VERSION: usize = 252;

/// `pg_control_version` of 15 to 17, and of 18, with the offset of the checksum.
const VERSIONS: [(u32, usize); 2] = [(1300, 288), (1800, 292)];
/// `FLOATFORMAT_VALUE`, 1234567.0.
const FLOAT_FORMAT_VALUE: u64 = 0x4132_D687_0000_0000;

/// The fields of a control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) catalog_version: u32,
    state: u32,
    block_size: u32,
    segment_blocks: u32,
    wal_block_size: u32,
    data_checksum_version: u32,
}

impl Control {
    /// Parses the used part of a control file. `None` when its checksum is wrong, or it is of
    /// another version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let version = u32_at(bytes, VERSION)?;
        let &(_, checksum_at) = VERSIONS.iter().find(|(known, _)| *known == version)?;
        let covered = bytes.get(..checksum_at)?;
        let float = bytes
            .get(FLOAT_FORMAT..)?
            .first_chunk()
            .map(|raw| u64::from_le_bytes(*raw));
        if u32_at(bytes, checksum_at)? != crc32c(covered) || float? != FLOAT_FORMAT_VALUE {
            return None;
        }
        Some(Self {
            catalog_version: u32_at(bytes, CATALOG_VERSION)?,
            state: u32_at(bytes, STATE)?,
            block_size: u32_at(bytes, BLOCK_SIZE)?,
            segment_blocks: u32_at(bytes, SEGMENT_BLOCKS)?,
            wal_block_size: u32_at(bytes, WAL_BLOCK_SIZE)?,
            data_checksum_version: u32_at(bytes, DATA_CHECKSUM_VERSION)?,
        })
    }

    /// Whether pages of relations have checksums.
    pub(super) const fn has_data_checksums(&self) -> bool {
        self.data_checksum_version != 0
    }

    /// Checks that the instance can be converted: its sizes, and that it was shut down cleanly.
    ///
    /// # Errors
    /// SR-7010 for other sizes of blocks and segments, SR-7009 when it was not shut down cleanly.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.check_geometry()?;
        // DB_SHUTDOWNED, and the same of a standby.
        if !matches!(self.state, 1 | 2) {
            let detail = format!("state {} in global/pg_control", self.state);
            return Err(Error::new(&code::PG_NOT_SHUT_DOWN, detail));
        }
        Ok(())
    }

    /// Checks that the instance has blocks of 8 KiB and segments of 1 GiB.
    ///
    /// # Errors
    /// SR-7010 for other sizes.
    pub(super) fn check_geometry(&self) -> Result<(), Error> {
        let known = (
            strongroom_format::postgres::BLOCK,
            crate::classify::SEGMENT_BLOCKS,
        );
        if (self.block_size, self.segment_blocks) != known || self.wal_block_size != known.0 {
            let detail = format!(
                "blocks of {} bytes, segments of {} blocks, log blocks of {} bytes",
                self.block_size, self.segment_blocks, self.wal_block_size
            );
            return Err(Error::new(&code::PG_GEOMETRY, detail));
        }
        Ok(())
    }
}

/// Returns the little-endian number at this offset; `None` past the end.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Computes CRC-32C (Castagnoli), as PostgreSQL does.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ 0x82F6_3B78,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_standard_one() {
        // RFC 3720, B.4: 32 bytes of zeros; and the usual check value of the polynomial.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    fn control(version: u32, state: u32, block: u32) -> Vec<u8> {
        let mut bytes = vec![0_u8; 8192];
        let mut put =
            |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(VERSION, version);
        put(CATALOG_VERSION, 202_209_061);
        put(STATE, state);
        put(BLOCK_SIZE, block);
        put(SEGMENT_BLOCKS, 131_072);
        put(WAL_BLOCK_SIZE, 8192);
        bytes[FLOAT_FORMAT..FLOAT_FORMAT + 8]
            .copy_from_slice(&1_234_567.0_f64.to_bits().to_le_bytes());
        with_checksum(bytes, version)
    }

    fn with_checksum(mut bytes: Vec<u8>, version: u32) -> Vec<u8> {
        let at = if version == 1800 { 292 } else { 288 };
        let crc = crc32c(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn data_checksums_are_seen() {
        for version in [1300, 1800] {
            let mut bytes = control(version, 1, 8192);
            bytes[DATA_CHECKSUM_VERSION] = 1;
            assert_eq!(
                Control::parse(&bytes),
                None,
                "the control file's own checksum"
            );
            let bytes = with_checksum(bytes, version);
            assert!(Control::parse(&bytes).unwrap().has_data_checksums());
        }
    }

    #[test]
    fn only_what_was_shut_down_and_has_the_usual_sizes_passes() {
        for version in [1300, 1800] {
            for (state, block, expected) in [
                (1, 8192, None),
                (2, 8192, None),
                (6, 8192, Some(7009)),
                (1, 16384, Some(7010)),
            ] {
                let parsed = Control::parse(&control(version, state, block)).unwrap();
                assert_eq!(parsed.catalog_version, 202_209_061);
                assert!(!parsed.has_data_checksums());
                let refused = parsed.check().err().map(|error| error.code().number);
                assert_eq!(refused, expected);
            }
        }
        assert_eq!(Control::parse(&control(1201, 1, 8192)), None);
    }

    #[test]
    fn a_changed_byte_is_found_and_nothing_panics() {
        let good = control(1300, 1, 8192);
        for at in 0..USED - 4 {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(Control::parse(&bad), None, "byte {at}");
        }
        for len in 0..292 {
            assert_eq!(Control::parse(&good[..len]), None, "{len} bytes");
        }
    }
}
