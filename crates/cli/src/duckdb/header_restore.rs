//! `strongroom duckdb header-restore FILE COPY`: puts a main header back.
//!
//! Must not: put back the header of another database.

use std::path::PathBuf;

use clap::Args;

use super::keys;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Put a copied main header back into a DuckDB database whose own is damaged.
///
/// The key must open the copy and, with it, a database header of the file. A header that is whole
/// is not replaced.
#[derive(Args)]
#[command(after_help = tail!("  strongroom duckdb header-restore app.db app.header --key-file key"))]
pub(super) struct HeaderRestoreArgs {
    /// The encrypted database
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// What `header-backup` made
    #[arg(value_name = "COPY")]
    pub(super) copy: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl HeaderRestoreArgs {
    /// Writes the copy of the main header into the database, and prints that. SR-2041 without a
    /// key, SR-2215 if the copy does not belong to it or its own header is whole, SR-2204 if the
    /// key does not open the copy, SR-2211 during an unfinished rekey; SR-5001 when the system
    /// reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keys = keys::opening(self.key, context)?;
        strongroom_duckdb::restore_header(&self.file, &self.copy, &keys)?;
        let line = format!("put the header of {} back", self.file.display());
        context.output.line(&line)
    }
}
