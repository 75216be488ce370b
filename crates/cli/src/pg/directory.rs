//! `-D`, the option that names a data directory.
//!
//! Must not: look into the directory.

use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_postgres_instance::directory::Directory;

/// `-D`, as PostgreSQL's own programs have it.
#[derive(Args)]
pub(super) struct DirectoryOption {
    /// The data directory [default: PGDATA]
    #[arg(short = 'D', long = "pgdata", value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl DirectoryOption {
    /// Returns the directory, which must hold an instance, sealed or not. SR-7011 if it does not,
    /// SR-1006 if there is no such directory, SR-1001 if none is named.
    pub(super) fn existing(&self) -> Result<Directory, Error> {
        Directory::existing(&self.named()?)
    }

    /// As [`Self::existing`], and the instance must be sealed: SR-7004 if it is not, SR-7003 while
    /// it is being converted.
    pub(super) fn sealed(&self) -> Result<Directory, Error> {
        Directory::sealed(&self.named()?)
    }

    /// Returns the path that `-D` or else `PGDATA` names, without checking it. SR-1001 if neither
    /// does.
    pub(super) fn named(&self) -> Result<PathBuf, Error> {
        let variable = || std::env::var_os("PGDATA").filter(|value| !value.is_empty());
        let named = self
            .directory
            .clone()
            .or_else(|| variable().map(PathBuf::from));
        named.ok_or_else(|| Error::new(&code::USAGE, "-D DIR is missing, and PGDATA is not set"))
    }
}
