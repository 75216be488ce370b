//! Restores over an existing directory. The new directory is made beside it, as in every restore;
//! files of the old one that agree with the set are linked into it (`files/old.rs`). When
//! everything is authentic, complete and durable, the two directories exchange their names, and the
//! old one is removed.
//!
//! Invariants: B26, at every moment the target is the old directory, unchanged, or the complete new
//! one; nothing is removed before the exchange; a directory is replaced only if it is the source of
//! the set, or with `force`.
//!
//! Must not: follow a link; remove files of another mount, or files that the restore needs.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with, unlinkat,
};
use rustix::process::{Pid, test_kill_process};
use strongroom_format::{code, hex};
use strongroom_keyring::durable;

use crate::directory_lock::lock_directory;
use crate::files::Files;
use crate::head::{Description, Kind};
use crate::mounts::{mount_of, remove_tree};
use crate::restore_options::{Delta, Kept, Owners};
use crate::restore_paths::{absolute, beside, parent_of, partial_beside};
use crate::{Error, Result};

/// An existing directory that a restore replaces.
pub(crate) struct OldDirectory {
    to: PathBuf,
    held: File,
    cluster: bool,
    /// Bytes of its files.
    pub(crate) bytes: u64,
}

/// The most bytes of `postmaster.pid` that are read.
const PID_FILE_MAX: u64 = 4096;
/// The file that every sealed instance has.
const SEALED: &str = "strongroom.header";

/// Makes SR-7176 for the directory `to`, with the reason.
fn refusal(to: &Path, why: &str) -> Error {
    Error::new(&code::DELTA_REFUSED, format!("{}: {why}", to.display()))
}

