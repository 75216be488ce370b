//! Plans a conversion: determines what becomes of every file of the instance, before the first one
//! is changed.
//!
//! Invariants: the walk follows the same links as PostgreSQL, and gives each file one path, so that
//! an interrupted conversion finds its records again. A file that cannot be converted is an error
//! before anything was changed. So is a part of the instance that is missing because its file
//! system is not mounted: its files would keep a key that no longer exists, or stay in clear.
//!
//! Must not: write.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::postgres::container::container_physical;
use strongroom_format::postgres::convert::State;
use strongroom_format::postgres::stream::STREAM_HEADER;
use strongroom_keyring::Error;

use crate::classify::{CONVERT_SUFFIX, Class, Classified, classify};
use crate::container_name::TEMPORARY_SUMMARY;
use crate::layout::FileLayout;
use crate::path::file_name;
use crate::resolve::{Seal, seal};
use crate::table::{Treatment, is_sealed_file, treatment};

/// The control file's path.
pub(super) const CONTROL: &[u8] = b"global/pg_control";

/// Directories that have files in every instance.
const NEVER_EMPTY: [&str; 4] = ["base/", "global/", "pg_wal/", "pg_xact/"];
/// Bytes of files that one thread converts together; a larger file is converted by itself.
pub(super) const BATCH_BYTES: u64 = 4 << 20;

/// Longest file name, in bytes, on every file system that PostgreSQL runs on.
const NAME_MAX: usize = 255;

/// What is done with a file of a plain instance when the instance is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// It is removed: PostgreSQL would remove it, or it belongs to the seal of another
    /// instance.
    Remove,
    /// It stays in clear.
    KeepPlain,
    /// It is sealed in this way.
    Seal(Seal),
}

/// A file to be converted, or that has been.
pub(super) struct PlannedFile {
    /// Path relative to the data directory.
    pub(super) relative: Vec<u8>,
    /// The same, absolute.
    pub(super) path: PathBuf,
    /// How it is sealed, on the sealed side.
    pub(super) seal: Seal,
    /// Length of the stored file in bytes.
    pub(super) size: u64,
    /// Bytes that are allocated; less than `size` when it has holes.
    pub(super) allocated: u64,
    /// The file system that it is on.
    pub(super) device: u64,
    /// Whether an earlier run converted it.
    pub(super) done: bool,
}

/// All files of an instance, by what is done with them.
#[derive(Default)]
pub(super) struct Plan {
    /// Files with a treatment, the control file not among them.
    pub(super) items: Vec<PlannedFile>,
    /// The control file.
    pub(super) control: Option<PlannedFile>,
    /// Files that PostgreSQL would remove at its next start, and remains of an interrupted
    /// conversion.
    pub(super) remove: Vec<PathBuf>,
    /// Directories of shared temporary files, which are then empty.
    pub(super) remove_directories: Vec<PathBuf>,
    /// Every directory that was walked through.
    pub(super) directories: Vec<PathBuf>,
    /// Files that are stored in clear.
    pub(super) in_clear: u64,
    /// See [`super::Report`].
    pub(super) other_names: Vec<PathBuf>,
    /// See [`super::Report`].
    pub(super) not_followed: Vec<PathBuf>,
}

impl Plan {
    /// Walks through the instance in `root`, whose tablespaces keep their files in
    /// `version_directory`, and lists what becomes of each file. `state` is that of an interrupted
    /// run, whose files count as done. Writes nothing.
    ///
    /// # Errors
    /// SR-7002 for a file that cannot be sealed, or a part of the instance that is missing; SR-5001
    /// when the system reports an error.
    pub(super) fn new(
        root: &Path,
        version_directory: String,
        state: Option<&State>,
    ) -> Result<Self, Error> {
        let lines = state.map(|state| state.done.as_slice()).unwrap_or_default();
        let mut walk = Walk {
            root,
            version_directory: OsString::from(version_directory),
            done: lines
                .iter()
                .map(|line| (line.path.as_slice(), line.inode))
                .collect(),
            seen: BTreeSet::new(),
            plan: Self::default(),
        };
        walk.directory(b"")?;
        walk.plan.must_be_whole(root)?;
        Ok(walk.plan)
    }

