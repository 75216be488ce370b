//! A certificate and its private key, in two files that change as one.
//!
//! Invariants: K24, at any moment, also when a process is killed, there is a whole pair: a new pair
//! is written to one file, `KEY.next`, which is the pair as long as it exists ([`Pair::next`]); it
//! is then copied to the two names, and removed last. K25, a private key that was replaced or
//! removed is overwritten, as far as the file system allows it, unless the file has another name (a
//! hard link).
//!
//! Must not: change the owner of the files.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::durable;
use crate::locked::Locked;

/// Suffix of the file that holds both until they have their names.
const NEXT: &str = ".next";
/// The first bytes of the private key in that file, after the certificate.
const KEY_BEGINS: &[u8] = b"-----BEGIN PRIVATE KEY";
/// Characters of a name that a temporary file of [`durable`] repeats.
const SHOWN: usize = 48;
/// The longest file, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// A certificate and its private key on the disk. Symbolic links are resolved once, so that the
/// files that they lead to are replaced.
pub struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

/// Keeps other processes from changing the same pair until it is dropped.
pub struct Lock(#[expect(dead_code, reason = "held for the lock that it is")] Locked);

impl Pair {
    /// Names the pair at these two paths. Symbolic links are resolved now; the files need not
    /// exist.
    #[must_use]
    pub fn new(certificate: &Path, key: &Path) -> Self {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self {
            certificate: real(certificate),
            key: real(key),
        }
    }

    /// Returns the path of the file that holds a new pair until both files have their names: that
    /// of the key with `.next` appended.
    #[must_use]
    pub fn next(&self) -> PathBuf {
        let mut name = self.key.file_name().unwrap_or_default().to_owned();
        name.push(NEXT);
        self.key.with_file_name(name)
    }

    /// Whether [`Self::next`] exists: a new pair that is perhaps not yet at its two names.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.next().symlink_metadata().is_ok()
    }

    /// Locks the key's directory, without waiting, and removes unfinished temporary files that a
    /// killed process has left.
    ///
    /// # Errors
    /// `PermissionDenied` when the key is another user's; `WouldBlock` when another process has the
    /// lock; `NotFound` when there is no key; any other is the system's.
    pub fn lock(&self) -> io::Result<Lock> {
        must_be_ours(&self.key)?;
        let directory = self.key.parent().unwrap_or_else(|| Path::new("/"));
        let lock = File::open(directory)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                "another renewal is at work there",
            ),
            TryLockError::Error(error) => error,
        })?;
        self.remove_leavings(directory)?;
        Ok(Lock(Locked::from(lock)))
    }

    /// Writes a new pair to [`Self::next`], durably, with mode 0600. It is the valid pair from then
    /// on.
    ///
    /// # Errors
    /// The system's; the former pair is still the valid one then.
    pub fn put(&self, _: &Lock, certificate: &[u8], key: &[u8]) -> io::Result<()> {
        let certificate = certificate.trim_ascii_end();
        let len = certificate
            .len()
            .saturating_add(key.len())
            .saturating_add(1);
        let mut both = Zeroizing::new(Vec::with_capacity(len));
        both.extend_from_slice(certificate);
        both.push(b'\n');
        both.extend_from_slice(key);
        durable::replace(&self.next(), &both, 0o600)
    }

    /// Copies a new pair from [`Self::next`] to its two names, durably, and overwrites the former
    /// private key. Does nothing when there is none; may be repeated.
    ///
    /// # Errors
    /// `InvalidData` when there is no private key in the file; any other is the system's. The new
    /// pair is the valid one all the same.
    pub fn place(&self, _: &Lock) -> io::Result<()> {
        if !self.is_unsettled() {
            return Ok(());
        }
        let both = read(&self.next())?;
        let found = both
            .windows(KEY_BEGINS.len())
            .position(|window| window == KEY_BEGINS);
        let cut = found.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "there is no private key in it")
        })?;
        let (certificate, key) = both.split_at(cut);
        if self.certificate == self.key {
            return replace_key(&self.key, &both);
        }
        durable::replace(&self.certificate, certificate, 0o644)?;
        replace_key(&self.key, key)
    }

    /// Removes [`Self::next`] after [`Self::place`], durably. A missing file is no error.
    ///
    /// # Errors
    /// The system's.
    pub fn settle(&self, _: &Lock) -> io::Result<()> {
        let next = self.next();
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => durable::sync_dir_of(&next),
        }
    }

    /// Removes, and overwrites, temporary files of a process that was killed: they may hold a
    /// private key. Errors: the system's.
    fn remove_leavings(&self, directory: &Path) -> io::Result<()> {
        let next = self.next();
        let begins = [next.as_path(), &self.key, &self.certificate].map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let shown: String = name.chars().take(SHOWN).collect();
            format!(".{shown}.")
        });
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_ours = begins.iter().any(|begin| {
                let random = name.strip_prefix(begin.as_str());
                let random = random.and_then(|rest| rest.strip_suffix(".tmp"));
                random.is_some_and(|hex| {
                    hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
                })
            });
            if is_ours {
                remove_key(&path)?;
            }
        }
        Ok(())
    }
}

