//! A directory with everything below it: regular files, directories, symbolic links.
//!
//! Files are read while others may write to them: a file is what it was while it was read, piece by piece. Not kept: hard
//! links (each name becomes a file of its own), holes, extended attributes, access control lists. Sockets, pipes and
//! devices are left out and named, and so is what vanishes or is exchanged while the directory is read.
//!
//! Invariant B10: every directory is opened below the one that it was found in, by its name alone and never through a link, so
//! whoever may change the tree while it is read cannot lead out of it.
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
use strongroom_format::backup::{Member, MemberKind};
use strongroom_format::code;

use super::Source;
use crate::head::{Description, Kind};
use crate::stream::writer::StreamWriter;
use crate::{Error, Result};

/// Bytes read at a time.
const READ: usize = 256 * 1024;

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
        self.root.display().to_string()
    }

    fn prepare(&mut self) -> Result<()> {
        // The root itself may be named by a link: whoever names it decides.
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
        };
        walk.directory(&opened.into(), &self.root, &[])?;
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
}

impl Walk<'_, '_> {
    /// Everything in the directory that is open as `opened`, whose path in the stream is `prefix`. One descriptor is held for each
    /// level; a path of the stream has no more than 2048.
    fn directory(&mut self, opened: &OwnedFd, shown: &Path, prefix: &[u8]) -> Result<()> {
        let entries = Dir::read_from(opened).map_err(|error| failed(shown, error.into()))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(shown, error.into()))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names.sort();
        for name in names {
            let mut stored = prefix.to_vec();
            if !stored.is_empty() {
                stored.push(b'/');
            }
            stored.extend_from_slice(&name);
            let path = shown.join(OsStr::from_bytes(&name));
            self.entry(opened, &name, &path, &stored)?;
        }
        Ok(())
    }

    fn entry(&mut self, within: &OwnedFd, name: &[u8], path: &Path, stored: &[u8]) -> Result<()> {
        let handle = match handle(within, name) {
            Ok(handle) => handle,
            Err(changed) => return self.changed(path, changed),
        };
        let about = handle.metadata().map_err(|error| failed(path, error))?;
        let sort = about.file_type();
        if sort.is_dir() {
            match directory(&handle) {
                Ok(opened) => self.subdirectory(&opened, &about, path, stored),
                Err(changed) => self.changed(path, changed),
            }
        } else if sort.is_symlink() {
            // Of the link that the handle is, whatever has its name by now.
            let target = readlinkat(&handle, "", Vec::new());
            let target = target.map_err(|error| failed(path, error.into()))?;
            let mut link = member(MemberKind::Link, stored, &about);
            link.target = target.into_bytes();
            self.stream.member(&link)
        } else if sort.is_file() {
            drop(handle);
            match regular(within, name) {
                Ok((file, about)) => self.file(file, &about, path, stored),
                Err(changed) => self.changed(path, changed),
            }
        } else {
            let what = match () {
                () if sort.is_socket() => "socket",
                () if sort.is_fifo() => "pipe",
                () => "device",
            };
            self.stream.leave_out(format!("{}: {what}", path.display()));
            Ok(())
        }
    }

    fn changed(&mut self, path: &Path, changed: Changed) -> Result<()> {
        let what = match changed {
            Changed::Gone => "removed while the directory was read",
            Changed::Exchanged => "exchanged while the directory was read",
            Changed::Failed(error) => return Err(failed(path, error)),
        };
        self.stream.leave_out(format!("{}: {what}", path.display()));
        Ok(())
    }

    fn subdirectory(
        &mut self,
        opened: &OwnedFd,
        about: &Metadata,
        path: &Path,
        stored: &[u8],
    ) -> Result<()> {
        let directory = member(MemberKind::Directory, stored, about);
        self.stream.member(&directory)?;
        self.directory(opened, path, stored)?;
        // Again, now that everything is in it: a reader sets its time.
        self.stream.member(&directory)
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

    /// Between the look at an entry and its opening nothing can be injected from outside: these are the steps themselves.
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
