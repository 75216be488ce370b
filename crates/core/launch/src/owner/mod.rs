//! Root acts as the owner of the files that the command works on, before the first byte of them is
//! read.
//!
//! A data directory or a keyring can name a key command, and files are made, renamed and removed in
//! directories. Their owner can put anything there at any time, links included. So root determines
//! the owners of the path and of every part of it, by descriptors that follow no link ([`way`]),
//! gives up root for good, and executes this program anew with the same arguments. Key commands,
//! providers and PostgreSQL's programs then run with the owner's rights only.
//!
//! Invariants:
//! 1. Root reads nothing below the path but owners, modes and the texts of links.
//! 2. Groups, user and group are given up in all three forms, then the program is executed anew, so
//!    that no thread, descriptor or memory of root's remains.
//! 3. Root refuses a path on which another user could exchange a part, a path with several owners,
//!    and an owner that the system does not know.
//!
//! Must not: become root again; use root's rights on a path that was only checked by its name.

mod acting;
pub mod held;
mod terminal;
mod way;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process;

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use strongroom_format::code;

use strongroom_keyring::Error;

pub use acting::acting_as;

/// This program, whatever has become of its name.
const PROGRAM: &str = "/proc/self/exe";
/// Variables that lead to root's own places.
const PLACES: [&str; 5] = [
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Becomes the one user other than root who owns `paths` or a part of them, if this is root: gives
/// `say` a sentence about it, gives up root for good, executes this program anew, and does not
/// return. Does nothing for everybody else, and where everything is root's.
///
/// # Errors
/// SR-6020 when several users own them, or another user could exchange a part; SR-6021 when root
/// cannot become that user; the process must then end, because root may be given up in part;
/// SR-5001 when the system reports an error.
pub fn become_owner_of(paths: &[PathBuf], say: impl FnOnce(&str)) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mut owners: BTreeMap<u32, &Path> = BTreeMap::new();
    for path in paths {
        for owner in way::owners(path)? {
            owners.entry(owner).or_insert(path);
        }
    }
    let mut owners = owners.into_iter();
    match (owners.next(), owners.next()) {
        (None, _) => Ok(()),
        (Some((owner, path)), None) => Err(OwnerIdentity::of(owner, path)?.become_owner(say)),
        (Some((one, path)), Some((other, with))) => {
            let detail = format!(
                "{} and {} belong to different users, {one} and {other}",
                path.display(),
                with.display()
            );
            Err(Error::new(&code::OWNER_WAY, detail))
        }
    }
}

/// Checks that root alone decides what `path` leads to: that no part of it, nor a link on the way,
/// belongs to another user. What does not exist yet is not looked at.
///
/// # Errors
/// SR-6020 when another user could exchange a part; SR-5001 when the system reports an error.
pub fn check_is_roots(path: &Path) -> Result<(), Error> {
    let Some(owner) = way::owners(path)?.into_iter().next() else {
        return Ok(());
    };
    let detail = format!("{}: a part of it belongs to user {owner}", path.display());
    Err(Error::new(&code::OWNER_WAY, detail))
}

/// Returns the name of the user of this number. `None` when there is none, or it cannot be looked
/// up.
#[must_use]
pub fn user_name(user: u32) -> Option<String> {
    let user = User::from_uid(Uid::from_raw(user)).ok().flatten()?;
    Some(user.name)
}

/// Looks a user up by name, and returns its number and that of its group. `None` when there is no
/// such user, or it cannot be looked up.
#[must_use]
pub fn user_and_group(name: &str) -> Option<(u32, u32)> {
    let user = User::from_name(name).ok().flatten()?;
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// Whom root becomes.
struct OwnerIdentity<'a> {
    user: User,
    groups: Vec<Gid>,
    path: &'a Path,
}

impl<'a> OwnerIdentity<'a> {
    /// Looks the owner up in the system, with all its groups. Errors: SR-6021 when the system does
    /// not know it.
    fn of(owner: u32, path: &'a Path) -> Result<Self, Error> {
        let refused = |why: &str| {
            let detail = format!("user {owner}, who owns {}: {why}", path.display());
            Error::new(&code::OWNER_ACT, detail)
        };
        let user = User::from_uid(Uid::from_raw(owner))
            .map_err(|error| refused(error.desc()))?
            .ok_or_else(|| refused("the system has no user of that number"))?;
        let name = CString::new(user.name.as_str()).map_err(|_| refused("its name"))?;
        let groups = getgrouplist(&name, user.gid).map_err(|error| refused(error.desc()))?;
        Ok(Self { user, groups, path })
    }

    /// Gives `say` a sentence about it, keeps this process from typing into the terminal, gives up
    /// root, and executes this program anew with the owner's environment. Returns only when that
    /// fails: SR-6021.
    fn become_owner(self, say: impl FnOnce(&str)) -> Error {
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            let detail = format!("user {}: {what}: {error}", self.user.name);
            Error::new(&code::OWNER_ACT, detail)
        };
        say(&format!(
            "acting as user {}, who owns {}",
            self.user.name,
            strongroom_format::text::printable(&self.path.display().to_string())
        ));
        if let Err(error) = terminal::forbid_terminal_input() {
            return refused("this terminal cannot be guarded", &error);
        }
        let (uid, gid) = (self.user.uid, self.user.gid);
        let given_up = setgroups(&self.groups)
            .and_then(|()| setresgid(gid, gid, gid))
            .and_then(|()| setresuid(uid, uid, uid));
        if let Err(error) = given_up {
            return refused("giving up root", &error.desc());
        }
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| "strongroom".into());
        let mut program = process::Command::new(PROGRAM);
        program.arg0(name).args(arguments);
        for place in PLACES {
            program.env_remove(place);
        }
        program
            .env("HOME", &self.user.dir)
            .env("USER", &self.user.name)
            .env("LOGNAME", &self.user.name);
        let error = program.exec();
        // Whoever this is now, nothing may be done in root's name.
        refused("starting this program as that user", &error)
    }
}
