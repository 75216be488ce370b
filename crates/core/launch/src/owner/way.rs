//! The users that can decide what a path leads to: the owners of every part of it, of links and of
//! the last part too.
//!
//! Invariant: each part is opened by its name in the directory before it, as a reference that reads
//! nothing (`O_PATH`) and follows no link. Links are followed here, by their text, so that their
//! owners count too.
//!
//! Must not: open anything for reading; accept a part that it could not examine.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use strongroom_format::code;
use strongroom_keyring::Error;

/// Links on one way at most, as in the kernel (`path_resolution`(7)).
const LINKS_MAX: usize = 40;
/// Write permission of the group; of everybody.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// Names in the directory are their owners' alone.
const STICKY: u32 = 0o1000;

/// Returns the users other than root who own `path` or a directory or link on the way to it. Stops
/// at a name that does not exist: what will be made there belongs to the directory's owner. Reads
/// only owners, modes and the texts of links.
///
/// # Errors
/// SR-6020 when others than owners could exchange something on the way; SR-5001, also for more than
/// 40 links.
pub(super) fn owners(path: &Path) -> Result<BTreeSet<u32>, Error> {
    let failed = |error: std::io::Error| Error::on_path(path, error);
    let absolute = std::path::absolute(path).map_err(failed)?;
    let mut left: VecDeque<OsString> = path_parts(&absolute).collect();
    let mut found = BTreeSet::new();
    let mut links = 0;
    let mut here = root().map_err(failed)?;
    let mut shown = PathBuf::from("/");
    note(&here, &shown, &mut found)?;
    while let Some(name) = left.pop_front() {
        let next = match part(&here, &name) {
            Ok(next) => next,
            Err(Errno::NOENT | Errno::NOTDIR) => break,
            Err(error) => return Err(failed(error.into())),
        };
        let below = shown.join(&name);
        match note(&next, &below, &mut found)? {
            FileType::Directory => {
                here = next;
                shown = below;
            }
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(failed(Errno::LOOP.into()));
                }
                let text = readlinkat(&next, "", Vec::new()).map_err(|e| failed(e.into()))?;
                let target = PathBuf::from(OsString::from_vec(text.into_bytes()));
                if target.is_absolute() {
                    here = root().map_err(failed)?;
                    shown = PathBuf::from("/");
                }
                for part in path_parts(&target).rev() {
                    left.push_front(part);
                }
            }
            // Nothing is below it.
            _ => break,
        }
    }
    Ok(found)
}

/// Opens the root directory as a reference that reads nothing; the error is the system's.
fn root() -> std::io::Result<OwnedFd> {
    Ok(part(CWD, &OsString::from("/"))?)
}

/// Opens `name` in the directory `within` as a reference that reads nothing, and follows no link.
/// The error is the system's, such as `NOENT` when nothing has the name.
fn part(within: impl std::os::fd::AsFd, name: &OsString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(within, name, flags, Mode::empty())
}

/// Iterates over the names of a path, without `/` and `.`; `..` is one.
fn path_parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Adds the owner of a part of the path to `found`, unless it is root, and returns the part's file
/// type. Errors: SR-6020 for a directory whose names others may exchange; SR-5001 when it cannot be
/// looked at.
fn note(part: &OwnedFd, shown: &Path, found: &mut BTreeSet<u32>) -> Result<FileType, Error> {
    let about = fstat(part).map_err(|error| Error::on_path(shown, error.into()))?;
    if about.st_uid != 0 {
        found.insert(about.st_uid);
    }
    let sort = FileType::from_raw_mode(about.st_mode);
    if sort == FileType::Directory && is_open(&about) {
        let detail = format!("others may write to {}", shown.display());
        return Err(Error::new(&code::OWNER_WAY, detail));
    }
    Ok(sort)
}

/// Whether users other than the owner may exchange the directory's names: its group, unless it is
/// the owner's own, or everybody may write to it, and it is not sticky.
fn is_open(about: &Stat) -> bool {
    if about.st_mode & STICKY != 0 {
        return false;
    }
    let by_group = about.st_mode & GROUP_WRITES != 0 && !is_own_group(about.st_uid, about.st_gid);
    by_group || about.st_mode & ALL_WRITE != 0
}

/// Whether the group is root's, or the owner's private one: it has the owner's name and no other
/// member (`pam_umask`(8) has a similar rule). False when either is not known.
fn is_own_group(user: u32, group: u32) -> bool {
    if group == 0 {
        return true;
    }
    let user = User::from_uid(Uid::from_raw(user)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(group)).ok().flatten();
    matches!((user, group), (Some(user), Some(group)) if user.gid == group.gid
        && user.name == group.name && group.mem.iter().all(|name| *name == user.name))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    const NOBODY: u32 = 65534;
    const DAEMON: u32 = 1;

    #[test]
    fn everything_on_the_way_counts() {
        if !rustix::process::geteuid().is_root() {
            // Only root can give files away.
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let seen = |name: &str| owners(&at(name)).map_err(|failure| failure.code().number);
        fs::create_dir_all(at("mine/data")).unwrap();
        fs::create_dir_all(at("theirs/data")).unwrap();
        assert_eq!(seen("mine/data"), Ok(BTreeSet::new()));
        assert_eq!(seen("mine/data/not/there"), Ok(BTreeSet::new()));
        // Who owns what is above could exchange what is below.
        chown(at("theirs"), Some(NOBODY), Some(NOBODY)).unwrap();
        assert_eq!(seen("theirs/data"), Ok(BTreeSet::from([NOBODY])));
        assert_eq!(seen("theirs/data/new"), Ok(BTreeSet::from([NOBODY])));
        assert_eq!(seen("mine/../theirs/data"), Ok(BTreeSet::from([NOBODY])));
        chown(at("theirs/data"), Some(DAEMON), None).unwrap();
        assert_eq!(seen("theirs/data"), Ok(BTreeSet::from([DAEMON, NOBODY])));
        // A link is its owner's, whatever it leads to.
        symlink(at("mine/data"), at("link")).unwrap();
        assert_eq!(seen("link"), Ok(BTreeSet::new()));
        lchown(at("link"), Some(DAEMON), None).unwrap();
        assert_eq!(seen("link"), Ok(BTreeSet::from([DAEMON])));
        symlink("../link", at("mine/round")).unwrap();
        assert_eq!(seen("mine/round"), Ok(BTreeSet::from([DAEMON])));
        symlink("endless", at("endless")).unwrap();
        assert_eq!(seen("endless"), Err(code::IO.number));
        // A directory that others may write to, unless its names are their owners' alone.
        fs::create_dir_all(at("open/data")).unwrap();
        for (mode, expected) in [
            (0o777, Err(code::OWNER_WAY.number)),
            (0o1777, Ok(BTreeSet::new())),
            (0o755, Ok(BTreeSet::new())),
            // The group is root's.
            (0o775, Ok(BTreeSet::new())),
        ] {
            fs::set_permissions(at("open"), Permissions::from_mode(mode)).unwrap();
            assert_eq!(seen("open/data"), expected, "{mode:o}");
        }
        chown(at("open"), None, Some(DAEMON)).unwrap();
        fs::set_permissions(at("open"), Permissions::from_mode(0o775)).unwrap();
        assert_eq!(seen("open/data"), Err(code::OWNER_WAY.number));
    }
}
