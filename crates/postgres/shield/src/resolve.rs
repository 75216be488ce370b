//! Resolves a path: to which instance it belongs, its class, and how it is sealed.
//!
//! Invariants N1 to N3 (docs/internals/shield.md): every path below an instance's directory, under
//! any of its spellings, is resolved to that instance; a path that cannot be resolved is an error,
//! never [`Resolved::Outside`]. Nothing is allocated.
//!
//! Must not: open a file.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use strongroom_format::postgres::{
    Fork, SlruDirectory, relation_block, tweak_control, tweak_map, tweak_relation, tweak_slru,
    tweak_temp, tweak_wal, tweak_wal_unnamed,
};

use crate::classify::{Class, Classified, Identity, classify};
use crate::container_name;
use crate::instance::Instance;
use crate::layout::{BlockKey, FileLayout};
use crate::open_instances;
use crate::path::{normalise, relative_to, tablespace};
use crate::real::Errno;
use crate::sealed_file::{FileCache, SealedFile};
use crate::table::{Treatment, treatment};

/// What a path is, and how its file is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// In no instance.
    Outside,
    /// In an instance, stored in clear.
    Plain(PlainPath),
    /// In an instance, sealed.
    Sealed(Seal),
    /// Strongroom's own; the program must not see it.
    Hidden,
    /// In an instance; the program may not use it.
    Refused(Class),
}

/// A file that is stored in clear, or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainPath {
    /// The instance's number.
    pub root: u8,
    /// What the file is.
    pub class: Class,
    /// For a directory, the database whose relations are in it.
    pub database: Option<u32>,
    /// The digest of the name of the slot's state in this directory
    /// ([`container_name::slot_directory_digest`]).
    pub slot: Option<container_name::NameDigest>,
}

/// How a file is sealed: the data from which its entry in the table of descriptors is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The instance's number.
    pub root: u8,
    /// What the file is.
    pub class: Class,
    /// How its bytes are sealed.
    pub layout: FileLayout,
    /// The XTS key of a block file.
    pub key: BlockKey,
    /// The tweak of its first block; of a container, the digest of its name, also where names are
    /// not bound.
    pub tweak: [u8; 16],
}

impl Seal {
    /// Returns the file for reading and writing by [`crate::file_io`], with `cache` as its state.
    /// Opens nothing.
    ///
    /// # Errors
    /// EBADF when the instance is not open.
    pub fn file<'a>(&self, cache: &'a FileCache) -> Result<SealedFile<'a>, Errno> {
        Ok(SealedFile {
            instance: open_instances::get(usize::from(self.root)).ok_or(Errno(libc::EBADF))?,
            layout: self.layout,
            key: self.key,
            tweak: self.tweak,
            cache,
        })
    }
}

/// Longest path in bytes, with its terminator.
const PATH_BUFFER: usize = 4096;

/// Resolves `path` as given to a system call, relative to `base` unless it is absolute: to which
/// open instance it belongs, and how its file is treated. [`Resolved::Outside`] when no instance is
/// open. Links are not followed.
///
/// # Errors
/// ENAMETOOLONG, or ENOENT when `base` is needed and is not absolute.
pub fn resolve(base: &[u8], path: &[u8]) -> Result<Resolved, Errno> {
    if open_instances::is_empty() || path.is_empty() {
        return Ok(Resolved::Outside);
    }
    let mut buffer = [0_u8; PATH_BUFFER];
    let normal = normalise_path(base, path, &mut buffer)?;
    match resolve_below_prefixes(normal)? {
        Resolved::Outside => Ok(resolve_tablespace(normal).unwrap_or(Resolved::Outside)),
        resolved => Ok(resolved),
    }
}

/// Resolves `name` in `base`, a path in which the kernel has followed all links: to which open
/// instance it belongs, and how its file is treated; [`Resolved::Outside`] for any other. Only
/// directories that are known to belong to an open instance count: the data directory of another
/// instance has links to tablespaces too, and those must not be taken for one of ours.
///
/// # Errors
/// ENAMETOOLONG, or ENOENT when `base` is needed and is not absolute.
pub fn resolve_followed(base: &[u8], name: &[u8]) -> Result<Resolved, Errno> {
    let mut buffer = [0_u8; PATH_BUFFER];
    resolve_below_prefixes(normalise_path(base, name, &mut buffer)?)
}

