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
use strongroom_postgres_shield::discover::ROOTS_VARIABLE;
use strongroom_postgres_shield::source;

use super::chosen::{ChosenKey, KeyHandover};
use super::directory::Directory;
use super::programs;
use crate::failure::Failure;
use crate::libraries;

/// Shields every program, whatever its name: what PostgreSQL's programs and backup tools start must
/// see what they see.
const ALL_VARIABLE: &str = "STRONGROOM_SHIELD_ALL";

/// A program to be started under the shield.
pub(super) struct Shielded {
    command: Command,
    program: PathBuf,
    _handed: Option<KeyHandover>,
}

impl Shielded {
    /// `program` on these directories, with the key where one was chosen.
    pub(super) fn new(
        program: PathBuf,
        directories: &[&Directory],
        chosen: Option<&ChosenKey>,
    ) -> Result<Self, Failure> {
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

    /// `program` without the shield, for what reads nothing that is sealed.
    pub(super) fn bare(program: PathBuf) -> Self {
        Self {
            command: Command::new(&program),
            program,
            _handed: None,
        }
    }

    /// The command, for arguments and streams.
    pub(super) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Shields programs of any name, also those that the program starts.
    pub(super) fn inherit_environment(&mut self) {
        self.command.env(ALL_VARIABLE, "1");
    }

    /// Runs it to its end, on the streams of this command. SR-7018 when it fails.
    pub(super) fn run(mut self) -> Result<(), Failure> {
        let status = self
            .command
            .status()
            .map_err(|e| Failure::open(&self.program, &e))?;
        self.check_status(status, "")
    }

    /// Runs it to its end and returns what it printed, in English. SR-7018 with what it complained
    /// about when it fails.
    pub(super) fn output(mut self) -> Result<String, Failure> {
        let output = self
            .command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.map_err(|e| Failure::open(&self.program, &e))?;
        let complaint = String::from_utf8_lossy(&stderr);
        self.check_status(status, complaint.trim_end())?;
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    fn check_status(&self, status: ExitStatus, complaint: &str) -> Result<(), Failure> {
        if status.success() {
            return Ok(());
        }
        let shown = self.program.display();
        let detail = match complaint {
            "" => format!("{shown}: {status}"),
            complaint => format!("{shown}: {status}: {complaint}"),
        };
        Err(Failure::new(&code::PG_PROGRAM, detail))
    }

    /// Becomes the program: its exit code, its signals, its terminal. Returns only when it cannot
    /// be started.
    pub(super) fn exec(mut self) -> Failure {
        let error = self.command.exec();
        Failure::open(&self.program, &error)
    }
}

/// `LD_PRELOAD` with the library before what is there.
pub(super) fn preload() -> Result<OsString, Failure> {
    Ok(libraries::preload(&programs::library()?))
}

fn roots_value(directories: &[&Directory]) -> Result<OsString, Failure> {
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
