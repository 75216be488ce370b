//! `strongroom sqlite rekey SEALED`: a new data key, new key slots, or both.
//!
//! Must not: leave a database that neither the old nor the new key opens.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::KeySource;

use crate::args::KeyOptions;
use crate::failure::Failure;
use crate::help::tail;
use crate::{Context, guard, keys};

/// Seal a database under a new data key, and if wanted for another key.
///
/// Without a --new- option the same key opens the database afterwards. With --slots-only no page is rewritten: only
/// who may open the database changes. A rekey that was interrupted is finished by running the command again.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite rekey sealed.db --key-id app --new-key-id app2"))]
pub(super) struct RekeyArgs {
    /// The sealed database
    #[arg(value_name = "SEALED")]
    sealed: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    new: NewKeyOptions,
    /// Change who may open it, and no page
    #[arg(long)]
    slots_only: bool,
}

/// Where the new key comes from. At most one.
#[derive(Args)]
#[group(required = false, multiple = false)]
struct NewKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "New key options")]
    new_key_id: Option<String>,
    /// The environment variable that holds the new key
    #[arg(long, value_name = "VAR", help_heading = "New key options")]
    new_key_env: Option<String>,
    /// The file that holds the new key
    #[arg(long, value_name = "FILE", help_heading = "New key options")]
    new_key_file: Option<PathBuf>,
    /// The command that prints the new key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "New key options")]
    new_key_command: Option<String>,
    /// Ask for a new passphrase on the terminal
    #[arg(long, help_heading = "New key options")]
    new_ask: bool,
}

impl NewKeyOptions {
    fn source(self) -> Option<KeySource> {
        keys::source(KeyOptions {
            key_id: self.new_key_id,
            key_env: self.new_key_env,
            key_file: self.new_key_file,
            key_command: self.new_key_command,
            ask: self.new_ask,
        })
    }
}

impl RekeyArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let new_key = self.new.source();
        let options = guard::options(keys::source(self.key), context);
        let report = guard::rekey(&self.sealed, &options, new_key.as_ref(), self.slots_only)?;
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
