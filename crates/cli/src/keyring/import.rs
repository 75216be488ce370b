//! `strongroom keyring import`: adds the keys of an export to the keyring, all or none.
//!
//! Must not: replace a key by another one.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::{Keyring, SourceContext, paths};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Add the keys of an export.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring import /mnt/safe/keyring.export --ask"))]
pub(super) struct ImportArgs {
    /// The export
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl ImportArgs {
    /// Adds the keys and certificates of the export to the keyring, all or none, and prints each
    /// one that was added, then how many were added and how many were there already.
    /// Errors: SR-2044 without a key from outside the keyring, SR-1006 if there is no such file,
    /// SR-2002 if the key does not open it, SR-2021 or SR-2025 if the keyring has something
    /// different under the same name; the errors of the keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let key = super::export_key::export_key(self.key)?;
        paths::file_format(&self.file)?;
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let opener = key.opener(&SourceContext {
            keyring: context.keyring.clone(),
            creating: false,
            prompt: "Passphrase of the export".to_owned(),
        })?;
        let report = keyring.import(&self.file, &opener)?;
        for key in &report.added {
            let line = format!(
                "added {} version {} ({})",
                key.name,
                key.version,
                key.state.name()
            );
            context.output.line(&line)?;
        }
        for certificate in &report.certificates {
            let line = format!("added certificate {}", certificate.name);
            context.output.line(&line)?;
        }
        let (added, unchanged) = (report.added.len(), report.unchanged);
        context
            .output
            .line(&format!("{added} added, {unchanged} there already"))
    }
}
