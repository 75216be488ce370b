//! Writes the members of a stream into a new directory.
//!
//! Invariants: B8 (`stream::reader`): every parent is a directory that was made here, and every
//! file is created anew, so that nothing is written through a link or over an existing file. The
//! control file of a PostgreSQL cluster is kept back until the end. B11: everything is written
//! below directories that are held open, so that exchanging their names does not change where files
//! are written; at the end their names are compared.
//!
//! While they are filled, the directory and those of tablespaces are accessible only to the user
//! who restores; their owner and mode are set last, so that nobody can exchange files below them.
//!
//! Must not: write outside of the given directory, except into tablespaces.

mod old;
mod open;
mod over;
mod place;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chmodat, chownat, mkdirat, openat,
    renameat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use strongroom_format::backup::{Member, MemberKind};
use strongroom_format::code;

use self::old::{Candidate, Old};
use self::open::Open;
use self::over::Over;
use self::place::{
    EntryPath, HeldDirectory, Tablespace, create_error, directory_exchanged_error,
    named_twice_error,
};
use crate::restore_options::{Kept, Owners};
use crate::sealing::{Becomes, SealedFile, Sealing};
use crate::{Error, Result};

/// Without this file no server starts on a directory.
const CONTROL: &[u8] = b"global/pg_control";
/// Its name, in the root, while it is written.
const CONTROL_BEFORE: &[u8] = b".pg_control.partial";
/// The longest control file that is kept back, in bytes (PostgreSQL: `PG_CONTROL_FILE_SIZE`, 8192).
const CONTROL_MAX: usize = 64 * 1024;
/// Where tablespaces are linked.
const SPACES: &str = "pg_tblspc/";

/// A directory that is being filled.
pub(crate) struct Files {
    root: HeldDirectory,
    /// The directory of tablespaces, each of which gets a directory named by its number.
    spaces: PathBuf,
    place: Option<OwnedFd>,
    made_spaces: Vec<Tablespace>,
    /// Whether that directory was made here. One that existed before keeps its owner.
    made_place: bool,
    /// The owner, mode and times that the root gets at the end.
    root_member: Option<Member>,
    as_root: bool,
    kept: Kept,
    /// The file that is being written, unless it is left out.
    file: Option<Open>,
    left_out: bool,
    control: Option<(Member, Vec<u8>)>,
    in_control: bool,
    sealing: Option<Arc<dyn Sealing>>,
    /// What the earlier sets of a chain wrote, while one set is written over another.
    over: Option<Over>,
    keep_back: bool,
    /// Whether the root gets a mode that is open to everyone.
    open: bool,
    /// The directory that this one replaces.
    old: Option<Old>,
    /// The file of the old directory that is being compared with the stream's.
    compared: Option<Candidate>,
}

impl Files {
    /// Opens `root`, which exists, is empty, and is accessible only to its owner, the user who
    /// restores, to be filled. `keep_back`: a cluster, whose control file comes last.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error; SR-7150 when it belongs to another user.
    pub(crate) fn new(root: &Path, spaces: &Path, keep_back: bool, kept: Kept) -> Result<Self> {
        Ok(Self {
            root: HeldDirectory::open(CWD, root.as_os_str(), root.to_path_buf())?,
            spaces: spaces.to_path_buf(),
            place: None,
            made_spaces: Vec::new(),
            made_place: false,
            root_member: None,
            as_root: rustix::process::geteuid().is_root(),
            kept,
            file: None,
            left_out: false,
            control: None,
            in_control: false,
            sealing: None,
            over: None,
            keep_back,
            open: false,
            old: None,
            compared: None,
        })
    }

    /// Gives the root, at the end, a mode that is open to everyone: no server starts on it.
    pub(crate) fn keep_open(&mut self) {
        self.open = true;
    }

    /// Has every file written in the form that `sealing` decides: sealed, in clear, or not at all.
    pub(crate) fn seal(&mut self, sealing: Arc<dyn Sealing>) {
        self.sealing = Some(sealing);
    }

