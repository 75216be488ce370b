//! `strongroom duckdb scrub FILE`: zeroes bytes that DuckDB does not use.
//!
//! Must not: write where it is not certain that the bytes are unused.

use std::path::PathBuf;

use clap::Args;

use super::keys;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Zero the bytes of a DuckDB database's blocks that DuckDB does not use.
///
/// They are outside what is authenticated, so nothing else changes. With a key, all blocks; without
/// one, only those whose place does not depend on the block size, which are all of them in a
/// database of the usual size, 262144 bytes.
#[derive(Args)]
#[command(after_help = tail!("  strongroom duckdb scrub app.db --key-file key"))]
pub(super) struct ScrubArgs {
    /// The encrypted database
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl ScrubArgs {
    /// Zeroes bytes that DuckDB does not use, in place, and prints in how many units there were
    /// any. Without a key only blocks at positions that do not depend on the block size are
    /// examined, which is noted. SR-2204 if the key does not open the database; the errors of the
    /// file and the key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keys = match crate::keys::source(self.key.clone()) {
            Some(_) => keys::opening(self.key, context)?,
            None => Vec::new(),
        };
        let done = strongroom_duckdb::scrub(&self.file, &keys)?;
        if !done.complete {
            note(
                "without a key only blocks of 262144 bytes are known to be all; give one for a smaller block size",
            );
        }
        context.output.line(&format!(
            "scrubbed {}: {} of {} units had something in them",
            self.file.display(),
            done.zeroed,
            done.units
        ))
    }
}
