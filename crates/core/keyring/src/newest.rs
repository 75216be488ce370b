//! The newest generation of a keyring that this place has seen, kept in the keyring's lock file.
//!
//! Every older copy of a keyring is authentic. Put back, it makes retired versions of keys active
//! again, and its next rotation makes a second key of the same version. The record is beside the
//! keyring and has no key: it finds copies that were put back by mistake or by somebody who knows
//! only the keyring, not whoever can put back the whole directory (docs/internals/keyring.md, K23).
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
/// known one. Whoever opens keyrings for a user says
/// [`strongroom_format::code::KEYRING_OLDER_USED`] then.
#[must_use]
pub fn take_older_keyring_warning() -> bool {
    OLDER_OPENED.swap(false, Ordering::Relaxed)
}

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
    /// Whether `known`, what the lock file says, is a later generation of the same keyring.
    pub(crate) fn is_older_than(self, known: Option<Self>) -> bool {
        known.is_some_and(|known| known.keyring == self.keyring && known.number > self.number)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (id, number) = text.split_once(' ')?;
        Some(Self {
            keyring: from_hex(id)?.try_into().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// What the lock file beside `keyring` says. `None` when there is no such file, when this user may
/// not read it, or when it says nothing. Asked before the keyring is read: a change that happens in
/// between makes the keyring newer, never older.
pub(crate) fn known(lock_path: &Path) -> Option<Generation> {
    let (file, _) = open_regular(lock_path, Link::Refused).ok()?;
    of_file(&file)
}

/// What an open lock file says.
pub(crate) fn of_file(file: &File) -> Option<Generation> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut record = [0; RECORD_MAX];
    let len = file.read_at(&mut record, 0).ok()?;
    Generation::parse(record.get(..len)?)
}

/// Writes the record. It is written after the keyring is durable; torn by a crash, it says nothing.
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
