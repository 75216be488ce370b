//! Searching everything a process left on disk or holds open for strings that must not be there.
//!
//! Invariant: the searching process holds no SQLite lock, so opening and closing the files disturbs
//! nobody.
//! Must not: search the directory of keys, which has to contain them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use memchr::memmem;

/// What kind of file a string was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A database file.
    Main,
    /// A rollback journal.
    Journal,
    /// A write-ahead log.
    Wal,
    /// The index of a write-ahead log.
    Shm,
    /// A super-journal.
    Super,
    /// A temporary file, mostly one that has no name any more.
    Temp,
    /// Standard error of the process.
    Log,
    /// Any other file.
    Other,
}

impl Place {
    fn of(path: &str) -> Self {
        let name = path.strip_suffix(" (deleted)").unwrap_or(path);
        if name.ends_with("-journal") {
            Self::Journal
        } else if name.ends_with("-wal") {
            Self::Wal
        } else if name.ends_with("-shm") {
            Self::Shm
        } else if name.contains(".db-mj") {
            Self::Super
        } else if name.contains("/tmp/etilqs_") || name.contains("/tmp/#") {
            // SQLite's own name, or the kernel's for a file that never had one (O_TMPFILE).
            Self::Temp
        } else if name.ends_with(".db") {
            Self::Main
        } else if name.ends_with("/stderr") {
            Self::Log
        } else {
            Self::Other
        }
    }
}

/// What a search saw.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Where the string was, and in which file.
    pub hits: BTreeSet<(Place, String)>,
    /// Kinds of files that were there and not empty.
    pub seen: BTreeSet<Place>,
    /// Bytes searched.
    pub bytes: u64,
}

impl Found {
    /// Whether the string was in a file of this kind.
    #[must_use]
    pub fn in_place(&self, place: Place) -> bool {
        self.hits.iter().any(|(hit, _)| *hit == place)
    }

    fn look(&mut self, path: &str, bytes: &[u8], needle: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let place = Place::of(path);
        self.seen.insert(place);
        self.bytes += bytes.len() as u64;
        if memmem::find(bytes, needle).is_some() {
            self.hits.insert((place, path.to_owned()));
        }
    }

    /// Searches every file under `directory`, except in directories called `keys`.
    ///
    /// # Errors
    /// Those of reading the directory; files may come and go meanwhile.
    pub fn search_directory(&mut self, directory: &Path, needle: &[u8]) -> std::io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.ends_with("keys") {
                    self.search_directory(&path, needle)?;
                }
            } else if let Ok(bytes) = std::fs::read(&path) {
                self.look(&path.to_string_lossy(), &bytes, needle);
            }
        }
        Ok(())
    }

    /// Searches what process `pid` has open, also when it has no name any more.
    ///
    /// # Errors
    /// Those of reading `/proc`.
    pub fn search_process(&mut self, pid: u32, needle: &[u8]) -> std::io::Result<()> {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            let link = entry?.path();
            let Ok(target) = std::fs::read_link(&link) else {
                continue;
            };
            let target = target.to_string_lossy().into_owned();
            // The database and its named companions are searched by name.
            if !target.ends_with(" (deleted)") {
                continue;
            }
            let mut bytes = Vec::new();
            if File::open(&link)
                .and_then(|mut file| file.read_to_end(&mut bytes))
                .is_ok()
            {
                self.look(&target, &bytes, needle);
            }
        }
        Ok(())
    }
}
