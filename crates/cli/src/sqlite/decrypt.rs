//! `strongroom sqlite decrypt SEALED PLAIN`: a plain copy of a sealed database.
//!
//! Must not: change the sealed database; overwrite anything; leave half a copy behind.

use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;

use crate::args::KeyOptions;
use crate::failure::Failure;
use crate::help::tail;
use crate::paths::{self, Sort};
use crate::progress::Progress;
use crate::{Context, guard, keys};

/// Make a plain copy of a sealed database. Whoever can read the copy can read the data.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite decrypt sealed.db plain.db --key-id app"))]
pub(super) struct DecryptArgs {
    /// The sealed database
    #[arg(value_name = "SEALED")]
    sealed: PathBuf,
    /// The plain database to make
    #[arg(value_name = "PLAIN")]
    plain: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl DecryptArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        paths::check_copy(&self.sealed, &self.plain)?;
        if paths::sort(&self.sealed)? != Sort::Sealed {
            let detail = self.sealed.display().to_string();
            return Err(Failure::new(&code::NOT_SEALED, detail));
        }
        let key = keys::source(self.key);
        let key =
            key.ok_or_else(|| Failure::new(&code::NO_KEY, self.sealed.display().to_string()))?;
        let mut progress = Progress::new("decrypting");
        let pages =
            guard::options(key, context).decrypt(&self.sealed, &self.plain, &mut |done, all| {
                progress.update(done, all);
            })?;
        drop(progress);
        let plain = self.plain.display();
        context
            .output
            .line(&format!("plaintext {plain}: {pages} pages"))
    }
}