/// Returns the normalised path, in `buffer`. ENAMETOOLONG if it is too long, ENOENT if there is
/// none for another reason.
fn normalise_path<'out>(
    base: &[u8],
    path: &[u8],
    buffer: &'out mut [u8; PATH_BUFFER],
) -> Result<&'out [u8], Errno> {
    normalise(base, path, buffer).ok_or(Errno(if path.len() < PATH_BUFFER {
        libc::ENOENT
    } else {
        libc::ENAMETOOLONG
    }))
}

/// Resolves a normalised path that is below one of the known directories; [`Resolved::Outside`] for
/// others. ENAMETOOLONG if it does not fit.
fn resolve_below_prefixes(normal: &[u8]) -> Result<Resolved, Errno> {
    for (number, instance) in open_instances::all() {
        for prefix in &instance.prefixes {
            let Some(relative) = relative_to(&prefix.path, normal) else {
                continue;
            };
            if prefix.relative.starts_with(b"pg_tblspc/") && !is_own_version(instance, relative) {
                continue;
            }
            if prefix.relative.is_empty() {
                return Ok(resolved_path(number, relative));
            }
            let mut joined = [0_u8; PATH_BUFFER];
            let relative = join(&prefix.relative, relative, &mut joined);
            return Ok(resolved_path(
                number,
                relative.ok_or(Errno(libc::ENAMETOOLONG))?,
            ));
        }
    }
    Ok(Resolved::Outside)
}

/// Resolves a path relative to the directory of instance `root`, by its class and the class's
/// treatment.
fn resolved_path(root: u8, relative: &[u8]) -> Resolved {
    let classified = classify(relative);
    match treatment(classified.class) {
        Treatment::Plain | Treatment::Untouched => Resolved::Plain(PlainPath {
            root,
            class: classified.class,
            database: database_of_directory(classified.class, relative),
            slot: slot_of_directory(classified.class, relative),
        }),
        Treatment::Hidden => Resolved::Hidden,
        Treatment::Refuse => Resolved::Refused(classified.class),
        sealed => match seal(root, classified, sealed, relative) {
            Some(seal) => Resolved::Sealed(seal),
            // No tweak can be made from the address: not a file of PostgreSQL.
            None => Resolved::Refused(classified.class),
        },
    }
}

/// Returns the object id of the database whose relations are in `relative`, a path relative to the
/// data directory, whose class is `class`; 0 for `global`, whose relations all databases share.
/// Classifies the name of a relation in it to find out. `None` if it is no directory, or one
/// without relations.
fn database_of_directory(class: Class, relative: &[u8]) -> Option<u32> {
    if class != Class::Directory {
        return None;
    }
    let mut joined = [0_u8; PATH_BUFFER];
    match classify(join(relative, b"1", &mut joined)?).identity {
        Identity::Relation { database, .. } => Some(database),
        _ => None,
    }
}

/// Returns the digest of the name of the slot state in `relative`, a path relative to the data
/// directory, whose class is `class`. `None` if it is not the directory of a slot.
fn slot_of_directory(class: Class, relative: &[u8]) -> Option<container_name::NameDigest> {
    match class {
        Class::Directory => container_name::slot_directory_digest(relative),
        _ => None,
    }
}

/// Says how the file of this class and identity at `relative`, a path relative to the data
/// directory, is sealed. `None` when the treatment is not one that seals, or no tweak can be made
/// from the address.
#[must_use]
pub fn seal(
    root: u8,
    classified: Classified,
    treatment: Treatment,
    relative: &[u8],
) -> Option<Seal> {
    let layout = match treatment {
        Treatment::Wal if classified.class == Class::WalTemp => FileLayout::NewLog,
        Treatment::Block | Treatment::Wal => FileLayout::Block,
        Treatment::Temporary => FileLayout::Temporary,
        Treatment::BootStream => FileLayout::TemporaryStream,
        Treatment::Stream => FileLayout::Stream,
        Treatment::Container => FileLayout::Container,
        _ => return None,
    };
    let (key, tweak) = match layout {
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => {
            block_address(classified, relative)?
        }
        FileLayout::Container => {
            let name = container_name::name_digest(classified.class, relative);
            (BlockKey::Temporary, name)
        }
        _ => (BlockKey::Temporary, [0; 16]),
    };
    Some(Seal {
        root,
        class: classified.class,
        layout,
        key,
        tweak,
    })
}

