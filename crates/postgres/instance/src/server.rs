//! The server of a sealed instance, started, stopped and promoted by `pg_ctl`, with the library and
//! the key in its environment.
//!
//! A data directory of Debian's postgresql-common has no `postgresql.conf`. The server gets the
//! path of its configuration as an option, as from `pg_ctlcluster`.
//!
//! Invariant: the key is tried on the header and on the control file before `pg_ctl` runs, so that
//! the user sees here that it is wrong, and not in the server's log.
//!
//! Must not: decide whether a server is up or down, which `pg_ctl` does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_postgres_shield::clusters::configuration_options;
use strongroom_postgres_shield::server_settings::started_with;

use crate::chosen::{ChosenKey, GivenKey};
use crate::contents::check_control;
use crate::directory::Directory;
use crate::shielded::Shielded;
use crate::{clusters, programs};

/// A server, and what was said about starting it.
pub struct Server<'a> {
    /// Its data directory.
    pub directory: &'a Directory,
    /// Where PostgreSQL's programs are, if that was named.
    pub bindir: Option<PathBuf>,
    /// Where the server's messages go, if that was named.
    pub log: Option<PathBuf>,
    /// The server's configuration file, if that was named.
    pub config_file: Option<PathBuf>,
    /// Further options of `pg_ctl`.
    pub options: &'a [OsString],
}

impl Server<'_> {
    /// Returns the command `pg_ctl start` under the shield, after the key was tried. The caller
    /// runs it.
    ///
    /// # Errors
    /// SR-7008 when a server runs; SR-7033 without a configuration; SR-7003 while the instance is
    /// converted; SR-7015 for root; SR-7016 without PostgreSQL's programs, SR-7017 without the
    /// library; SR-2001 when nothing names a key, and those of the key; SR-7001 when it does not
    /// open the control file; SR-5001, also for another user than the owner.
    pub fn start(&self, key: GivenKey) -> Result<Shielded, Error> {
        self.directory.check_stopped()?;
        let configuration = self.configuration()?;
        let arguments = self.arguments(configuration.as_deref());
        self.pg_ctl("start", key, &arguments)
    }

    /// Returns the command `pg_ctl restart` under the shield, after the key was tried. Where
    /// `pg_ctl` takes the options of the last start, the configuration is not named anew. The
    /// caller runs it.
    ///
    /// # Errors
    /// SR-7033 without a configuration; SR-7003 while the instance is converted; SR-7015 for root;
    /// SR-7016 without PostgreSQL's programs, SR-7017 without the library; SR-2001 when nothing
    /// names a key, and those of the key; SR-7001 when it does not open the control file; SR-5001,
    /// also for another user than the owner.
    pub fn restart(&self, key: GivenKey) -> Result<Shielded, Error> {
        let options = self.options.iter();
        let mut options = options.map(|option| option.to_string_lossy());
        let replaced = options.any(|it| it.starts_with("-o") || it.starts_with("--options"));
        let kept = !replaced && started_with(&self.directory.path, "config_file");
        let configuration = if kept && self.config_file.is_none() {
            None
        } else {
            self.configuration()?
        };
        let arguments = self.arguments(configuration.as_deref());
        self.pg_ctl("restart", key, &arguments)
    }

    /// Returns the command `pg_ctl promote` under the shield, after the key was tried. The caller
    /// runs it.
    ///
    /// # Errors
    /// SR-7027 when no server runs; SR-7003 while the instance is converted; SR-7015 for root;
    /// SR-7016 without PostgreSQL's programs, SR-7017 without the library; SR-2001 when nothing
    /// names a key, and those of the key; SR-7001 when it does not open the control file; SR-5001,
    /// also for another user than the owner.
    pub fn promote(&self, key: GivenKey) -> Result<Shielded, Error> {
        self.check_runs()?;
        self.pg_ctl("promote", key, &[])
    }

    /// Returns the command `pg_ctl stop`, without the shield: it reads nothing that is sealed. The
    /// caller runs it.
    ///
    /// # Errors
    /// SR-7027 when no server runs; SR-7016 without PostgreSQL's programs.
    pub fn stop(&self) -> Result<Shielded, Error> {
        self.check_runs()?;
        let program = self.find_programs()?.join("pg_ctl");
        let mut bare = Shielded::bare(program);
        let command = bare.command();
        command.args(["stop", "-D"]).arg(&self.directory.path);
        command.args(self.options);
        Ok(bare)
    }

    /// Returns the directory of PostgreSQL's programs, of the instance's version. SR-7016 when
    /// there is none.
    fn find_programs(&self) -> Result<PathBuf, Error> {
        programs::find(self.bindir.clone(), self.directory.major())
    }

    /// Checks that a server runs on the directory: SR-7027 when none does.
    fn check_runs(&self) -> Result<(), Error> {
        if self.directory.server().is_some() {
            return Ok(());
        }
        let left = self.directory.path.join("postmaster.pid").exists();
        let detail = if left {
            "postmaster.pid is left over from one that is gone"
        } else {
            "no postmaster.pid in it"
        };
        Err(self.directory.failure(&code::PG_NOT_RUNNING, detail))
    }

    /// Returns the configuration file that the server needs to be told of. `None` when the data
    /// directory has its own. SR-7033 when there is none, or more than one.
    fn configuration(&self) -> Result<Option<PathBuf>, Error> {
        clusters::configuration_of(self.directory, self.config_file.as_deref())
    }

    /// Returns the arguments of `pg_ctl` that name the log and the configuration's file.
    fn arguments(&self, configuration: Option<&Path>) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some(log) = &self.log {
            arguments.extend([OsString::from("-l"), log.into()]);
        }
        if let Some(file) = configuration {
            let options = configuration_options(&self.directory.path, file);
            arguments.extend([OsString::from("-o"), options]);
        }
        arguments
    }

    /// Returns the command `pg_ctl VERB` under the shield with these arguments, and then the
    /// options that the user gave for `pg_ctl` itself. The key is tried first. SR-7015 for root;
    /// SR-7003 while a conversion is unfinished; SR-7016 without PostgreSQL's programs, SR-7017
    /// without the library; SR-2001 when nothing names a key; SR-7001 when the key does not open
    /// the control file; those of the key's source and the header.
    fn pg_ctl(&self, verb: &str, key: GivenKey, arguments: &[OsString]) -> Result<Shielded, Error> {
        let directory = self.directory;
        directory.check_user()?;
        if directory.is_converting() {
            return Err(directory.failure(&code::PG_CONVERTING, "strongroom.convert is there"));
        }
        let bindir = self.find_programs()?;
        programs::library()?;
        let chosen = ChosenKey::required(key, directory)?;
        check_control(directory, &chosen.instance(directory)?)?;
        let mut shielded = Shielded::new(bindir.join("pg_ctl"), &[directory], Some(&chosen))?;
        let command = shielded.command();
        command.arg(verb).arg("-D").arg(&directory.path);
        command.args(arguments).args(self.options);
        Ok(shielded)
    }
}
