//! Compares two trees: every name, every attribute, SHA-256 of every file, and which names are one
//! file.
//!
//! Must not: change anything; conclude from times and sizes that contents are the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use strongroom_crypto::Sha256;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::entry::attributes;
use super::{DEPTH_MAX, PIECE, names, resolved};
use crate::error::io;

/// Compares everything below `from` with everything below `to`, contents included, and then the
/// attributes of these two directories, into which links may lead. Sockets and what is on another
/// file system than `from` must not be in the copy.
///
/// # Errors
/// SR-8334, which names the first difference; SR-5001 when the system reports an error.
pub fn compare(from: &Path, to: &Path) -> Result<(), Error> {
    let (from, to) = (&resolved(from)?, &resolved(to)?);
    let source = std::fs::metadata(from).map_err(|error| io(from, error))?;
    let mut trees = Trees {
        device: source.dev(),
        pairs: BTreeMap::new(),
    };
    trees.directory(from, to, 0)?;
    // Last: a difference below them, which changes their times too, is the better one to name.
    check_attributes(from, to)
}

struct Trees {
    device: u64,
    /// For each inode with several names, the inode of the other tree.
    pairs: BTreeMap<u64, u64>,
}

impl Trees {
    /// Compares the names in two directories, then each entry with all below it; not the attributes
    /// of the two directories themselves. SR-8334 at the first difference, and when the tree is too
    /// deep; SR-5001 when the system reports an error.
    fn directory(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(differs(from, "too deep"));
        }
        let mut wanted = Vec::new();
        for name in names(from, depth)? {
            let about = std::fs::symlink_metadata(from.join(&name));
            let about = about.map_err(|error| io(from, error))?;
            // The copy leaves these out, too.
            if about.dev() == self.device && !about.file_type().is_socket() {
                wanted.push(name);
            }
        }
        let there = names(to, depth)?;
        if let Some(name) = wanted.iter().find(|name| !there.contains(name)) {
            return Err(differs(&from.join(name), "not in the copy"));
        }
        if let Some(name) = there.iter().find(|name| !wanted.contains(name)) {
            return Err(differs(&to.join(name), "in the copy only"));
        }
        for name in wanted {
            self.entry(&from.join(&name), &to.join(&name), depth)?;
        }
        Ok(())
    }

    /// Compares two entries: attributes, number of names, contents; a directory with all below it.
    /// SR-8334 at the first difference; SR-5001 when the system reports an error.
    fn entry(&mut self, source: &Path, target: &Path, depth: usize) -> Result<(), Error> {
        check_attributes(source, target)?;
        let about = std::fs::symlink_metadata(source).map_err(|error| io(source, error))?;
        let copy = std::fs::symlink_metadata(target).map_err(|error| io(target, error))?;
        if about.is_dir() {
            return self.directory(source, target, depth + 1);
        }
        if about.is_symlink() {
            let text = |path: &Path| std::fs::read_link(path).map_err(|error| io(path, error));
            let same: (PathBuf, PathBuf) = (text(source)?, text(target)?);
            return if same.0 == same.1 {
                Ok(())
            } else {
                Err(differs(source, "where it points"))
            };
        }
        if about.nlink() != copy.nlink() {
            return Err(differs(source, "its number of names"));
        }
        if about.nlink() > 1 {
            let known = self.pairs.insert(about.ino(), copy.ino());
            match known {
                Some(before) if before == copy.ino() => return Ok(()),
                Some(_) => return Err(differs(source, "which names are one file")),
                None => {}
            }
        }
        if about.is_file() && digest(source)? != digest(target)? {
            return Err(differs(source, "contents"));
        }
        Ok(())
    }
}

/// Compares the attributes of two entries. SR-8334 when they differ; SR-5001 when the system
/// reports an error.
fn check_attributes(source: &Path, target: &Path) -> Result<(), Error> {
    if attributes(source)? == attributes(target)? {
        return Ok(());
    }
    Err(differs(
        source,
        "kind, owner, mode, size, time or attributes",
    ))
}

/// Returns the SHA-256 of a file's contents. SR-5001 when the system reports an error.
fn digest(path: &Path) -> Result<[u8; 32], Error> {
    let mut file = File::open(path).map_err(|error| io(path, error))?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        let count = file.read(&mut piece).map_err(|error| io(path, error))?;
        if count == 0 {
            return Ok(digest.finish());
        }
        digest.update(piece.get(..count).unwrap_or_default());
    }
}

/// Returns the error SR-8334, with the path and what is different.
fn differs(path: &Path, what: &str) -> Error {
    Error::new(&code::VOLUME_COPY, format!("{}: {what}", path.display()))
}
