//! Writes the sets of a chain over each other, the full one first, and decides which files of the
//! earlier sets stay.
//!
//! Each later set names every file of the cluster: a file that it holds completely replaces the
//! earlier one, an incremental file changes the earlier one, and what it does not name is removed.
//!
//! Must not: change a file that this restore did not make.

use std::collections::BTreeMap;

use strongroom_format::backup::{Member, MemberKind};
use strongroom_format::code;

use super::{CONTROL, Files, named_twice_error};
use crate::{Error, Result};

/// How PostgreSQL names the file that has the changed blocks of another one.
const INCREMENTAL: &[u8] = b"INCREMENTAL.";
/// The file that a server reads when it starts on a backup.
const LABEL: &[u8] = b"backup_label";

/// The paths in the sets that were written.
#[derive(Default)]
pub(super) struct Over {
    /// Paths that the earlier sets have left and that this set has not named yet.
    before: BTreeMap<Vec<u8>, MemberKind>,
    /// Paths that this set has named.
    names: BTreeMap<Vec<u8>, MemberKind>,
    /// Whether there is a set before this one.
    follows: bool,
}

impl Over {
    /// The path of the file that an incremental file has changes of; `None` for any other file.
    pub(super) fn changed_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let start = path
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or(0, |slash| slash.saturating_add(1));
        let (above, name) = path.split_at_checked(start)?;
        let name = name.strip_prefix(INCREMENTAL)?;
        // In the first set such a name has no meaning.
        self.follows.then(|| [above, name].concat())
    }
}

impl Files {
    /// Prepares for the sets of a chain, which are written over each other.
    pub(crate) fn expect_chain(&mut self) {
        self.over = Some(Over::default());
    }

    /// Ends the set that was written, which removes what it does not name, and begins the next one.
    /// SR-5001 when something cannot be removed.
    pub(crate) fn next_set(&mut self) -> Result<()> {
        self.end_set()?;
        if let Some(over) = &mut self.over {
            over.before = std::mem::take(&mut over.names);
            over.follows = true;
        }
        self.control = None;
        Ok(())
    }

    /// Removes what earlier sets of a chain left and the written set does not name. Does nothing
    /// without a chain. SR-5001 when something cannot be removed.
    pub(crate) fn end_set(&mut self) -> Result<()> {
        let left = self
            .over
            .as_mut()
            .map(|over| std::mem::take(&mut over.before));
        // In reverse order: what is in a directory comes after it.
        for (path, kind) in left.into_iter().flatten().rev() {
            self.remove_before(&path, kind)?;
        }
        Ok(())
    }

    /// Notes the path of a member, and removes what an earlier set left there if it is of another
    /// kind or is replaced. False when nothing is to be made, because the directory or tablespace
    /// exists.
    ///
    /// # Errors
    /// SR-7111 for a path that is named twice; SR-7161 for changes of a file that the earlier sets
    /// do not have.
    pub(super) fn make_way(&mut self, member: &Member) -> Result<bool> {
        let Some(over) = &mut self.over else {
            return Ok(true);
        };
        let changed = over.changed_path(&member.path);
        let changes = member.kind == MemberKind::File && changed.is_some();
        let path = changed.filter(|_| changes);
        let path = path.unwrap_or_else(|| member.path.clone());
        if over.names.insert(path.clone(), member.kind).is_some() {
            return Err(named_twice_error());
        }
        let there = over.before.remove(&path);
        match (there, member.kind) {
            (Some(MemberKind::File), MemberKind::File) if changes => Ok(true),
            (_, _) if changes => {
                let path = String::from_utf8_lossy(&member.path);
                let detail = format!("{path}: it changes a file that the earlier sets do not have");
                Err(Error::new(&code::CHAIN, detail))
            }
            (None, _) => Ok(true),
            (Some(MemberKind::Directory), MemberKind::Directory) => Ok(false),
            (Some(MemberKind::Tablespace), MemberKind::Tablespace) => {
                let mut made = self.made_spaces.iter_mut();
                if let Some(space) = made.find(|space| space.stored == path) {
                    space.member = member.clone();
                }
                Ok(false)
            }
            (Some(kind), _) => {
                let mut below = path.clone();
                below.push(b'/');
                let within = self.over.as_mut().map(|over| {
                    let mut within = over.before.split_off(&below);
                    let rest = within
                        .keys()
                        .find(|other| !other.starts_with(&below))
                        .cloned();
                    if let Some(rest) = rest {
                        over.before.append(&mut within.split_off(&rest));
                    }
                    within
                });
                for (path, kind) in within.into_iter().flatten().rev() {
                    self.remove_before(&path, kind)?;
                }
                self.remove_before(&path, kind)?;
                Ok(true)
            }
        }
    }

    /// Whether this is the label of an incremental backup, which is changed when it is written.
    pub(super) fn is_label_of_chain(&self, member: &Member) -> bool {
        self.over.as_ref().is_some_and(|over| over.follows) && member.path == LABEL
    }

    /// Removes an entry that an earlier set of the chain left: a file, a link, an empty directory,
    /// or a tablespace with its link. Does nothing for a file that was not written. SR-5001 when it
    /// cannot be removed.
    fn remove_before(&mut self, path: &[u8], kind: MemberKind) -> Result<()> {
        match kind {
            // The control file is not written before the end.
            MemberKind::File if path == CONTROL => Ok(()),
            MemberKind::File if self.is_left_out(path)? => Ok(()),
            MemberKind::File | MemberKind::Link => self.entry_path(path).remove(false),
            MemberKind::Directory => self.entry_path(path).remove(true),
            MemberKind::Tablespace => {
                let found = self
                    .made_spaces
                    .iter()
                    .position(|space| space.stored == path);
                let Some(found) = found else {
                    return Err(Error::new(&code::BUG, "a tablespace that was not made"));
                };
                let space = self.made_spaces.remove(found);
                self.root.below(path).remove(false)?;
                let name = space.base.path.file_name().unwrap_or_default().to_owned();
                let place = self.open_tablespace_directory()?;
                let removed = rustix::fs::unlinkat(place, &name, rustix::fs::AtFlags::REMOVEDIR);
                let shown = || space.base.path.display().to_string();
                removed.map_err(|error| Error::io(shown(), error.into()))
            }
        }
    }
}
