//! The keyring's file: reading, authenticating, writing and locking it.
//!
//! Invariants: K9, written whole by [`crate::durable`]; K11, written only under the lock, from what
//! was read under the same lock; K12, every byte of the file is covered by the header's MAC, by the
//! rule that a keyring's anchors are zero, or by the body's MAC.
//!
//! Must not: know what the entries mean (see [`crate::keyring`]).

use std::fs::{DirBuilder, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use strongroom_crypto::MacKey;
use strongroom_format::certificate::{
    CERTIFICATE_DER_MAX, CERTIFICATES_MAX, PRIVATE_KEY_MAX, certificate_layout,
};
use strongroom_format::code;
use strongroom_format::header::{FIXED_LEN, HEADER_LEN, Header, ObjectKind};
use strongroom_format::keyring::{
    BODY_MAC_LEN, Body, ENTRIES_MAX, PROVIDER_ARGUMENT_MAX, body_layout, entry_layout,
};
use strongroom_format::layout::is_zero;

use crate::entries::name_is_valid;
use crate::error::Error;
use crate::locked::Locked;
use crate::newest::{self, Generation};
use crate::object::{Object, parse};
use crate::private_key::check_records;
use crate::purpose::Purpose;
use crate::storage;

/// Only the owner may read a keyring.
pub(crate) const MODE: u32 = 0o600;
/// How long a change waits for another process's change.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// Longest file that can be a keyring, in bytes.
const FILE_MAX: usize = HEADER_LEN
    + body_layout::SIZE
    + PROVIDER_ARGUMENT_MAX
    + ENTRIES_MAX * entry_layout::SIZE
    + CERTIFICATES_MAX * (certificate_layout::SIZE + CERTIFICATE_DER_MAX + PRIVATE_KEY_MAX + 8)
    + BODY_MAC_LEN;

/// A keyring file whose structure is valid, before it is authenticated.
pub(crate) struct UnprovenFile {
    pub(crate) header: Header,
    pub(crate) body: Body,
    /// Whether a program that the file names may be run (K14): nobody else may write to it. False
    /// for bytes that were not read from a file.
    pub(crate) private: bool,
    bytes: Vec<u8>,
}

/// Reads a file that should be a keyring, and checks what needs no key. Notes whether others may
/// write to it. Errors: SR-2004 when it does not exist; SR-5001 when the system reports an error;
/// those of [`parse_file`].
pub(crate) fn read(path: &Path) -> Result<UnprovenFile, Error> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Error::new(&code::KEYRING_MISSING, shown.to_string()),
        _ => Error::io(format!("reading {shown}"), error),
    };
    let limit = u64::try_from(FILE_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let (bytes, about) = storage::of(path).read_known(path, limit).map_err(failed)?;
    let unproven = parse_file(bytes).map_err(|error| error.about(shown))?;
    Ok(UnprovenFile {
        private: about.is_private(),
        ..unproven
    })
}

/// Parses a keyring file and checks everything that needs no key. Errors: SR-3001 not sealed;
/// SR-3002 newer version; SR-3007 another kind of object; everything else is SR-2005.
pub(crate) fn parse_file(bytes: Vec<u8>) -> Result<UnprovenFile, Error> {
    let header = parse(&bytes).map_err(as_damage)?;
    if header.kind != ObjectKind::Keyring {
        return Err(Error::new(&code::WRONG_KIND, header.kind.name()));
    }
    let anchors = bytes
        .get(FIXED_LEN..HEADER_LEN)
        .ok_or_else(|| Error::damaged_keyring("cut short"))?;
    if !is_zero(anchors) {
        return Err(Error::damaged_keyring("bytes where a keyring has none"));
    }
    let body = bytes.get(HEADER_LEN..).and_then(Body::parse);
    let (body, _, _) = body.ok_or_else(|| Error::damaged_keyring("body"))?;
    check_entries(&body)?;
    check_records(&body.certificates)?;
    Ok(UnprovenFile {
        header,
        body,
        private: false,
        bytes,
    })
}

impl UnprovenFile {
    /// Authenticates header and body. `open` opens the header, with an opener or with what an
    /// opened keyring holds. Errors: those of `open`; SR-2005 for any damage, also instead of a
    /// code of `open` for a damaged header.
    pub(crate) fn authenticated(
        self,
        open: impl FnOnce(&[u8]) -> Result<Object, Error>,
    ) -> Result<(Object, Body), Error> {
        let object = open(&self.bytes).map_err(as_damage)?;
        let body = self.bytes.get(HEADER_LEN..).and_then(Body::parse);
        let (body, covered, mac) = body.ok_or_else(|| Error::damaged_keyring("body"))?;
        let mac: &[u8; BODY_MAC_LEN] =
            mac.try_into().map_err(|_| Error::damaged_keyring("body"))?;
        if !body_key(&object)?.verify(&[covered], mac) {
            return Err(Error::damaged_keyring("the body's MAC"));
        }
        Ok((object, body))
    }
}

