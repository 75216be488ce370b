//! Incremental sets of PostgreSQL clusters: their bases, their chains, and the restore of a chain
//! by PostgreSQL's `pg_combinebackup`.
//!
//! Invariants:
//! - B12: an incremental set is published only while its base exists, and a base is not removed
//!   while a remaining set names it.
//! - B13: no server starts on what a killed restore of a chain leaves behind. The directories that
//!   could be clusters have a mode that is open to everyone, which PostgreSQL refuses; they lie in
//!   a directory that only the restoring user can enter. The wanted cluster gets its own mode when
//!   it is complete and durable and only needs its name.
//!
//! Must not: combine sets itself; trust a listing, which is not authenticated, about the base of a
//! set.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_crypto::VerifyingKey;
use strongroom_format::code;
use strongroom_keyring::{Opener, durable};

use crate::combine::{self, escape_mapping};
use crate::directory_lock::lock_directory;
use crate::files::{Files, sync_all_of};
use crate::head::PostgresFacts;
use crate::medium::list;
use crate::read::{SetReader, open_set};
use crate::removal::is_kept;
use crate::restore::{self, Restored};
use crate::restore_options::RestoreOptions;
use crate::restore_paths::{self, absolute, beside, parent_of, partial_beside};
use crate::store::Store;
use crate::{Error, Result};

/// The base of an incremental set.
#[derive(Debug)]
pub struct Base {
    set_id: String,
    position: u32,
    manifest: Vec<u8>,
}

impl Base {
    /// The id of the base: 32 hexadecimal digits.
    #[must_use]
    pub fn set_id(&self) -> &str {
        &self.set_id
    }

    /// The base's position on the medium.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.position
    }

    /// The server's manifest of the base.
    pub(crate) fn manifest(&self) -> &[u8] {
        &self.manifest
    }
}

/// Opens the set at `position` (from 1), or with `None` the newest one of the cluster
/// `system_identifier`, and reads its manifest, to build an incremental set on. With `signers`, its
/// bases are opened too, and each set has to be signed by one of them.
///
/// # Errors
/// Those of [`open_set`], such as SR-7107 for an empty position; SR-7160 when the cluster has no
/// set, when the set is another cluster's or has no manifest, or when it or one of its bases is
/// missing or about to be removed; with `signers` those of [`open_chain`] (SR-7161 for a missing
/// base) and [`Chain::check_signed_by`].
pub fn open_base(
    store: &dyn Store,
    position: Option<u32>,
    system_identifier: &str,
    opener: Option<&Opener>,
    signers: &[VerifyingKey],
) -> Result<Base> {
    let unfit = |detail: String| Error::new(&code::INCREMENTAL_BASE, detail);
    let position = match position {
        Some(position) => position,
        None => newest(store, system_identifier)?,
    };
    let chain = if signers.is_empty() {
        let sets = vec![open_set(store, Some(position), opener)?];
        Chain { sets }
    } else {
        let mut chain = open_chain(store, Some(position), opener)?;
        chain.check_signed_by(signers)?;
        chain
    };
    let set = chain.newest()?;
    let facts = set.description().cluster_facts();
    if facts.is_none_or(|facts| facts.system_identifier != system_identifier) {
        return Err(unfit(format!("set {position} is not of this cluster")));
    }
    if facts.is_none_or(|facts| facts.manifest_object.is_none()) {
        return Err(unfit(format!("set {position} keeps no manifest")));
    }
    let set_id = &set.description().set_id;
    // Refused here, before anything is written; checked again when the set is published.
    if !is_kept(store, set_id)? {
        return Err(unfit(format!(
            "set {position}, or one that it builds on, is missing or about to be removed"
        )));
    }
    Ok(Base {
        set_id: set_id.clone(),
        position,
        manifest: set.read_manifest()?,
    })
}

