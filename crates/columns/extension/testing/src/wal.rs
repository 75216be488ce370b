//! Changes records of a server's write-ahead log in its files, as an attacker with the disk does:
//! with valid checksums, so that PostgreSQL accepts them.
//!
//! Layouts: PostgreSQL 15, `access/xlogrecord.h`, `access/xlog_internal.h`,
//! `replication/message.h`. A segment has 16 MiB, a page 8 KiB. The server does not run meanwhile.
//! Must not: change the length of a record.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::Server;

const SEGMENT: u64 = 16 << 20;
const PAGE: u64 = 8192;
/// `SizeOfXLogShortPHD`, and `SizeOfXLogLongPHD` on a segment's first page.
const PAGE_HEADER: u64 = 24;
const SEGMENT_HEADER: u64 = 40;
/// Fields of `XLogRecord`.
const INFO: usize = 16;
const MANAGER: usize = 17;
const CHECKSUM: usize = 20;
const HEADER: usize = 24;
/// The resource manager of the log itself, and its record without an effect
/// (`catalog/pg_control.h`).
const MANAGER_OF_LOG: u8 = 0;
const NOOP: u8 = 0x20;

/// A record of the log, with its position.
#[derive(Clone)]
pub struct Record {
    position: u64,
    bytes: Vec<u8>,
}

impl Server {
    /// The record at this position, on the first timeline.
    ///
    /// # Panics
    ///
    /// When there is no complete record.
    #[must_use]
    pub fn read_record(&self, position: u64) -> Record {
        let length = self.read_bytes(position, 4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        let bytes = self.read_bytes(position, usize::try_from(length).expect("a length"));
        let record = Record { position, bytes };
        assert_eq!(
            record.checksum(),
            record.stored_checksum(),
            "no record at {position:X}"
        );
        record
    }

    /// Writes a record back to its position.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write_record(&self, record: &Record) {
        for (at, byte) in byte_positions(record.position).zip(&record.bytes) {
            let (file, offset) = self.segment(at);
            file.write_all_at(&[*byte], offset)
                .expect("a segment of the log");
        }
    }

    fn read_bytes(&self, position: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for at in byte_positions(position).take(length) {
            let mut byte = [0];
            let (file, offset) = self.segment(at);
            file.read_exact_at(&mut byte, offset)
                .expect("a segment of the log");
            bytes.extend(byte);
        }
        bytes
    }

    fn segment(&self, position: u64) -> (File, u64) {
        let number = position / SEGMENT;
        let name = format!("00000001{:08X}{:08X}", number >> 8, number & 0xff);
        let path: PathBuf = self.data().join("pg_wal").join(name);
        let file = OpenOptions::new().read(true).write(true).open(path);
        (file.expect("a segment of the log"), position % SEGMENT)
    }
}

/// Positions of the bytes of a record that begins at `position`, which skip the headers of pages.
fn byte_positions(position: u64) -> impl Iterator<Item = u64> {
    let head = |at: u64| {
        if at % SEGMENT < PAGE {
            SEGMENT_HEADER
        } else {
            PAGE_HEADER
        }
    };
    (position..).filter(move |at| at % PAGE >= head(*at))
}

impl Record {
    /// A record of the same length without an effect.
    #[must_use]
    pub fn as_noop(&self) -> Self {
        let mut silent = self.clone();
        if let Some(fields) = silent.bytes.get_mut(INFO..=MANAGER) {
            fields.copy_from_slice(&[NOOP, MANAGER_OF_LOG]);
        }
        silent.with_checksum()
    }

    /// This record with the content of another record of its length.
    ///
    /// # Panics
    ///
    /// When they are of different lengths.
    #[must_use]
    pub fn with_content_of(&self, other: &Self) -> Self {
        assert_eq!(self.bytes.len(), other.bytes.len(), "records of one length");
        let mut changed = self.clone();
        changed.bytes.truncate(HEADER);
        changed.bytes.extend(other.bytes.iter().skip(HEADER));
        changed.with_checksum()
    }

    /// This record with its last byte changed.
    #[must_use]
    pub fn with_damage(&self) -> Self {
        let mut changed = self.clone();
        if let Some(last) = changed.bytes.last_mut() {
            *last ^= 1;
        }
        changed.with_checksum()
    }

    /// Length of the record in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// This record with the checksum of its bytes.
    fn with_checksum(mut self) -> Self {
        let checksum = self.checksum();
        if let Some(stored) = self.bytes.get_mut(CHECKSUM..HEADER) {
            stored.copy_from_slice(&checksum.to_le_bytes());
        }
        self
    }

    fn stored_checksum(&self) -> u32 {
        let stored = self
            .bytes
            .get(CHECKSUM..HEADER)
            .and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(stored.unwrap_or_default())
    }

    /// CRC-32C of the bytes after the header, then of the header without the checksum itself
    /// (xloginsert.c).
    fn checksum(&self) -> u32 {
        let (head, body) = self.bytes.split_at(HEADER.min(self.bytes.len()));
        let all = body.iter().chain(head.iter().take(CHECKSUM));
        !all.fold(!0, |check, byte| {
            (0..8).fold(check ^ u32::from(*byte), |check: u32, _| {
                (check >> 1) ^ (0x82f6_3b78 & (check & 1).wrapping_neg())
            })
        })
    }
}
