//! Files of the log as a server has them: read to be archived, and fetched from the archive for the
//! server. The log of a sealed instance is sealed there, and not in the archive.
//!
//! Invariants: the archive gets files in PostgreSQL's own form, whose content agrees with their
//! names. A file for a sealed instance is sealed for it if, and only if, the archive was
//! authenticated.
//!
//! Must not: ask for anything, because nobody is there to answer.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::paths::open_to_read;
use strongroom_keyring::{KeySource, durable};

use crate::first_page::begins_segment;
use crate::partial_segment::{Partial, wal_partial};
use crate::segment::check_archivable;
use crate::set_openers::with_key;
use crate::store::Store;
use crate::wal::{FILE_MAX, wal_fetch};
use crate::{Error, Result};

/// How a sealed instance seals the files of its log.
pub trait LogSealing {
    /// Returns at most `most` bytes of the file at `path`, opened (decrypted). The server calls the
    /// file `name`, which decides how it is sealed; one that is not sealed is returned as it is.
    ///
    /// # Errors
    /// SR-1006 when there is none; SR-5001 when the system reports an error.
    fn open(&self, path: &Path, name: &str, most: u64) -> Result<Vec<u8>>;

    /// Returns `content` sealed as the file `name`; unchanged where such files are not sealed.
    /// Writes no file.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    fn seal(&self, name: &str, content: &[u8]) -> Result<Vec<u8>>;

    /// Checks that the file `name` with the system identifier `system` is of the instance's
    /// cluster.
    ///
    /// # Errors
    /// SR-7173 when it is not; SR-1006 when the instance has no control file; SR-5001 when the
    /// system reports an error.
    fn check_system(&self, name: &str, system: u64) -> Result<()>;
}

/// Reads a file of the log that the server wrote, opened when it belongs to a sealed instance, and
/// checks that it matches its `name`. `sealing` finds the instance, and is called when the file is
/// there; it returns `None` when there is no sealed one.
///
/// # Errors
/// SR-1006 or SR-1007 when there is no such file; SR-7114 when it is longer than 1 GiB; SR-7173
/// when it does not match or is another cluster's; those of `sealing`; SR-5001 when the system
/// reports an error.
pub fn read_to_archive<S: LogSealing>(
    path: &Path,
    name: &str,
    sealing: impl FnOnce() -> Result<Option<S>>,
) -> Result<Vec<u8>> {
    let (file, length) = open_to_read(path)?;
    if length > FILE_MAX {
        let detail = format!("{}: longer than a segment can be", path.display());
        return Err(Error::new(&code::BACKUP_SOURCE, detail));
    }
    let sealing = sealing()?;
    let content = if let Some(sealing) = &sealing {
        sealing.open(path, name, FILE_MAX)?
    } else {
        let mut content = Vec::new();
        let read = file.take(FILE_MAX).read_to_end(&mut content);
        read.map_err(|error| Error::on_path(path, error))?;
        content
    };
    let system = check_archivable(name, &content)?;
    if let (Some(sealing), Some(system)) = (&sealing, system) {
        sealing.check_system(name, system)?;
    }
    Ok(content)
}

/// A file as the server has it, or will have it once it is fetched.
pub struct ServerFile<S> {
    /// Where the server has it under its own name.
    pub path: PathBuf,
    /// Its name in the archive.
    pub name: String,
    /// The sealed instance that it belongs to; `None` when there is none.
    pub sealing: Option<S>,
}

