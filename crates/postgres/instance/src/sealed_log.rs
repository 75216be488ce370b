//! The write-ahead log of a sealed instance, for the commands that archive it and fetch it back:
//! the server runs them without the shield.
//!
//! Invariants: the place of a file decides which instance it belongs to; a segment that is sealed
//! for an instance has the instance's system identifier.
//!
//! Must not: write a file; seal what the caller has not authenticated; ask for a key, because
//! nobody is there to answer.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::MemfdFlags;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::paths::open_to_read;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::real::{Errno, Real};
use strongroom_postgres_shield::sealed_file::{FileCache, SealedFile};
use strongroom_postgres_shield::{file_io, scratch};

use crate::chosen::{ChosenKey, GivenKey};
use crate::contents::{Contents, check_control, seal_of};
use crate::directory::Directory;

/// The instance that a file of the log belongs to, when it is sealed.
pub struct SealedLog {
    directory: Directory,
    instance: Instance,
}

impl SealedLog {
    /// Opens the sealed instance in whose `pg_wal` the file lies, or is to lie. `None` where there
    /// is none, and where nothing names a key and `optional` allows that.
    ///
    /// # Errors
    /// SR-2001 when nothing names a key and `optional` is false; SR-7003 while the instance is
    /// converted; SR-7015 for root; SR-7001 when the key does not open the control file; those of
    /// the key; SR-5001, also for another user than the owner.
    pub fn around(
        file: &Path,
        keyring: Option<PathBuf>,
        optional: bool,
    ) -> Result<Option<Self>, Error> {
        for candidate in directories(file)? {
            let Ok(directory) = Directory::at(&candidate) else {
                continue;
            };
            if !directory.is_sealed() && !directory.is_converting() {
                continue;
            }
            directory.check_sealed()?;
            // Its configuration may name a command that fetches the key: that is its owner's to
            // run.
            directory.check_user()?;
            let given = GivenKey { key: None, keyring };
            let chosen = ChosenKey::find(given, &directory)?;
            let Some(chosen) = chosen else {
                if optional {
                    return Ok(None);
                }
                let detail = "the log of a sealed instance is opened to be archived, and its configuration names no key; \
                              what the server was started with does not reach its archive_command";
                return Err(directory.failure(&code::NO_KEY, detail));
            };
            let instance = chosen.instance(&directory)?;
            check_control(&directory, &instance)?;
            return Ok(Some(Self {
                directory,
                instance,
            }));
        }
        Ok(None)
    }

    /// Returns at most `most` bytes of the file of the log at `path`, opened. The server calls it
    /// `name`, which decides how it is sealed; one that is not sealed is returned as it is.
    ///
    /// # Errors
    /// SR-1006 when there is none; SR-5001 when the system reports an error.
    pub fn open(&self, path: &Path, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let (file, _) = open_to_read(path)?;
        let failed = |error: std::io::Error| Error::on_path(path, error);
        let mut content = Vec::new();
        let Some(seal) = seal_of(&Path::new("pg_wal").join(name)) else {
            file.take(most).read_to_end(&mut content).map_err(failed)?;
            return Ok(content);
        };
        let contents = Contents::new(&file, &self.instance, seal);
        let mut part = vec![0; scratch::LEN];
        loop {
            let at = content.len() as u64;
            let left = usize::try_from(most.saturating_sub(at)).unwrap_or(scratch::LEN);
            let into = part.get_mut(..left.min(scratch::LEN)).unwrap_or_default();
            let read = contents.read(into, at).map_err(|e| failed(e.into()))?;
            if read == 0 {
                break;
            }
            content.extend_from_slice(into.get(..read).unwrap_or_default());
        }
        Ok(content)
    }

    /// Returns `content` sealed as the file `name` of this instance's log; unchanged where such
    /// files are not sealed. Writes no file.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub fn seal(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, Error> {
        let Some(seal) = seal_of(&Path::new("pg_wal").join(name)) else {
            return Ok(content.to_vec());
        };
        let failed = |error: std::io::Error| Error::io(name, error);
        // The shield's own treatment writes to a descriptor: one without a name, in memory.
        let descriptor = rustix::fs::memfd_create("strongroom", MemfdFlags::CLOEXEC);
        let mut file = File::from(descriptor.map_err(|error| failed(error.into()))?);
        let cache: FileCache = [const { AtomicU64::new(0) }; 4];
        let state = SealedFile {
            instance: &self.instance,
            layout: seal.layout,
            key: seal.key,
            tweak: seal.tweak,
            cache: &cache,
        };
        let real = Real::linked();
        let mut done = 0_usize;
        while let Some(rest) = content.get(done..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..scratch::LEN).unwrap_or(rest);
            let wrote = file_io::write_at(&real, file.as_raw_fd(), &state, part, done as u64);
            match wrote {
                Ok(0) => return Err(failed(Errno(28).into())),
                Ok(count) => done = done.saturating_add(count),
                Err(error) => return Err(failed(error.into())),
            }
        }
        let mut sealed = Vec::with_capacity(content.len());
        std::io::Seek::rewind(&mut file).map_err(failed)?;
        file.read_to_end(&mut sealed).map_err(failed)?;
        Ok(sealed)
    }

    /// Checks that a segment is of this instance's cluster: that `system`, its system identifier,
    /// is the one in the control file. Does not read the segment; `name` is for the message.
    ///
    /// # Errors
    /// SR-7173 when it is not, or the control file is too short to say; SR-1006 without a control
    /// file, SR-1007 when that is not a regular file; SR-5001 when it is damaged or the system
    /// reports an error.
    pub fn check_system(&self, name: &str, system: u64) -> Result<(), Error> {
        let relative = Path::new("global/pg_control");
        let path = self.directory.path.join(relative);
        let (file, _) = open_to_read(&path)?;
        let seal = seal_of(relative).ok_or_else(|| Error::new(&code::BUG, "the control file"))?;
        let mut number = [0; 8];
        let read = Contents::new(&file, &self.instance, seal).read(&mut number, 0);
        let read = read.map_err(|error| Error::on_path(&path, error.into()))?;
        let own = u64::from_le_bytes(number);
        if read == number.len() && own == system {
            return Ok(());
        }
        let detail = format!("{name}: of the cluster {system}, the instance is {own}");
        Err(self.directory.failure(&code::NOT_LOG, &detail))
    }
}

/// Returns where the data directory of a file in `pg_wal` can be: above it as it is spelled, above
/// it with links resolved, or the working directory when its `pg_wal` leads to the file. PostgreSQL
/// runs its commands in the data directory. Empty when it can be nowhere. SR-5001 without a working
/// directory, if `file` is a relative path.
fn directories(file: &Path) -> Result<Vec<PathBuf>, Error> {
    let absolute = std::path::absolute(file).map_err(|error| Error::on_path(file, error))?;
    let mut found = Vec::new();
    let Some(log) = absolute.parent() else {
        return Ok(found);
    };
    let resolved = log.canonicalize().ok();
    for log in [Some(log), resolved.as_deref()].into_iter().flatten() {
        if log.file_name() == Some("pg_wal".as_ref()) {
            found.extend(log.parent().map(Path::to_path_buf));
        }
    }
    if let Ok(here) = std::env::current_dir() {
        let own = here.join("pg_wal").canonicalize().ok();
        if own.is_some() && own == resolved {
            found.push(here);
        }
    }
    Ok(found)
}
