//! A directory with everything below it: regular files, directories, symbolic links.
//!
//! Files are read while others may write to them: a file is what it was while it was read, piece by
//! piece. Not kept: hard links (each name becomes a file of its own), holes, extended attributes,
//! access control lists. Sockets, pipes and devices are left out and named, and so is what vanishes
//! or is exchanged while the directory is read.
//!
//! Invariant B10: every directory is opened below the one that it was found in, by its name alone
//! and never through a link, so a user who changes the tree during the backup cannot lead the
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

/// Longest path that is stored, in bytes: a restore makes it below a directory that is open, and
/// the system takes so many (`PATH_MAX` of limits.h, with its 0).
const STORED_MAX: usize = PATH_MAX as usize - 1;
/// Descriptors that the rest of this process may need: families, libraries, connections.
const OTHERS: u64 = 256;

/// A directory.
#[derive(Debug)]
pub struct DirectorySource {
    root: PathBuf,
    opened: Option<OwnedFd>,
}

impl DirectorySource {
    /// The directory at `root`.
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

    fn shown(&self) -> String {
        // A relative path would be useless in a restore: `--delta` compares it.
        let real = std::fs::canonicalize(&self.root);
        let shown = real.as_ref().unwrap_or(&self.root);
        shown.display().to_string()
    }

    fn prepare(&mut self) -> Result<()> {
        // The root itself may be a link: the caller chose it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(rustix::fs::CWD, &self.root, flags, Mode::empty());
        self.opened = Some(opened.map_err(|error| failed(&self.root, error.into()))?);
        Ok(())
    }

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

    fn describe(&self, _: &mut Description) {}
}

/// An entry that is still what it was when its directory was read, or why it is not.
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
            // A link where none was, no directory where one was, a socket.
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
    /// What is still to be read.
    names: std::vec::IntoIter<Vec<u8>>,
    /// Written again when everything is in it: a reader sets its time.
    member: Option<Member>,
}

impl Level {
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

/// How many directories may be open one below the other, after the limit of this process was raised
/// as far as it goes.
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
    /// Everything below the first level. Levels are on a list of ours and not on the stack: whoever
    /// may write to the tree decides how many there are, as far as a path of the stream goes
    /// (2048). What is below more of them than descriptors allow is left out.
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

    /// One entry; of a directory the level that it is.
    fn entry(
        &mut self,
        within: &OwnedFd,
        name: &[u8],
        path: PathBuf,
        stored: Vec<u8>,
        levels: usize,
    ) -> Result<Option<Level>> {
        if stored.len() > STORED_MAX {
            return self.without(&path, "too long a path");
        }
        let handle = match handle(within, name) {
            Ok(handle) => handle,
            Err(changed) => return self.changed(&path, changed),
        };
        let about = handle.metadata().map_err(|error| failed(&path, error))?;
        let sort = about.file_type();
        if sort.is_dir() {
            if levels >= self.levels_max {
                return self.without(&path, "deeper than files may be open");
            }
            let opened = match directory(&handle) {
                Ok(opened) => opened,
                Err(changed) => return self.changed(&path, changed),
            };
            let directory = member(MemberKind::Directory, &stored, &about);
            self.stream.member(&directory)?;
            return Level::open(opened, path, stored, Some(directory)).map(Some);
        }
        if sort.is_symlink() {
            // Of the link that the handle is, whatever has its name by now.
            let target = readlinkat(&handle, "", Vec::new());
            let target = target.map_err(|error| failed(&path, error.into()))?;
            let mut link = member(MemberKind::Link, &stored, &about);
            link.target = target.into_bytes();
            self.stream.member(&link)?;
        } else if sort.is_file() {
            drop(handle);
            match regular(within, name) {
                Ok((file, about)) => self.file(file, &about, &path, &stored)?,
                Err(changed) => return self.changed(&path, changed),
            }
        } else {
            let what = match () {
                () if sort.is_socket() => "socket",
                () if sort.is_fifo() => "pipe",
                () => "device",
            };
            return self.without(&path, what);
        }
        Ok(None)
    }

    fn without(&mut self, path: &Path, why: &str) -> Result<Option<Level>> {
        self.stream.leave_out(format!("{}: {why}", path.display()));
        Ok(None)
    }

    fn changed(&mut self, path: &Path, changed: Changed) -> Result<Option<Level>> {
        match changed {
            Changed::Gone => self.without(path, "removed while the directory was read"),
            Changed::Exchanged => self.without(path, "exchanged while the directory was read"),
            Changed::Failed(error) => Err(failed(path, error)),
        }
    }

    fn file(&mut self, file: File, about: &Metadata, path: &Path, stored: &[u8]) -> Result<()> {
        self.stream
            .member(&member(MemberKind::File, stored, about))?;
        // A file that grows as fast as it is read would never end. Those of /proc have no length.
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

/// Whatever has the name `name`, a link too, as a handle that says what it is and cannot be read.
fn handle(within: &OwnedFd, name: &[u8]) -> Still<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(within, name, flags, Mode::empty())?))
}

/// The directory that a handle is, for reading: no name is looked up any more.
fn directory(handle: &File) -> Still<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(handle, ".", flags, Mode::empty())?)
}

/// The regular file `name`: never through a link, never waiting for a pipe that took its place.
fn regular(within: &OwnedFd, name: &[u8]) -> Still<(File, Metadata)> {
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
        let opened = |name: &[u8]| handle(&within, name).and_then(|handle| directory(&handle));
        assert!(opened(b"inside").is_ok());
        for name in [&b"to_directory"[..], b"to_file", b"file"] {
            assert!(matches!(opened(name), Err(Changed::Exchanged)), "{name:?}");
        }
        assert!(matches!(opened(b"none"), Err(Changed::Gone)));
        assert!(regular(&within, b"file").is_ok());
        for name in [&b"to_directory"[..], b"to_file", b"inside"] {
            let exchanged = matches!(regular(&within, name), Err(Changed::Exchanged));
            assert!(exchanged, "{name:?}");
        }
        assert!(matches!(regular(&within, b"none"), Err(Changed::Gone)));
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
        let found = handle(&within, b"inside").ok().unwrap();
        rustix::fs::rename(path("inside"), path("moved")).unwrap();
        std::os::unix::fs::symlink("outside", path("inside")).unwrap();
        let opened = directory(&found).ok().unwrap();
        assert!(regular(&opened, b"inside").is_ok());
        assert!(regular(&opened, b"outside").is_err());
    }
}
