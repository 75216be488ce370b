//! The user and the group that the server of a restore test runs as, and the rights that they get
//! to files.
//!
//! Must not: give a file away that root still opens by its name.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::io_error::io_error;

/// The user and the group of the server, if they differ from those of this process.
#[derive(Clone, Copy)]
pub(super) struct ServerUser(Option<(u32, u32)>);

impl ServerUser {
    /// Makes the user that the server runs as, of the ids of user and group; `None` for those of
    /// this process.
    pub(super) const fn new(ids: Option<(u32, u32)>) -> Self {
        Self(ids)
    }

    /// Whether the server runs as another user than this process.
    pub(super) const fn is_other(self) -> bool {
        self.0.is_some()
    }

    /// Has a program run as this user and group; changes nothing if they are those of this process.
    pub(super) fn run_as(self, command: &mut Command) {
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
    }

    /// Makes the server's user and group the owners of `path`; does nothing if they are those of
    /// this process. SR-5001 when that fails.
    pub(super) fn give_to_server(self, path: &Path) -> Result<()> {
        self.change_owner(path, self.0.map(|(user, _)| user))
    }

    /// Makes the server's group that of `path`; the owner stays. Does nothing if the group is that
    /// of this process. SR-5001 when that fails.
    pub(super) fn give_to_group(self, path: &Path) -> Result<()> {
        self.change_owner(path, None)
    }

    /// Changes the owner, unless `user` is `None`, and the group. Does nothing when the server runs
    /// as this process's user; a link itself is changed, not its target. SR-5001 when that fails.
    fn change_owner(self, path: &Path, user: Option<u32>) -> Result<()> {
        let Some((_, group)) = self.0 else {
            return Ok(());
        };
        std::os::unix::fs::lchown(path, user, Some(group)).map_err(|error| io_error(path, error))
    }
}

/// Sets the permission bits of `path`. SR-5001 when that fails.
pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let set = fs::set_permissions(path, Permissions::from_mode(mode));
    set.map_err(|error| io_error(path, error))
}