/// Returns the bytes of a keyring file: header, body and the body's MAC. Errors: SR-9001 when a
/// part of the body is longer than the format allows; SR-5001 when the system reports an error.
pub(crate) fn file_bytes(object: &Object, body: &Body) -> Result<Vec<u8>, Error> {
    let mut out = object.initial_bytes();
    let covered = body
        .to_bytes()
        .ok_or_else(|| Error::new(&code::BUG, "keyring body"))?;
    let mac = body_key(object)?.mac(&[&covered]);
    out.extend_from_slice(&covered);
    out.extend_from_slice(&mac);
    Ok(out)
}

/// Creates the directories above `path` that are missing, with mode 0700. Errors: SR-5001 when the
/// system refuses.
pub(crate) fn make_directory(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|error| Error::io(format!("creating {}", parent.display()), error)),
        _ => Ok(()),
    }
}

/// The keyring's lock, held until this is dropped. The lock file stays: if it were removed, two
/// processes could lock two files of that name. It also has the record of the newest known
/// generation.
pub(crate) struct Lock(Locked);

/// Returns the path of the lock file of a keyring: `.lock` is appended.
pub(crate) fn lock_path(keyring: &Path) -> PathBuf {
    let mut path = keyring.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

impl Lock {
    /// Takes the keyring's lock, and creates the lock file if it is missing. Waits for another
    /// process for up to 10 seconds. Errors: SR-2016 after that; SR-5001 when the system reports an
    /// error.
    pub(crate) fn take(keyring: &Path) -> Result<Self, Error> {
        Self::take_within(keyring, LOCK_WAIT)
    }

    /// Reads the newest known generation, of the keyring that had this path last, from the lock
    /// file. `None` when there is no whole record.
    pub(crate) fn newest(&self) -> Option<Generation> {
        newest::of_file(&self.0)
    }

    /// Writes the newest known generation into the lock file, durably. Errors: the system's.
    pub(crate) fn remember(&self, generation: Generation) -> std::io::Result<()> {
        newest::remember(&self.0, generation)
    }

    /// Takes the keyring's lock, and creates the lock file if it is missing. Waits for another
    /// process for up to `wait`. Errors: SR-2016 after that; SR-5001 when the system reports an
    /// error.
    fn take_within(keyring: &Path, wait: Duration) -> Result<Self, Error> {
        let path = lock_path(keyring);
        let failed = |error| Error::io(format!("locking {}", keyring.display()), error);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            // A link here would make or lock a file elsewhere.
            .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default());
        let file = options.open(&path).map_err(failed)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(Locked::from(file))),
                Err(TryLockError::WouldBlock) if start.elapsed() < wait => {
                    std::thread::sleep(LOCK_POLL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::new(
                        &code::KEYRING_BUSY,
                        keyring.display().to_string(),
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

/// Turns an error of a damaged header into SR-2005; the header's own code stays in the detail. Any
/// other error is unchanged.
fn as_damage(error: Error) -> Error {
    let codes = [
        &code::HEADER_DAMAGED,
        &code::HEADER_FORGED,
        &code::CANARY,
        &code::HEADER_TRUNCATED,
    ];
    match codes.contains(&error.code()) {
        true => error.recoded(&code::KEYRING_DAMAGED),
        false => error,
    }
}

/// Checks that key names are valid, and that no version of a key occurs twice. Errors: SR-2005 when
/// one of these does not hold.
fn check_entries(body: &Body) -> Result<(), Error> {
    let mut seen = std::collections::BTreeSet::new();
    let fine = body.entries.iter().all(|entry| {
        name_is_valid(&entry.name) && seen.insert((entry.name.as_str(), entry.version))
    });
    if fine {
        Ok(())
    } else {
        Err(Error::damaged_keyring("a key name or version"))
    }
}

/// Derives the MAC key of the body. Errors: SR-5001 without memory for keys.
fn body_key(object: &Object) -> Result<MacKey, Error> {
    Ok(MacKey::new(
        &object.subkey(object.epoch(), Purpose::KeyringBody)?,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_busy_and_a_dropped_one_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let keyring = directory.path().join("keyring");
        let held = Lock::take(&keyring).unwrap();
        let refused = Lock::take_within(&keyring, Duration::from_millis(60));
        assert_eq!(refused.err().unwrap().code().number, 2016);
        drop(held);
        assert!(Lock::take_within(&keyring, Duration::ZERO).is_ok());
    }
}
