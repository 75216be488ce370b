//! How the server of a restore test gets the archived log. Its `restore_command` leaves a file with
//! the name that it asks for, and waits until this process has put the file itself, or the word
//! that there is none, into another directory. So the server, which runs what the set holds, gets
//! neither a key nor a way to the medium, and one archived file at a time takes space.
//!
//! Invariants: what the server's user can write to is read here as names only, below a directory
//! that was opened before that user could reach it. A file appears under its name when it is whole.
//!
//! Must not: tell an archived file that cannot be opened as one that is not there: recovery would
//! end as if the log did.

use std::ffi::CStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, rename, unlinkat};
use strongroom_backup::ArchivedLog;

use super::server::Server;
use crate::failure::Failure;

/// What `restore_command` runs; the server's working directory is the data directory, which lies
/// beside the others.
pub(super) const COMMAND: &str = "/bin/sh ../settings/fetch \"%f\" \"%p\"";
/// The script. Every exit code above 125 stops the server, 1 ends recovery. It ends when the place of
/// the test is gone.
const SCRIPT: &str = "\
name=$1 to=$2
: > \"../asked/$name\" || exit 255
while :; do
    if test -e \"../given/$name\"; then
        cp \"../given/$name\" \"$to\" || exit 255
        exit 0
    fi
    if test -e \"../given/$name.absent\"; then exit 1; fi
    test -d ../given || exit 255
    sleep 0.02 || exit 255
done
";
/// Longest name that is looked at: PostgreSQL's are of 40 characters at most.
const NAME_MAX: usize = 64;

/// The two directories.
pub(super) struct Requests {
    asked: File,
    given: PathBuf,
    /// What was given last; it is removed when the next file is asked for.
    last: Option<PathBuf>,
}

impl Requests {
    /// Makes the directories and the script, for a server that does not run yet.
    pub(super) fn new(server: &Server, root: &Path, settings: &Path) -> Result<Self, Failure> {
        let (asked, given) = (root.join("asked"), root.join("given"));
        for path in [&asked, &given] {
            let made = DirBuilder::new().mode(0o700).create(path);
            made.map_err(|error| Failure::io(path, &error))?;
        }
        let script = settings.join("fetch");
        write(&script, SCRIPT.as_bytes())?;
        server.give(&script, None)?;
        let opened = File::open(&asked).map_err(|error| Failure::io(&asked, &error))?;
        server.give_to_user(&asked)?;
        server.give(&given, None)?;
        server.allow(&given, 0o750)?;
        Ok(Self {
            asked: opened,
            given,
            last: None,
        })
    }

    /// Gives the server what it has asked for by now.
    pub(super) fn serve(
        &mut self,
        server: &Server,
        archive: &ArchivedLog<'_>,
    ) -> Result<(), Failure> {
        let failed = |error: rustix::io::Errno| Failure::io(&self.given, &error.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.asked).map_err(failed)? {
            names.extend(name_of(entry.map_err(failed)?.file_name()));
        }
        for name in names {
            // What cannot be removed was not made by the script.
            if unlinkat(&self.asked, name.as_str(), AtFlags::empty()).is_ok() {
                self.answer(server, archive, &name)?;
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        server: &Server,
        archive: &ArchivedLog<'_>,
        name: &str,
    ) -> Result<(), Failure> {
        let there = self.given.join(name);
        let absent = self.given.join(format!("{name}.absent"));
        if there.exists() || absent.exists() {
            return Ok(());
        }
        let found = archive.fetch(name).map_err(|error| {
            let detail = format!("the archived log, {name}: {}", error.detail());
            Failure::new(error.code(), detail)
        })?;
        if let Some(last) = self.last.take() {
            fs::remove_file(&last).map_err(|error| Failure::io(&last, &error))?;
        }
        let path = if found.is_some() { there } else { absent };
        let before = self.given.join(".part");
        write(&before, &found.unwrap_or_default())?;
        server.give(&before, None)?;
        rename(&before, &path).map_err(|error| Failure::io(&path, &error.into()))?;
        self.last = Some(path);
        Ok(())
    }
}

/// A name that PostgreSQL could ask for: letters, digits and dots.
fn name_of(name: &CStr) -> Option<String> {
    let name = name.to_str().ok().filter(|name| name.len() <= NAME_MAX)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    (!name.starts_with('.') && name.bytes().all(plain)).then(|| name.to_owned())
}

/// Makes a file that the server's group can read.
fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(path, &error);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o640);
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(content).map_err(failed)
}
