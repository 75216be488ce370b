//! The user that PostgreSQL runs as: the caller, or `postgres` where the caller is root.
//!
//! Must not: let a variable of the caller's reach PostgreSQL or the shield.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failure;

/// The account that stands in for root.
const STAND_IN: &str = "postgres";
/// What the names of variables begin with that steer PostgreSQL, the dynamic linker or Strongroom.
const STEERING: [&str; 4] = ["PG", "LD_", "STRONGROOM_", "LC_"];

/// Who runs PostgreSQL.
pub struct Account {
    /// User and group to change to; `None` when the caller is nobody special.
    ids: Option<(u32, u32)>,
}

impl Account {
    /// The caller, or `postgres` where the caller is root.
    ///
    /// # Errors
    /// The caller is root and there is no such user.
    pub fn here() -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { ids: None });
        }
        let output = Command::new("getent").args(["passwd", STAND_IN]).output()?;
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut fields = line.split(':').skip(2);
        let mut next = || fields.next().and_then(|field| field.trim().parse().ok());
        let ids = next().zip(next());
        let missing = "PostgreSQL does not run as root, and there is no user \"postgres\"";
        ids.map(|ids| Self { ids: Some(ids) })
            .ok_or_else(|| missing.into())
    }

    /// A program of this account's, standing in `directory`, without standard input.
    #[must_use]
    pub fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if steers(&name) {
                command.env_remove(name);
            }
        }
        // Messages are read by programs.
        command.env("LC_ALL", "C").env("LANG", "C");
        // The caller's own is nobody else's to look into.
        command.env("HOME", directory);
        command.current_dir(directory).stdin(Stdio::null());
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives the account what the caller made for it.
    ///
    /// # Errors
    /// The operating system's.
    pub fn own(&self, path: &Path) -> Result<(), Failure> {
        let (user, group) = self.ids.unzip();
        if self.ids.is_some() {
            chown(path, user, group)?;
        }
        Ok(())
    }

    /// Whether the account can stand in `directory`.
    #[must_use]
    pub fn reaches(&self, directory: &Path) -> bool {
        let status = self.command(Path::new("true"), directory).status();
        status.is_ok_and(|status| status.success())
    }
}

fn steers(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let by_prefix = STEERING
        .iter()
        .any(|prefix| name.starts_with(prefix.as_bytes()));
    by_prefix || name == b"LANG" || name == b"LANGUAGE"
}

#[cfg(test)]
mod tests {
    use super::{Account, steers};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn what_steers_postgresql_is_taken_away() {
        for name in [
            "PGDATA",
            "PGENCRYPTIONKEY",
            "LD_PRELOAD",
            "STRONGROOM_PG_ROOTS",
            "LANG",
        ] {
            assert!(steers(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "HOME", "MYPGDATA"] {
            assert!(!steers(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_not_reached() {
        let account = Account { ids: None };
        assert!(account.reaches(Path::new("/")));
        assert!(!account.reaches(Path::new("/there/is/no/such/directory")));
    }
}
