//! A directory of another user in which root itself has to write. It is opened once, through no
//! link, and its files are reached by their names in it.
//!
//! Invariants: no link is followed, and no file is opened that has another name elsewhere; a new
//! file gets its owner and mode by its descriptor before it gets its name.
//!
//! Must not: be used where root can act as the owner instead.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;
use strongroom_format::code;
use strongroom_keyring::{Error, text_of};

/// Longest file that is read, in bytes.
const READ_MAX: u64 = 1 << 20;

/// The directory.
pub struct HeldDirectory(OwnedFd);

/// A file as it was.
pub struct ExistingFile {
    /// Its content.
    pub text: String,
    user: u32,
    group: u32,
    mode: u32,
}

impl HeldDirectory {
    /// Opens a directory; no part of its path may be a link. Creates nothing.
    ///
    /// # Errors
    /// The system's: `ELOOP` for a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Linux before 5.6, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => open_part_by_part(path, flags),
            other => other.map(Self).map_err(io::Error::from),
        }
    }

    /// Opens the directory of the file at `path`, which need not exist, and returns it with the
    /// file's name. Links on the way to the directory are followed once, here; afterwards it does
    /// not matter what they lead to.
    ///
    /// # Errors
    /// SR-5001 when there is no such directory; SR-1001 when the name is missing or not UTF-8.
    pub fn of_file(path: &Path) -> Result<(Self, &str), Error> {
        let failed = |e: io::Error| Error::on_path(path, e);
        let above = path.parent().unwrap_or_else(|| Path::new("/"));
        let above = above.canonicalize().map_err(failed)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::new(&code::USAGE, "a name that is no text"))?;
        Ok((Self::open(&above).map_err(failed)?, name))
    }

    /// Reads a file of the directory whole. `None` when there is none of that name.
    ///
    /// # Errors
    /// The system's; an error too when it is a link, has another name elsewhere, is no regular
    /// file, is longer than 1 MiB (`FileTooLarge`), or is not UTF-8.
    pub fn read(&self, name: &str) -> io::Result<Option<ExistingFile>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let about = file.metadata()?;
        if !about.is_file() || about.nlink() != 1 {
            return Err(io::Error::other("not a file of its own"));
        }
        Ok(Some(ExistingFile {
            // Never a part of it: callers write it back.
            text: text_of(file, READ_MAX)?,
            user: about.uid(),
            group: about.gid(),
            mode: about.mode() & 0o777,
        }))
    }

    /// Replaces a file whole and durably. It keeps owner and mode of the former one, or gets the
    /// directory's owner and mode 0644.
    ///
    /// # Errors
    /// The system's. The former file is then there as before, unless only the last step failed, the
    /// fsync of the directory.
    pub fn replace(&self, name: &str, text: &str, former: Option<&ExistingFile>) -> io::Result<()> {
        let random = strongroom_crypto::random16().map_err(io::Error::other)?;
        let temp = format!(".{name}.{:032x}.tmp", u128::from_le_bytes(random));
        let directory = File::from(self.0.try_clone()?);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, temp.as_str(), flags, Mode::from_raw_mode(0o600))?;
        let written = || {
            let mut file = File::from(file);
            file.write_all(text.as_bytes())?;
            let about = directory.metadata()?;
            let (user, group, mode) = match former {
                Some(former) => (former.user, former.group, former.mode),
                None => (about.uid(), about.gid(), 0o644),
            };
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (user, group) {
                fchown(&file, Some(user), Some(group))?;
            }
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
            renameat(&self.0, temp.as_str(), &self.0, name)?;
            directory.sync_all()
        };
        written().inspect_err(|_| {
            // The failure that brought us here is the one to report.
            let _gone = unlinkat(&self.0, temp.as_str(), AtFlags::empty());
        })
    }
}

/// Opens a directory one name after another, for kernels without `openat2`; none of them may be a
/// link. Errors: the system's.
fn open_part_by_part(path: &Path, flags: OFlags) -> io::Result<HeldDirectory> {
    let begin = if path.is_absolute() { "/" } else { "." };
    let mut here = openat(CWD, begin, flags, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            std::path::Component::Normal(name) => name,
            std::path::Component::ParentDir => std::ffi::OsStr::new(".."),
            _ => continue,
        };
        here = openat(&here, name, flags, Mode::empty())?;
    }
    Ok(HeldDirectory(here))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_and_none_written_through() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("real/in")).unwrap();
        strongroom_keyring::durable::create_new(&at("secret"), b"secret", 0o600).unwrap();
        symlink(at("real"), at("link")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for name in ["link", "link/in"] {
            assert!(HeldDirectory::open(&at(name)).is_err(), "{name}");
            assert!(open_part_by_part(&at(name), flags).is_err(), "{name}");
        }
        open_part_by_part(&at("real/in"), flags).unwrap();
        let held = HeldDirectory::open(&at("real/in")).unwrap();
        assert!(held.read("file").unwrap().is_none());
        symlink(at("secret"), at("real/in/file")).unwrap();
        assert!(held.read("file").is_err());
        fs::remove_file(at("real/in/file")).unwrap();
        fs::hard_link(at("secret"), at("real/in/file")).unwrap();
        assert!(held.read("file").is_err());
        // What has the name is replaced, not what it leads to.
        held.replace("file", "new", None).unwrap();
        assert_eq!(fs::read_to_string(at("secret")).unwrap(), "secret");
        let former = held.read("file").unwrap().unwrap();
        assert_eq!((former.text.as_str(), former.mode), ("new", 0o644));
        assert_eq!(fs::read_dir(at("real/in")).unwrap().count(), 1);
        // What is read is the whole file.
        let long = "x".repeat(usize::try_from(READ_MAX).unwrap());
        held.replace("file", &long, None).unwrap();
        assert_eq!(held.read("file").unwrap().unwrap().text, long);
        held.replace("file", &format!("{long}y"), None).unwrap();
        let refused = held.read("file").err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }
}
