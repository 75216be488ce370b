//! `strongroom cert import FILE`: a certificate from elsewhere, with or without its private key.
//!
//! Must not: take one that is weak, or a private key that is another certificate's.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::{Keyring, paths};

use super::{certificate_file, report};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Take in a certificate: PEM or DER, with or without its private key, or PKCS #12.
///
/// A host that only writes backups needs the certificate and no private key. One that was issued
/// anew for a public key that the keyring has takes the older one's place; backups do not notice. A
/// file that `strongroom cert export` has written is brought back with `strongroom cert restore`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert import offsite.pem --name offsite"))]
pub(super) struct ImportArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The certificate's name in the keyring [default: what the file calls it, else its file name
    /// without ending]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    key: KeyOptions,
}

impl ImportArgs {
    /// Adds the certificate of the file to the keyring, or updates the one with the same public
    /// key, and prints what was done, with warnings about dates and a private key that was never
    /// exported. Without `--name`, the name is that of the known certificate, otherwise that in the
    /// file, otherwise the file's stem.
    /// Errors: SR-1006 if there is no such file; the errors of [`certificate_file::read`]; SR-2025
    /// if nothing is new or the name is taken; the errors of the keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        paths::file_format(&self.file)?;
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let mut identity = certificate_file::read(&self.file, self.key, context)?;
        // The name of a certificate that is known already is its own, whatever its new file is
        // called.
        let known = keyring
            .certificates()
            .into_iter()
            .find(|held| held.id == identity.certificate.id());
        let stem = self.file.file_stem().and_then(|stem| stem.to_str());
        identity.name = match known {
            Some(known) => Some(known.name),
            None => identity.name.or_else(|| stem.map(str::to_owned)),
        };
        let done = keyring.import_certificate(self.name.as_deref(), &identity)?;
        let words = match (done.is_new, done.has_new_key) {
            (true, true) => "imported with its private key",
            (true, false) => "imported without a private key",
            (false, true) => "got its private key",
            (false, false) => "renewed",
        };
        report::report(context, &keyring, &done.certificate, words)
    }
}
