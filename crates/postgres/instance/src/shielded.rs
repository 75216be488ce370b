//! Programs under the shield: the environment in which the preload library finds instances and
//! keys.
//!
//! Invariants: the library is the first entry of `LD_PRELOAD`, and other entries stay. The program
//! gets the key source that this command was given; `STRONGROOM_PG_KEY_*` of an outer command is
//! passed on only where this command was given none.
//!
//! Must not: put a key into the environment.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_launch::library;
use strongroom_postgres_shield::discover::ROOTS_VARIABLE;
use strongroom_postgres_shield::source;

use crate::chosen::{ChosenKey, KeyHandover};
use crate::directory::Directory;
use crate::programs;

/// Shields every program, whatever its name: what PostgreSQL's programs and backup tools start must
/// see what they see.
const ALL_VARIABLE: &str = "STRONGROOM_SHIELD_ALL";

/// A program to be started under the shield.
pub struct Shielded {
    command: Command,
    program: PathBuf,
    _handed: Option<KeyHandover>,
}

impl Shielded {
    /// Prepares `program` to be started under the shield on these directories, with the key where
    /// one was chosen. Nothing is started yet.
    ///
    /// # Errors
    /// SR-7017 without the library; SR-1001 for a directory whose name holds a colon; SR-1004 when
    /// a server could not open the key's keyring; those of the key's source.
    pub fn new(
        program: PathBuf,
        directories: &[&Directory],
        chosen: Option<&ChosenKey>,
    ) -> Result<Self, Error> {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", preload()?);
        if directories.is_empty() {
            command.env_remove(ROOTS_VARIABLE);
        } else {
            command.env(ROOTS_VARIABLE, roots_value(directories)?);
        }
        let handed = chosen.map(ChosenKey::for_server).transpose()?;
        if let Some(handed) = handed
            .as_ref()
            .filter(|handed| !handed.variables.is_empty())
        {
            for kind in ["ID", "ENV", "FILE", "COMMAND", "FD"] {
                command.env_remove(format!("{}{kind}", source::VARIABLE_PREFIX));
            }
            command.env_remove(source::KEYRING_VARIABLE);
            for (name, value) in &handed.variables {
                command.env(name, value);
            }
        }
        Ok(Self {
            command,
            program,
            _handed: handed,
        })
    }

    /// Prepares `program` to be started without the shield, for what reads nothing that is sealed.
    #[must_use]
    pub fn bare(program: PathBuf) -> Self {
        Self {
            command: Command::new(&program),
            program,
            _handed: None,
        }
    }

    /// Returns the command, for arguments and streams.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Shields programs of any name, also those that the program starts.
    pub fn inherit_environment(&mut self) {
        self.command.env(ALL_VARIABLE, "1");
    }

    /// Runs it to its end, on the streams of this process where [`Self::command`] was given no
    /// others.
    ///
    /// # Errors
    /// SR-7018 when it ends with a status other than 0, or by a signal; SR-1006 when there is no
    /// such program; SR-5001 when the system reports an error.
    pub fn run(mut self) -> Result<(), Error> {
        let status = self
            .command
            .status()
            .map_err(|e| Error::opening(&self.program, e))?;
        self.check_status(status, "")
    }

    /// Runs it to its end and returns what it printed, in English. It gets no input.
    ///
    /// # Errors
    /// SR-7018 with what it complained about when it fails; SR-1006 when there is no such program;
    /// SR-5001 when the system reports an error.
    pub fn output(mut self) -> Result<String, Error> {
        let output = self
            .command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.map_err(|e| Error::opening(&self.program, e))?;
        let complaint = String::from_utf8_lossy(&stderr);
        self.check_status(status, complaint.trim_end())?;
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// Checks that the program was successful: SR-7018 with its status and `complaint` when not.
    fn check_status(&self, status: ExitStatus, complaint: &str) -> Result<(), Error> {
        if status.success() {
            return Ok(());
        }
        let shown = self.program.display();
        let detail = match complaint {
            "" => format!("{shown}: {status}"),
            complaint => format!("{shown}: {status}: {complaint}"),
        };
        Err(Error::new(&code::PG_PROGRAM, detail))
    }

    /// Replaces this process by the program, which keeps its streams and terminal. Returns only
    /// when it cannot be started: SR-1006 when there is no such program, else SR-5001.
    #[must_use]
    pub fn exec(mut self) -> Error {
        let error = self.command.exec();
        Error::opening(&self.program, error)
    }
}

/// Returns the value of `LD_PRELOAD`: the library before what is there. SR-7017 without the
/// library.
fn preload() -> Result<OsString, Error> {
    Ok(library::preload(&programs::library()?))
}

/// Returns the directories' paths, joined by colons. SR-1001 for a path that holds a colon.
fn roots_value(directories: &[&Directory]) -> Result<OsString, Error> {
    let mut joined = OsString::new();
    for directory in directories {
        if directory.path.to_string_lossy().contains(':') {
            return Err(
                directory.failure(&code::USAGE, "a data directory's path may hold no colon")
            );
        }
        if !joined.is_empty() {
            joined.push(":");
        }
        joined.push(&directory.path);
    }
    Ok(joined)
}
