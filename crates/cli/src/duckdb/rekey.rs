//! `strongroom duckdb rekey FILE`: another key, in place.
//!
//! Must not: leave a database that neither key opens.

use std::path::PathBuf;

use clap::Args;
use strongroom_duckdb::RekeyOptions;
use strongroom_format::code;

use super::keys;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::{KeyOptions, NewKeyOptions};
use crate::progress::Progress;

/// Seal a DuckDB database under another key, in place.
///
/// Nobody may have it open, and it may not have a write-ahead log: CHECKPOINT first. Every block is
/// checked before anything is written. A rekey that was interrupted is finished by running the
/// command again, and undone by exchanging the two keys; until then DuckDB refuses the file.
/// FILE.strongroom-rekey belongs to it: keep it beside the database. Bytes that nothing uses are
/// zeroed.
#[derive(Args)]
#[command(after_help = tail!("  strongroom duckdb rekey app.db --key-file old --new-key-file new"))]
pub(super) struct RekeyArgs {
    /// The encrypted database
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    new: NewKeyOptions,
    /// Leave blocks as they are that the key does not open, instead of refusing
    #[arg(long)]
    allow_damaged: bool,
}

impl RekeyArgs {
    /// Seals the database under the new key in place, shows progress, and prints that. Also
    /// finishes a rekey that was interrupted. Warns with SR-2214 if the new key is short; notes how
    /// many units were put back or open under no key. Errors: SR-2041 without either key; the
    /// errors of the keys; SR-2204 if no key fits; SR-2213 if it has the new key already; SR-2209
    /// if it is in use, SR-2210 if it has a write-ahead log; SR-2200 to SR-2203, SR-2206 to
    /// SR-2208, SR-2212 and SR-2216 for a file that is plain, damaged or no database; SR-5001 when
    /// the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let old = keys::opening(self.key, context)?;
        let new = keys::sealing(self.new.into(), context)?;
        if new.iter().any(strongroom_duckdb::KeyText::is_short) {
            warn(&code::DUCKDB_SHORT_KEY, "");
        }
        let options = RekeyOptions {
            allow_damaged: self.allow_damaged,
        };
        let mut progress = Progress::new("rekeying");
        let mut update = |done, all| progress.update(done, all);
        let done = strongroom_duckdb::rekey(&self.file, &old, &new, options, &mut update)?;
        drop(progress);
        let begun = if done.resumed {
            "finished the rekey of"
        } else {
            "rekeyed"
        };
        if done.put_back > 0 {
            note(&format!(
                "{} units that were half written were put back first",
                done.put_back
            ));
        }
        if done.left > 0 {
            note(&format!(
                "{} units open under no key, and were left as they are",
                done.left
            ));
        }
        let line = format!("{begun} {}: {} blocks", self.file.display(), done.blocks);
        context.output.line(&line)
    }
}
