//! Copies a plain file system onto an encrypted one, and compares both.
//!
//! Copied: contents with their holes, owner, mode, times to the nanosecond, extended attributes
//! (access control lists and capabilities among them), hard links, symbolic links, devices, pipes.
//! Left out: sockets, which belong to processes, and other file systems that are mounted below.
//!
//! Invariants: a file gets its name when it is complete; a file that is there already with the same
//! attributes is not copied again, but it is compared like everything else; the copy succeeds only
//! after every byte and attribute was read back.
//!
//! Must not: write to the source; follow a symbolic link.

mod compare;
mod entry;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags};
use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

pub use compare::compare;

use crate::error::io;
use entry::{attributes, put_attributes};

/// The name of a file that is being copied, until it is complete.
const UNFINISHED: &str = ".strongroom-migrate.tmp";
/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// A directory that mkfs.ext4 makes at the top.
const LOST_FOUND: &str = "lost+found";
/// Deepest nesting of directories: a deeper tree is taken for damaged.
const DEPTH_MAX: usize = 1000;

/// What was copied and compared.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Entries of every kind in the source.
    pub entries: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Files that this run has copied; the others were there.
    pub copied: u64,
    /// Names that were left out, and why.
    pub left_out: Vec<String>,
}

/// Returns whether the file system that `path` is on is mounted read-only.
///
/// # Errors
/// SR-5001 when the system reports an error.
pub fn is_read_only(path: &Path) -> Result<bool, Error> {
    let about = rustix::fs::statvfs(path).map_err(|error| io(path, error.into()))?;
    Ok(about.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Copies everything below `from` to `to`, with the attributes of `from` itself, syncs, and
/// compares. Links may lead to these two directories. Files that are there already with the same
/// attributes are not copied again. `progress` gets the bytes in use on the source's file system
/// and the bytes copied; `false` ends the copy with SR-5001.
///
/// # Errors
/// SR-8334 when they differ, and for a tree that is too deep; SR-1003 when `from` and `to` are not
/// two directories, or one lies within the other; SR-5001 when the system reports an error.
pub fn migrate(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Report, Error> {
    let (from, to) = (&resolved(from)?, &resolved(to)?);
    let source = std::fs::metadata(from).map_err(|error| io(from, error))?;
    let target = std::fs::metadata(to).map_err(|error| io(to, error))?;
    let overlap = from.starts_with(to) || to.starts_with(from);
    if !source.is_dir() || !target.is_dir() || overlap {
        let detail = "two directories are needed, and neither may lie within the other";
        return Err(Error::new(&code::SAME_FILE, detail));
    }
    let usage = rustix::fs::statvfs(from).map_err(|error| io(from, error.into()))?;
    let mut copy = Copy {
        device: source.dev(),
        total: usage.f_blocks.saturating_sub(usage.f_bfree) * usage.f_frsize,
        linked: BTreeMap::new(),
        report: Report::default(),
        progress,
    };
    copy.directory(from, to, 0)?;
    let report = copy.report;
    let root = File::open(to).map_err(|error| io(to, error))?;
    rustix::fs::syncfs(&root).map_err(|error| io(to, error.into()))?;
    compare(from, to)?;
    Ok(report)
}

struct Copy<'a> {
    device: u64,
    total: u64,
    /// The copy of the first name of each inode that has several.
    linked: BTreeMap<u64, PathBuf>,
    report: Report,
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Copy<'_> {
    /// Copies the entries of the directory `from` into `to`, then gives `to` the attributes of
    /// `from`. `depth` is 0 at the top. SR-8334 when it is too deep; SR-5001 when the system
    /// reports an error.
    fn directory(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::new(
                &code::VOLUME_COPY,
                format!("{}: too deep", from.display()),
            ));
        }
        for name in names(from, depth)? {
            let (source, target) = (from.join(&name), to.join(&name));
            self.entry(&source, &target, depth)?;
        }
        // After the entries, whose creation changes the directory's times.
        put_attributes(&attributes(from)?, to)?;
        self.report.entries += 1;
        Ok(())
    }

    /// Copies one entry of any kind, a directory with all below it. Leaves out sockets and what is
    /// on another file system. SR-5001 when the system reports an error.
    fn entry(&mut self, source: &Path, target: &Path, depth: usize) -> Result<(), Error> {
        let about = std::fs::symlink_metadata(source).map_err(|error| io(source, error))?;
        let kind = about.file_type();
        if about.dev() != self.device {
            self.leave_out(source, "another file system");
            return Ok(());
        }
        if kind.is_socket() {
            self.leave_out(source, "a socket");
            return Ok(());
        }
        if kind.is_dir() {
            match std::fs::create_dir(target) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(io(target, error));
                }
                _ => {}
            }
            return self.directory(source, target, depth + 1);
        }
        self.report.entries += 1;
        if about.nlink() > 1
            && let Some(first) = self.linked.get(&about.ino())
        {
            return link(first, target);
        }
        if kind.is_file() {
            self.file(source, target, &about)?;
        } else if kind.is_symlink() {
            let text = std::fs::read_link(source).map_err(|error| io(source, error))?;
            remove(target)?;
            std::os::unix::fs::symlink(text, target).map_err(|error| io(target, error))?;
            put_attributes(&attributes(source)?, target)?;
        } else {
            remove(target)?;
            let mode = rustix::fs::Mode::from_raw_mode(about.mode());
            let kind = rustix::fs::FileType::from_raw_mode(about.mode());
            rustix::fs::mknodat(CWD, target, kind, mode, about.rdev())
                .map_err(|error| io(target, error.into()))?;
            put_attributes(&attributes(source)?, target)?;
        }
        if about.nlink() > 1 {
            self.linked.insert(about.ino(), target.to_owned());
        }
        Ok(())
    }

    /// Copies a regular file under a temporary name, sets its attributes, and renames it; does
    /// nothing when `target` has the same attributes already. SR-5001, also when `progress` ends
    /// the copy.
    fn file(
        &mut self,
        source: &Path,
        target: &Path,
        about: &std::fs::Metadata,
    ) -> Result<(), Error> {
        self.report.files += 1;
        self.report.bytes += about.len();
        let wanted = attributes(source)?;
        // An interrupted copy has left complete files with all their attributes, and no others.
        let there = std::fs::symlink_metadata(target).is_ok_and(|there| there.is_file());
        if !there || attributes(target)? != wanted {
            let temp = target.with_file_name(UNFINISHED);
            remove(&temp)?;
            contents(source, &temp)?;
            put_attributes(&wanted, &temp)?;
            rustix::fs::rename(&temp, target).map_err(|error| io(target, error.into()))?;
            self.report.copied += 1;
        }
        if (self.progress)(self.total, self.report.bytes) {
            return Ok(());
        }
        Err(Error::new(&code::IO, "stopped; the same command goes on"))
    }

    /// Records that an entry was not copied, and why.
    fn leave_out(&mut self, source: &Path, why: &str) {
        let left = format!("{}: {why}", source.display());
        self.report.left_out.push(left);
    }
}

