//! `strongroom sqlite rekey SEALED`: a new data key, new key slots, or both.
//!
//! Must not: leave a database that neither the old nor the new key opens.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::{KeyOptions, NewKeyOptions};
use crate::{keys, sealed_sqlite};

/// Seal a database under a new data key, and if wanted for another key.
///
/// Without a --new- option the same key opens the database afterwards. With --slots-only no page is
/// rewritten: only who may open the database changes. A rekey that was interrupted is finished by
/// running the command again.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite rekey sealed.db --key-id app --new-key-id app2"))]
pub(super) struct RekeyArgs {
    /// The sealed database
    #[arg(value_name = "SEALED")]
    pub(super) sealed: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    new: NewKeyOptions,
    /// Change who may open it, and no page
    #[arg(long)]
    slots_only: bool,
}

impl RekeyArgs {
    /// Rekeys the database in place as the options say, and prints that. Errors are those of
    /// [`sealed_sqlite::rekey`].
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let new_key = keys::source(self.new.into());
        let options = sealed_sqlite::options(keys::source(self.key), context);
        let report =
            sealed_sqlite::rekey(&self.sealed, &options, new_key.as_ref(), self.slots_only)?;
        if !self.slots_only {
            // The count of the old data key no longer matters.
            strongroom_sqlite::forget_seals_warnings();
        }
        let sealed = self.sealed.display();
        let line = if self.slots_only {
            format!("rewrapped {sealed}")
        } else {
            let begun = if report.resumed {
                "finished the rekey of"
            } else {
                "rekeyed"
            };
            format!(
                "{begun} {sealed}: {} pages, key epoch {}",
                report.pages, report.epoch
            )
        };
        context.output.line(&line)
    }
}
