//! Root acts as the owner of what it is pointed at, before the first byte of it is read.
//!
//! A data directory names a key command, a keyring names one too, and files are made, renamed and
//! removed in them. Whoever owns them may put anything there, links included, at any time. So root
//! looks who owns the path that was named and everything on the way to it, by descriptors that
//! follow no link ([`way`]), gives up root for good, and starts this program anew with the same
//! arguments. What follows has the owner's rights and nobody else's: key commands, providers and
//! PostgreSQL's programs too.
//!
//! Invariants:
//! 1. Nothing below the path is read by root; only owners, modes and the texts of links on the way
//!    to it are.
//! 2. Groups, user and group are given up in all three forms, then the program is executed anew: no
//!    thread, descriptor or memory of root's is left.
//! 3. What cannot be done so is refused: a way on which somebody else could exchange something,
//!    several owners, an owner whom the system does not know.
//!
//! Must not: go back to root, or decide by a name what it then reaches by that name with root's
//! rights.

pub(crate) mod held;
mod terminal;
mod way;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process;

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use strongroom_format::code;

use crate::failure::{Failure, note};

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

/// Becomes the owner of `paths` when this is root and somebody else owns them; then it does not
/// return. Does nothing for everybody else, and where everything is root's.
///
/// # Errors
/// SR-6020, SR-6021.
pub(crate) fn act(paths: &[PathBuf]) -> Result<(), Failure> {
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
        (Some((owner, path)), None) => Err(Successor::of(owner, path)?.succeed()),
        (Some((one, path)), Some((other, with))) => {
            let detail = format!(
                "{} and {} are in the hands of several users, {one} and {other}",
                path.display(),
                with.display()
            );
            Err(Failure::new(&code::OWNER_WAY, detail))
        }
    }
}

/// A user's number, and that of its group.
pub(crate) fn user_and_group(name: &str) -> Option<(u32, u32)> {
    let user = User::from_name(name).ok().flatten()?;
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// Whom root becomes.
struct Successor<'a> {
    user: User,
    groups: Vec<Gid>,
    path: &'a Path,
}

impl<'a> Successor<'a> {
    fn of(owner: u32, path: &'a Path) -> Result<Self, Failure> {
        let refused = |why: &str| {
            let detail = format!("user {owner}, who owns {}: {why}", path.display());
            Failure::new(&code::OWNER_ACT, detail)
        };
        let user = User::from_uid(Uid::from_raw(owner))
            .map_err(|error| refused(error.desc()))?
            .ok_or_else(|| refused("the system has no user of that number"))?;
        let name = CString::new(user.name.as_str()).map_err(|_| refused("its name"))?;
        let groups = getgrouplist(&name, user.gid).map_err(|error| refused(error.desc()))?;
        Ok(Self { user, groups, path })
    }

    /// Gives up root and executes this program anew. Returns only when that fails.
    fn succeed(self) -> Failure {
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            let detail = format!("user {}: {what}: {error}", self.user.name);
            Failure::new(&code::OWNER_ACT, detail)
        };
        note(&format!(
            "acting as user {}, who owns {}",
            self.user.name,
            strongroom_format::text::printable(&self.path.display().to_string())
        ));
        if let Err(error) = terminal::out_of_reach() {
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