/// The position of the newest listed set of this cluster. SR-7160 when there is none; SR-7101 and
/// others of listing the medium.
fn newest(store: &dyn Store, system_identifier: &str) -> Result<u32> {
    let found = list(store)?.sets.into_iter().rev().find(|set| {
        set.description
            .cluster_facts()
            .is_some_and(|facts| facts.system_identifier == system_identifier)
    });
    let none = || {
        format!(
            "{}: no set of the cluster {system_identifier}",
            store.shown()
        )
    };
    let found = found.map(|set| set.position);
    found.ok_or_else(|| Error::new(&code::INCREMENTAL_BASE, none()))
}

/// A set and its bases. Every head is authenticated.
#[derive(Debug)]
pub struct Chain<'a> {
    /// The full set first.
    sets: Vec<SetReader<'a>>,
}

/// Opens the set at `position`, or the newest one, and those that it builds on. Every head is
/// authenticated.
///
/// # Errors
/// SR-7161 when a base is missing or is not what it must be; as [`open_set`], of each of them:
/// SR-7107 when there is no set, SR-7106 when a head is damaged, SR-2001 or SR-2002 for a missing
/// or wrong key, SR-7126 when a set is not sealed.
pub fn open_chain<'a>(
    store: &'a dyn Store,
    position: Option<u32>,
    opener: Option<&Opener>,
) -> Result<Chain<'a>> {
    let mut sets = vec![open_set(store, position, opener)?];
    let mut listing = None;
    while let Some(last) = sets.last()
        && let Some(base) = last.description().base_set_id().map(str::to_owned)
    {
        // A full set needs no listing.
        let listed = match &listing {
            Some(listed) => listed,
            None => listing.insert(list(store)?),
        };
        let found = listed
            .sets
            .iter()
            .find(|set| set.description.set_id == base);
        // A base has a lower position, so that the loop ends.
        let below = found.filter(|set| set.position < last.position());
        let below = below.map(|set| set.position);
        let missing = || {
            let detail = format!("set {} builds on set {base}", last.position());
            Error::new(&code::CHAIN, detail)
        };
        let next = open_set(store, Some(below.ok_or_else(missing)?), opener)?;
        let system = |set: &SetReader<'_>| {
            set.description()
                .cluster_facts()
                .map(|facts| facts.system_identifier.clone())
        };
        let same = system(&next).is_some() && system(&next) == system(last);
        if !same || next.description().set_id != base {
            return Err(missing());
        }
        sets.push(next);
    }
    sets.reverse();
    Ok(Chain { sets })
}

impl<'a> Chain<'a> {
    /// The sets of the chain: the full one first, the one that was asked for last.
    #[must_use]
    pub fn sets(&self) -> &[SetReader<'a>] {
        &self.sets
    }

    /// The set that was asked for.
    ///
    /// # Errors
    /// SR-9001, never: a chain has a set.
    pub fn newest(&self) -> Result<&SetReader<'a>> {
        let last = self.sets.last();
        last.ok_or_else(|| Error::new(&code::BUG, "a chain without a set"))
    }

    /// Makes sure that each set is signed by one of `keys`. Call it before anything of a set is
    /// written.
    ///
    /// # Errors
    /// As [`SetReader::check_signed_by`], of the first set that is not: SR-7177 when it is not
    /// signed, SR-7178 when the signature does not hold or is by another key.
    pub fn check_signed_by(&mut self, keys: &[VerifyingKey]) -> Result<()> {
        // The set that was asked for first: it is the one that the user knows of.
        for set in self.sets.iter_mut().rev() {
            set.check_signed_by(keys)?;
        }
        Ok(())
    }

    /// Whether the set builds on others, so that `pg_combinebackup` is needed to restore it.
    #[must_use]
    pub fn is_incremental(&self) -> bool {
        self.sets.len() > 1
    }

    /// Bytes of the files of all sets.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let sizes = self
            .sets
            .iter()
            .map(|set| set.description().backup_size_bytes);
        sizes.fold(0, u64::saturating_add)
    }
}

