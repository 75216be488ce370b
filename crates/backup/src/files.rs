//! Writes members into a directory that nobody else uses yet.
//!
//! Invariants: B8 (`stream::reader`), every parent is a directory that this made; every file is created anew, so nothing is
//! ever written through a link or over anything. The control file of a PostgreSQL cluster is kept back until the end.
//!
//! While they are filled, the directory and those of tablespaces are closed to everyone but who restores: their owner and mode
//! come last, so nobody can exchange what is below them.
//!
//! Must not: leave the directory that it was given, but for tablespaces.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, utimensat};
use rustix::io::Errno;
use strongroom_format::backup::{Member, MemberKind};
use strongroom_format::code;

use crate::writeback::Writeback;
use crate::{Error, Result};

/// Without this file no server starts on a directory.
const CONTROL: &[u8] = b"global/pg_control";
/// Its longest form that is kept back, in bytes (PostgreSQL: `PG_CONTROL_FILE_SIZE`, 8192).
const CONTROL_MAX: usize = 64 * 1024;
/// Where tablespaces are linked.
const SPACES: &str = "pg_tblspc/";

/// A directory that is being filled.
pub(crate) struct Files {
    root: PathBuf,
    /// Where tablespaces go, each in a directory of its number.
    spaces: PathBuf,
    made_spaces: Vec<(PathBuf, Member)>,
    /// Whether the directory that they are in was made here. One that was there is its owner's.
    made_place: bool,
    /// What the root becomes.
    root_member: Option<Member>,
    as_root: bool,
    file: Option<(File, Member, Writeback)>,
    control: Option<(Member, Vec<u8>)>,
    in_control: bool,
    keep_back: bool,
}

impl Files {
    /// Fills `root`, which exists, is empty, and is open to its owner only: to who restores. `keep_back`: a cluster, whose control file comes last.
    pub(crate) fn new(root: &Path, spaces: &Path, keep_back: bool) -> Self {
        Self {
            root: root.to_path_buf(),
            spaces: spaces.to_path_buf(),
            made_spaces: Vec::new(),
            made_place: false,
            root_member: None,
            as_root: rustix::process::geteuid().is_root(),
            file: None,
            control: None,
            in_control: false,
            keep_back,
        }
    }

    /// Makes a member; a file is open afterwards.
    pub(crate) fn member(&mut self, member: Member, again: bool) -> Result<()> {
        let path = self.path(&member.path);
        match member.kind {
            MemberKind::Directory if member.is_root() => {
                self.root_member = Some(member);
                Ok(())
            }
            MemberKind::Directory if again => {
                // The path of a tablespace is a link.
                let space = self.space_number(&member).map(|number| self.place(number));
                let made = self.made_spaces.iter_mut();
                match made
                    .into_iter()
                    .find(|(made, _)| Some(made) == space.as_ref())
                {
                    Some((_, last)) => {
                        *last = member;
                        Ok(())
                    }
                    None => self.settle_directory(&path, &member),
                }
            }
            MemberKind::Directory => self.make_directory(&path, &member),
            MemberKind::Link => {
                let target = OsStr::from_bytes(&member.target);
                std::os::unix::fs::symlink(target, &path).map_err(|error| taken(&path, error))?;
                self.own(&path, &member)?;
                set_times(&path, &member)
            }
            MemberKind::Tablespace => self.make_space(&path, &member),
            MemberKind::File => {
                self.in_control = self.keep_back && member.path == CONTROL;
                if self.in_control {
                    self.control = Some((member, Vec::new()));
                    return Ok(());
                }
                let file = create(&path)?;
                self.file = Some((file, member, Writeback::default()));
                Ok(())
            }
        }
    }

