//! The source for a directory and everything below it: regular files, directories, symbolic links.
//!
//! Files are read while others may write to them, so that parts of a file may come from different
//! times. Not kept: hard links (each name becomes a file of its own), holes, extended attributes,
//! access control lists. Sockets, pipes and devices are left out and reported, and so are entries
//! that vanish or are exchanged while the directory is read.
//!
//! Invariant B10: every directory is opened by its name below the directory that it was found in,
//! and never through a link, so that a user who changes the tree during the backup cannot lead the
//! reader out of it.
//!
//! Must not: follow a symbolic link below the root; leave anything out silently.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use strongroom_format::backup::{Member, MemberKind, PATH_MAX};
use strongroom_format::code;

use super::Source;
use crate::head::{Description, Kind};
use crate::stream::writer::StreamWriter;
use crate::{Error, Result};

/// Bytes read at a time.
const READ: usize = 256 * 1024;

/// The longest path that is stored, in bytes. A restore makes paths below an open directory, and
/// the system accepts this length (`PATH_MAX` of limits.h counts the final zero).
const STORED_MAX: usize = PATH_MAX as usize - 1;
/// File descriptors that the rest of this process may need: for families, libraries, connections.
const OTHERS: u64 = 256;

/// A directory.
#[derive(Debug)]
pub struct DirectorySource {
    root: PathBuf,
    opened: Option<OwnedFd>,
}

impl DirectorySource {
    /// The directory at `root`. Nothing is opened yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            opened: None,
        }
    }
}

impl Source for DirectorySource {
    fn kind(&self) -> Kind {
        Kind::Files
    }

    /// The real path of the directory; the given one when that cannot be found out.
    fn shown(&self) -> String {
        // A restore with `--delta` compares this path, for which a relative one would be useless.
        let real = std::fs::canonicalize(&self.root);
        let shown = real.as_ref().unwrap_or(&self.root);
        shown.display().to_string()
    }

    /// Opens the directory, also through a link. SR-7114 when that fails.
    fn prepare(&mut self) -> Result<()> {
        // The root itself may be a link, because the caller chose it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(rustix::fs::CWD, &self.root, flags, Mode::empty());
        self.opened = Some(opened.map_err(|error| failed(&self.root, error.into()))?);
        Ok(())
    }

    /// Writes the directory's member, everything below it, and the member again. SR-7114 when
    /// something cannot be read; entries that vanish meanwhile are noted as left out.
    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()> {
        let opened = self.opened.take();
        let opened = opened.ok_or_else(|| Error::new(&code::BUG, "not prepared"))?;
        let opened = File::from(opened);
        let about = opened.metadata();
        let about = about.map_err(|error| failed(&self.root, error))?;
        let root = member(MemberKind::Directory, b".", &about);
        stream.member(&root)?;
        let mut walk = Walk {
            stream,
            buffer: vec![0; READ],
            levels_max: levels_max(),
        };
        let level = Level::open(opened.into(), self.root.clone(), Vec::new(), None)?;
        walk.tree(level)?;
        stream.member(&root)
    }

    /// Adds nothing: a directory has no facts of its own.
    fn describe(&self, _: &mut Description) {}
}

/// A result, or why an entry is not what it was when its directory was read.
type Still<T> = std::result::Result<T, Changed>;

enum Changed {
    /// Removed since.
    Gone,
    /// Something else has its name.
    Exchanged,
    Failed(std::io::Error),
}

impl From<Errno> for Changed {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::STALE => Self::Gone,
            // Something else has the name: a link, a socket, or a file in place of a directory.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => Self::Exchanged,
            other => Self::Failed(other.into()),
        }
    }
}

struct Walk<'a, 'b> {
    stream: &'a mut StreamWriter<'b>,
    buffer: Vec<u8>,
    levels_max: usize,
}

/// A directory that is being read: one descriptor.
struct Level {
    opened: OwnedFd,
    shown: PathBuf,
    /// Its path in the stream.
    stored: Vec<u8>,
    /// Names of entries that are still to be read.
    names: std::vec::IntoIter<Vec<u8>>,
    /// The directory's member, which is written again after its entries: a restore then sets its
    /// time.
    member: Option<Member>,
}

