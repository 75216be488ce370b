//! Records of a server's log, changed in its files as someone with the disk does it: so that PostgreSQL finds nothing wrong.
//!
//! Layouts: PostgreSQL 15, `access/xlogrecord.h`, `access/xlog_internal.h`, `replication/message.h`. A segment has 16 MiB, a page 8 KiB. The server
//! does not run meanwhile. Must not: change the length of a record.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::Server;

const SEGMENT: u64 = 16 << 20;
const PAGE: u64 = 8192;
/// `SizeOfXLogShortPHD`, and `SizeOfXLogLongPHD` on a segment's first page.
const PAGE_HEAD: u64 = 24;
const SEGMENT_HEAD: u64 = 40;
/// Fields of `XLogRecord`.
const INFO: usize = 16;
const MANAGER: usize = 17;
const CHECK: usize = 20;
const HEAD: usize = 24;
/// The resource manager of the log itself, and its record that says nothing (`catalog/pg_control.h`).
const MANAGER_OF_LOG: u8 = 0;
const NOOP: u8 = 0x20;

/// A record as it is in the log.
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
    /// When there is none that is whole.
    #[must_use]
    pub fn read_record(&self, position: u64) -> Record {
        let length = self.read_bytes(position, 4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        let bytes = self.read_bytes(position, usize::try_from(length).expect("a length"));
        let record = Record { position, bytes };
        assert_eq!(
            record.check(),
            record.stored_check(),
            "no record at {position:X}"
        );
        record
    }

    /// Puts a record where it was read, or where one of its length was.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write_record(&self, record: &Record) {
        for (at, byte) in places(record.position).zip(&record.bytes) {
            let (file, offset) = self.segment(at);
            file.write_all_at(&[*byte], offset)
                .expect("a segment of the log");
        }
    }

    fn read_bytes(&self, position: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for at in places(position).take(length) {
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

/// Positions of the bytes of what begins at `position`: not those of the heads of pages.
fn places(position: u64) -> impl Iterator<Item = u64> {
    let head = |at: u64| {
        if at % SEGMENT < PAGE {
            SEGMENT_HEAD
        } else {
            PAGE_HEAD
        }
    };
    (position..).filter(move |at| at % PAGE >= head(*at))
}

impl Record {
    /// A record of the same length that says nothing.
    #[must_use]
    pub fn silent(&self) -> Self {
        let mut silent = self.clone();
        if let Some(fields) = silent.bytes.get_mut(INFO..=MANAGER) {
            fields.copy_from_slice(&[NOOP, MANAGER_OF_LOG]);
        }
        silent.sealed()
    }

    /// This record with what another one of its length says.
    ///
    /// # Panics
    ///
    /// When they are of different lengths.
    #[must_use]
    pub fn saying(&self, other: &Self) -> Self {
        assert_eq!(self.bytes.len(), other.bytes.len(), "records of one length");
        let mut changed = self.clone();
        changed.bytes.truncate(HEAD);
        changed.bytes.extend(other.bytes.iter().skip(HEAD));
        changed.sealed()
    }

    /// This record with another last byte.
    #[must_use]
    pub fn damaged(&self) -> Self {
        let mut changed = self.clone();
        if let Some(last) = changed.bytes.last_mut() {
            *last ^= 1;
        }
        changed.sealed()
    }

    /// Its length.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    fn sealed(mut self) -> Self {
        let check = self.check();
        if let Some(place) = self.bytes.get_mut(CHECK..HEAD) {
            place.copy_from_slice(&check.to_le_bytes());
        }
        self
    }

    fn stored_check(&self) -> u32 {
        let stored = self
            .bytes
            .get(CHECK..HEAD)
            .and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(stored.unwrap_or_default())
    }

    /// CRC-32C of what follows the head, then of the head without the check itself (xloginsert.c).
    fn check(&self) -> u32 {
        let (head, body) = self.bytes.split_at(HEAD.min(self.bytes.len()));
        let all = body.iter().chain(head.iter().take(CHECK));
        !all.fold(!0, |check, byte| {
            (0..8).fold(check ^ u32::from(*byte), |check: u32, _| {
                (check >> 1) ^ (0x82f6_3b78 & (check & 1).wrapping_neg())
            })
        })
    }
}