    /// Makes a member: a directory, a link, a tablespace or a file, whose bytes then come by
    /// [`Self::data`]. `again`: a directory that was named before, and now gets its owner, mode and
    /// times. A path that is named twice is SR-7111.
    pub(crate) fn member(&mut self, member: Member, again: bool) -> Result<()> {
        if !again && !member.is_root() && !self.make_way(&member)? {
            return Ok(());
        }
        match member.kind {
            MemberKind::Directory if member.is_root() => {
                self.root_member = Some(member);
                Ok(())
            }
            MemberKind::Directory if again => {
                // In the directory itself, the path of a tablespace is a link.
                let mut made = self.made_spaces.iter_mut();
                match made.find(|space| space.stored == member.path) {
                    Some(space) => {
                        space.member = member;
                        Ok(())
                    }
                    None => self.settle_directory(&self.entry_path(&member.path), &member),
                }
            }
            MemberKind::Directory => self.make_directory(&member),
            MemberKind::Link => {
                let spot = self.entry_path(&member.path);
                let target = OsStr::from_bytes(&member.target);
                let made = symlinkat(target, spot.held, spot.below);
                made.map_err(|error| create_error(&spot, error))?;
                self.set_owner(&spot, &member)?;
                set_times(&spot, &member)
            }
            MemberKind::Tablespace => self.make_tablespace(&member),
            MemberKind::File => {
                self.in_control = self.keep_back && member.path == CONTROL;
                if self.in_control {
                    let first = self.control.replace((member, Vec::new())).is_none();
                    return if first {
                        Ok(())
                    } else {
                        Err(named_twice_error())
                    };
                }
                self.begin_file(member)
            }
        }
    }

