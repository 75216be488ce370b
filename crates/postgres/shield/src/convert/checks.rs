//! Checks before a conversion, and the owner of new files.
//!
//! Must not: write to the instance.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};
use strongroom_format::code;
use strongroom_format::postgres::MAJORS;
use strongroom_keyring::Error;

use crate::data_directory::{pid_path, recorded_process, version_path, version_text};

/// The owner of a data directory, and so of Strongroom's files in it. The command converts as that
/// user; a program that links this crate may run as root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    given: Option<(u32, u32)>,
    group_reads: bool,
}

impl Owner {
    /// Reads the owner of the directory `handle`, which has the path `directory`. SR-5001 if that
    /// fails.
    pub(super) fn of(handle: &File, directory: &Path) -> Result<Self, Error> {
        let about = handle
            .metadata()
            .map_err(|error| Error::io(directory.display().to_string(), error))?;
        // A user other than root may own a directory whose group they are not in, and cannot give
        // files to that group.
        let root = rustix::process::geteuid().is_root();
        Ok(Self {
            given: root.then(|| (about.uid(), about.gid())),
            group_reads: about.mode() & 0o040 != 0,
        })
    }

    /// Returns the permission bits of a new file, as initdb gives them: 0640 if the group may read
    /// the directory, else 0600.
    pub(super) const fn mode(&self) -> u32 {
        if self.group_reads { 0o640 } else { 0o600 }
    }

    /// Returns the user and group to whom a new file is given, before it has its name, so that the
    /// server can read it. `None` unless this process is root.
    pub(super) const fn given(&self) -> Option<(u32, u32)> {
        self.given
    }
}

/// Reads the major version in `PG_VERSION`.
///
/// # Errors
/// SR-7011 when the file is missing, or the version is not supported.
pub(super) fn read_major(directory: &Path) -> Result<u32, Error> {
    let refused = |detail: String| Error::new(&code::PG_NOT_INSTANCE, detail);
    let text = version_text(directory)
        .map_err(|error| refused(format!("{}: {error}", version_path(directory).display())))?;
    match text.parse() {
        Ok(major) if MAJORS.contains(&major) => Ok(major),
        _ => Err(refused(format!("version {}", text.escape_debug()))),
    }
}

/// Checks that neither a server nor a single-user backend uses the directory.
///
/// # Errors
/// SR-7008 when `postmaster.pid` names a process that exists, or names none; SR-5001 when the
/// system reports an error.
pub(super) fn check_no_server(directory: &Path) -> Result<(), Error> {
    let path = pid_path(directory);
    let number = match recorded_process(directory) {
        Ok(number) => number,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(path.display().to_string(), error)),
    };
    let alive = match number.and_then(i32::checked_abs).and_then(Pid::from_raw) {
        // Without a number, a server may just be writing the file.
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