    /// Checks that no part of the instance is missing, as when a file system is not mounted.
    ///
    /// # Errors
    /// SR-7002 when a directory that always has files has none.
    fn must_be_whole(&self, root: &Path) -> Result<(), Error> {
        for directory in NEVER_EMPTY {
            let is_below = |item: &PlannedFile| item.relative.starts_with(directory.as_bytes());
            if !self.all().any(is_below) {
                return Err(is_away(
                    &root.join(directory),
                    "it holds no file of the instance",
                ));
            }
        }
        Ok(())
    }

    /// Yields all items, the control file last.
    pub(super) fn all(&self) -> impl Iterator<Item = &PlannedFile> {
        self.items.iter().chain(&self.control)
    }
}

struct Walk<'a> {
    root: &'a Path,
    version_directory: OsString,
    done: BTreeMap<&'a [u8], u64>,
    /// Directories that were walked, by device and inode: a tablespace inside the data directory is
    /// reached twice.
    seen: BTreeSet<(u64, u64)>,
    plan: Plan,
}

impl Walk<'_> {
    /// Plans everything in a directory and below it, unless it was walked before. SR-7002 for a
    /// file that cannot be sealed, or a tablespace without its version directory; SR-5001 when the
    /// system reports an error.
    fn directory(&mut self, relative: &[u8]) -> Result<(), Error> {
        let path = self.path(relative);
        let io = |error| Error::io(path.display().to_string(), error);
        let about = fs::metadata(&path).map_err(io)?;
        if !self.seen.insert((about.dev(), about.ino())) {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(io)? {
            names.push(entry.map_err(io)?.file_name());
        }
        // Sorted, so that a file with two names gets the same one in each run; tablespaces by their
        // link.
        names.sort_by_key(|name| (name != "pg_tblspc", name.clone()));
        if is_tablespace_link(relative) {
            // The same directory may hold the tablespace of another version's instance.
            names.retain(|name| *name == self.version_directory);
            if names.is_empty() {
                let missing = format!("it has no {}", self.version_directory.display());
                return Err(is_away(&path, &missing));
            }
        }
        self.plan.directories.push(path.clone());
        for name in names {
            let mut child = relative.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(name.as_bytes());
            self.entry(child)?;
        }
        Ok(())
    }

    /// Plans one entry of a directory, and what is below it. SR-7002 when a file that would be
    /// sealed is not a regular file; SR-5001 when the system reports an error.
    fn entry(&mut self, relative: Vec<u8>) -> Result<(), Error> {
        let path = self.path(&relative);
        let about = fs::symlink_metadata(&path);
        let about = about.map_err(|error| Error::io(path.display().to_string(), error))?;
        let classified = classify(&relative);
        let is_sealed_file = is_sealed_file(classified.class);
        if about.is_dir() && !is_sealed_file {
            if classified.class == Class::Directory && relative.ends_with(b".fileset") {
                self.plan.remove_directories.push(path);
            }
            return self.directory(&relative);
        }
        if about.is_symlink() {
            return self.link(&relative, path, classified.class);
        }
        if about.is_file() {
            return self.file(relative, path, &about, classified);
        }
        match is_sealed_file {
            true => {
                let detail = format!("{} is not a regular file", path.display());
                Err(Error::new(&code::PG_REFUSED, detail))
            }
            // Sockets and pipes hold nothing.
            false => Ok(()),
        }
    }

    /// Plans a symbolic link: follows it where PostgreSQL does, and lists others as not followed.
    /// SR-7002 when a file that would be sealed is a link, or a directory of the instance is a link
    /// that leads nowhere or to another kind of file.
    fn link(&mut self, relative: &[u8], path: PathBuf, class: Class) -> Result<(), Error> {
        let target = fs::metadata(&path);
        match (treatment(class), target) {
            (_, Ok(target)) if class == Class::Directory && target.is_dir() => {
                return self.directory(relative);
            }
            (Treatment::Plain, _) => {
                self.plan.in_clear = self.plan.in_clear.saturating_add(1);
            }
            (_, Ok(_)) if is_sealed_file(class) => {
                let detail = format!("{} is a symbolic link", path.display());
                return Err(Error::new(&code::PG_REFUSED, detail));
            }
            (_, Err(_)) if class == Class::Directory || is_sealed_file(class) => {
                return Err(is_away(&path, "it is a symbolic link to what is not there"));
            }
            (_, Ok(_)) if class == Class::Directory => {
                return Err(is_away(
                    &path,
                    "it is a symbolic link, and not to a directory",
                ));
            }
            _ => self.plan.not_followed.push(path),
        }
        Ok(())
    }

    /// Plans a regular file: it is removed, stays in clear, or is converted; an empty one stays.
    /// SR-7002 when it cannot be sealed, its length is not what such files have, or its name is too
    /// long.
    fn file(
        &mut self,
        relative: Vec<u8>,
        path: PathBuf,
        about: &Metadata,
        classified: Classified,
    ) -> Result<(), Error> {
        let treatment = treatment(classified.class);
        if is_removed(classified.class, treatment, &relative) {
            self.plan.remove.push(path);
            return Ok(());
        }
        if !treatment.is_sealed() {
            let counts = treatment != Treatment::Hidden;
            self.plan.in_clear = self.plan.in_clear.saturating_add(u64::from(counts));
            return Ok(());
        }
        let refused = |why: &str| {
            let detail = format!("{}: {why}", path.display());
            Error::new(&code::PG_REFUSED, detail)
        };
        let seal = seal(0, classified, treatment, &relative);
        let seal = seal.ok_or_else(|| refused("it has no address"))?;
        if seal.layout == FileLayout::Block
            && !seal.key.has_tails()
            && !about.size().is_multiple_of(16)
        {
            return Err(refused("its length is no multiple of 16"));
        }
        if file_name(&relative)
            .len()
            .saturating_add(CONVERT_SUFFIX.len())
            > NAME_MAX
        {
            return Err(refused("its name is too long to be converted"));
        }
        // An empty file is stored in the same way on both sides.
        if about.size() == 0 {
            return Ok(());
        }
        let done = self.done.get(relative.as_slice()) == Some(&about.ino());
        if about.nlink() > 1 && !done {
            self.plan.other_names.push(path.clone());
        }
        let is_control = relative == CONTROL;
        let item = PlannedFile {
            relative,
            path,
            seal,
            size: about.size(),
            allocated: about.blocks().saturating_mul(512).min(about.size()),
            device: about.dev(),
            done,
        };
        if is_control {
            self.plan.control = Some(item);
        } else {
            self.plan.items.push(item);
        }
        Ok(())
    }

    /// Returns the absolute path.
    fn path(&self, relative: &[u8]) -> PathBuf {
        match relative {
            b"" => self.root.to_path_buf(),
            _ => self.root.join(OsStr::from_bytes(relative)),
        }
    }
}