    /// Takes the next bytes of the open file: they are written, compared with the old directory's
    /// file, kept in memory for the control file, or dropped if the file is left out. SR-7111 for a
    /// control file that is too long.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        if self.in_control {
            let Some((_, content)) = &mut self.control else {
                return Err(no_file_error());
            };
            if content.len().saturating_add(bytes.len()) > CONTROL_MAX {
                return Err(Error::new(&code::STREAM, "a control file that is too long"));
            }
            content.extend_from_slice(bytes);
            return Ok(());
        }
        if let Some(compared) = &mut self.compared {
            if compared.matches_next(bytes) {
                return Ok(());
            }
            self.write_anew()?;
        }
        match &mut self.file {
            Some(open) => open.data(bytes),
            None if self.left_out => Ok(()),
            None => Err(no_file_error()),
        }
    }

    /// Ends the open file, which gets its owner, mode and times, or is taken over from the old
    /// directory. SR-7111 when changed blocks are missing; SR-7002 when it cannot be sealed;
    /// SR-7176 when the old directory's file has changed.
    pub(crate) fn end_file(&mut self) -> Result<()> {
        if self.in_control {
            self.in_control = false;
            return Ok(());
        }
        if std::mem::take(&mut self.left_out) {
            return Ok(());
        }
        if self.is_taken_over()? {
            return Ok(());
        }
        let open = self.file.take().ok_or_else(no_file_error)?;
        let (file, member) = open.end()?;
        self.settle_file(&file, &member)
    }

    /// Opens a file for the stream's bytes: a new one, or the one that an incremental set changes.
    /// A file that is left out, or compared with the old directory's, is not opened. SR-7111 for a
    /// path that is named twice; SR-7002 for a file that cannot be sealed.
    fn begin_file(&mut self, member: Member) -> Result<()> {
        let changed = self
            .over
            .as_ref()
            .and_then(|over| over.changed_path(&member.path));
        let sealed = match self.sealing_of(changed.as_deref().unwrap_or(&member.path))? {
            Becomes::LeftOut => {
                self.left_out = true;
                return Ok(());
            }
            Becomes::InClear => None,
            Becomes::Sealed(sealed) => Some(sealed),
        };
        self.compared = self.candidate(&member);
        if self.compared.is_some() {
            return Ok(());
        }
        self.file = Some(match changed {
            Some(path) => Open::changes(self.entry_path(&path).reopen()?, member, sealed),
            None if self.is_label_of_chain(&member) => {
                Open::label(self.entry_path(&member.path).create()?, member)
            }
            None => Open::whole(self.entry_path(&member.path).create()?, member, sealed),
        });
        Ok(())
    }

    /// Whether the file at this path is not restored, by the rules of sealing. SR-7002 for one that
    /// cannot be sealed.
    fn is_left_out(&self, path: &[u8]) -> Result<bool> {
        Ok(matches!(self.sealing_of(path)?, Becomes::LeftOut))
    }

    /// What a file becomes: always in clear without sealing. SR-7002 for one that cannot be sealed.
    fn sealing_of(&self, path: &[u8]) -> Result<Becomes> {
        match &self.sealing {
            Some(sealing) => sealing.becomes(path),
            None => Ok(Becomes::InClear),
        }
    }

    /// Appends to a file of the root, or makes it with mode 0600 if the stream does not have it. It
    /// gets the owner and group of the file `like` if root restores. No link is followed; SR-7111
    /// when one of the two is no regular file.
    pub(crate) fn append_to_root_file(&self, like: &str, name: &str, content: &[u8]) -> Result<()> {
        let unfit = |name: &str| Error::new(&code::STREAM, format!("{name} is no regular file"));
        let opened = |name: &str, flags: OFlags| {
            // Never through a link, never waiting for a pipe.
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(&self.root.held, name, flags, Mode::from_raw_mode(0o600));
            let shown = self.root.path.join(name).display().to_string();
            let file = file.map_err(|error| match error {
                Errno::LOOP | Errno::ISDIR => unfit(name),
                error => Error::io(shown.as_str(), error.into()),
            })?;
            let file = File::from(file);
            let about = file.metadata().map_err(|error| Error::io(shown, error))?;
            if about.is_file() {
                Ok((file, about))
            } else {
                Err(unfit(name))
            }
        };
        let (_, owner) = opened(like, OFlags::PATH)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let (mut file, _) = opened(name, flags)?;
        let failed = |error| Error::io(name, error);
        file.write_all(content).map_err(failed)?;
        if self.as_root {
            let owned = std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()));
            owned.map_err(failed)?;
        }
        Ok(())
    }

    /// Removes a file of the root, not durably yet; no error if there is none. SR-5001 when the
    /// system reports another error.
    pub(crate) fn remove_root_file(&self, name: &str) -> Result<()> {
        match unlinkat(&self.root.held, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::io(name, error.into())),
        }
    }

    /// Ends the restore: sets the times, owners and modes that were held back, writes the control
    /// file last, and makes everything durable.
    ///
    /// # Errors
    /// SR-7150 when the directory of a tablespace was exchanged: there is no control file then.
    /// SR-7176 when a file that was taken over has changed. SR-5001 when the system reports an
    /// error.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.set_times_of_kept()?;
        self.sync()?;
        // The links to tablespaces lead to names. If one of these directories was exchanged, there
        // is no control file, and no server starts.
        if let Some(lost) = self.made_spaces.iter().find(|space| !space.is_in_place()) {
            return Err(directory_exchanged_error(&lost.base.path));
        }
        if self.open {
            self.set_mode(&self.root.entry_path(), 0o777)?;
        }
        if let Some((member, content)) = self.control.take() {
            let sealed = self.control_of(&member, &content)?;
            // The control file gets its name when it is complete.
            let (spot, last) = (
                self.root.below(CONTROL_BEFORE),
                self.entry_path(&member.path),
            );
            let mut open = Open::whole(spot.create()?, member.clone(), sealed);
            open.data(&content)?;
            let (file, _) = open.end()?;
            self.settle_file(&file, &member)?;
            let synced = file.sync_all();
            synced.map_err(|error| Error::io(spot.shown.display().to_string(), error))?;
            renameat(spot.held, spot.below, last.held, last.below)
                .map_err(|error| create_error(&last, error))?;
        }
        // Nothing is written below them any more.
        for space in &self.made_spaces {
            self.settle_directory(&space.base.entry_path(), &space.member)?;
        }
        if let (true, Some(place), Some(space)) =
            (self.made_place, &self.place, self.made_spaces.first())
        {
            let owned = self
                .owner_of(&space.member)
                .map(|(owner, group)| std::os::unix::fs::fchown(place, owner, group));
            owned
                .transpose()
                .map_err(|error| Error::io(self.spaces.display().to_string(), error))?;
        }
        if let Some(member) = &self.root_member {
            let mut becomes = member.clone();
            if self.open {
                becomes.mode = 0o777;
            }
            self.settle_directory(&self.root.entry_path(), &becomes)?;
        }
        self.sync()
    }

    /// How the control file is written, `None` for in clear. It is the last file: with sealing, its
    /// content is checked (SR-7010, SR-7011), and the sealed instance's own files are added here.
    fn control_of(&self, member: &Member, content: &[u8]) -> Result<Option<Box<dyn SealedFile>>> {
        let Some(sealing) = &self.sealing else {
            return Ok(None);
        };
        sealing.check_control(content)?;
        for (name, content) in sealing.own_files() {
            self.append_to_root_file("PG_VERSION", name, &content)?;
        }
        match sealing.becomes(&member.path)? {
            Becomes::Sealed(sealed) => Ok(Some(sealed)),
            _ => Err(Error::new(&code::BUG, "a control file in clear")),
        }
    }

    /// Whether `path` is the directory that was filled.
    ///
    /// # Errors
    /// SR-7150 when it is not.
    pub(crate) fn check_at(&self, path: &Path) -> Result<()> {
        if self.root.is_at(path) {
            return Ok(());
        }
        Err(directory_exchanged_error(path))
    }

    /// Syncs the whole file systems of the root and of the tablespaces. SR-5001 when one fails.
    fn sync(&self) -> Result<()> {
        let spaces = self.made_spaces.iter().map(|space| &space.base);
        spaces.chain([&self.root]).try_for_each(|base| {
            let synced = rustix::fs::syncfs(&base.held);
            synced.map_err(|error| Error::io(base.path.display().to_string(), error.into()))
        })
    }

    /// Removes all that was made, as far as that is possible. A directory that is half restored has
    /// no control file, so that no server starts on what remains.
    pub(crate) fn undo(self) {
        let spaces = self.made_spaces.iter().map(|space| &space.base);
        for base in spaces.chain([&self.root]) {
            // Somebody else's directory may have the name by now.
            if base.is_at(&base.path) {
                let _left = crate::mounts::remove_tree(&base.path, &base.held);
            }
        }
        if self.made_place {
            drop(fs::remove_dir(&self.spaces));
        }
    }

    /// Where a path of the stream is: the open directory, and the path below it. Paths in a
    /// tablespace are below its own directory, and are not reached through its link.
    fn entry_path<'a>(&'a self, stored: &'a [u8]) -> EntryPath<'a> {
        for space in &self.made_spaces {
            match stored.strip_prefix(space.stored.as_slice()) {
                Some([]) => return space.base.entry_path(),
                Some([b'/', below @ ..]) => return space.base.below(below),
                _ => {}
            }
        }
        if stored == b"." {
            return self.root.entry_path();
        }
        self.root.below(stored)
    }

    /// Makes a directory with mode 0700; it gets its owner and mode at once, unless its owner could
    /// not write to it then. SR-7111 when the stream has named it before.
    fn make_directory(&self, member: &Member) -> Result<()> {
        let spot = self.entry_path(&member.path);
        let made = mkdirat(spot.held, spot.below, Mode::from_raw_mode(0o700));
        made.map_err(|error| create_error(&spot, error))?;
        // A directory to which its owner cannot write gets its mode when the stream names it again.
        if member.mode & 0o700 == 0o700 {
            self.set_owner(&spot, member)?;
            self.set_mode(&spot, member.mode)?;
        }
        Ok(())
    }

    /// Gives a directory its final owner, mode and times. SR-5001 when that fails.
    fn settle_directory(&self, spot: &EntryPath<'_>, member: &Member) -> Result<()> {
        self.set_owner(spot, member)?;
        self.set_mode(spot, member.mode)?;
        set_times(spot, member)
    }

    /// The number of a tablespace, by its path; `None` when it is not one of a cluster's.
    fn tablespace_number(&self, member: &Member) -> Option<u32> {
        let path = std::str::from_utf8(&member.path).ok()?;
        let number = path.strip_prefix(SPACES)?.parse().ok()?;
        self.keep_back.then_some(number)
    }

    /// Makes the directory of a tablespace, and the link to it. SR-7113 when the directory exists;
    /// SR-7111 when the path is not that of a tablespace.
    fn make_tablespace(&mut self, member: &Member) -> Result<()> {
        let number = self.tablespace_number(member);
        let number = number.ok_or_else(|| Error::new(&code::STREAM, "a tablespace's path"))?;
        let name = number.to_string();
        let path = self.spaces.join(&name);
        let place = self.open_tablespace_directory()?;
        let made = mkdirat(place, name.as_str(), Mode::from_raw_mode(0o700));
        made.map_err(|error| match error {
            Errno::EXIST => Error::new(&code::TARGET_NOT_EMPTY, path.display().to_string()),
            error => Error::io(path.display().to_string(), error.into()),
        })?;
        let base = HeldDirectory::open(place, OsStr::new(&name), path.clone())?;
        self.made_spaces.push(Tablespace {
            stored: member.path.clone(),
            base,
            member: member.clone(),
        });
        let link = self.root.below(&member.path);
        let made = symlinkat(&path, link.held, link.below);
        made.map_err(|error| create_error(&link, error))?;
        self.set_owner(&link, member)
    }

    /// Opens the directory of tablespaces once, and keeps it open. It is made, with its parents,
    /// unless it exists. SR-5001 when that fails.
    fn open_tablespace_directory(&mut self) -> Result<&OwnedFd> {
        let failed = |error| Error::io(self.spaces.display().to_string(), error);
        let opened = match self.place.take() {
            Some(opened) => opened,
            None => {
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
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = openat(CWD, &self.spaces, flags, Mode::empty());
                opened.map_err(|error| failed(error.into()))?
            }
        };
        Ok(self.place.insert(opened))
    }

    /// Gives an open file its final owner, mode and times. SR-5001 when that fails.
    fn settle_file(&self, file: &File, member: &Member) -> Result<()> {
        let failed = |error| Error::io(String::from_utf8_lossy(&member.path), error);
        if let Some((owner, group)) = self.owner_of(member) {
            std::os::unix::fs::fchown(file, owner, group).map_err(failed)?;
        }
        let mode = Permissions::from_mode(self.kept_mode(member.mode));
        file.set_permissions(mode).map_err(failed)?;
        let times = timestamps(member);
        rustix::fs::futimens(file, &times).map_err(|error| failed(error.into()))
    }

    /// Gives an entry its owner and group, if it gets others than it has. A link itself is changed,
    /// not its target. SR-5001 when that fails.
    fn set_owner(&self, spot: &EntryPath<'_>, member: &Member) -> Result<()> {
        let Some((owner, group)) = self.owner_of(member) else {
            return Ok(());
        };
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(spot.held, spot.below, owner, group, flags).map_err(|error| spot.failed(error))
    }

    /// Sets the mode of a directory, without the special bits that are not kept. SR-5001 when that
    /// fails.
    fn set_mode(&self, spot: &EntryPath<'_>, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(self.kept_mode(mode));
        let set = chmodat(spot.held, spot.below, mode, AtFlags::empty());
        set.map_err(|error| spot.failed(error))
    }

    /// The mode as it is restored. Set-user-ID, set-group-ID and sticky bits are kept only for root
    /// and on request: they mean something only with the original owner, and whoever made the set
    /// could use them to gain rights.
    fn kept_mode(&self, mode: u32) -> u32 {
        let special = self.as_root && self.kept.special_bits;
        if special { mode } else { mode & 0o777 }
    }

    /// The user and group that a member gets; `None` when it keeps those of the restoring user.
    fn owner_of(&self, member: &Member) -> Option<(Option<u32>, Option<u32>)> {
        // The highest number means "unchanged" to chown(2).
        let number = |number: u32| (number != u32::MAX).then_some(number);
        match self.kept.owners {
            _ if !self.as_root => None,
            Owners::Mine => None,
            Owners::OfSet => Some((number(member.owner), number(member.group))),
            Owners::Given { user, group } => Some((Some(user), Some(group))),
        }
    }
}

/// Sets both times of an entry to that of the stream; of a link itself, not of its target. SR-5001
/// when that fails.
fn set_times(spot: &EntryPath<'_>, member: &Member) -> Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    utimensat(spot.held, spot.below, &timestamps(member), flags).map_err(|error| spot.failed(error))
}

/// Both times of a member, as the system takes them.
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

/// Syncs the whole file system that a directory is in. SR-5001 when that fails.
pub(crate) fn sync_all_of(directory: &Path) -> Result<()> {
    let failed = |error| Error::io(directory.display().to_string(), error);
    let opened = File::open(directory).map_err(failed)?;
    rustix::fs::syncfs(&opened).map_err(|error| failed(error.into()))
}

/// Makes SR-9001, for when no file is open.
fn no_file_error() -> Error {
    Error::new(&code::BUG, "no file is open")
}
