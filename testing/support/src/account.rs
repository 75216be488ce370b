//! As whom PostgreSQL's programs run: as the user `postgres` when the test is root, because
//! PostgreSQL refuses root; else as whoever runs the test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether the test is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Numbers of PostgreSQL's user and group; `None` when the test is not root.
pub fn other_user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        is_root().then(|| {
            let users = fs::read_to_string("/etc/passwd").unwrap();
            let line = users.lines().find(|line| line.starts_with("postgres:"));
            let line = line.expect("the user postgres is needed");
            let mut fields = line.split(':').skip(2);
            let mut number = || fields.next().unwrap().parse().unwrap();
            (number(), number())
        })
    })
}

/// Sets a file's mode, and makes PostgreSQL's user its owner.
pub fn give(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    give_unchanged(path);
}

/// Makes PostgreSQL's user a file's owner.
pub fn give_unchanged(path: &Path) {
    if let Some((user, group)) = other_user() {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// Makes PostgreSQL's user the owner of everything below a directory.
pub fn give_all(directory: &Path) {
    if let Some((user, group)) = other_user() {
        let owner = format!("{user}:{group}");
        crate::process::checked(Command::new("chown").args(["-R", &owner]).arg(directory));
    }
}

/// A program that runs as PostgreSQL's user, with nothing on standard input.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}