/// Makes SR-5001 with the path in the detail.
fn failed(path: &Path, error: io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

impl OldDirectory {
    /// Opens and locks the directory at `to`, and checks that it may be restored over: its kind,
    /// place, owner and contents, and that no server runs on it. `None` when there is none, or when
    /// it is empty.
    ///
    /// # Errors
    /// SR-7176 when it may not be restored over; SR-5001 when the system reports an error.
    pub(crate) fn begin(
        to: &Path,
        delta: &Delta,
        description: &Description,
        kept: Kept,
    ) -> Result<Option<Self>> {
        let to = absolute(to)?;
        let about = match fs::symlink_metadata(&to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| failed(&to, error))?,
        };
        if !about.is_dir() {
            return Err(refusal(&to, "not a directory; a link is not followed"));
        }
        let mut entries = fs::read_dir(&to).map_err(|error| failed(&to, error))?;
        if entries.next().is_none() {
            return Ok(None);
        }
        let cluster = match description.kind {
            Kind::Postgres => true,
            Kind::Files => false,
            _ => {
                return Err(refusal(
                    &to,
                    "only directories and clusters are restored over",
                ));
            }
        };
        if description.base_set_id().is_some() {
            let why = "an incremental set can only be restored to a new directory";
            return Err(refusal(&to, why));
        }
        check_place(&to, &about, delta)?;
        check_owner(&to, &about, kept, description)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(CWD, &to, flags, Mode::empty());
        let held = File::from(held.map_err(|error| failed(&to, error.into()))?);
        let mut over = Self {
            to,
            held,
            cluster,
            bytes: 0,
        };
        // Another restore may have exchanged the directory since it was opened, and is removing it
        // then.
        if !lock_directory(&over.held) || !over.is_at(&over.to) {
            return Err(refusal(&over.to, "another restore is at work on it"));
        }
        check_no_server(&over.to)?;
        check_what_it_is(&over.to, &over.held, delta, description)?;
        over.bytes = check_below(&over.to, about.dev(), cluster)?;
        Ok(Some(over))
    }

    /// Returns another descriptor of the open directory. SR-5001 when there is none left.
    pub(crate) fn held(&self) -> Result<File> {
        self.held
            .try_clone()
            .map_err(|error| failed(&self.to, error))
    }

    /// Exchanges the old directory for the new one, `files`, which is complete and durable at the
    /// path `new`, and removes the old one: of a cluster first the control file, so that no server
    /// starts on what may be left. Returns `new`, under which the rest of the old directory is,
    /// when something could not be removed; `None` when all was.
    ///
    /// # Errors
    /// SR-7176 when a server was started on the old directory meanwhile, something was mounted in
    /// it, a cluster has got a link other than those to tablespaces, or a file that was taken over
    /// from it has changed; SR-7150 when the directory itself was exchanged; SR-5001 when the
    /// system reports an error. The old directory then keeps its name, or has it again, except for
    /// SR-5001 when making the exchange durable or undoing it failed: then it is at `new`.
    pub(crate) fn exchange(self, new: &Path, files: &Files) -> Result<Option<PathBuf>> {
        check_no_server(&self.to)?;
        let device = self.held.metadata().map(|about| about.dev());
        let device = device.map_err(|error| failed(&self.to, error))?;
        check_below(&self.to, device, self.cluster)?;
        files.check_kept()?;
        if !self.is_at(&self.to) {
            let shown = self.to.display().to_string();
            return Err(Error::new(&code::RESTORE_EXCHANGED, shown));
        }
        exchange_directories(new, &self.to)?;
        // A server may have been started between the check and the exchange; it runs on the old
        // directory, which is now at `new`. A file may have changed as well.
        if let Err(error) = check_no_server(new).and_then(|()| files.check_kept()) {
            exchange_directories(new, &self.to)?;
            return Err(error);
        }
        durable::sync_dir_of(&self.to).map_err(|error| failed(&self.to, error))?;
        if self.cluster {
            self.disable();
        }
        // Somebody else's directory may have the name by now.
        let removed = self.is_at(new) && remove_tree(new, &self.held);
        Ok((!removed).then(|| new.to_path_buf()))
    }

    /// Whether `path` is the old directory, by device and inode. False when either cannot be
    /// examined.
    fn is_at(&self, path: &Path) -> bool {
        let identity = |about: fs::Metadata| (about.dev(), about.ino());
        let named = fs::symlink_metadata(path).map(identity);
        let held = self.held.metadata().map(identity);
        matches!((named, held), (Ok(named), Ok(held)) if named == held)
    }

    /// Removes the control file of the old cluster and syncs its directory, as far as that is
    /// possible. The cluster shares files with the new directory: if its removal is interrupted, no
    /// server must start on it.
    fn disable(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(global) = openat(&self.held, "global", flags, Mode::empty()) {
            let _gone = unlinkat(&global, "pg_control", AtFlags::empty());
            let _durable = rustix::fs::fsync(&global);
        }
    }
}

/// Checks that the directory is not a mount point and contains nothing that the restore needs.
/// SR-7176 otherwise; SR-5001 if the system reports an error.
fn check_place(to: &Path, about: &fs::Metadata, delta: &Delta) -> Result<()> {
    let real = fs::canonicalize(to).map_err(|error| failed(to, error))?;
    let parent = parent_of(&real);
    let above = fs::metadata(&parent).map_err(|error| failed(&parent, error))?;
    let is_mounted = real == Path::new("/") || above.dev() != about.dev();
    if is_mounted || mount_at(&real)? != mount_at(&parent)? {
        return Err(refusal(to, "a mount point; name a directory below it"));
    }
    for needed in &delta.apart {
        // A path that does not exist yet would be made in the nearest directory that does.
        let needed = absolute(needed)?;
        let there = needed.ancestors().find_map(|at| fs::canonicalize(at).ok());
        if there.is_some_and(|there| there.starts_with(&real)) {
            let why = format!("{} lies in it and would be removed", needed.display());
            return Err(refusal(to, &why));
        }
    }
    Ok(())
}

