//! `strongroom pg run -D DIR -- PROGRAM ...`: becomes that program, under the shield.
//!
//! Must not: change the program's arguments, streams or exit code.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_postgres_instance::chosen::ChosenKey;
use strongroom_postgres_instance::directory::Directory;
use strongroom_postgres_instance::shielded::Shielded;

use super::given::given_key;
use super::programs::BindirOption;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Run any program on sealed instances: it and what it starts see them unsealed.
///
/// For PostgreSQL's own programs (`pg_basebackup`, `pg_rewind`, `pg_checksums`, `pg_waldump`,
/// `pg_upgrade` ...) and for others that read or write a data directory. What they write elsewhere
/// is not sealed. The exit code is the program's. With several -D, a key option is for those
/// instances that it opens; the others use their own strongroom.conf.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg run -D /srv/pg/data -- pg_checksums --check -D /srv/pg/data"))]
pub(super) struct RunArgs {
    /// A data directory; can be given more than once [default: PGDATA]
    #[arg(short = 'D', long = "pgdata", value_name = "DIR")]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    bindir: BindirOption,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl RunArgs {
    /// Checks that the key opens every directory, then replaces this process by the program, under
    /// the shield. Returns only with an error: SR-7003 or SR-7004 for a directory that is being
    /// converted or is not sealed, SR-2001 without a key, that of a key that does not open it, or
    /// that of starting the program.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directories = self.directories()?;
        let chosen = match directories.first() {
            Some(first) => ChosenKey::find(given_key(self.key.clone(), context), first)?,
            None => None,
        };
        for directory in &directories {
            self.check(context, directory, chosen.as_ref(), directories.len() > 1)?;
        }
        let major = directories.first().and_then(Directory::major);
        let mut words = self.program.iter();
        let program = self.program(words.next(), major);
        let referred: Vec<&Directory> = directories.iter().collect();
        let mut shielded = Shielded::new(program, &referred, chosen.as_ref())?;
        shielded.inherit_environment();
        shielded.command().args(words);
        context.output.flush()?;
        Err(shielded.exec().into())
    }

    /// Returns the directories that `-D` names, otherwise the one of `PGDATA`, otherwise none.
    pub(super) fn named(&self) -> Vec<PathBuf> {
        let variable = || std::env::var_os("PGDATA").filter(|value| !value.is_empty());
        if self.directories.is_empty() {
            variable().map(PathBuf::from).into_iter().collect()
        } else {
            self.directories.clone()
        }
    }

    /// Returns the named directories, each of which must be sealed: SR-7003 while one is being
    /// converted, SR-7004 if one is not sealed, SR-1006 if one is missing.
    fn directories(&self) -> Result<Vec<Directory>, Failure> {
        let named = self.named();
        let sealed = |path: &PathBuf| {
            let directory = Directory::at(path)?;
            directory.check_sealed()?;
            Ok(directory)
        };
        named.iter().map(sealed).collect()
    }

    /// Opens the directory's header with `chosen`, so that a wrong key is reported before the
    /// program begins. With several directories, one that `chosen` does not open is opened with the
    /// key that its own configuration names; so is each one if `chosen` is `None` or itself from a
    /// configuration. Errors: SR-2001 if no configuration names a key, SR-2002 if the key does not
    /// open the header; those of the header and of the key's source.
    fn check(
        &self,
        context: &Context,
        directory: &Directory,
        chosen: Option<&ChosenKey>,
        several: bool,
    ) -> Result<(), Failure> {
        let given = || given_key(KeyOptions::default(), context);
        let own = || ChosenKey::required(given(), directory)?.open(directory);
        match chosen {
            Some(chosen) if chosen.is_own() => own()?,
            Some(chosen) => match chosen.open(directory) {
                Err(_) if several => own()?,
                outcome => outcome?,
            },
            None => own()?,
        };
        Ok(())
    }

    /// Returns the program's path. A name without a directory is first looked for among
    /// PostgreSQL's own programs, because on Debian the one in `PATH` is a wrapper that chooses a
    /// version by itself.
    fn program(&self, word: Option<&OsString>, major: Option<u32>) -> PathBuf {
        let word = PathBuf::from(word.cloned().unwrap_or_default());
        if word.components().count() != 1 {
            return word;
        }
        let found = self
            .bindir
            .find(major)
            .ok()
            .map(|bindir| bindir.join(&word));
        found
            .filter(|path: &PathBuf| Path::is_file(path))
            .unwrap_or(word)
    }
}
