//! `--bindir`, the option that names where PostgreSQL's programs are.
//!
//! Must not: look for them.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::Error;
use strongroom_postgres_instance::programs;

/// `--bindir`.
#[derive(Args, Clone)]
pub(crate) struct BindirOption {
    #[arg(
        long,
        value_name = "DIR",
        help = "Where PostgreSQL's programs are [default: PG_BINDIR, else the installed ones that fit the data directory]"
    )]
    bindir: Option<PathBuf>,
}

impl BindirOption {
    /// Returns the directory of PostgreSQL's programs: the one that was named by `--bindir` or
    /// `PG_BINDIR`, otherwise an installed one, of version `major` if that is known. SR-7016 if
    /// there is none.
    pub(crate) fn find(&self, major: Option<u32>) -> Result<PathBuf, Error> {
        programs::find(self.named(), major)
    }

    /// Returns the directory that `--bindir` names; `None` if it was not given.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        self.bindir.clone()
    }
}
