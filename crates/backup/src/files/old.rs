//! Files of the old directory that a restore replaces: a file that equals the set's gets a second
//! name in the new directory, and is not written again.
//!
//! Invariants: nothing is written into a file of the old directory. A file is taken over only if
//! its owner and mode are those that it would get, it has no other name, each of its bytes was
//! compared, and it has not changed since.
//!
//! Must not: follow a link, neither of a file nor on the way to it.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, linkat, openat, openat2};
use rustix::io::Errno;
use strongroom_format::backup::Member;
use strongroom_format::code;

use super::open::Open;
use super::place::{EntryPath, create_error};
use super::{Files, set_times};
use crate::{Error, Result};

/// Bytes that are compared or copied at a time.
const PIECE: usize = 256 * 1024;

/// The old directory, and what was taken over from it.
pub(super) struct Old {
    held: File,
    /// Files that have a name in both directories. They get their times at the end.
    pub(super) kept: Vec<LinkedFile>,
}

/// A file that has a name in both directories, with its state when it was examined last.
pub(super) struct LinkedFile {
    member: Member,
    state: State,
}

/// What changes when a file's content does. From the first comparison until the exchange, only the
/// restore itself may change a file's state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// As `modified`; a new name, mode or time changes it too.
    changed: (i64, i64),
}

impl State {
    /// Takes the state (device, inode, size and times) from a file's metadata.
    fn of(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            size: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }

    /// Reads the state of a file, by its name in the new directory; a link is not followed. SR-5001
    /// when that fails.
    fn at(spot: &EntryPath<'_>) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(spot.held, spot.below, flags, Mode::empty());
        let file = File::from(opened.map_err(|error| spot.failed(error))?);
        let about = file.metadata();
        let about = about.map_err(|error| Error::io(spot.shown.display().to_string(), error))?;
        Ok(Self::of(&about))
    }
}

/// Makes SR-7176 for a file that has changed during the restore.
fn changed_error(path: &[u8]) -> Error {
    let path = String::from_utf8_lossy(path);
    let why = format!(
        "{path}: something writes to it, and it changed during the restore; stop that first"
    );
    Error::new(&code::DELTA_REFUSED, why)
}

/// A file of the old directory that equals the set's in all bytes that the stream has delivered so
/// far.
pub(super) struct Candidate {
    file: File,
    /// Its state before the first byte was compared.
    state: State,
    pub(super) member: Member,
    compared: u64,
    buffer: Vec<u8>,
}

impl Old {
    /// The directory that is open as `held`, of which nothing was taken over yet.
    pub(super) fn new(held: File) -> Self {
        Self {
            held,
            kept: Vec::new(),
        }
    }

    /// The old directory's file with the member's path, if it can be taken over: a regular file
    /// with one name, with this mode and, unless they are `None`, this owner and group. `None` too
    /// when it cannot be opened.
    pub(super) fn candidate(
        &self,
        member: &Member,
        owner: Option<u32>,
        group: Option<u32>,
        mode: u32,
    ) -> Option<Candidate> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let path = std::ffi::OsStr::from_bytes(&member.path);
        // Where the kernel does not have this call, every file is written anew.
        let opened = openat2(&self.held, path, flags, Mode::empty(), resolve).ok()?;
        let file = File::from(opened);
        let about = file.metadata().ok()?;
        let same = about.is_file()
            && about.nlink() == 1
            && owner.is_none_or(|owner| owner == about.uid())
            && group.is_none_or(|group| group == about.gid())
            && about.mode() & 0o7777 == mode;
        same.then(|| Candidate {
            file,
            state: State::of(&about),
            member: member.clone(),
            compared: 0,
            buffer: vec![0; PIECE],
        })
    }
}

impl Files {
    /// Has files of the open directory `old` taken over that equal the set's, instead of writing
    /// them again.
    pub(crate) fn replace(&mut self, old: File) {
        self.old = Some(Old::new(old));
    }

    /// How many files were taken over.
    pub(crate) fn taken_over(&self) -> u64 {
        self.old.as_ref().map_or(0, |old| old.kept.len() as u64)
    }

    /// Locks the root, so that another restore does not take it for the remains of a killed one.
    pub(crate) fn lock(&self) {
        // Nobody else knows the name, so that nobody else has the lock.
        let _free = crate::directory_lock::lock_directory(&self.root.held);
    }

    /// The file of the old directory that the stream's file is compared with; `None` if it is to be
    /// written anew.
    pub(super) fn candidate(&self, member: &Member) -> Option<Candidate> {
        let old = self.old.as_ref()?;
        // A recovery's settings are appended to these files, which would change the old directory's
        // too.
        let added_to = [&b"postgresql.auto.conf"[..], b"recovery.signal"];
        if self.keep_back && added_to.contains(&member.path.as_slice()) {
            return None;
        }
        let (owner, group) = match self.owner_of(member) {
            Some(becomes) => becomes,
            None if self.as_root => (Some(0), Some(0)),
            None => (Some(rustix::process::geteuid().as_raw()), None),
        };
        old.candidate(member, owner, group, self.kept_mode(member.mode))
    }

    /// When the compared file differs from the stream's, begins a new file with what was compared
    /// so far, to which the rest is appended. Does nothing if no file is compared. SR-7176 when the
    /// old file has changed.
    pub(super) fn write_anew(&mut self) -> Result<()> {
        if let Some(compared) = self.compared.take() {
            let file = self.entry_path(&compared.member.path).create()?;
            let open = Open::whole(file, compared.member.clone(), None);
            self.file = Some(compared.copy_compared(open)?);
        }
        Ok(())
    }

