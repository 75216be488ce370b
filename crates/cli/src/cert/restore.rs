//! `strongroom cert restore FILE`: a private key comes back from the file that `cert export` has
//! written.
//!
//! Must not: replace a private key by another one.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::{Keyring, paths};

use super::{certificate_file, report};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Bring a private key back from the file that it was exported to.
///
/// Into any keyring, a new one too: the certificate comes with it. A certificate alone, and one
/// that did not come from
/// `strongroom cert export`, is taken in with `strongroom cert import`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert restore /mnt/safe/backup.p12 --ask"))]
pub(super) struct RestoreArgs {
    /// The PKCS #12 file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The certificate's name, when the keyring does not know it [default: what the file calls it]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    key: KeyOptions,
}

impl RestoreArgs {
    /// Restores a private key from the PKCS #12 file, with its certificate if the keyring does not
    /// have it, and prints that. A private key that is there already is no error. SR-1006 if there
    /// is no such file, SR-2029 if it holds no private key; the errors of the file and the keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        paths::file_format(&self.file)?;
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let identity = certificate_file::read(&self.file, self.key, context)?;
        let done = keyring.restore_certificate(self.name.as_deref(), &identity)?;
        let words = match done.has_new_key {
            true => "restored",
            false => "has its private key already",
        };
        report::report(context, &keyring, &done.certificate, words)
    }
}
