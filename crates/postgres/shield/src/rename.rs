//! Prepares renames and links: some files must be converted first, and some renames are refused.
//!
//! A sealed block is bound to its address, which follows from the file's name. Log segments keep
//! their bytes when they are recycled: PostgreSQL takes bytes that it cannot read for the end of
//! the log. `xlogtemp.<pid>` is the only block file whose contents must be converted: it becomes a
//! segment, or a timeline's history, which is stored in clear.
//!
//! Where the instance binds containers to their names, a container is bound to its name too.
//! Renames by PostgreSQL do not change the name that counts ([`crate::container_name`]), with one
//! exception: `temp.summary` is sealed for its new name before it is renamed. Every other rename
//! that would change a container's name is refused. A copy under the new name is no alternative: a
//! process that has the old file open would then write to a file that has no name.
//!
//! Invariants: a conversion is on the disk before the rename begins; one that is interrupted leaves
//! an `xlogtemp` file, which PostgreSQL removes when it starts, or a `temp.summary`, which it
//! writes anew. Bytes sealed for one address never get the name of another.
//!
//! Must not: rename anything itself.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ffi::{CStr, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::classify::Class;
use crate::layout::FileLayout;
use crate::open_instances;
use crate::real::{Errno, Real};
use crate::resolve::{Resolved, Seal};
use crate::scratch::{self, LEN};
use crate::sealed_file::FileCache;
use crate::{block, container, container_name, new_log};

/// What must be done before a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameStep {
    /// Nothing.
    Nothing,
    /// The rename is refused with this errno.
    Refuse(Errno),
    /// A new log file has to be sealed for its segment, or decrypted when there is no second seal.
    Convert(Seal, Option<Seal>),
    /// A file from the archive must be the segment whose name it gets ([`crate::restored`]).
    CheckRestored(Seal),
    /// A container has to be sealed for its new name.
    Rebind(Seal, Seal),
    /// The container, or the state in the slot's directory, is bound to another name: only an empty
    /// file or directory may change its name in this way.
    SameNameOnly,
    /// The treatments differ: only a directory or an empty file may change its name in this way.
    SameTreatmentOnly,
}

/// Says what must be done before `from` is renamed or linked to `to`. Does nothing itself.
#[must_use]
pub fn rename_step(from: &Resolved, to: &Resolved) -> RenameStep {
    match (from, to) {
        (Resolved::Hidden, _) => RenameStep::Refuse(Errno(libc::ENOENT)),
        (_, Resolved::Hidden) | (Resolved::Refused(_), _) | (_, Resolved::Refused(_)) => {
            RenameStep::Refuse(Errno(libc::EACCES))
        }
        // Files in clear and directories count too, because a directory is renamed with the sealed
        // files in it. pg_upgrade links PG_VERSION first, and so stops before it has changed
        // anything.
        _ if keys_differ(from, to) => RenameStep::Refuse(Errno(libc::EXDEV)),
        // The database is part of each relation's address.
        (Resolved::Plain(from), Resolved::Plain(to))
            if from.database.is_some() && to.database.is_some() && from.database != to.database =>
        {
            RenameStep::Refuse(Errno(libc::EXDEV))
        }
        (Resolved::Plain(from), Resolved::Plain(to))
            if open_instances::names_are_bound(from.root)
                && from.slot.is_some()
                && to.slot.is_some()
                && from.slot != to.slot =>
        {
            RenameStep::SameNameOnly
        }
        (Resolved::Outside | Resolved::Plain(_), Resolved::Outside | Resolved::Plain(_)) => {
            RenameStep::Nothing
        }
        // The file that the restore command fetched.
        (Resolved::Plain(from), Resolved::Sealed(to))
            if from.class == Class::WalRestored && to.class == Class::Wal =>
        {
            RenameStep::CheckRestored(*to)
        }
        (Resolved::Sealed(from), Resolved::Sealed(to)) => step_within_instance(from, to),
        (Resolved::Sealed(from), Resolved::Plain(_)) if from.layout == FileLayout::NewLog => {
            RenameStep::Convert(*from, None)
        }
        _ => RenameStep::SameTreatmentOnly,
    }
}

/// Whether the two paths are in open instances with different keys. False if one is in none.
fn keys_differ(from: &Resolved, to: &Resolved) -> bool {
    let root = |resolved: &Resolved| match resolved {
        Resolved::Plain(clear) => Some(clear.root),
        Resolved::Sealed(seal) => Some(seal.root),
        _ => None,
    };
    match (root(from), root(to)) {
        (Some(from), Some(to)) => from != to && !open_instances::share_keys(from, to),
        _ => false,
    }
}