/// Checks that the directory belongs to the user who restores, or to the user who gets the restored
/// files. SR-7176 otherwise, with the option that helps.
fn check_owner(
    to: &Path,
    about: &fs::Metadata,
    kept: Kept,
    description: &Description,
) -> Result<()> {
    let me = rustix::process::geteuid();
    let becomes = match kept.owners {
        _ if !me.is_root() => None,
        Owners::Mine => None,
        Owners::Given { user, .. } => Some(user),
        // The owner of each file is compared when the stream has it.
        Owners::OfSet => Some(about.uid()),
    };
    if about.uid() == me.as_raw() || Some(about.uid()) == becomes {
        return Ok(());
    }
    let hint = match description.kind {
        Kind::Postgres if me.is_root() => "; give --owner with the name of that user",
        _ if me.is_root() => "; give --owner or --keep-owners",
        _ => "; run this as that user",
    };
    let why = format!(
        "it belongs to the user with the number {}{hint}",
        about.uid()
    );
    Err(refusal(to, &why))
}

/// Checks that the directory is the source of the set: a data directory of the same cluster for a
/// set of PostgreSQL, else the path that the set was made of. SR-7176 if it is not, unless forced;
/// SR-7176 in any case if it holds a sealed instance. SR-5001 if the path cannot be resolved.
fn check_what_it_is(
    to: &Path,
    held: &File,
    delta: &Delta,
    description: &Description,
) -> Result<()> {
    if fs::symlink_metadata(to.join(SEALED)).is_ok() {
        let why = "it is a sealed instance; use --sealed and a new directory";
        return Err(refusal(to, why));
    }
    if delta.force {
        return Ok(());
    }
    let Some(facts) = &description.postgres else {
        let real = fs::canonicalize(to).map_err(|error| failed(to, error))?;
        // The set may name its source by a link. A relative path proves nothing: it was relative to
        // another directory.
        let source = Path::new(&description.source);
        let named = source.is_absolute().then(|| fs::canonicalize(source));
        if source == real || matches!(named, Some(Ok(named)) if named == real) {
            return Ok(());
        }
        let why = format!(
            "the set was made of {}; the restore would remove everything here that the set does not have; --force does so",
            description.source
        );
        return Err(refusal(to, &why));
    };
    let system = system_identifier(held);
    let shown = &facts.system_identifier;
    if system.as_deref() == Some(facts.system_identifier.as_str()) {
        return Ok(());
    }
    let what = match system {
        Some(other) => format!("it belongs to the cluster {other}, and the set to {shown}"),
        None => String::from(
            "it is not known to be the set's cluster: it has no PG_VERSION or no control file",
        ),
    };
    Err(refusal(
        to,
        &format!("{what}; --force restores nevertheless"),
    ))
}

/// The number of the cluster, from its control file (`ControlFileData`,
/// `src/include/catalog/pg_control.h`). `None` when `PG_VERSION` or the control file is missing, or
/// cannot be read without following a link.
fn system_identifier(held: &File) -> Option<String> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |path: &str| {
        let opened = openat2(held, path, flags, Mode::empty(), resolve).ok()?;
        let file = File::from(opened);
        file.metadata()
            .is_ok_and(|about| about.is_file())
            .then_some(file)
    };
    open("PG_VERSION")?;
    let mut number = [0; 8];
    let control = open("global/pg_control")?;
    std::os::unix::fs::FileExt::read_exact_at(&control, &mut number, 0).ok()?;
    Some(u64::from_le_bytes(number).to_string())
}

/// Checks that no server uses the directory. SR-7176 when `postmaster.pid` names a process that
/// exists, or names none.
fn check_no_server(directory: &Path) -> Result<()> {
    let path = directory.join("postmaster.pid");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, &path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(&path, error.into())),
    };
    let mut text = String::new();
    let read = io::Read::read_to_string(&mut io::Read::take(file, PID_FILE_MAX), &mut text);
    read.map_err(|error| failed(&path, error))?;
    // A server without a postmaster writes its number negated.
    let number = text.lines().next().map(str::trim);
    let number = number.and_then(|number| number.parse::<i32>().ok());
    let process = number.and_then(i32::checked_abs).and_then(Pid::from_raw);
    let gone =
        process.is_some_and(|process| test_kill_process(process) == Err(rustix::io::Errno::SRCH));
    if gone {
        return Ok(());
    }
    let why = "a server runs on it, by its postmaster.pid; stop it first";
    Err(refusal(directory, why))
}

