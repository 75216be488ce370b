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
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::durable;

use crate::channel::{Attested, ChannelError, ColumnKeyRef};
use crate::locked_file::{lock, lock_path};

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
    /// Reads the file at `path`, and makes it if there never was one. With `take_new`, one
    /// connection may release keys to a zone that does not hold them.
    ///
    /// # Errors
    /// The system's, also when the file cannot be written; `NotFound` if there was a file that is
    /// gone, unless `take_new`; `InvalidData` for a file without its heading, or a line that is no
    /// id.
    pub fn at(path: PathBuf, take_new: bool) -> io::Result<Self> {
        // A link would be replaced by a file of its own.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let was_there = lock_path(&path).exists();
        let lock = lock(&path)?;
        let shown = match read(&path)? {
            Some(shown) => shown,
            None if was_there && !take_new => {
                let gone = "the file was there before and is gone: put it back, or make a new one with --new-zone";
                return Err(io::Error::new(io::ErrorKind::NotFound, gone));
            }
            None => BTreeSet::new(),
        };
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

    /// Decides whether an attested zone may be given these keys. If so, the ids of those that it
    /// has proven to hold are in the file before this returns.
    ///
    /// # Errors
    /// [`ChannelError::AnotherZone`] if some zone has proven before to hold one of these keys, and
    /// this one proves none of those; [`ChannelError::Record`] if the file cannot be read, written
    /// or locked; those of [`Attested::proven`].
    pub(crate) fn admit(
        &self,
        keys: &[ColumnKeyRef<'_>],
        zone: &Attested,
    ) -> Result<(), ChannelError> {
        let proven = zone.proven(keys)?;
        let ids: Vec<KeyId> = keys.iter().map(|(id, _)| *id).collect();
        self.decide(&ids, &proven)
    }

    /// As [`Self::admit`], by the ids of the keys that the zone would be given, `ids`, and of those
    /// that it has proven to hold, `proven`, which are written to the file. Fails with
    /// `AnotherZone` or `Record`; then neither the file nor this has changed.
    fn decide(&self, ids: &[KeyId], proven: &[KeyId]) -> Result<(), ChannelError> {
        let failed = |_: io::Error| ChannelError::Record;
        let mut state = self.state();
        // Another proxy may have noted more since the file was read.
        let lock = self.path.as_deref().map(lock).transpose().map_err(failed)?;
        let in_file = match &self.path {
            Some(path) => read(path).map_err(failed)?.unwrap_or_default(),
            None => state.shown.clone(),
        };
        let mut shown: BTreeSet<KeyId> = state.shown.union(&in_file).copied().collect();
        let mut known = ids.iter().filter(|id| shown.contains(*id)).peekable();
        let is_other = known.peek().is_some() && !known.any(|id| proven.contains(id));
        if is_other && !state.take_new {
            return Err(ChannelError::AnotherZone);
        }
        shown.extend(proven);
        if let Some(path) = &self.path
            && shown != in_file
        {
            write(path, &shown).map_err(failed)?;
        }
        drop(lock);
        state.shown = shown;
        // One connection: from then on the new zone has to prove what it got, like any other.
        state.take_new &= !is_other;
        Ok(())
    }

    /// The state, also after a panic of another thread, which leaves it whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ids in the file; `None` if it does not exist. `InvalidData` for a file that does not begin
/// with a comment, and a line that is neither an id nor a comment.
fn read(path: &Path) -> io::Result<Option<BTreeSet<KeyId>>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let id = |line: &str| from_hex(line).and_then(|bytes| bytes.try_into().ok());
    let ids: Option<BTreeSet<KeyId>> = lines.map(id).collect();
    match ids {
        Some(ids) if text.starts_with('#') => Ok(Some(ids)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not a list of ids of column keys with its heading, or a newer version of \
             Strongroom has written it, whose proxy can read it (SR-3002)",
        )),
    }
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
        let zones = KnownZones::at(path.clone(), true).unwrap();
        assert!(!is_refused(&zones, &[A], &[A]), "the old one is as good");
        assert!(!is_refused(&zones, &[A], &[]));
        assert!(is_refused(&zones, &[A], &[]), "it has to prove the key now");
        assert!(!is_refused(&zones, &[A], &[A]));
        assert!(is_refused(&zones, &[A], &[]));
        let later = KnownZones::at(path, false).unwrap();
        assert!(is_refused(&later, &[A], &[]), "nothing was forgotten");
    }

    #[test]
    fn what_cannot_be_noted_is_not_released_however_often_it_is_tried() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let zones = KnownZones::at(inner.join("zones"), true).unwrap();
        std::fs::remove_dir_all(&inner).unwrap();
        for _ in 0..2 {
            assert_eq!(zones.decide(&[A], &[A]), Err(ChannelError::Record));
        }
        // With the directory back the file is, too, with what is known.
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(zones.decide(&[A], &[A]), Ok(()));
        std::fs::remove_file(inner.join("zones")).unwrap();
        assert_eq!(zones.decide(&[A], &[A]), Ok(()));
        let later = KnownZones::at(inner.join("zones"), false).unwrap();
        assert!(is_refused(&later, &[A], &[]));
    }

    /// The file as version 0.1.0 writes it. It is never changed.
    #[test]
    fn the_golden_file_is_read_and_written_as_it_is() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../testing/vectors/columns-proxy/1.zones");
        let ids = [
            "0123456789abcdef0123456789abcdef",
            "fedcba9876543210fedcba9876543210",
        ];
        let ids: [KeyId; 2] = ids.map(|id| from_hex(id).unwrap().try_into().unwrap());
        assert_eq!(read(&golden).unwrap(), Some(ids.into()));
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        std::fs::copy(&golden, &path).unwrap();
        let zones = KnownZones::at(path.clone(), false).unwrap();
        assert!(is_refused(&zones, &ids, &[]) && !is_refused(&zones, &ids, &ids));
        let text = std::fs::read_to_string(&golden).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let newer = format!("{text}another line\n");
        durable::replace(&path, newer.as_bytes(), 0o600).unwrap();
        let refused = KnownZones::at(path, true).unwrap_err();
        assert!(refused.to_string().contains("newer version"), "{refused}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        for bad in [&b""[..], b"# a comment\n0123\n", &[0xff; 9]] {
            durable::replace(&path, bad, 0o600).unwrap();
            assert!(KnownZones::at(path.clone(), false).is_err(), "{bad:?}");
            assert!(KnownZones::at(path.clone(), true).is_err(), "{bad:?}");
        }
        assert!(KnownZones::at(place.path().join("no/zones"), false).is_err());
        // One that is gone is no first zone, unless its owner says so.
        std::fs::remove_file(&path).unwrap();
        assert!(KnownZones::at(path.clone(), false).is_err());
        assert!(KnownZones::at(path.clone(), true).is_ok());
        // A link leads to the file that several proxies share, and stays a link.
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let linked = KnownZones::at(link.clone(), false).unwrap();
        assert!(!is_refused(&linked, &[A], &[A]));
        assert!(is_refused(&KnownZones::at(path, false).unwrap(), &[A], &[]));
        assert!(link.is_symlink());
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_not_waited_for_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zones");
        let zones = KnownZones::at(path.clone(), false).unwrap();
        let kept = lock(&path).unwrap();
        assert_eq!(zones.decide(&[A], &[A]), Err(ChannelError::Record));
        drop(kept);
        assert_eq!(zones.decide(&[A], &[A]), Ok(()));
    }
}
