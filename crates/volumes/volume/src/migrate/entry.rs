//! The attributes of a directory entry: owner, mode, times, extended attributes.
//!
//! Must not: follow a symbolic link.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use strongroom_keyring::Error;

use crate::error::io;

/// Longest list of names of extended attributes, and longest value: Linux's bound.
const XATTRS_MAX: usize = 64 * 1024;

/// The attributes of a directory entry. Two that are equal differ at most in contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Kind and permission bits.
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    /// Length of a regular file; 0 for other entries, whose size the file system chooses.
    pub(super) len: u64,
    /// Device number of a device file.
    pub(super) device: u64,
    pub(super) modified: (i64, i64),
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Reads the attributes of an entry, of the link itself where it is one. SR-5001 when the system
/// reports an error.
pub(super) fn attributes(path: &Path) -> Result<Attributes, Error> {
    let about = std::fs::symlink_metadata(path).map_err(|error| io(path, error))?;
    let is_file = about.is_file();
    Ok(Attributes {
        mode: about.mode(),
        owner: (about.uid(), about.gid()),
        len: if is_file { about.len() } else { 0 },
        device: about.rdev(),
        modified: (about.mtime(), about.mtime_nsec()),
        xattrs: xattrs(path)?,
    })
}

/// Sets the attributes of an entry to the wanted ones, and removes other extended attributes. The
/// owner comes first, because changing it clears capabilities and set-user-id bits; times come
/// last. SR-5001 when the system reports an error.
pub(super) fn put_attributes(wanted: &Attributes, path: &Path) -> Result<(), Error> {
    let failed = |error: Errno| io(path, error.into());
    let (uid, gid) = (Uid::from_raw(wanted.owner.0), Gid::from_raw(wanted.owner.1));
    // One file descriptor for owner and mode: between two lookups of the name its owner could put a
    // link there.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let spot = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    rustix::fs::chownat(&spot, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).map_err(failed)?;
    let about = rustix::fs::fstat(&spot).map_err(failed)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Symlink {
        let mode = Mode::from_raw_mode(wanted.mode & 0o7777);
        // The path through /proc leads to the entry of the descriptor, which is no link; fchmod(2)
        // refuses an O_PATH descriptor.
        let itself = format!("/proc/self/fd/{}", spot.as_raw_fd());
        rustix::fs::chmod(itself, mode).map_err(failed)?;
    }
    let there = xattrs(path)?;
    for (name, value) in &wanted.xattrs {
        if there.get(name) != Some(value) {
            rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty())
                .map_err(failed)?;
        }
    }
    for name in there
        .keys()
        .filter(|name| !wanted.xattrs.contains_key(*name))
    {
        rustix::fs::lremovexattr(path, name.as_slice()).map_err(failed)?;
    }
    let time = Timespec {
        tv_sec: wanted.modified.0,
        tv_nsec: wanted.modified.1,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
}

/// Returns names and values of all extended attributes, of the link itself where it is one; none
/// when the file system has no such attributes. SR-5001 when the system reports an error.
fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
    let mut names = vec![0; XATTRS_MAX];
    let len = match rustix::fs::llistxattr(path, names.as_mut_slice()) {
        Ok(len) => len,
        // The file system has no extended attributes.
        Err(Errno::NOTSUP) => 0,
        Err(error) => return Err(io(path, error.into())),
    };
    names.truncate(len);
    let mut found = BTreeMap::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; XATTRS_MAX];
        let len = rustix::fs::lgetxattr(path, name, value.as_mut_slice())
            .map_err(|error| io(path, error.into()))?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
