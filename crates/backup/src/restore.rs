//! Restores a set into a directory that does not exist or is empty, or over an existing one
//! (`delta.rs`).
//!
//! Invariant: everything is written to a directory beside the target, which gets the target's name
//! when it is complete and durable. A restore that fails removes what it wrote. One that is killed
//! leaves a directory with another name; a cluster in it has no control file, so that no server
//! starts on it.
//!
//! Must not: change the target before every family of the set was found.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_format::backup::StreamEnd;
use strongroom_format::code;
use strongroom_keyring::durable;

use crate::delta::{self, OldDirectory};
use crate::files::Files;
use crate::head::{Description, Kind};
use crate::read::SetReader;
use crate::restore_options::RestoreOptions;
use crate::restore_paths::{
    absolute, beside, check_space, check_target, move_into_place, parent_of, partial_beside,
    resolve_end,
};
use crate::stream::reader::Event;
use crate::{Error, Result};

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The description in the set's head.
    pub description: Description,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Where tablespaces were put, if there are any.
    pub tablespaces: Option<PathBuf>,
    /// Files that were taken over from the former directory.
    pub kept: u64,
    /// The former directory, if it could not be removed.
    pub left: Option<PathBuf>,
}

/// Restores `set` to the target of `options`. `progress` gets the bytes of files so far.
///
/// # Errors
/// Before anything is read: SR-7113 when the target is not empty, SR-7176 when the set cannot be
/// restored over it, SR-1001 for options that exclude one another or do not fit the set. SR-7108 to
/// SR-7112 when the set is damaged; SR-7150 when a directory was exchanged meanwhile; SR-5001 when
/// the system reports an error, or `options.stop` is set. The target is then as it was, unless its
/// name could not be made durable (SR-5001). SR-9001 for an incremental set, which is restored with
/// its chain.
pub fn restore(
    set: &SetReader<'_>,
    options: &RestoreOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored> {
    if set.description().base_set_id().is_some() {
        let detail = "an incremental set is restored with its chain";
        return Err(Error::new(&code::BUG, detail));
    }
    restore_part(std::slice::from_ref(set), options, false, progress)
}

/// Restores the sets to the target of `options`: one set, or all sets of a chain, the full one
/// first, each written over the previous one. An incremental set alone makes no complete cluster.
/// With `open` the directory gets mode 0777 before it has a control file, so that no server starts
/// on it. Errors and the state after them are those of [`restore`], without SR-9001; SR-7161 when a
/// set changes a file that the earlier ones do not have.
pub(crate) fn restore_part(
    sets: &[SetReader<'_>],
    options: &RestoreOptions,
    open: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored> {
    let last = sets.last();
    let set = last.ok_or_else(|| Error::new(&code::BUG, "a restore of no set"))?;
    let description = set.description();
    let cluster = description.kind == Kind::Postgres;
    if options.recovery.is_some() && !cluster {
        let detail = "recovery is for sets of PostgreSQL clusters";
        return Err(Error::new(&code::USAGE, detail));
    }
    if options.sealing.is_some() && !cluster {
        let detail = "only PostgreSQL clusters are sealed as they are restored";
        return Err(Error::new(&code::USAGE, detail));
    }
    // The working directory may be the target; a relative path would then lead elsewhere after the
    // exchange.
    let mut options = options.clone();
    if options.delta.is_some() {
        options.to = resolve_end(&options.to)?;
    }
    let options = &options;
    let over = examine_old_directory(options, description)?;
    for set in sets {
        set.check_families()?;
    }
    let spaces = match &options.tablespaces {
        Some(named) => absolute(named)?,
        None => beside(&absolute(&options.to)?, |name| name.push(".tablespaces"))?,
    };
    let facts = description.postgres.as_ref();
    let has_spaces = facts.is_some_and(|facts| !facts.tablespaces.is_empty());
    let places = [
        Some(parent_of(&absolute(&options.to)?)),
        has_spaces.then(|| spaces.clone()),
    ];
    let sizes = sets.iter().map(|set| set.description().backup_size_bytes);
    // Files that are taken over need no space; their size is not known yet, so that the old
    // directory's is assumed.
    let taken_over = over.as_ref().map_or(0, |over| over.bytes);
    let needed = sizes.fold(0, u64::saturating_add);
    check_space(
        places.into_iter().flatten(),
        needed.saturating_sub(taken_over),
    )?;
    let (partial, mut files) = create_partial(options, over.as_ref(), &spaces, cluster)?;
    if open {
        files.keep_open();
    }
    let filled = fill(sets, options, &mut files, progress).and_then(|end| {
        files.check_at(&partial)?;
        let left = match over {
            Some(over) => over.exchange(&partial, &files)?,
            None => move_into_place(&partial, &options.to).map(|()| None)?,
        };
        Ok((end, left))
    });
    let (end, left) = match filled {
        Ok(end) => end,
        Err(error) => {
            files.undo();
            return Err(error);
        }
    };
    // The directory has its name: a failure from here on must not remove anything.
    durable::sync_dir_of(&options.to)
        .map_err(|error| Error::io(options.to.display().to_string(), error))?;
    files.check_at(&options.to)?;
    Ok(Restored {
        description: description.clone(),
        files: end.files,
        bytes: end.size,
        tablespaces: has_spaces.then_some(spaces),
        kept: files.taken_over(),
        left,
    })
}

/// Makes and locks the directory that is filled, with mode 0700 and a random name beside the
/// target. SR-7176 when an old directory is to be replaced and the file system cannot exchange
/// directories.
fn create_partial(
    options: &RestoreOptions,
    over: Option<&OldDirectory>,
    spaces: &Path,
    cluster: bool,
) -> Result<(PathBuf, Files)> {
    let partial = partial_beside(&options.to)?;
    let made = DirBuilder::new().mode(0o700).create(&partial);
    made.map_err(|error| Error::io(partial.display().to_string(), error))?;
    if over.is_some()
        && let Err(error) = delta::check_exchange(&partial, &options.to)
    {
        drop(fs::remove_dir(&partial));
        return Err(error);
    }
    let mut files = Files::new(&partial, spaces, cluster, options.kept)?;
    files.lock();
    if let Some(over) = over {
        files.replace(over.held()?);
    }
    if let Some(sealing) = &options.sealing {
        files.seal(Arc::clone(sealing));
    }
    Ok((partial, files))
}

/// Checks the target: SR-7113 when it is not empty, SR-7176 when it may not be restored over,
/// SR-1001 for options that exclude each other. Returns the directory that is to be restored over;
/// `None` when there is none, or it is empty. Then, if a directory may be restored over, removes
/// what killed restores to the target have left.
fn examine_old_directory(
    options: &RestoreOptions,
    description: &Description,
) -> Result<Option<OldDirectory>> {
    let over = match &options.delta {
        Some(_) if options.sealing.is_some() => {
            let detail = "--delta cannot be used with --sealed, which seals every file anew";
            return Err(Error::new(&code::USAGE, detail));
        }
        Some(wanted) => {
            let mut wanted = wanted.clone();
            wanted.apart.extend(options.tablespaces.clone());
            OldDirectory::begin(&options.to, &wanted, description, options.kept)?
        }
        None => None,
    };
    if over.is_none() {
        check_target(&options.to)?;
    }
    if options.delta.is_some() {
        delta::remove_old_partials(&options.to)?;
    }
    Ok(over)
}

/// Writes all sets, and what a recovery needs, gives the files their owners and modes, and makes
/// everything durable. Returns the counts of the last set. SR-5001 when the restore is to stop.
fn fill(
    sets: &[SetReader<'_>],
    options: &RestoreOptions,
    files: &mut Files,
    progress: &mut dyn FnMut(u64),
) -> Result<StreamEnd> {
    let mut bytes = 0_u64;
    let mut last = None;
    if sets.len() > 1 {
        files.expect_chain();
    }
    for set in sets {
        if last.is_some() {
            files.next_set()?;
        }
        last = Some(fill_from(set, options, files, &mut |more| {
            bytes = bytes.saturating_add(more);
            progress(bytes);
        })?);
    }
    files.end_set()?;
    if let Some(settings) = &options.recovery {
        add_recovery(files, settings)?;
    }
    files.finish()?;
    last.ok_or_else(|| Error::new(&code::BUG, "a restore of no set"))
}

/// Writes the members of one set, and returns its counts. `progress` gets the number of bytes of
/// each piece. SR-5001 when the restore is to stop.
fn fill_from(
    set: &SetReader<'_>,
    options: &RestoreOptions,
    files: &mut Files,
    progress: &mut dyn FnMut(u64),
) -> Result<StreamEnd> {
    set.read(options.threads, |stream| {
        loop {
            options.check_stop()?;
            match stream.next()? {
                Event::Member { member, again } => files.member(member, again)?,
                Event::Data(data) => {
                    files.data(data)?;
                    progress(data.len() as u64);
                }
                Event::FileEnd => files.end_file()?,
                Event::End(end) => return Ok(end),
            }
        }
    })
}

/// Prepares a restored cluster to recover from an archive: appends the settings to
/// `postgresql.auto.conf`, makes `recovery.signal` and removes `standby.signal`. Nothing is synced.
/// SR-7111 when one of them, or `PG_VERSION`, is no regular file.
pub(crate) fn add_recovery(files: &Files, settings: &str) -> Result<()> {
    files.append_to_root_file("PG_VERSION", "postgresql.auto.conf", settings.as_bytes())?;
    files.append_to_root_file("PG_VERSION", "recovery.signal", b"")?;
    // With this file, the server would start as a standby and never end recovery.
    files.remove_root_file("standby.signal")
}