impl Level {
    /// Reads the names in a directory, sorted, and makes it a level whose entries are still to be
    /// read. SR-7114 when that fails.
    fn open(
        opened: OwnedFd,
        shown: PathBuf,
        stored: Vec<u8>,
        member: Option<Member>,
    ) -> Result<Self> {
        let entries = Dir::read_from(&opened).map_err(|error| failed(&shown, error.into()))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(&shown, error.into()))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names.sort();
        Ok(Self {
            opened,
            shown,
            stored,
            names: names.into_iter(),
            member,
        })
    }
}

/// How many directories may be open below one another. Raises this process's limit of open files as
/// far as allowed.
fn levels_max() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = getrlimit(Resource::Nofile);
        }
    }
    let files = limit.current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(usize::MAX)
}

impl Walk<'_, '_> {
    /// Writes everything below the first level, depth first. Levels are kept in a list and not on
    /// the stack, because whoever can write to the tree decides how deep it is, up to the longest
    /// path (2048 levels). Directories deeper than the limit of open files allows are left out.
    /// SR-7114 when reading fails; errors of the medium.
    fn tree(&mut self, first: Level) -> Result<()> {
        let mut open = vec![first];
        loop {
            let levels = open.len();
            let Some(level) = open.last_mut() else {
                return Ok(());
            };
            if let Some(name) = level.names.next() {
                let mut stored = level.stored.clone();
                if !stored.is_empty() {
                    stored.push(b'/');
                }
                stored.extend_from_slice(&name);
                let path = level.shown.join(OsStr::from_bytes(&name));
                let below = self.entry(&level.opened, &name, path, stored, levels)?;
                open.extend(below);
            } else if let Some(member) = open.pop().and_then(|level| level.member) {
                self.stream.member(&member)?;
            }
        }
    }

    /// Writes one entry of the directory `within`, a file with its bytes, a link as a link. Returns
    /// the level to be read next for a directory, `None` for anything else. `stored` is its path in
    /// the stream, `levels` how many directories are open. Notes as left out: a path too long to be
    /// stored, a directory too deep, what vanishes or is exchanged, a socket, pipe or device.
    /// SR-7114 when reading fails, also for lack of permission; errors of the medium.
    fn entry(
        &mut self,
        within: &OwnedFd,
        name: &[u8],
        path: PathBuf,
        stored: Vec<u8>,
        levels: usize,
    ) -> Result<Option<Level>> {
        if stored.len() > STORED_MAX {
            return self.leave_out(&path, "too long a path");
        }
        let handle = match open_handle(within, name) {
            Ok(handle) => handle,
            Err(changed) => return self.report_changed(&path, changed),
        };
        let about = handle.metadata().map_err(|error| failed(&path, error))?;
        let sort = about.file_type();
        if sort.is_dir() {
            if levels >= self.levels_max {
                return self.leave_out(&path, "deeper than files may be open");
            }
            let opened = match open_directory(&handle) {
                Ok(opened) => opened,
                Err(changed) => return self.report_changed(&path, changed),
            };
            let directory = member(MemberKind::Directory, &stored, &about);
            self.stream.member(&directory)?;
            return Level::open(opened, path, stored, Some(directory)).map(Some);
        }
        if sort.is_symlink() {
            // The target of the link that the handle refers to, whatever has its name by now.
            let target = readlinkat(&handle, "", Vec::new());
            let target = target.map_err(|error| failed(&path, error.into()))?;
            let mut link = member(MemberKind::Link, &stored, &about);
            link.target = target.into_bytes();
            self.stream.member(&link)?;
        } else if sort.is_file() {
            drop(handle);
            match open_regular(within, name) {
                Ok((file, about)) => self.file(file, &about, &path, &stored)?,
                Err(changed) => return self.report_changed(&path, changed),
            }
        } else {
            let what = match () {
                () if sort.is_socket() => "socket",
                () if sort.is_fifo() => "pipe",
                () => "device",
            };
            return self.leave_out(&path, what);
        }
        Ok(None)
    }

    /// Notes an entry as left out, for a warning. Always returns `Ok(None)`, so that callers can
    /// return it.
    fn leave_out(&mut self, path: &Path, why: &str) -> Result<Option<Level>> {
        self.stream.leave_out(format!("{}: {why}", path.display()));
        Ok(None)
    }

    /// Notes an entry that has vanished or was exchanged as left out, and returns `Ok(None)`;
    /// another failure is SR-7114.
    fn report_changed(&mut self, path: &Path, changed: Changed) -> Result<Option<Level>> {
        match changed {
            Changed::Gone => self.leave_out(path, "removed while the directory was read"),
            Changed::Exchanged => self.leave_out(path, "exchanged while the directory was read"),
            Changed::Failed(error) => Err(failed(path, error)),
        }
    }