/// Returns key and tweak of a block file's first block. `None` when the address gives none.
fn block_address(classified: Classified, relative: &[u8]) -> Option<(BlockKey, [u8; 16])> {
    Some(match (classified.class, classified.identity) {
        (
            _,
            Identity::Relation {
                database,
                relation,
                fork,
                backend,
                segment,
            },
        ) => {
            let fork = match fork {
                0 => Fork::Main,
                1 => Fork::FreeSpace,
                2 => Fork::Visibility,
                3 => Fork::Init,
                _ => return None,
            };
            let block = relation_block(segment, 0)?;
            let backend = backend.checked_sub(1);
            let tweak = tweak_relation(database, relation, fork, backend, block)?;
            (BlockKey::Relation, tweak)
        }
        (_, Identity::Wal { timeline, number }) => {
            let log = u32::try_from(number >> 32).ok()?;
            let segment = u32::try_from(number & u64::from(u32::MAX)).ok()?;
            (BlockKey::Wal, tweak_wal(timeline, log, segment, 0))
        }
        (Class::WalTemp, _) => {
            let digits = relative.rsplit(|&byte| byte == b'.').next()?;
            let process = std::str::from_utf8(digits).ok()?.parse().ok()?;
            (BlockKey::Wal, tweak_wal_unnamed(process, 0))
        }
        (_, Identity::Slru { directory, segment }) => {
            let directory = match directory {
                1 => SlruDirectory::Xact,
                2 => SlruDirectory::MultixactOffsets,
                3 => SlruDirectory::MultixactMembers,
                4 => SlruDirectory::Subtrans,
                5 => SlruDirectory::CommitTs,
                6 => SlruDirectory::Notify,
                7 => SlruDirectory::Serial,
                _ => return None,
            };
            (BlockKey::Slru, tweak_slru(directory, segment, 0))
        }
        (_, Identity::Database(database)) => (BlockKey::Map, tweak_map(database, 0)),
        (_, Identity::Name(hash)) => {
            let [file @ .., _, _, _, _, _] = hash.to_le_bytes();
            (BlockKey::Temporary, tweak_temp(file, 0))
        }
        (Class::Control, _) => (BlockKey::Control, tweak_control(0)),
        _ => return None,
    })
}

/// Resolves a path in the real directory of a tablespace, as `pg_upgrade` and `pg_basebackup` use
/// it, to the one open instance of its version; refused when there are several. `None` if it is in
/// no tablespace, or in one within another data directory, which belongs to an instance that is not
/// open here.
fn resolve_tablespace(normal: &[u8]) -> Option<Resolved> {
    let at = tablespace(normal)?;
    let (location, relative) = normal.split_at_checked(at)?;
    if contains(location, b"/pg_tblspc/") {
        return None;
    }
    let major = major_of(relative)?;
    let fits = |instance: &Instance| instance.major.is_none_or(|known| known == major);
    let mut fitting = open_instances::all().filter(|(_, instance)| fits(instance));
    let (number, _) = fitting.next()?;
    if fitting.next().is_some() {
        // With two instances of one version, the path does not tell which one is meant.
        return Some(Resolved::Refused(Class::Unknown));
    }
    Some(resolved_path(number, relative))
}

/// Whether a path in a tablespace's location is below the version directory of this instance. The
/// directory of another version belongs to another instance, as while `pg_upgrade` runs.
fn is_own_version(instance: &Instance, relative: &[u8]) -> bool {
    tablespace(relative) == Some(0)
        && major_of(relative).is_some_and(|major| instance.major.is_none_or(|own| own == major))
}

/// Returns the major version in `PG_<major>_<catalog version>/...`; `None` for another path.
fn major_of(relative: &[u8]) -> Option<u32> {
    let digits = relative
        .strip_prefix(b"PG_")?
        .split(|&byte| byte == b'_')
        .next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Whether `part` occurs in `path`.
fn contains(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}

/// Writes `front`, a `/` and `back` into `out` and returns them; without the `/` when `back` is
/// empty. `None` when they do not fit.
fn join<'out>(front: &[u8], back: &[u8], out: &'out mut [u8]) -> Option<&'out [u8]> {
    let middle: &[u8] = if back.is_empty() { b"" } else { b"/" };
    let mut length = 0_usize;
    for part in [front, middle, back] {
        let end = length.checked_add(part.len())?;
        out.get_mut(length..end)?.copy_from_slice(part);
        length = end;
    }
    out.get(..length)
}
