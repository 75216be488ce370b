//! The newest generation of a keyring that was seen on this machine, in the keyring's lock file.
//!
//! Every older copy of a keyring is authentic. When it is put back, retired versions of keys are
//! active again, and the next rotation makes a second key of the same version. The record is a file
//! beside the keyring, without a MAC: it reveals a copy that was put back by mistake, or by
//! somebody who replaced the keyring alone, but not by somebody who put back the whole directory
//! (docs/internals/keyring.md, K23).
//!
//! Form: docs/spec/keyring.md, "The lock file".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_format::hex::{from_hex, hex};

use crate::regular::{Link, open_regular};

/// Longest record: 32 digits, a space, 20 digits, a line feed.
const RECORD_MAX: usize = 54;

/// Whether an older copy of a keyring was opened in this process.
static OLDER_OPENED: AtomicBool = AtomicBool::new(false);

/// Whether, since the last call, a keyring was opened in this process that is older than the newest
/// known one. The next call returns false unless that happens again. A program that opens keyrings
/// for a user then shows the warning [`strongroom_format::code::KEYRING_OLDER_USED`].
#[must_use]
pub fn take_older_keyring_warning() -> bool {
    OLDER_OPENED.swap(false, Ordering::Relaxed)
}

/// Sets the flag that [`take_older_keyring_warning`] returns and clears.
pub(crate) fn note_that_an_older_one_was_opened() {
    OLDER_OPENED.store(true, Ordering::Relaxed);
}

/// A keyring's random id, and a generation of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) keyring: [u8; 16],
    pub(crate) number: u64,
}

impl Generation {
    /// Whether `known`, from the lock file, is a later generation of the same keyring. False
    /// without one.
    pub(crate) fn is_older_than(self, known: Option<Self>) -> bool {
        known.is_some_and(|known| known.keyring == self.keyring && known.number > self.number)
    }

    /// Parses a record: the keyring's id in hexadecimal, a space, the generation, a line feed.
    /// `None` unless it is whole.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (id, number) = text.split_once(' ')?;
        Some(Self {
            keyring: from_hex(id)?.try_into().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// Reads the record in the lock file at this path. `None` when there is no such file, when this
/// user may not read it, or when it has no whole record. Read it before the keyring: a change in
/// between then makes the keyring newer, never older.
pub(crate) fn known(lock_path: &Path) -> Option<Generation> {
    let (file, _) = open_regular(lock_path, Link::Refused).ok()?;
    of_file(&file)
}

/// Reads the record in an open lock file. `None` when there is no whole one.
pub(crate) fn of_file(file: &File) -> Option<Generation> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut record = [0; RECORD_MAX];
    let len = file.read_at(&mut record, 0).ok()?;
    Generation::parse(record.get(..len)?)
}

/// Writes the record over the one in the lock file, and makes it durable. Call it after the keyring
/// is durable. A record that a crash has torn counts as none.
///
/// # Errors
/// What the system reports.
pub(crate) fn remember(file: &File, generation: Generation) -> io::Result<()> {
    let record = format!("{} {}\n", hex(&generation.keyring), generation.number);
    file.write_all_at(record.as_bytes(), 0)?;
    file.set_len(u64::try_from(record.len()).unwrap_or_default())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_anything_else_says_nothing() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of_file(&file), None);
        let long = Generation {
            keyring: [0xab; 16],
            number: u64::MAX,
        };
        remember(&file, long).unwrap();
        let short = Generation {
            keyring: [7; 16],
            number: 3,
        };
        remember(&file, short).unwrap();
        let mut bytes = vec![0; RECORD_MAX];
        let read = file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(Generation::parse(&bytes[..read]), Some(short));
        assert_eq!(&bytes[..read], b"07070707070707070707070707070707 3\n");
        for torn in ["", "0707 3\n", "07070707070707070707070707070707 3", "x\n"] {
            assert_eq!(Generation::parse(torn.as_bytes()), None, "{torn:?}");
        }
        assert!(short.is_older_than(Some(Generation { number: 4, ..short })));
        assert!(!short.is_older_than(Some(short)));
        assert!(!short.is_older_than(Some(long)), "of another keyring");
        assert!(!short.is_older_than(None));
    }
}