/// Makes the error SR-7002 for a part of the instance that is not where it should be.
fn is_away(path: &Path, why: &str) -> Error {
    let detail = format!(
        "{}: {why}; if its file system is not mounted, mount it first",
        path.display()
    );
    Error::new(&code::PG_REFUSED, detail)
}

/// Whether a conversion removes the file: because PostgreSQL removes it when it starts, or writes
/// it before it reads it, or because an interrupted write of Strongroom left it.
fn is_removed(class: Class, treatment: Treatment, relative: &[u8]) -> bool {
    let by_class = matches!(
        class,
        Class::TemporaryRelation | Class::WalTemp | Class::WalRestored | Class::DynamicShared
    );
    let left = relative.ends_with(CONVERT_SUFFIX)
        || (relative.starts_with(b".strongroom.") && relative.ends_with(b".tmp"));
    by_class
        || relative == TEMPORARY_SUMMARY
        || treatment.dies_with_the_server()
        || (treatment == Treatment::Hidden && left)
}

/// Says what becomes of the file at `relative` when the instance is sealed. Reads no file.
///
/// # Errors
/// SR-7002 for a file that cannot be sealed.
pub(super) fn file_action(relative: &[u8]) -> Result<FileAction, Error> {
    let classified = classify(relative);
    let treatment = treatment(classified.class);
    if treatment == Treatment::Hidden || is_removed(classified.class, treatment, relative) {
        return Ok(FileAction::Remove);
    }
    if treatment == Treatment::Plain {
        return Ok(FileAction::KeepPlain);
    }
    let seal = seal(0, classified, treatment, relative);
    seal.map(FileAction::Seal).ok_or_else(|| {
        let path = String::from_utf8_lossy(relative);
        Error::new(&code::PG_REFUSED, format!("{path}: it has no address"))
    })
}

