//! How the server of a restore test gets the archived log. Its `restore_command` makes an empty
//! file whose name is the request, and waits until this process has put the archived file, or a
//! note that there is none, into another directory. The server runs code that the set contains;
//! this way it gets neither a key nor access to the medium, and only a few archived files take
//! space at a time.
//!
//! PostgreSQL may ask for the same file several times. Each run of the command is therefore a
//! request of its own, whose name ends with the number of its process. The command removes its
//! request when it has taken the answer, and only then is the answer removed.
//!
//! Invariants: from the directory that the server's user can write to, only names are read here,
//! and it was opened before that user could reach it. A file appears under its name only when it is
//! complete. An answer stays until its request is gone.
//!
//! Must not: report an archived file that cannot be opened as absent: recovery would
//! end as if the log did.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, rename};

use super::server_user::{ServerUser, set_mode};
use crate::io_error::io_error;
use crate::{ArchivedLog, Error, Result};

/// The `restore_command`. The server's working directory is the data directory, which lies beside
/// the directories of requests and answers.
pub(super) const COMMAND: &str = "/bin/sh ../settings/fetch \"%f\" \"%p\"";
/// The script that it runs. An exit code above 125 stops the server, 1 ends recovery. The script
/// ends when the directory of the test is gone.
const SCRIPT: &str = "\
request=$1.$$ to=$2
: > \"../asked/$request\" || exit 255
while :; do
    if test -e \"../given/$request\"; then
        cp \"../given/$request\" \"$to\" || exit 255
        rm -f \"../asked/$request\"
        exit 0
    fi
    if test -e \"../given/$request.absent\"; then
        rm -f \"../asked/$request\"
        exit 1
    fi
    test -d ../given || exit 255
    sleep 0.02 || exit 255
done
";
/// The longest name of a request that is accepted: PostgreSQL's files have 40 characters at most.
const NAME_MAX: usize = 64;
/// The most answers that are in the directory at once. PostgreSQL asks for one file at a time; the
/// limit bounds the space that a server can make us use if it does anything else.
const ANSWERS_MAX: usize = 8;

/// The directories of requests and of answers.
pub(super) struct Requests {
    asked: File,
    given: PathBuf,
    /// The answer to each request that is still there.
    answers: BTreeMap<String, PathBuf>,
    /// How many requests have been answered so far.
    answered: u64,
}

impl Requests {
    /// Makes the directories and the script, with the owners and modes that a server needs which
    /// does not run yet. SR-5001 when one exists.
    pub(super) fn new(user: ServerUser, root: &Path, settings: &Path) -> Result<Self> {
        let (asked, given) = (root.join("asked"), root.join("given"));
        for path in [&asked, &given] {
            let made = DirBuilder::new().mode(0o700).create(path);
            made.map_err(|error| io_error(path, error))?;
        }
        let script = settings.join("fetch");
        write(&script, SCRIPT.as_bytes())?;
        user.give_to_group(&script)?;
        let opened = File::open(&asked).map_err(|error| io_error(&asked, error))?;
        user.give_to_server(&asked)?;
        user.give_to_group(&given)?;
        set_mode(&given, 0o750)?;
        Ok(Self {
            asked: opened,
            given,
            answers: BTreeMap::new(),
            answered: 0,
        })
    }

    /// Removes answers that were taken, and answers the requests that are there, as far as the
    /// limit of answers allows. Does not wait for requests.
    ///
    /// # Errors
    /// Those of [`ArchivedLog::fetch`], such as SR-7130 for a lost segment; SR-5001 when the system
    /// reports an error.
    pub(super) fn serve(&mut self, user: ServerUser, archive: &ArchivedLog<'_>) -> Result<()> {
        let asked = self.asked()?;
        // The command has taken these answers, or was killed.
        let taken = |request: &String| !asked.contains(request);
        let gone: Vec<String> = self
            .answers
            .keys()
            .filter(|key| taken(key))
            .cloned()
            .collect();
        for request in gone {
            if let Some(path) = self.answers.remove(&request) {
                fs::remove_file(&path).map_err(|error| io_error(&path, error))?;
            }
        }
        for request in asked {
            if self.answers.len() < ANSWERS_MAX && !self.answers.contains_key(&request) {
                self.answer(user, archive, request)?;
            }
        }
        Ok(())
    }

    /// How many requests have been answered so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// The requests whose files are in the directory now; other names are ignored. SR-5001 when it
    /// cannot be read.
    fn asked(&self) -> Result<BTreeSet<String>> {
        let failed = |error: rustix::io::Errno| io_error(&self.given, error.into());
        let mut requests = BTreeSet::new();
        for entry in Dir::read_from(&self.asked).map_err(failed)? {
            requests.extend(request_of(entry.map_err(failed)?.file_name()));
        }
        Ok(requests)
    }

    /// Fetches the file of a request from the archive, and puts it, or the note that there is none,
    /// into the directory of answers, in one step. Errors of the archive, with the file's name.
    fn answer(
        &mut self,
        user: ServerUser,
        archive: &ArchivedLog<'_>,
        request: String,
    ) -> Result<()> {
        let Some(name) = file_of(&request) else {
            return Ok(());
        };
        let found = archive.fetch(name).map_err(|error| {
            let detail = format!("the archived log, {name}: {}", error.detail());
            Error::new(error.code(), detail)
        })?;
        let path = self.given.join(match &found {
            Some(_) => request.clone(),
            None => format!("{request}.absent"),
        });
        let before = self.given.join(".part");
        write(&before, &found.unwrap_or_default())?;
        user.give_to_group(&before)?;
        rename(&before, &path).map_err(|error| io_error(&path, error.into()))?;
        self.answers.insert(request, path);
        self.answered = self.answered.saturating_add(1);
        Ok(())
    }
}

/// Returns the name, if the command could have made it: a file name of letters, digits and dots,
/// then a dot and the number of a process. `None` for any other name.
fn request_of(name: &CStr) -> Option<String> {
    let name = name.to_str().ok().filter(|name| name.len() <= NAME_MAX)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    let is_request = name.bytes().all(plain) && file_of(name).is_some();
    is_request.then(|| name.to_owned())
}

/// The file that a request asks for: its name without the number of the process. `None` when it is
/// no request.
fn file_of(request: &str) -> Option<&str> {
    let (name, process) = request.rsplit_once('.')?;
    let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !name.is_empty() && !name.starts_with('.')).then_some(name)
}

/// Makes a new file with mode 0640 and this content. SR-5001 when there is one.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| io_error(path, error);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o640);
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(content).map_err(failed)
}
