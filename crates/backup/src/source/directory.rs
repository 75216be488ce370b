//! A directory with everything below it: regular files, directories, symbolic links.
//!
//! Files are read while others may write to them: a file is what it was while it was read, piece by piece. Not kept: hard
//! links (each name becomes a file of its own), holes, extended attributes, access control lists. Sockets, pipes and
//! devices are left out and named.
//!
//! Must not: follow a symbolic link below the root; leave anything out silently.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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
}

impl DirectorySource {
    /// The directory at `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
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
        let entries = fs::read_dir(&self.root);
        entries.map(drop).map_err(|error| failed(&self.root, error))
    }

    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()> {
        let about = fs::metadata(&self.root).map_err(|error| failed(&self.root, error))?;
        let root = member(MemberKind::Directory, b".", &about);
        stream.member(&root)?;
        let mut walk = Walk {
            stream,
            buffer: vec![0; READ],
        };
        walk.directory(&self.root, &[])?;
        stream.member(&root)
    }

    fn describe(&self, _: &mut Description) {}
}

struct Walk<'a, 'b> {
    stream: &'a mut StreamWriter<'b>,
    buffer: Vec<u8>,
}

impl Walk<'_, '_> {
    /// Everything in `directory`, whose path in the stream is `prefix`. The depth is bounded by the longest path.
    fn directory(&mut self, directory: &Path, prefix: &[u8]) -> Result<()> {
        let entries = fs::read_dir(directory).map_err(|error| failed(directory, error))?;
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.map_err(|error| failed(directory, error))?.file_name());
        }
        names.sort();
        for name in names {
            let path = directory.join(&name);
            let mut stored = prefix.to_vec();
            if !stored.is_empty() {
                stored.push(b'/');
            }
            stored.extend_from_slice(name.as_bytes());
            self.entry(&path, &stored)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, stored: &[u8]) -> Result<()> {
        let about = match fs::symlink_metadata(path) {
            // Removed since the directory was read.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| failed(path, error))?,
        };
        let sort = about.file_type();
        if sort.is_dir() {
            let directory = member(MemberKind::Directory, stored, &about);
            self.stream.member(&directory)?;
            self.directory(path, stored)?;
            // Again, now that everything is in it: a reader sets its time.
            self.stream.member(&directory)
        } else if sort.is_symlink() {
            let target = fs::read_link(path).map_err(|error| failed(path, error))?;
            let mut link = member(MemberKind::Link, stored, &about);
            link.target = target.as_os_str().as_bytes().to_vec();
            self.stream.member(&link)
        } else if sort.is_file() {
            self.file(path, stored)
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

    fn file(&mut self, path: &Path, stored: &[u8]) -> Result<()> {
        // Never through a link, never waiting for a pipe that took the file's place.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let file = match File::options().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| failed(path, error))?,
        };
        let about = file.metadata().map_err(|error| failed(path, error))?;
        if !about.is_file() {
            return Err(failed(path, ErrorKind::Other.into()));
        }
        self.stream
            .member(&member(MemberKind::File, stored, &about))?;
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
