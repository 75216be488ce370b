//! `strongroom keyring export`: every key in a file of its own, sealed for a key outside the
//! keyring.
//!
//! Must not: overwrite anything, write a key unsealed.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::{Keyring, SourceContext, paths};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Write every key and certificate to a new file, sealed for another key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring export --out /mnt/safe/keyring.export --ask"))]
pub(super) struct ExportArgs {
    /// The file to make
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl ExportArgs {
    /// Fetches the key for the export, writes every key and certificate to a new file sealed for
    /// it, and prints how many. The keyring records the export.
    /// Errors: SR-2044 if no key is given or it is one of the keyring, SR-1002 if the file exists,
    /// SR-2034 if it does not open when it is read back; the errors of the keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let key = super::export_key::export_key(self.key)?;
        paths::check_new(&self.out)?;
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let opener = key.opener(&SourceContext {
            keyring: context.keyring.clone(),
            creating: true,
            prompt: "Passphrase for the export".to_owned(),
        })?;
        keyring.export(&self.out, &opener)?;
        let (count, certificates) = (keyring.list().len(), keyring.certificates().len());
        let and = match certificates {
            0 => String::new(),
            count => format!(" and {count} certificates"),
        };
        let line = format!(
            "exported {count} key versions{and} to {}",
            self.out.display()
        );
        context.output.line(&line)
    }
}
