//! Which column keys a zone has shown to hold, kept in a file of the data owner's: from then on the
//! keys go to a zone that holds them, and to no other.
//!
//! A zone that the server's operator has started passes for the owner's as far as its program and
//! its machine go, but it does not have what the owner's zone has: the column keys of the values in
//! it. The first zone is taken as it is, because no zone has the keys then.
//!
//! Invariant: once a key is in the file, no connection releases it to a zone that cannot show that
//! it holds one of the owner's keys. Must not: have a key, or decide whether an attestation is
//! good.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::{Locked, durable};

use crate::channel::{Attested, ChannelError, ColumnKeyRef};

type KeyId = [u8; 16];

/// First lines of the file.
const HEADING: &str = "# Ids of column keys that a zone has shown to hold. Written by `strongroom columns proxy`:\n\
     # these keys go to a zone that holds one of them, and to no other.\n";

/// The column keys that a zone has shown to hold.
#[derive(Debug)]
pub struct KnownZones {
    /// `None`: nothing is kept.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shown: BTreeSet<KeyId>,
    /// Whether the next zone that does not hold the keys is taken all the same.
    take_new: bool,
}

impl KnownZones {
    /// Reads the file at `path`, and makes it if it does not exist. With `take_new`, the next zone
    /// that does not hold the keys is taken as the first one was.
    ///
    /// # Errors
    /// The system's, also when the file cannot be written; `InvalidData` for a line that is no id.
    pub fn at(path: PathBuf, take_new: bool) -> io::Result<Self> {
        let lock = lock(&path)?;
        let shown = read(&path)?;
        write(&path, &shown)?;
        drop(lock);
        Ok(Self {
            path: Some(path),
            state: Mutex::new(State { shown, take_new }),
        })
    }

    /// Keeps what zones show in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            path: None,
            state: Mutex::default(),
        }
    }

    /// Decides whether an attested zone may have these keys, and notes those that it has proven to
    /// hold, in the file before this returns.
    ///
    /// # Errors
    /// [`ChannelError::AnotherZone`] if the zone proves none of the keys that a zone has shown to
    /// hold before; [`ChannelError::Record`] if the file cannot be read or written; those of
    /// [`Attested::proven`].
    pub(crate) fn admit(
        &self,
        keys: &[ColumnKeyRef<'_>],
        zone: &Attested,
    ) -> Result<(), ChannelError> {
        let proven = zone.proven(keys)?;
        let ids: Vec<KeyId> = keys.iter().map(|(id, _)| *id).collect();
        self.decide(&ids, &proven)
    }

    /// Decides whether a zone that has proven to hold the keys `proven` may have the keys `ids`,
    /// and notes the former. Fails as [`Self::admit`] does.
    fn decide(&self, ids: &[KeyId], proven: &[KeyId]) -> Result<(), ChannelError> {
        let failed = |_: io::Error| ChannelError::Record;
        let mut state = self.state();
        let is_new = |state: &State| proven.iter().any(|id| !state.shown.contains(id));
        let is_other = |state: &State| {
            let mut shown = ids.iter().filter(|id| state.shown.contains(*id)).peekable();
            shown.peek().is_some() && !shown.any(|id| proven.contains(id))
        };
        // Another proxy may have seen a zone since the file was read.
        let lock = match &self.path {
            Some(path) if is_new(&state) || proven.is_empty() => {
                let lock = lock(path).map_err(failed)?;
                state.shown.extend(read(path).map_err(failed)?);
                Some(lock)
            }
            _ => None,
        };
        let before = state.shown.clone();
        if is_other(&state) {
            if !state.take_new {
                return Err(ChannelError::AnotherZone);
            }
            // Once: the zone that is taken now is the one that shows the keys from then on.
            state.take_new = false;
            state.shown.retain(|id| !ids.contains(id));
        }
        state.shown.extend(proven);
        if let Some(path) = &self.path
            && state.shown != before
        {
            write(path, &state.shown).map_err(failed)?;
        }
        drop(lock);
        Ok(())
    }

    /// The state, also after a panic of another thread, which leaves it whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the lock of the file at `path`, which is on a file beside it that stays: the file
/// itself is replaced.
fn lock(path: &Path) -> io::Result<Locked> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&beside)?;
    file.lock()?;
    Ok(Locked::from(file))
}

