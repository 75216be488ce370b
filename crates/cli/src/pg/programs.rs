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
    /// The directory of PostgreSQL's programs, of version `major` if that is known.
    pub(crate) fn find(&self, major: Option<u32>) -> Result<PathBuf, Error> {
        programs::find(self.named(), major)
    }

    /// The directory that was named.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        self.bindir.clone()
    }
}
