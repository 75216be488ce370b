//! `strongroom duckdb header-backup FILE OUT`: the main header, in a file of its own.
//!
//! Must not: overwrite anything.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Copy the main header of a DuckDB database, without which it is lost.
///
/// It holds no key, but lets whoever has it try passphrases. Make another copy after each rekey.
#[derive(Args)]
#[command(after_help = tail!("  strongroom duckdb header-backup app.db app.header"))]
pub(super) struct HeaderBackupArgs {
    /// The encrypted database
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// The copy to make
    #[arg(value_name = "OUT")]
    pub(super) out: PathBuf,
}

impl HeaderBackupArgs {
    /// Copies the main header of the database to a new file that only its owner can read, and
    /// prints that. SR-1002 if the file exists, SR-1006 if there is no database, SR-2209 if it is
    /// in use, SR-2200 to SR-2203 and SR-2208 if it is not an encrypted database with a whole
    /// header, SR-2211 during an unfinished rekey; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        strongroom_duckdb::backup_header(&self.file, &self.out)?;
        let line = format!(
            "copied the header of {} to {}",
            self.file.display(),
            self.out.display()
        );
        context.output.line(&line)
    }
}