/// The ids in the file; none if it does not exist. `InvalidData` for a line that is neither an id
/// nor a comment.
fn read(path: &Path) -> io::Result<BTreeSet<KeyId>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let id = |line: &str| from_hex(line).and_then(|bytes| bytes.try_into().ok());
    let ids: Option<BTreeSet<KeyId>> = lines.map(id).collect();
    ids.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a line that is no key's id"))
}

/// Replaces the file by one with these ids.
fn write(path: &Path, ids: &BTreeSet<KeyId>) -> io::Result<()> {
    let mut text = String::from(HEADING);
    for id in ids {
        text.push_str(&hex(id));
        text.push('\n');
    }
    durable::replace(path, text.as_bytes(), 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = [1; 16];
    const B: KeyId = [2; 16];

    fn is_refused(zones: &KnownZones, ids: &[KeyId], proven: &[KeyId]) -> bool {
        match zones.decide(ids, proven) {
            Ok(()) => false,
            Err(ChannelError::AnotherZone) => true,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_zone_is_taken_and_no_other_once_it_has_values() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        let zones = KnownZones::at(path.clone(), false).unwrap();
        // No zone holds the key yet, however often it is started.
        assert!(!is_refused(&zones, &[A], &[]));
        assert!(!is_refused(&zones, &[A], &[]));
        assert!(!is_refused(&zones, &[A], &[A]));
        assert!(is_refused(&zones, &[A], &[]));
        // Another proxy of the same owner, and one that was started before.
        let later = KnownZones::at(path, false).unwrap();
        assert!(is_refused(&later, &[A], &[]));
        assert!(!is_refused(&later, &[A], &[A]));
        // Another key of the owner's is another matter, unless it is released together with one
        // that is known: rotation brings a new version, and the zone holds the old one.
        assert!(!is_refused(&later, &[B], &[]));
        assert!(!is_refused(&later, &[A, B], &[A]));
        assert!(is_refused(&later, &[A, B], &[]));
        assert!(is_refused(&later, &[A, B], &[B]), "not one that was shown");
    }

    #[test]
    fn what_another_proxy_saw_is_known_to_one_that_runs() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        let first = KnownZones::at(path.clone(), false).unwrap();
        let second = KnownZones::at(path, false).unwrap();
        assert!(!is_refused(&first, &[A], &[A]));
        assert!(is_refused(&second, &[A], &[]));
    }

    #[test]
    fn a_new_zone_is_taken_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        let zones = KnownZones::at(path.clone(), false).unwrap();
        assert!(!is_refused(&zones, &[A], &[A]));
        assert!(!is_refused(&zones, &[B], &[B]));
        let zones = KnownZones::at(path.clone(), true).unwrap();
        assert!(!is_refused(&zones, &[A], &[A]), "the old one is as good");
        assert!(!is_refused(&zones, &[A], &[]));
        assert!(is_refused(&zones, &[B], &[]), "only once");
        // The new one has no values yet, then it has, and the old one is another now.
        assert!(!is_refused(&zones, &[A], &[]));
        assert!(!is_refused(&zones, &[A], &[A]));
        assert!(is_refused(&zones, &[A], &[]));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text.lines().filter(|line| !line.starts_with('#')).count(),
            2
        );
    }

    #[test]
    fn a_file_that_cannot_be_used_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        durable::replace(&path, b"# a comment\n0123\n", 0o600).unwrap();
        assert!(KnownZones::at(path, false).is_err());
        assert!(KnownZones::at(place.path().join("no/zones"), false).is_err());
        // Removed while a proxy runs, with its directory: no zone gets a key that cannot be noted.
        let inner = place.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let zones = KnownZones::at(inner.join("zones"), false).unwrap();
        std::fs::remove_dir_all(&inner).unwrap();
        assert!(matches!(
            zones.decide(&[A], &[A]),
            Err(ChannelError::Record)
        ));
    }
}
