//! `strongroom.convert`: which files have been converted. Its form is
//! `strongroom_format::postgres::convert`.
//!
//! Invariants: a line is durable before [`Log::append`] returns, and so before its file is renamed;
//! a last line without its end is cut off before anything is appended to it.
//!
//! Must not: be removed before everything else is durable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use strongroom_format::code;
use strongroom_format::postgres::CONVERT_FILE;
use strongroom_format::postgres::convert::{Action, Done, State, done_line, title_line};
use strongroom_keyring::{Error, Link, durable, open_regular};

use super::checks::check_no_server;
use super::lock::{ConversionLock, remove};

/// The state of a conversion, open for appending.
pub(super) struct Log<'a> {
    lock: &'a ConversionLock,
    path: PathBuf,
    file: Mutex<File>,
}

/// Reads the bytes of a regular file. A link, a pipe or a device is an error, and is not waited
/// for.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, _) = open_regular(path, Link::Refused)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl<'a> Log<'a> {
    /// Reads the state of a conversion; `None` if there is none.
    ///
    /// # Errors
    /// SR-7013 when it is damaged, SR-5001 when the system reports an error.
    pub(super) fn read(directory: &Path) -> Result<Option<State>, Error> {
        let path = directory.join(CONVERT_FILE);
        let bytes = match read_whole(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path.display().to_string(), error)),
        };
        let damaged = || Error::new(&code::PG_CONVERT_STATE, path.display().to_string());
        State::parse(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Creates the state file durably, or opens that of `known`, to continue it. If the instance
    /// has no header yet (`sealed` is false), the known state is begun anew. Then checks once more
    /// that no server runs, and removes a state that it has just created if one does.
    ///
    /// # Errors
    /// SR-7013 when `known` belongs to another header; SR-7008 when a server has started meanwhile;
    /// SR-5001 when the system reports an error.
    pub(super) fn open(
        lock: &'a ConversionLock,
        action: Action,
        object_id: [u8; 16],
        known: Option<&State>,
        sealed: bool,
    ) -> Result<Self, Error> {
        let path = lock.directory().join(CONVERT_FILE);
        let title = title_line(action, &object_id);
        let io = |error| Error::io(path.display().to_string(), error);
        let (mode, owner) = (lock.owner().mode(), lock.owner().given());
        match known {
            None => {
                durable::create_new_owned(&path, title.as_bytes(), mode, owner).map_err(io)?;
            }
            Some(_) if !sealed => {
                durable::replace_owned(&path, title.as_bytes(), mode, owner).map_err(io)?;
            }
            Some(known) if known.object_id == object_id => {}
            Some(_) => {
                let detail = "it belongs to another header";
                return Err(Error::new(&code::PG_CONVERT_STATE, detail));
            }
        }
        // A server that was started while the files were listed has its lock file by now, or will
        // see this state.
        if let Err(error) = check_no_server(lock.directory()) {
            if known.is_none() {
                remove(&path)?;
                lock.sync()?;
            }
            return Err(error);
        }
        Self::reopen(lock)
    }

    /// Opens the existing state for appending, and durably cuts off a last line without its end.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub(super) fn reopen(lock: &'a ConversionLock) -> Result<Self, Error> {
        let path = lock.directory().join(CONVERT_FILE);
        let opened = || {
            let bytes = read_whole(&path)?;
            let file = OpenOptions::new().append(true).read(true).open(&path)?;
            let whole = bytes
                .iter()
                .rposition(|&byte| byte == b'\n')
                .map_or(0, |at| at + 1);
            if whole < bytes.len() {
                file.set_len(u64::try_from(whole).unwrap_or(0))?;
                file.sync_all()?;
            }
            Ok(file)
        };
        let file = opened().map_err(|error| Error::io(path.display().to_string(), error))?;
        Ok(Self {
            lock,
            file: Mutex::new(file),
            path,
        })
    }

    /// Adds a line for each converted file, and syncs.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub(super) fn append(&self, done: &[Done]) -> Result<(), Error> {
        let text: String = done.iter().map(done_line).collect();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_data());
        written.map_err(|error| Error::io(self.path.display().to_string(), error))
    }

    /// Ends the conversion: removes the state file durably.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub(super) fn remove(self) -> Result<(), Error> {
        remove(&self.path)?;
        self.lock.sync()
    }
}

/// Reads the state of this action; `None` if no conversion was begun.
///
/// # Errors
/// SR-7003 when another action was begun; those of [`Log::read`].
pub(super) fn state_of_action(
    lock: &ConversionLock,
    action: Action,
) -> Result<Option<State>, Error> {
    match Log::read(lock.directory())? {
        Some(state) if state.action != action => {
            Err(Error::new(&code::PG_CONVERTING, state.action.name()))
        }
        other => Ok(other),
    }
}

/// Whether the file at this path has been converted: its inode is that of its last line in the
/// state. False if it does not exist.
pub(super) fn is_converted(directory: &Path, state: &State, relative: &[u8]) -> bool {
    let line = state.done.iter().rfind(|done| done.path == relative);
    let path = directory.join(std::ffi::OsStr::from_bytes(relative));
    match (line, fs::symlink_metadata(path)) {
        (Some(line), Ok(about)) => about.ino() == line.inode,
        _ => false,
    }
}