/// Restores the set that was asked for, with those that it builds on, in the way that fits it and
/// `options`. `programs` finds the directory of PostgreSQL's programs for a major version; it is
/// called for an incremental set that is not sealed as it is written. `progress` gets the bytes of
/// files so far, of all sets.
///
/// # Errors
/// SR-7113 or SR-7176 when the target cannot be used, SR-1001 for options that do not fit; SR-7108
/// to SR-7112 when a set is damaged; SR-7150 when a directory was exchanged meanwhile; SR-7161 or
/// SR-7162 when a chain cannot be put together; SR-5001 when the system reports an error, or the
/// restore is to stop; those of `programs`.
pub fn restore_newest(
    chain: &Chain<'_>,
    options: &RestoreOptions,
    programs: &dyn Fn(Option<u32>) -> Result<PathBuf>,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored> {
    let set = chain.newest()?;
    if !chain.is_incremental() {
        return restore::restore(set, options, progress);
    }
    if options.sealing.is_some() {
        return restore_chain_sealed(chain, options, progress);
    }
    let facts = set.description().postgres.as_ref();
    let major = facts.map(|facts| facts.server_version / 10_000);
    let combine = programs(major)?.join("pg_combinebackup");
    restore_chain(chain, options, &combine, progress)
}

/// Restores a chain as a sealed instance. Each set is written over the previous one in sealed form,
/// so that nothing is ever in clear and no program of PostgreSQL's is needed. `progress` gets the
/// bytes of files so far, of all sets. Errors: as [`restore::restore`]; SR-7161 when a set has
/// changes of a file that the sets before it do not have. Nothing is at the target then.
fn restore_chain_sealed(
    chain: &Chain<'_>,
    options: &RestoreOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored> {
    let mut restored = restore::restore_part(chain.sets(), options, false, progress)?;
    let spaces: Vec<PathBuf> = restored.tablespaces.iter().cloned().collect();
    (restored.files, restored.bytes) = count_files(&absolute(&options.to)?, &spaces)?;
    Ok(restored)
}

/// Restores a chain: each set into a directory of its own, which `combine`, the server's
/// `pg_combinebackup`, puts together. `progress` gets the bytes of files so far, of all sets.
/// Errors: as [`restore::restore`]; SR-7162 when combining fails; SR-7176 when it should be
/// restored over an existing directory. Nothing is at the target then, unless its name could not
/// be made durable (SR-5001).
fn restore_chain(
    chain: &Chain<'_>,
    options: &RestoreOptions,
    combine: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored> {
    let to = absolute(&options.to)?;
    if options.delta.is_some() {
        let detail = "an incremental set can only be restored to a new directory";
        return Err(Error::new(&code::DELTA_REFUSED, detail));
    }
    restore_paths::check_target(&to)?;
    for set in chain.sets() {
        set.check_families()?;
    }
    // All sets are put together beside the target, their tablespaces too.
    let parent = std::iter::once(parent_of(&to));
    restore_paths::check_space(parent, chain.size_bytes())?;
    let spaces = match &options.tablespaces {
        Some(named) => absolute(named)?,
        None => beside(&to, |name| name.push(".tablespaces"))?,
    };
    let scratch = partial_beside(&to)?;
    make_private(&scratch)?;
    // Locked, so that another restore does not take it for the remains of a killed one.
    let held = fs::File::open(&scratch).map_err(|error| failed(&scratch, error))?;
    let _free = lock_directory(&held);
    let mut work = ChainRestore {
        scratch,
        spaces,
        made: Vec::new(),
    };
    let done = work
        .fill(chain, options, combine, progress)
        .and_then(|()| restore_paths::move_into_place(&work.out(), &to));
    // What cannot be removed does no harm: only this user can read it.
    drop(fs::remove_dir_all(&work.scratch));
    if let Err(error) = done {
        work.undo();
        return Err(error);
    }
    // The target has its name by now: a failure from here on removes nothing.
    durable::sync_dir_of(&to).map_err(|error| failed(&to, error))?;
    let description = chain.newest()?.description().clone();
    let facts = description.postgres.as_ref();
    let has_spaces = facts.is_some_and(|facts| !facts.tablespaces.is_empty());
    let (files, bytes) = count_files(&to, &work.made)?;
    Ok(Restored {
        description,
        files,
        bytes,
        tablespaces: has_spaces.then_some(work.spaces),
        kept: 0,
        left: None,
    })
}

/// The directories of a restore of a chain.
struct ChainRestore {
    /// Holds the restored sets and, until it is complete, the combined cluster.
    scratch: PathBuf,
    /// Where tablespaces go.
    spaces: PathBuf,
    /// Directories of tablespaces that were made; the first may be the one that holds them.
    made: Vec<PathBuf>,
}

impl ChainRestore {
    /// Where the cluster is combined, before it gets its name.
    fn out(&self) -> PathBuf {
        self.scratch.join("out")
    }

    /// Restores each set into a directory of its own, combines them, and makes the result durable
    /// and ready to get its name. What fails leaves its files for the caller to remove.
    fn fill(
        &mut self,
        chain: &Chain<'_>,
        options: &RestoreOptions,
        combine: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut inputs = Vec::new();
        let mut before = 0_u64;
        for set in chain.sets() {
            let into = self.scratch.join(inputs.len().to_string());
            let each = RestoreOptions {
                to: into.clone(),
                tablespaces: None,
                threads: options.threads,
                recovery: None,
                kept: options.kept,
                sealing: None,
                delta: None,
                stop: options.stop,
            };
            // The first set is a complete cluster, but older than the wanted one: no server may
            // start on it (B13).
            let one = std::slice::from_ref(set);
            restore::restore_part(one, &each, inputs.is_empty(), &mut |bytes| {
                progress(before.saturating_add(bytes));
            })?;
            before = before.saturating_add(set.description().backup_size_bytes);
            inputs.push(into);
        }
        let newest = chain.newest()?.description();
        let facts = newest.postgres.clone().unwrap_or_default();
        let last = inputs.last().cloned().unwrap_or_default();
        let about = fs::metadata(&last).map_err(|error| failed(&last, error))?;
        let out = self.out();
        make_private(&out)?;
        set_mode(&out, 0o777)?;
        let mappings = self.mappings(&last, &facts)?;
        self.combine(combine, &facts, &mappings, &inputs, options)?;
        self.settle(&about, options)
    }

    /// Makes a directory for each tablespace of the last set, and returns `pg_combinebackup`'s
    /// mappings to them. The directories are noted, so that exactly these are removed after a
    /// failure. SR-7113 when one is there already; SR-5001 when the system reports an error.
    fn mappings(&mut self, last: &Path, facts: &PostgresFacts) -> Result<Vec<OsString>> {
        if facts.tablespaces.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(above) = self.spaces.parent() {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(above);
            made.map_err(|error| failed(above, error))?;
        }
        if !self.spaces.is_dir() {
            make_private(&self.spaces)?;
            self.made.push(self.spaces.clone());
        }
        let mut out = Vec::new();
        let from = beside(last, |name| name.push(".tablespaces"))?;
        for space in &facts.tablespaces {
            let number = space.oid.to_string();
            let place = self.spaces.join(&number);
            if place.symlink_metadata().is_ok() {
                let shown = place.display().to_string();
                return Err(Error::new(&code::TARGET_NOT_EMPTY, shown));
            }
            make_private(&place)?;
            self.made.push(place.clone());
            let mapping = [
                escape_mapping(&from.join(&number)),
                vec![b'='],
                escape_mapping(&place),
            ];
            out.push(OsString::from_vec(mapping.concat()));
        }
        Ok(out)
    }

    /// Runs `pg_combinebackup` on the restored sets, whose directories are `inputs`, without
    /// syncing. SR-7162 when it fails; SR-5001 when the restore is to stop.
    fn combine(
        &self,
        program: &Path,
        facts: &PostgresFacts,
        mappings: &[OsString],
        inputs: &[PathBuf],
        options: &RestoreOptions,
    ) -> Result<()> {
        let mut command = Command::new(program);
        // The program must not get the credentials of object stores and servers.
        let kept = ["PATH", "LD_LIBRARY_PATH"].into_iter();
        let kept = kept.filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.env_clear().envs(kept).env("LC_ALL", "C");
        command.stdin(Stdio::null()).current_dir(&self.scratch);
        command.args(["--no-sync", "--manifest-checksums=SHA256"]);
        // The sets are removed afterwards, so that their files can be linked instead of copied:
        // since PostgreSQL 18, and within one file system only.
        if facts.server_version >= 180_000 && self.is_on_one_device()? {
            command.arg("--link");
        }
        for mapping in mappings {
            command.arg("-T").arg(mapping);
        }
        command.arg("-o").arg(self.out()).args(inputs);
        combine::run(command, program, &self.scratch.join("said"), options)
    }

    /// Whether the scratch directory and the directories of tablespaces are in one file system.
    /// SR-5001 when one cannot be looked at.
    fn is_on_one_device(&self) -> Result<bool> {
        let device = |path: &PathBuf| {
            let about = fs::metadata(path).map_err(|error| failed(path, error));
            about.map(|about| about.dev())
        };
        let here = device(&self.scratch)?;
        for directory in &self.made {
            if device(directory)? != here {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the settings of a recovery to the combined cluster, gives it, if root restores, the
    /// owner and group of `like`, and makes it durable. It gets the mode of `like`, with which a
    /// server may start on it, last. SR-5001 when the restore is to stop.
    fn settle(&self, like: &fs::Metadata, options: &RestoreOptions) -> Result<()> {
        let out = self.out();
        let files = Files::new(&out, &self.spaces, true, options.kept)?;
        if let Some(settings) = &options.recovery {
            restore::add_recovery(&files, settings)?;
        }
        if rustix::process::geteuid().is_root() {
            for directory in self.made.iter().chain([&out]) {
                change_owner_below(directory, like.uid(), like.gid())?;
            }
        }
        for directory in &self.made {
            sync_all_of(directory)?;
        }
        sync_all_of(&out)?;
        options.check_stop()?;
        set_mode(&out, like.mode() & 0o777)?;
        sync_all_of(&out)
    }

    /// Removes the directories of tablespaces that were made, as far as that is possible.
    fn undo(&self) {
        for directory in self.made.iter().rev() {
            drop(fs::remove_dir_all(directory));
        }
    }
}

/// Counts the regular files below these directories, and their bytes. SR-5001 when something cannot
/// be read.
fn count_files(root: &Path, spaces: &[PathBuf]) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0_u64, 0_u64);
    // The first of `spaces` may hold the others.
    let within = |space: &&PathBuf| !spaces.iter().any(|other| space.parent() == Some(other));
    for directory in spaces
        .iter()
        .filter(within)
        .map(PathBuf::as_path)
        .chain([root])
    {
        walk(directory, &mut |_, about| {
            if about.is_file() {
                files = files.saturating_add(1);
                bytes = bytes.saturating_add(about.len());
            }
            Ok(())
        })?;
    }
    Ok((files, bytes))
}

/// Calls `each` with everything below a directory, and with the directory itself, in no certain
/// order; links are not followed. SR-5001 when something cannot be read; errors of `each`.
fn walk(directory: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata) -> Result<()>) -> Result<()> {
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        let about = fs::symlink_metadata(&path).map_err(|error| failed(&path, error))?;
        if about.is_dir() {
            for entry in fs::read_dir(&path).map_err(|error| failed(&path, error))? {
                open.push(entry.map_err(|error| failed(&path, error))?.path());
            }
        }
        each(&path, &about)?;
    }
    Ok(())
}

/// Changes the owner and group of everything below a directory, and of itself; of links, not of
/// their targets. SR-5001 when that fails. Nobody else can reach it, so that no file is exchanged
/// meanwhile.
fn change_owner_below(directory: &Path, owner: u32, group: u32) -> Result<()> {
    walk(directory, &mut |path, _| {
        std::os::unix::fs::lchown(path, Some(owner), Some(group))
            .map_err(|error| failed(path, error))
    })
}

/// Makes a directory with mode 0700. SR-5001, also when something is there.
fn make_private(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| failed(path, error))
}

/// Sets the permission bits of `path`. SR-5001 when that fails.
fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| failed(path, error))
}

/// Makes SR-5001 with the path in the detail.
fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}