/// Says what must be done before a rename of two sealed files of one instance, or of two instances
/// that have the same keys.
fn step_within_instance(from: &Seal, to: &Seal) -> RenameStep {
    match (from.layout, to.layout) {
        (FileLayout::NewLog, FileLayout::NewLog) => RenameStep::Refuse(Errno(libc::EXDEV)),
        (FileLayout::NewLog, FileLayout::Block) if to.class == Class::Wal => {
            RenameStep::Convert(*from, Some(*to))
        }
        (FileLayout::Block, FileLayout::Block)
            if from.class == Class::Wal && to.class == Class::Wal =>
        {
            RenameStep::Nothing
        }
        (FileLayout::Block | FileLayout::Temporary, _) if from.layout == to.layout => {
            if (from.key, from.tweak) == (to.key, to.tweak) {
                RenameStep::Nothing
            } else {
                RenameStep::SameTreatmentOnly
            }
        }
        (FileLayout::Stream | FileLayout::TemporaryStream, _) if from.layout == to.layout => {
            RenameStep::Nothing
        }
        (FileLayout::Container, FileLayout::Container)
            if from.tweak == to.tweak || !open_instances::names_are_bound(from.root) =>
        {
            RenameStep::Nothing
        }
        (FileLayout::Container, FileLayout::Container)
            if container_name::is_temporary_summary(from.class, &from.tweak)
                && to.class == Class::WalSummary =>
        {
            RenameStep::Rebind(*from, *to)
        }
        (FileLayout::Container, FileLayout::Container) => RenameStep::SameNameOnly,
        _ => RenameStep::SameTreatmentOnly,
    }
}

/// Seals the contents of a new log file for its segment, or decrypts them when there is no `to`, in
/// place; then syncs the file. Does nothing if this process made the file and wrote only zeros to
/// it, and there is a `to`.
///
/// # Errors
/// The kernel's; ENOMEM without buffers; EBADF when the instance is not open.
pub fn convert(real: &Real, path: &CStr, from: &Seal, to: Option<&Seal>) -> Result<(), Errno> {
    // The usual case: this process has just filled the segment with zeros, which are stored as
    // zeros under either address.
    if to.is_some() && is_made_by_this_process(path) && !new_log::was_written() {
        return Ok(());
    }
    real.with_open(path, libc::O_RDWR | libc::O_CLOEXEC, |fd| {
        convert_open_file(real, fd, from, to)?;
        real.fsync(fd)
    })?;
    new_log::clear_written();
    Ok(())
}

/// Seals the container at `path`, which is sealed for the name of `from`, for the name of `to` in
/// place, then syncs the file. Does not follow a link.
///
/// # Errors
/// The kernel's; EIO when it does not open under the name of `from`.
pub fn rebind(real: &Real, path: &CStr, from: &Seal, to: &Seal) -> Result<(), Errno> {
    let cache: FileCache = [const { AtomicU64::new(0) }; 4];
    let (source, target) = (from.file(&cache)?, to.file(&cache)?);
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    real.with_open(path, flags, |fd| {
        container::rebind(real, fd, &source, &target)?;
        real.fsync(fd)
    })
}

/// Whether this process made the file: its process id is at the end of the name.
fn is_made_by_this_process(path: &CStr) -> bool {
    let digits = path.to_bytes().rsplit(|&byte| byte == b'.').next();
    let named = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
    named == Some(std::process::id())
}

/// Seals an open new log file for its segment, or decrypts it when there is no `to`, in place.
/// Pieces of zeros are left as they are. Does not sync. EIO when it is damaged, ENOMEM without
/// buffers, and the kernel's errors; a part is then converted.
fn convert_open_file(real: &Real, fd: RawFd, from: &Seal, to: Option<&Seal>) -> Result<(), Errno> {
    let cache: FileCache = [const { AtomicU64::new(0) }; 4];
    let source = from.file(&cache)?;
    let target = to.map(|to| to.file(&cache)).transpose()?;
    scratch::stage(|stage| {
        let mut at = 0_u64;
        loop {
            let count = block::read_at(real, fd, &source, stage, at)?;
            let Some(bytes) = stage.get(..count).filter(|bytes| !bytes.is_empty()) else {
                return Ok(());
            };
            match &target {
                _ if bytes.iter().all(|byte| *byte == 0) => {}
                Some(target) => block::write_all(real, fd, target, bytes, at)?,
                None => real.pwrite_full(fd, bytes, at)?,
            }
            at = at
                .checked_add(u64::try_from(count).unwrap_or(u64::MAX))
                .ok_or(Errno(libc::EFBIG))?;
            if count < LEN {
                return Ok(());
            }
        }
    })
    .map_err(|_| Errno(libc::ENOMEM))?
}

/// Checks that a file or directory is empty before it gets a name of another treatment. Sealed
/// files in a directory would be taken for plain ones under its new name, or the reverse. Passes
/// when the path cannot be opened: the rename itself reports why.
///
/// # Errors
/// EXDEV, as between file systems, when it is not empty; the kernel's.
pub fn refuse_contents(real: &Real, path: &CStr) -> Result<(), Errno> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    // If it cannot be opened, rename itself reports why.
    let Ok(fd) = real.open(path, flags, 0) else {
        return Ok(());
    };
    let about = real.fstat(fd);
    let closed = real.close(fd);
    let about = closed.and(about)?;
    let has_contents = match about.st_mode & libc::S_IFMT {
        libc::S_IFREG => about.st_size > 0,
        libc::S_IFDIR => is_not_empty(path),
        _ => false,
    };
    match has_contents {
        true => Err(Errno(libc::EXDEV)),
        false => Ok(()),
    }
}

/// Whether a directory has entries; true when it cannot be read.
fn is_not_empty(directory: &CStr) -> bool {
    let directory = Path::new(OsStr::from_bytes(directory.to_bytes()));
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_some())
}