    /// Writes a file's member and its bytes, at most as many as it had when it was opened. SR-7114
    /// when reading fails; errors of the medium.
    fn file(&mut self, file: File, about: &Metadata, path: &Path, stored: &[u8]) -> Result<()> {
        self.stream
            .member(&member(MemberKind::File, stored, about))?;
        // Without a limit, a file that grows as fast as it is read would never end. Files in /proc
        // state no length, and are read to their end.
        let limit = if about.len() > 0 {
            about.len()
        } else {
            u64::MAX
        };
        let mut file = file.take(limit);
        loop {
            match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(got) => self
                    .stream
                    .data(self.buffer.get(..got).unwrap_or_default())?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(path, error)),
            }
        }
        self.stream.end_file().map(drop)
    }
}

/// Opens whatever has this name, even a link, as a handle that tells its kind but cannot be read.
fn open_handle(within: &OwnedFd, name: &[u8]) -> Still<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(within, name, flags, Mode::empty())?))
}

/// Opens the directory of a handle for reading, without looking up its name again.
fn open_directory(handle: &File) -> Still<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(handle, ".", flags, Mode::empty())?)
}

/// Opens the regular file `name`, and returns its metadata too: not through a link, and without
/// waiting if a pipe has taken its place. [`Changed`] when it is gone, or no regular file.
fn open_regular(within: &OwnedFd, name: &[u8]) -> Still<(File, Metadata)> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(within, name, flags, Mode::empty())?);
    let about = file.metadata().map_err(Changed::Failed)?;
    if about.is_file() {
        Ok((file, about))
    } else {
        Err(Changed::Exchanged)
    }
}

/// A member with the file's owner, mode and time.
fn member(kind: MemberKind, path: &[u8], about: &Metadata) -> Member {
    Member {
        kind,
        mode: about.mode() & 0o7777,
        owner: about.uid(),
        group: about.gid(),
        seconds: about.mtime(),
        nanoseconds: u32::try_from(about.mtime_nsec()).unwrap_or(0),
        path: path.to_vec(),
        target: Vec::new(),
    }
}

/// Makes SR-7114 with the path and the system's error in the detail.
fn failed(path: &Path, error: std::io::Error) -> Error {
    let shown: &OsStr = path.as_os_str();
    Error::caused(&code::BACKUP_SOURCE, shown.to_string_lossy(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the look at an entry and its opening nothing can be injected from outside: these are
    /// the steps themselves.
    #[test]
    fn what_was_exchanged_for_a_link_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir(path("inside")).unwrap();
        drop(File::create(path("file")).unwrap());
        std::os::unix::fs::symlink("inside", path("to_directory")).unwrap();
        std::os::unix::fs::symlink("file", path("to_file")).unwrap();
        let within: OwnedFd = File::open(place.path()).unwrap().into();
        let opened =
            |name: &[u8]| open_handle(&within, name).and_then(|handle| open_directory(&handle));
        assert!(opened(b"inside").is_ok());
        for name in [&b"to_directory"[..], b"to_file", b"file"] {
            assert!(matches!(opened(name), Err(Changed::Exchanged)), "{name:?}");
        }
        assert!(matches!(opened(b"none"), Err(Changed::Gone)));
        assert!(open_regular(&within, b"file").is_ok());
        for name in [&b"to_directory"[..], b"to_file", b"inside"] {
            let exchanged = matches!(open_regular(&within, name), Err(Changed::Exchanged));
            assert!(exchanged, "{name:?}");
        }
        assert!(matches!(open_regular(&within, b"none"), Err(Changed::Gone)));
    }

    #[test]
    fn a_directory_that_was_exchanged_after_the_look_is_the_one_that_was_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["inside", "outside"] {
            std::fs::create_dir(path(name)).unwrap();
            drop(File::create(path(name).join(name)).unwrap());
        }
        let within: OwnedFd = File::open(place.path()).unwrap().into();
        let found = open_handle(&within, b"inside").ok().unwrap();
        rustix::fs::rename(path("inside"), path("moved")).unwrap();
        std::os::unix::fs::symlink("outside", path("inside")).unwrap();
        let opened = open_directory(&found).ok().unwrap();
        assert!(open_regular(&opened, b"inside").is_ok());
        assert!(open_regular(&opened, b"outside").is_err());
    }
}
