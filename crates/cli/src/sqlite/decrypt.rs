//! `strongroom sqlite decrypt SEALED PLAIN`: a plain copy of a sealed database.
//!
//! Must not: change the sealed database; overwrite anything; leave half a copy behind.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::paths;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::{keys, sealed_sqlite};

/// Make a plain copy of a sealed database. Whoever can read the copy can read the data.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite decrypt sealed.db plain.db --key-id app"))]
pub(super) struct DecryptArgs {
    /// The sealed database
    #[arg(value_name = "SEALED")]
    pub(super) sealed: PathBuf,
    /// The plain database to make
    #[arg(value_name = "PLAIN")]
    pub(super) plain: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl DecryptArgs {
    /// Writes a plain copy of the sealed database to a new file, and prints its number of pages.
    /// SR-1002 if the output exists, SR-1003 if it is the input, SR-1006 if the input is missing,
    /// SR-1007 if it is no regular file, SR-3001 if it is not sealed; the errors of the key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        paths::check_copy(&self.sealed, &self.plain)?;
        // A pipe would be waited for.
        let _regular = paths::open_to_read(&self.sealed)?;
        let options = sealed_sqlite::options(keys::source(self.key), context);
        let report = sealed_sqlite::decrypt(&self.sealed, &self.plain, &options)?;
        let plain = self.plain.display();
        context
            .output
            .line(&format!("plaintext {plain}: {} pages", report.pages))
    }
}