    /// The next bytes of the open file.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        if self.in_control {
            let Some((_, content)) = &mut self.control else {
                return Err(no_file());
            };
            if content.len().saturating_add(bytes.len()) > CONTROL_MAX {
                return Err(Error::new(&code::STREAM, "a control file that is too long"));
            }
            content.extend_from_slice(bytes);
            return Ok(());
        }
        let Some((file, member, writeback)) = &mut self.file else {
            return Err(no_file());
        };
        let written = file.write_all(bytes);
        written.map_err(|error| Error::io(String::from_utf8_lossy(&member.path), error))?;
        writeback.wrote(file, bytes.len());
        Ok(())
    }

    /// Ends the open file.
    pub(crate) fn end_file(&mut self) -> Result<()> {
        if self.in_control {
            self.in_control = false;
            return Ok(());
        }
        let (file, member, _) = self.file.take().ok_or_else(no_file)?;
        self.settle_file(&file, &member)
    }

    /// Adds to a file of the root, or makes it: not of the stream. Its owner is that of `like`. Neither is followed.
    pub(crate) fn extra(&self, like: &str, name: &str, content: &[u8]) -> Result<()> {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.root.join(name);
        let shown = || path.display().to_string();
        let unfit = |name: &str| Error::new(&code::STREAM, format!("{name} is no regular file"));
        let like_path = self.root.join(like);
        let about = fs::symlink_metadata(&like_path)
            .map_err(|error| Error::io(like_path.display().to_string(), error))?;
        if !about.is_file() {
            return Err(unfit(like));
        }
        // Never through a link, never waiting for a pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
            .open(&path);
        let mut file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::ISDIR) => unfit(name),
            _ => Error::io(shown(), error),
        })?;
        let found = file.metadata().map_err(|error| Error::io(shown(), error))?;
        if !found.is_file() {
            return Err(unfit(name));
        }
        file.write_all(content)
            .map_err(|error| Error::io(shown(), error))?;
        if self.as_root {
            let owned = std::os::unix::fs::fchown(&file, Some(about.uid()), Some(about.gid()));
            owned.map_err(|error| Error::io(shown(), error))?;
        }
        Ok(())
    }

    /// Removes a file of the root, if it is there.
    pub(crate) fn without(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(path.display().to_string(), error))
            }
            _ => Ok(()),
        }
    }

    /// Writes what was kept back and makes everything durable.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.sync()?;
        if let Some((member, content)) = self.control.take() {
            let path = self.path(&member.path);
            let mut file = create(&path)?;
            file.write_all(&content)
                .map_err(|error| Error::io(path.display().to_string(), error))?;
            self.settle_file(&file, &member)?;
        }
        // Nothing is written by its path any more.
        for (place, member) in &self.made_spaces {
            self.settle_directory(place, member)?;
        }
        if let (true, Some((_, member))) = (self.made_place, self.made_spaces.first()) {
            self.own(&self.spaces, member)?;
        }
        if let Some(member) = &self.root_member {
            self.settle_directory(&self.root, member)?;
        }
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        let spaces = self.made_spaces.iter().map(|(place, _)| place);
        spaces
            .chain([&self.root])
            .try_for_each(|directory| sync_all_of(directory))
    }

    /// Removes all that was made.
    pub(crate) fn undo(self) {
        let spaces = self.made_spaces.iter().map(|(place, _)| place);
        for directory in spaces.chain([&self.root]) {
            // Half a restore has no control file: what cannot be removed is at least not started.
            drop(fs::remove_dir_all(directory));
        }
        if self.made_place {
            drop(fs::remove_dir(&self.spaces));
        }
    }

    fn path(&self, stored: &[u8]) -> PathBuf {
        if stored == b"." {
            return self.root.clone();
        }
        self.root.join(OsStr::from_bytes(stored))
    }

    fn make_directory(&self, path: &Path, member: &Member) -> Result<()> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|error| taken(path, error))?;
        // One that its owner cannot write to gets its mode when it is named again.
        if member.mode & 0o700 == 0o700 {
            self.own(path, member)?;
            self.set_mode(path, member.mode)?;
        }
        Ok(())
    }

    fn settle_directory(&self, path: &Path, member: &Member) -> Result<()> {
        self.own(path, member)?;
        self.set_mode(path, member.mode)?;
        set_times(path, member)
    }

    fn space_number(&self, member: &Member) -> Option<u32> {
        let path = std::str::from_utf8(&member.path).ok()?;
        let number = path.strip_prefix(SPACES)?.parse().ok()?;
        self.keep_back.then_some(number)
    }

    fn place(&self, number: u32) -> PathBuf {
        self.spaces.join(number.to_string())
    }

    fn make_space(&mut self, path: &Path, member: &Member) -> Result<()> {
        let number = self.space_number(member);
        let number = number.ok_or_else(|| Error::new(&code::STREAM, "a tablespace's path"))?;
        let place = self.place(number);
        let shown = || place.display().to_string();
        self.make_place()?;
        let made = DirBuilder::new().mode(0o700).create(&place);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::new(&code::TARGET_NOT_EMPTY, shown()),
            _ => Error::io(shown(), error),
        })?;
        self.made_spaces.push((place.clone(), member.clone()));
        std::os::unix::fs::symlink(&place, path).map_err(|error| taken(path, error))?;
        self.own(path, member)
    }

    /// Makes the directory of tablespaces, and those above it, unless it is there.
    fn make_place(&mut self) -> Result<()> {
        let failed = |error| Error::io(self.spaces.display().to_string(), error);
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Some(above) = self.spaces.parent() {
            builder.recursive(true).create(above).map_err(failed)?;
        }
        match builder.recursive(false).create(&self.spaces) {
            Ok(()) => self.made_place = true,
            Err(_) if self.spaces.is_dir() => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    fn settle_file(&self, file: &File, member: &Member) -> Result<()> {
        let failed = |error| Error::io(String::from_utf8_lossy(&member.path), error);
        if self.as_root {
            std::os::unix::fs::fchown(file, Some(member.owner), Some(member.group))
                .map_err(failed)?;
        }
        let mode = Permissions::from_mode(self.kept_mode(member.mode));
        file.set_permissions(mode).map_err(failed)?;
        let times = timestamps(member);
        rustix::fs::futimens(file, &times).map_err(|error| failed(error.into()))
    }

    /// Links are owned, not followed.
    fn own(&self, path: &Path, member: &Member) -> Result<()> {
        if !self.as_root {
            return Ok(());
        }
        std::os::unix::fs::lchown(path, Some(member.owner), Some(member.group))
            .map_err(|error| Error::io(path.display().to_string(), error))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<()> {
        fs::set_permissions(path, Permissions::from_mode(self.kept_mode(mode)))
            .map_err(|error| Error::io(path.display().to_string(), error))
    }

    /// Set-user-ID means something only with the owner that it was given for.
    fn kept_mode(&self, mode: u32) -> u32 {
        if self.as_root { mode } else { mode & 0o777 }
    }
}

fn create(path: &Path) -> Result<File> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    made.map_err(|error| taken(path, error))
}

/// What is there already was named by the stream before: the directory was empty.
fn taken(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::new(&code::STREAM, "a path that is named twice"),
        _ => Error::io(path.display().to_string(), error),
    }
}

fn set_times(path: &Path, member: &Member) -> Result<()> {
    utimensat(CWD, path, &timestamps(member), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| Error::io(path.display().to_string(), error.into()))
}

fn timestamps(member: &Member) -> Timestamps {
    let time = Timespec {
        tv_sec: member.seconds,
        tv_nsec: i64::from(member.nanoseconds),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn sync_all_of(directory: &Path) -> Result<()> {
    let failed = |error: io::Error| Error::io(directory.display().to_string(), error);
    let opened = File::open(directory).map_err(failed)?;
    rustix::fs::syncfs(&opened).map_err(|error| failed(error.into()))
}

fn no_file() -> Error {
    Error::new(&code::BUG, "no file is open")
}