/// The number of the mount that `path` is in. SR-5001 when the kernel does not tell.
fn mount_at(path: &Path) -> Result<u64> {
    mount_of(path).map_err(|error| failed(path, error.into()))
}

/// Checks everything in the directory, and returns the bytes of its files. SR-7176 when something
/// is in another file system or mounted there, and when a cluster has a link other than those to
/// tablespaces.
fn check_below(to: &Path, device: u64, cluster: bool) -> Result<u64> {
    let mut bytes = 0_u64;
    let mount = mount_at(to)?;
    let mut open = vec![to.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(|error| failed(&directory, error))? {
            let path = entry.map_err(|error| failed(&directory, error))?.path();
            let about = fs::symlink_metadata(&path).map_err(|error| failed(&path, error))?;
            if about.dev() != device || mount_at(&path)? != mount {
                let why = format!(
                    "{} is in another file system, or mounted there",
                    path.display()
                );
                return Err(refusal(to, &why));
            }
            let of_space = directory.ends_with("pg_tblspc");
            if cluster && about.is_symlink() && !of_space {
                let why = format!(
                    "{} is a link, which a restore would replace by a directory or file",
                    path.display()
                );
                return Err(refusal(to, &why));
            }
            if about.is_dir() {
                open.push(path);
            } else if about.is_file() {
                bytes = bytes.saturating_add(about.len());
            }
        }
    }
    Ok(bytes)
}

/// Checks that the file system can exchange two directories, before anything is written into
/// `partial`, which is empty. SR-7176 when it cannot.
pub(crate) fn check_exchange(partial: &Path, to: &Path) -> Result<()> {
    let other = partial_beside(to)?;
    let made = DirBuilder::new().mode(0o700).create(&other);
    made.map_err(|error| failed(&other, error))?;
    let done = exchange_directories(partial, &other);
    drop(fs::remove_dir(&other));
    done.map_err(|error| {
        let why = format!(
            "the file system cannot exchange two directories: {}",
            error.detail()
        );
        refusal(to, &why)
    })
}

/// Exchanges the names of two directories in one step. Nothing is synced. SR-5001 when the file
/// system cannot do it, or one does not exist.
fn exchange_directories(one: &Path, other: &Path) -> Result<()> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
        .map_err(|error| failed(other, error.into()))
}

/// Removes what killed restores to the same target have left: hidden directories beside it that
/// belong to this user and that nobody has locked. SR-7176 when one cannot be removed completely; a
/// parent directory that cannot be read is no error.
pub(crate) fn remove_old_partials(to: &Path) -> Result<()> {
    let to = absolute(to)?;
    let above = parent_of(&to);
    let pattern = beside(&to, |name| {
        let shown: String = name.to_string_lossy().chars().take(48).collect();
        *name = format!(".{shown}.").into();
    })?;
    let prefix = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Ok(entries) = fs::read_dir(&above) else {
        return Ok(());
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let random = name.strip_prefix(prefix.as_ref());
        let random = random.and_then(|rest| rest.strip_suffix(".partial"));
        let is_ours = random.and_then(hex::from_hex);
        let is_ours = is_ours.is_some_and(|random| random.len() == 16);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = openat(CWD, &path, flags, Mode::empty()) else {
            continue;
        };
        let held = File::from(opened);
        let mine = held
            .metadata()
            .is_ok_and(|about| about.uid() == rustix::process::geteuid().as_raw());
        if is_ours && mine && lock_directory(&held) && !remove_tree(&path, &held) {
            let why = "a restore that was killed left it, and it cannot be removed completely: something may be mounted in it; remove it";
            return Err(refusal(&path, why));
        }
    }
    Ok(())
}
