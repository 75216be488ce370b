//! Tells which mount a file is in, and removes a directory without entering another mount. The
//! device number is not enough for that: a directory of the same file system may be bind-mounted.
//!
//! Must not: follow a link.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, statx, unlinkat};
use rustix::io::{Errno, Result};

/// A directory that is being removed: its name in its parent, and the subdirectories that are not
/// removed yet.
struct Level {
    held: File,
    name: CString,
    below: Vec<CString>,
}

/// The number of the mount at `path`; if something is mounted there, that of the mounted file
/// system. A link is not followed.
///
/// # Errors
/// Those of `statx` and `openat`; ENOSYS when the kernel does not tell.
pub(crate) fn mount_of(path: &Path) -> Result<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(CWD, path, flags, StatxFlags::MNT_ID) {
        Ok(about) if StatxFlags::from_bits_retain(about.stx_mask).contains(StatxFlags::MNT_ID) => {
            Ok(about.stx_mnt_id)
        }
        Ok(_) | Err(Errno::NOSYS) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            mount_of_open(&openat(CWD, path, flags, Mode::empty())?)
        }
        Err(error) => Err(error),
    }
}

/// The number of the mount that an open file is in, also on kernels before 5.8, whose `statx` does
/// not say it (proc(5), `/proc/PID/fdinfo`). ENOSYS when `/proc` does not tell.
pub(crate) fn mount_of_open(held: impl AsFd) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", held.as_fd().as_raw_fd());
    let text = fs::read_to_string(path).map_err(|_| Errno::NOSYS)?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    number
        .and_then(|number| number.trim().parse().ok())
        .ok_or(Errno::NOSYS)
}

/// Removes the directory `held`, which is at `path`, and everything below it that is in the same
/// mount, as far as that is possible; links are not followed. True when nothing is left. False, and
/// nothing is removed, when it is in another mount than its parent.
pub(crate) fn remove_tree(path: &Path, held: &File) -> bool {
    let same = |mount: u64| path.parent().map(mount_of) == Some(Ok(mount));
    match mount_of_open(held) {
        // In another mount, `held` itself is what is mounted.
        Ok(mount) if same(mount) => {
            remove_below(held, mount) && unlinkat(CWD, path, AtFlags::REMOVEDIR).is_ok()
        }
        _ => false,
    }
}

/// Removes everything below the directory `top` that is in the mount `mount`, as far as that is
/// possible. True when nothing is left in it.
fn remove_below(top: &File, mount: u64) -> bool {
    let mut whole = true;
    let Ok(top) = top
        .try_clone()
        .map_err(drop)
        .and_then(|held| Level::remove_files(held, CString::default(), &mut whole).map_err(drop))
    else {
        return false;
    };
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.below.pop() {
            match level.open_below(name, mount, &mut whole) {
                Ok(Some(next)) => levels.push(next),
                Ok(None) | Err(_) => whole = false,
            }
        } else if let Some(done) = levels.pop()
            && let Some(above) = levels.last()
        {
            // This fails when something was left in the directory.
            let removed = unlinkat(&above.held, done.name.as_c_str(), AtFlags::REMOVEDIR);
            whole &= removed.is_ok();
        }
    }
    whole
}

impl Level {
    /// Removes the files and links of a directory, and returns it with the names of its
    /// subdirectories. Sets `whole` to false when something cannot be removed. An error when the
    /// directory cannot be read.
    fn remove_files(held: File, name: CString, whole: &mut bool) -> Result<Self> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&held)? {
            let name = entry?.file_name().to_owned();
            if name.as_bytes() != b"." && name.as_bytes() != b".." {
                names.push(name);
            }
        }
        let mut below = Vec::new();
        for name in names {
            match unlinkat(&held, name.as_c_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Linux says so of directories (unlink(2)).
                Err(Errno::ISDIR) => below.push(name),
                Err(_) => *whole = false,
            }
        }
        Ok(Self { held, name, below })
    }

    /// Opens the subdirectory `name`, and removes its files. `None`, and nothing is removed, when
    /// something else is mounted there.
    fn open_below(&self, name: CString, mount: u64, whole: &mut bool) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.held, name.as_c_str(), flags, Mode::empty())?;
        if mount_of_open(&opened)? != mount {
            return Ok(None);
        }
        Self::remove_files(File::from(opened), name, whole).map(Some)
    }
}
