//! What has to hold before anything of an instance is converted, and who owns what is made in it.
//!
//! Must not: write to the instance, except to give Strongroom's own files to their owner.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};
use strongroom_format::code;
use strongroom_format::postgres::MAJORS;
use strongroom_keyring::Error;

/// Who owns a data directory, and so Strongroom's files in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    user: u32,
    group: u32,
    group_reads: bool,
}

impl Owner {
    pub(super) fn of(directory: &Path) -> Result<Self, Error> {
        let about = fs::metadata(directory)
            .map_err(|error| Error::io(directory.display().to_string(), error))?;
        Ok(Self {
            user: about.uid(),
            group: about.gid(),
            group_reads: about.mode() & 0o040 != 0,
        })
    }

    /// Permission bits of a new file: as initdb gives them.
    pub(super) const fn mode(&self) -> u32 {
        if self.group_reads { 0o640 } else { 0o600 }
    }

    /// Gives a file of Strongroom's to the directory's owner, durably. When root converts an instance, the server must
    /// still be able to read its header.
    pub(super) fn own(&self, path: &Path) -> Result<(), Error> {
        let owned = || {
            let file = File::open(path)?;
            let about = file.metadata()?;
            // Whoever is not root may own a directory of a group that is not theirs, and cannot give files to it.
            let may_give = rustix::process::geteuid().is_root();
            let is_theirs = (about.uid(), about.gid()) == (self.user, self.group);
            if about.uid() != self.user || (may_give && !is_theirs) {
                std::os::unix::fs::fchown(&file, Some(self.user), Some(self.group))?;
                file.sync_all()?;
            }
            Ok(())
        };
        owned().map_err(|error| Error::io(path.display().to_string(), error))
    }
}

/// The major version in `PG_VERSION`.
///
/// # Errors
/// SR-7011 when it is not there or not one that is supported.
pub(super) fn major(directory: &Path) -> Result<u32, Error> {
    let path = directory.join("PG_VERSION");
    let refused = |detail: String| Error::new(&code::PG_NOT_INSTANCE, detail);
    let text = fs::read_to_string(&path)
        .map_err(|error| refused(format!("{}: {error}", path.display())))?;
    match text.trim().parse() {
        Ok(major) if MAJORS.contains(&major) => Ok(major),
        _ => Err(refused(format!("version {}", text.trim().escape_debug()))),
    }
}

/// Refuses while a server, or a backend by itself, has the directory.
///
/// # Errors
/// SR-7008.
pub(super) fn no_server(directory: &Path) -> Result<(), Error> {
    let path = directory.join("postmaster.pid");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(path.display().to_string(), error)),
    };
    // A single-user server writes its number negated.
    let number = text
        .lines()
        .next()
        .and_then(|line| line.trim().parse::<i32>().ok());
    let alive = match number.and_then(i32::checked_abs).and_then(Pid::from_raw) {
        // Not a number: a server is just writing it, or somebody else's file. Either way it is not ours to ignore.
        None => true,
        Some(process) => test_kill_process(process) != Err(rustix::io::Errno::SRCH),
    };
    if alive {
        let shown = number.map_or_else(String::new, |number| format!(" {number}"));
        let detail = format!("process{shown}, named in {}", path.display());
        return Err(Error::new(&code::PG_RUNNING, detail));
    }
    Ok(())
}
