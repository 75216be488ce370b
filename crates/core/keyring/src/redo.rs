//! Rewriting a header in place, safely: the redo copy `<file>-strongroom`.
//!
//! Invariant K10. Order: (1) the new header's fixed part is made durable in the redo copy, by
//! atomic replacement; (2) it is written over the old one in the file; (3) the file is fsynced; (4)
//! the redo copy is removed. A crash
//!
//! - before (1) completes leaves the old header and no redo copy, or an older one that its sequence
//!   rules out;
//! - between (1) and (3) leaves a file header that is old, new or torn: the redo copy replaces it
//!   on reading;
//! - after (3) leaves the new header; a redo copy of the same sequence is ignored.
//!
//! The anchors are not part of this: the VFS writes them in place, alternately. Every reader of a
//! header calls [`newest_header`]. The redo copy is trusted no more than the file: [`Object::open`]
//! verifies its MAC.
//!
//! Must not: hold a key; decide anything about an object of a newer format version.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use strongroom_format::header::{FIXED_LEN, Header, HeaderError, is_sealed};

use crate::durable;
use crate::error::Error;
use crate::object::{Object, inspect_checksum};
use crate::storage::{self, About};

/// What is appended to a file's name to make the name of its redo copy.
pub const SUFFIX: &str = "-strongroom";

/// Returns the redo copy's path for the object at `path`: `-strongroom` is appended.
#[must_use]
pub fn redo_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// Writes `object`'s header, all but its anchors, over the one in `file`, which is open for writing
/// and is at `path`; durably, by way of the redo copy, which is removed. The caller holds the lock
/// that keeps other writers of the header away.
///
/// # Errors
/// SR-5001 when a step fails. The object can then still be opened, with its old or its new header.
pub fn rewrite_header(path: &Path, file: &File, object: &Object) -> Result<(), Error> {
    rewrite_header_through(path, object, &mut |fixed| {
        let failed =
            |error| Error::io(format!("rewriting the header of {}", path.display()), error);
        file.write_all_at(fixed, 0)
            .and_then(|()| file.sync_all())
            .map_err(failed)
    })
}

/// Writes `object`'s header, all but its anchors, over the one of the file at `path`, by way of the
/// redo copy, which is removed. For a caller that must not open the file by path, because closing
/// it again would drop its process's POSIX locks on it (SQLite). `write_and_sync` writes the bytes
/// at offset 0 and makes them durable.
///
/// # Errors
/// SR-5001, and those of `write_and_sync`. The object can then still be opened, with its old or its
/// new header.
pub fn rewrite_header_through(
    path: &Path,
    object: &Object,
    write_and_sync: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let redo = redo_path(path);
    let failed = |error| Error::io(format!("rewriting the header of {}", path.display()), error);
    storage::of(path)
        .about(path)
        .and_then(|about| write_redo(&redo, &about, &object.fixed))
        .map_err(failed)?;
    write_and_sync(&object.fixed)?;
    storage::of(&redo).remove(&redo).map_err(failed)?;
    // Not needed for safety (a redo copy of this sequence is ignored), but it must not come back as
    // litter.
    durable::sync_dir_of(path).map_err(failed)
}

/// Returns the newest header of the object at `path`, whose header in the file is `in_place`. That
/// is the fixed part of the redo copy with the anchors of `in_place`, when there is a whole redo
/// copy that is newer and belongs to the object (or the header in place is torn); otherwise
/// `in_place`. Reads the redo copy, and changes nothing.
#[must_use]
pub fn newest_header(path: &Path, in_place: &[u8]) -> Vec<u8> {
    match read_redo(&redo_path(path)) {
        Some(redo) if supersedes(&redo, in_place) => {
            let anchors = in_place.get(FIXED_LEN..).unwrap_or_default();
            [redo.as_slice(), anchors].concat()
        }
        _ => in_place.to_vec(),
    }
}

/// Whether the redo copy is whole, and is newer than the header in place, of the same object, or
/// that one is torn (K10).
fn supersedes(redo: &[u8], in_place: &[u8]) -> bool {
    let Some(redo) = whole_header(redo) else {
        return false;
    };
    // The magic is the same before and after any rewrite: a file without it is not this object,
    // torn or not.
    if !is_sealed(in_place) || in_place.len() < FIXED_LEN {
        return false;
    }
    if matches!(Header::parse(in_place), Err(HeaderError::Newer(_))) {
        return false;
    }
    match whole_header(in_place) {
        Some(known) => known.object_id == redo.object_id && redo.sequence > known.sequence,
        None => true,
    }
}

/// Parses the header; `None` unless its checksum and structure are right.
fn whole_header(bytes: &[u8]) -> Option<Header> {
    if !inspect_checksum(bytes) {
        return None;
    }
    Header::parse(bytes).ok()
}

/// Reads the redo copy. `None` when there is none, it cannot be read, or it has another length.
fn read_redo(redo: &Path) -> Option<Vec<u8>> {
    let limit = u64::try_from(FIXED_LEN).ok()?.checked_add(1)?;
    let bytes = storage::of(redo).read(redo, limit).ok()?;
    (bytes.len() == FIXED_LEN).then_some(bytes)
}

/// Writes the redo copy durably, with the mode and, as far as this user may give it, the owner of
/// the object. Errors: the system's.
fn write_redo(redo: &Path, about: &About, fixed: &[u8]) -> io::Result<()> {
    durable::replace(redo, fixed, about.mode)?;
    // Users who may open the file must be able to read the redo copy, also when root rewrites the
    // header.
    let made = storage::of(redo).about(redo)?;
    if (made.uid, made.gid) != (about.uid, about.gid) {
        let given = storage::of(redo).set_owner(redo, about.uid, about.gid);
        given.or_else(|error| match error.kind() {
            // The same owner, but a group of which this user is no member: the permission bits must
            // do.
            io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(())
}