impl<S: LogSealing> ServerFile<S> {
    /// Fetches the file from the archive, or as much of a segment as was received unless the server
    /// has as much, seals it for a sealed instance, and writes it to `to` with mode 0600, durably,
    /// in place of any former file. The key is used as [`with_key`] says.
    ///
    /// # Errors
    /// As [`wal_fetch`], such as SR-7121 when the archive has no such file and SR-7130 when it has
    /// only later ones; as [`wal_partial`]; SR-7173 for another cluster; those of the key's source;
    /// SR-5001 when the system reports an error.
    pub fn fetch(
        &self,
        store: &dyn Store,
        key: Option<&KeySource>,
        keyring: &Path,
        to: &Path,
    ) -> Result<()> {
        let mut authentic = false;
        let whole = with_key(key, keyring, |key| {
            authentic = key.is_some();
            wal_fetch(store, &self.name, key)
        });
        let content = match whole {
            Ok(content) => content,
            Err(absent) if absent.code() == &code::WAL_ABSENT => {
                let partial = with_key(key, keyring, |key| {
                    authentic = key.is_some();
                    wal_partial(store, &self.name, key)
                })?;
                let partial = partial.filter(|partial| !self.has_all(partial));
                partial.ok_or(absent)?.content
            }
            Err(other) => return Err(other),
        };
        let content = self.seal_if_needed(content, authentic)?;
        durable::replace(to, &content, 0o600).map_err(|error| Error::on_path(to, error))
    }

    /// Returns the content to write. For a sealed instance, a segment that the archive has
    /// authenticated is sealed; everything else is returned unchanged, and the shield refuses an
    /// unsealed segment unless it is configured otherwise. SR-7173 when it belongs to another
    /// cluster.
    fn seal_if_needed(&self, content: Vec<u8>, authentic: bool) -> Result<Vec<u8>> {
        match &self.sealing {
            Some(sealing) if authentic && begins_segment(&self.name, &content) => {
                if let Some(system) = check_archivable(&self.name, &content)? {
                    sealing.check_system(&self.name, system)?;
                }
                sealing.seal(&self.name, &content)
            }
            _ => Ok(content),
        }
    }

    /// Reads at most `most` bytes of the server's own file, opened when the instance is sealed.
    /// `None` when it cannot be read.
    fn content(&self, most: u64) -> Option<Vec<u8>> {
        if let Some(sealing) = &self.sealing {
            return sealing.open(&self.path, &self.name, most).ok();
        }
        let mut content = Vec::new();
        let file = File::open(&self.path).ok()?;
        file.take(most).read_to_end(&mut content).ok()?;
        Some(content)
    }

    /// Returns whether the server's own file begins this segment, and is not an older one that was
    /// renamed.
    #[must_use]
    pub fn has_segment(&self) -> bool {
        let start = self.content(64);
        start.is_some_and(|start| begins_segment(&self.name, &start))
    }

    /// Returns whether the server's own file begins with everything that was received of this
    /// segment. A set brings the log that it needs, which may be more than was received.
    fn has_all(&self, partial: &Partial) -> bool {
        let received = partial.content.get(..partial.received);
        self.content(FILE_MAX).is_some_and(|content| {
            begins_segment(&self.name, &content)
                && received.is_some_and(|received| content.starts_with(received))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sealed instance is not asked for anything here.
    struct NoInstance;

    impl LogSealing for NoInstance {
        fn open(&self, _: &Path, name: &str, _: u64) -> Result<Vec<u8>> {
            Err(Error::new(&code::BUG, name))
        }

        fn seal(&self, name: &str, _: &[u8]) -> Result<Vec<u8>> {
            Err(Error::new(&code::BUG, name))
        }

        fn check_system(&self, name: &str, _: u64) -> Result<()> {
            Err(Error::new(&code::BUG, name))
        }
    }

    #[test]
    fn a_file_longer_than_a_segment_is_refused_unread() {
        let place = tempfile::tempdir().unwrap();
        let name = "000000010000000000000001";
        let path = place.path().join(name);
        let file = File::create(&path).unwrap();
        let archived = || {
            let read = read_to_archive(&path, name, || Ok(None::<NoInstance>));
            read.unwrap_err().code()
        };
        assert_eq!(archived(), &code::NOT_LOG);
        file.set_len(FILE_MAX + 1).unwrap();
        assert_eq!(archived(), &code::BACKUP_SOURCE);
    }
}