/// Returns the path without links: the attributes of a link are not those of the directory that it
/// leads to. SR-5001 when the system reports an error, also that nothing is there.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| io(path, error))
}

/// Returns the names in a directory, sorted. Leaves out the unfinished copy of a stopped run, and
/// at the top the directory that mkfs made. SR-5001 when the system reports an error.
fn names(directory: &Path, depth: usize) -> Result<Vec<std::ffi::OsString>, Error> {
    let entries = std::fs::read_dir(directory).map_err(|error| io(directory, error))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| io(directory, error))?.file_name();
        if name != UNFINISHED && !(depth == 0 && name == LOST_FOUND) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Copies the contents of a file to a new file at `temp`, readable by its owner only; holes stay
/// holes. Does not sync. SR-5001 when the system reports an error.
fn contents(source: &Path, temp: &Path) -> Result<(), Error> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(source);
    let mut from = opened.map_err(|error| io(source, error))?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut to = options.open(temp).map_err(|error| io(temp, error))?;
    let len = from.metadata().map_err(|error| io(source, error))?.len();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < len {
        let data = match rustix::fs::seek(&from, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is only a hole up to the end.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(io(source, error.into())),
        };
        let hole = rustix::fs::seek(&from, rustix::fs::SeekFrom::Hole(data))
            .map_err(|error| io(source, error.into()))?;
        from.seek(SeekFrom::Start(data))
            .map_err(|error| io(source, error))?;
        to.seek(SeekFrom::Start(data))
            .map_err(|error| io(temp, error))?;
        let mut left = hole.saturating_sub(data);
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let count = from
                .read(piece.get_mut(..want).unwrap_or_default())
                .map_err(|error| io(source, error))?;
            if count == 0 {
                break;
            }
            to.write_all(piece.get(..count).unwrap_or_default())
                .map_err(|error| io(temp, error))?;
            left -= count as u64;
        }
        at = hole.max(data + 1);
    }
    to.set_len(len).map_err(|error| io(temp, error))
}

/// Makes `target` another name of the file `first`, in place of what is there. SR-5001 when the
/// system reports an error.
fn link(first: &Path, target: &Path) -> Result<(), Error> {
    let same = |a: &Path, b: &Path| {
        let (a, b) = (std::fs::symlink_metadata(a), std::fs::symlink_metadata(b));
        matches!((a, b), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    if same(first, target) {
        return Ok(());
    }
    remove(target)?;
    std::fs::hard_link(first, target).map_err(|error| io(target, error))
}

/// Removes a file or link, if it is there. SR-5001 when the system reports an error.
fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