/// Whether the path is `pg_tblspc/<oid>`.
fn is_tablespace_link(relative: &[u8]) -> bool {
    let below = relative.strip_prefix(b"pg_tblspc/");
    below.is_some_and(|oid| !oid.is_empty() && !oid.contains(&b'/'))
}

/// Checks that each file system has room for the copies of files that `threads` threads convert at
/// the same time, and, with `growing`, for the additional length of sealed files. Files that are
/// done do not count.
///
/// # Errors
/// SR-7014 when there is not enough room, SR-5001 when the system reports an error.
pub(super) fn check_free_space(plan: &Plan, threads: usize, growing: bool) -> Result<(), Error> {
    let mut devices: BTreeMap<u64, (Vec<u64>, u64, &Path)> = BTreeMap::new();
    for item in plan.all().filter(|item| !item.done) {
        let (sizes, growth, _) =
            devices
                .entry(item.device)
                .or_insert((Vec::new(), 0, item.path.as_path()));
        let sealed = match item.seal.layout {
            FileLayout::Container => container_physical(item.size).unwrap_or(u64::MAX),
            FileLayout::Stream => item.size.saturating_add(STREAM_HEADER),
            _ => item.size,
        };
        let more = if growing {
            sealed.saturating_sub(item.size)
        } else {
            0
        };
        sizes.push(item.allocated.saturating_add(more));
        *growth = growth.saturating_add(more);
    }
    for (mut sizes, growth, path) in devices.into_values() {
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let at_once: u64 = sizes.iter().take(threads).sum();
        // Small files are converted in batches, one for each thread.
        let batches = BATCH_BYTES.saturating_mul(u64::try_from(threads).unwrap_or(1));
        let total: u64 = sizes.iter().sum();
        let needed = at_once
            .saturating_add(batches.min(total))
            .saturating_add(growth);
        let about = rustix::fs::statvfs(path)
            .map_err(|error| Error::io(path.display().to_string(), error.into()))?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        if free < needed {
            let shown = OsString::from_vec(path.as_os_str().as_bytes().to_vec());
            let detail = format!(
                "{needed} bytes needed where {} is, {free} free",
                shown.display()
            );
            return Err(Error::new(&code::PG_NO_ROOM, detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(size: u64) -> PlannedFile {
        let classified = classify(b"base/5/16384");
        PlannedFile {
            relative: b"base/5/16384".to_vec(),
            path: PathBuf::from("/"),
            seal: seal(0, classified, treatment(classified.class), b"base/5/16384").unwrap(),
            size,
            allocated: size,
            device: 1,
            done: false,
        }
    }

    fn refused(sizes: &[u64], done: bool, threads: usize) -> Option<u16> {
        let mut items: Vec<PlannedFile> = sizes.iter().map(|&size| item(size)).collect();
        items.iter_mut().for_each(|item| item.done = done);
        let plan = Plan {
            items,
            ..Plan::default()
        };
        check_free_space(&plan, threads, true)
            .err()
            .map(|error| error.code().number)
    }

    #[test]
    fn room_is_needed_for_as_many_files_as_there_are_threads() {
        let about = rustix::fs::statvfs("/").unwrap();
        let free = about.f_bavail * about.f_frsize;
        let third = free / 3;
        assert_eq!(refused(&[8192], false, 1), None);
        assert_eq!(refused(&[third; 9], false, 1), None);
        assert_eq!(refused(&[third; 9], false, 4), Some(7014));
        assert_eq!(refused(&[free * 2], false, 1), Some(7014));
        assert_eq!(
            refused(&[free * 2], true, 1),
            None,
            "that one was converted before"
        );
    }

    #[test]
    fn a_tablespaces_link_is_two_components() {
        assert!(is_tablespace_link(b"pg_tblspc/16390"));
        for other in [
            &b"pg_tblspc"[..],
            b"pg_tblspc/",
            b"pg_tblspc/16390/PG_15_1",
            b"base/5",
        ] {
            assert!(!is_tablespace_link(other));
        }
    }
}