/// Checks that a file belongs to this process's effective user. Otherwise root would write files
/// beside it that its owner cannot read, or through links that its owner has placed.
///
/// # Errors
/// `PermissionDenied` when it belongs to another user; any other is the system's, also when there
/// is no such file.
pub fn must_be_ours(path: &Path) -> io::Result<()> {
    let (owner, user) = (
        fs::metadata(path)?.uid(),
        rustix::process::geteuid().as_raw(),
    );
    match owner == user {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("belongs to the user with the number {owner}: run this as that user"),
        )),
    }
}

/// Reads the first [`FILE_MAX`] bytes of a file, at most, into memory that is wiped and does not
/// grow. Errors: the system's.
fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len().min(FILE_MAX);
    let room = usize::try_from(len).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(1)));
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a private key durably, with mode 0600, and overwrites the former one with zeros unless
/// it has another name. Does nothing when the contents are the same. Errors: the system's.
fn replace_key(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if read(path).is_ok_and(|there| there.as_slice() == bytes) {
        return Ok(());
    }
    let former = File::options().write(true).open(path).ok();
    durable::replace(path, bytes, 0o600)?;
    former.map_or(Ok(()), overwrite_unlinked)
}

/// Removes a private key's file, and overwrites its contents with zeros unless it has another name
/// (a hard link). Does nothing when there is no such file.
///
/// # Errors
/// The system's error.
pub fn remove_key(path: &Path) -> io::Result<()> {
    let file = match File::options().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    fs::remove_file(path)?;
    overwrite_unlinked(file)?;
    durable::sync_dir_of(path)
}

/// Overwrites a file that has no name left with zeros, and syncs it. Does nothing when it still has
/// a name, or is no regular file. Errors: the system's.
fn overwrite_unlinked(mut file: File) -> io::Result<()> {
    let about = file.metadata()?;
    if about.nlink() > 0 || !about.is_file() {
        return Ok(());
    }
    let len = usize::try_from(about.len()).unwrap_or(0);
    file.rewind()?;
    file.write_all(&vec![0; len])?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\nold\n";
    const NEW_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\nnew\n";

    #[test]
    fn a_new_pair_takes_the_place_of_the_old_one_and_the_old_key_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("c.pem"), directory.path().join("k"));
        durable::create_new(&certificate, b"old certificate\n", 0o644).unwrap();
        durable::create_new(&key, OLD_KEY, 0o600).unwrap();
        let held = File::open(&key).unwrap();
        // Of a process that was killed.
        let leaving = directory.path().join(format!(".k.{:032x}.tmp", 7));
        fs::copy(&key, &leaving).unwrap();
        let other = directory.path().join(".k.not-ours.tmp");
        fs::copy(&key, &other).unwrap();

        let pair = Pair::new(&certificate, &key);
        let lock = pair.lock().unwrap();
        assert!(!leaving.exists() && other.exists());
        assert_eq!(pair.lock().err().unwrap().kind(), io::ErrorKind::WouldBlock);
        pair.put(&lock, b"new certificate\n", NEW_KEY).unwrap();
        assert!(pair.is_unsettled());
        assert_eq!(fs::read(&key).unwrap(), OLD_KEY);
        for _ in 0..2 {
            pair.place(&lock).unwrap();
            assert_eq!(fs::read(&key).unwrap(), NEW_KEY);
            assert_eq!(fs::read(&certificate).unwrap(), b"new certificate\n");
        }
        pair.settle(&lock).unwrap();
        pair.settle(&lock).unwrap();
        assert!(!pair.is_unsettled());
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        let mut seen = Vec::new();
        (&held).read_to_end(&mut seen).unwrap();
        assert_eq!(
            seen,
            vec![0; OLD_KEY.len()],
            "the old key is gone from its blocks"
        );
    }

    #[test]
    fn a_key_with_another_name_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let (key, copy) = (directory.path().join("k"), directory.path().join("copy"));
        durable::create_new(&key, OLD_KEY, 0o600).unwrap();
        fs::hard_link(&key, &copy).unwrap();
        remove_key(&key).unwrap();
        remove_key(&key).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), OLD_KEY);
    }
}