    /// Ends a file whose bytes were all compared: gives it a second name in the new directory. True
    /// when it was taken over; otherwise a new file has its bytes, and the caller ends that. False
    /// too when no file is compared. SR-7176 when it has changed.
    pub(super) fn is_taken_over(&mut self) -> Result<bool> {
        let Some(compared) = &self.compared else {
            return Ok(false);
        };
        let spot = self.entry_path(&compared.member.path);
        let Some(state) = compared.link(&spot)? else {
            self.write_anew()?;
            return Ok(false);
        };
        let member = self.compared.take().map(|compared| compared.member);
        if let Some(old) = &mut self.old {
            old.kept
                .extend(member.map(|member| LinkedFile { member, state }));
        }
        Ok(true)
    }

    /// Gives the files that were taken over the times of the set.
    ///
    /// # Errors
    /// SR-7176 when one of them has changed.
    pub(super) fn set_times_of_kept(&mut self) -> Result<()> {
        let Some(mut old) = self.old.take() else {
            return Ok(());
        };
        let set = old.kept.iter_mut().try_for_each(|taken| {
            let spot = self.entry_path(&taken.member.path);
            let wanted = (taken.member.seconds, i64::from(taken.member.nanoseconds));
            // The time is left alone where it is right: a later change shows in it.
            if taken.state.modified == wanted {
                return Ok(());
            }
            taken.check(&spot)?;
            set_times(&spot, &taken.member)?;
            let before = taken.state;
            taken.state = State::at(&spot)?;
            let same = State {
                modified: wanted,
                changed: taken.state.changed,
                ..before
            };
            // Somebody wrote to it after its time was set.
            if taken.state != same {
                return Err(changed_error(&taken.member.path));
            }
            Ok(())
        });
        self.old = Some(old);
        set
    }

    /// Checks that the files that were taken over have not changed since they were compared.
    ///
    /// # Errors
    /// SR-7176 when one of them has changed.
    pub(crate) fn check_kept(&self) -> Result<()> {
        let mut kept = self.old.iter().flat_map(|old| &old.kept);
        kept.try_for_each(|taken| taken.check(&self.entry_path(&taken.member.path)))
    }
}

impl LinkedFile {
    /// Checks that the file has not changed since it was examined last. SR-7176 when it has.
    fn check(&self, spot: &EntryPath<'_>) -> Result<()> {
        if State::at(spot)? == self.state {
            return Ok(());
        }
        Err(changed_error(&self.member.path))
    }
}

impl Candidate {
    /// Whether the file goes on with these bytes; then they count as compared. False too when it
    /// cannot be read: it is then written anew.
    pub(super) fn matches_next(&mut self, bytes: &[u8]) -> bool {
        let mut at = self.compared;
        for piece in bytes.chunks(PIECE) {
            let Some(room) = self.buffer.get_mut(..piece.len()) else {
                return false;
            };
            // What cannot be read is written anew.
            if self.file.read_exact_at(room, at).is_err() || room != piece {
                return false;
            }
            at = at.saturating_add(piece.len() as u64);
        }
        self.compared = at;
        true
    }

    /// Reads the state of the open file. SR-5001 when that fails.
    fn now(&self) -> Result<State> {
        let failed = |error| Error::io(String::from_utf8_lossy(&self.member.path), error);
        Ok(State::of(&self.file.metadata().map_err(failed)?))
    }

    /// Gives the old file, which was compared with the set's file, a second name `spot` in the
    /// directory that is being restored, and returns its metadata with that name. `None` if the
    /// file has to be written anew: because the old one is longer than what was compared, has more
    /// than one name already, or the file system makes no such name.
    ///
    /// # Errors
    /// SR-7176 when the old file has changed since the comparison began; SR-7111 when the new
    /// directory has the name already, because the set has the path twice.
    fn link(&self, spot: &EntryPath<'_>) -> Result<Option<State>> {
        let about = self.file.metadata();
        let about = about.map_err(|error| Error::io(spot.shown.display().to_string(), error))?;
        if State::of(&about) != self.state {
            return Err(changed_error(&self.member.path));
        }
        if about.len() != self.compared || about.nlink() != 1 {
            return Ok(None);
        }
        // By the descriptor, because the name may lead to another file by now.
        let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match linkat(CWD, source, spot.held, spot.below, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(create_error(spot, Errno::EXIST)),
            Err(_) => return Ok(None),
        }
        // The name itself changes the time of the last change of its inode.
        let now = self.now()?;
        let same = State {
            changed: now.changed,
            ..self.state
        };
        if now != same {
            return Err(changed_error(&self.member.path));
        }
        Ok(Some(now))
    }

    /// Writes the bytes that were compared into a new file.
    ///
    /// # Errors
    /// SR-7176 when the file has changed since, so that it no longer holds what was compared.
    pub(super) fn copy_compared(mut self, mut into: Open) -> Result<Open> {
        let mut at = 0_u64;
        while at < self.compared {
            let length = self.compared.saturating_sub(at).min(PIECE as u64);
            let room = usize::try_from(length).ok();
            let Some(room) = room.and_then(|length| self.buffer.get_mut(..length)) else {
                break;
            };
            let read = self.file.read_exact_at(room, at);
            read.map_err(|error| Error::io(String::from_utf8_lossy(&self.member.path), error))?;
            into.data(room)?;
            at = at.saturating_add(length);
        }
        if self.compared > 0 && self.now()? != self.state {
            return Err(changed_error(&self.member.path));
        }
        Ok(into)
    }
}
