//! `strongroom cert export NAME`: the private key in a PKCS #12 file that has been proved to open,
//! or the certificate alone.
//!
//! Must not: overwrite anything; write a private key unsealed.

use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::{KeySource, Keyring, SourceContext, paths};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

/// Write certificate and private key to a PKCS #12 file, and prove that it opens.
///
/// The file is read back and opens what was encrypted for the certificate before it gets its name
/// and the certificate counts as exported. Keep the file and its passphrase apart from each other
/// and from the keyring.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert export backup --out /mnt/safe/backup.p12"))]
pub(super) struct ExportArgs {
    /// The certificate's name
    #[arg(value_name = "NAME")]
    name: String,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Write the certificate alone, as PEM: for a host that writes backups and must not read them
    #[arg(long, conflicts_with_all = ["key_id", "key_env", "key_file", "key_command", "ask"])]
    public: bool,
    #[command(flatten)]
    key: KeyOptions,
}

impl ExportArgs {
    /// Writes the certificate and its private key to a new PKCS #12 file sealed with a passphrase,
    /// reads it back, records the export in the keyring, and prints that. With `--public`, writes
    /// the certificate alone as PEM and records nothing.
    /// Errors: SR-1002 if the file exists, SR-2026 if there is no such certificate, SR-2031 if the
    /// keyring lacks its private key, SR-2034 if the file does not open again; the errors of the
    /// keyring and the passphrase.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        paths::check_new(&self.out)?;
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let certificate = keyring.certificate(&self.name)?;
        if self.public {
            let pem = certificate.certificate()?.to_pem();
            paths::create_new(&self.out, &pem.map_err(strongroom_keyring::Error::from)?)?;
            let line = format!(
                "certificate {} written to {}, without its private key",
                self.name,
                self.out.display()
            );
            return context.output.line(&line);
        }
        if !certificate.has_private_key {
            let code = &strongroom_format::code::CERT_NO_KEY;
            return Err(Failure::new(code, self.name));
        }
        let source = keys::source(self.key).unwrap_or(KeySource::Ask);
        let about = SourceContext {
            keyring: None,
            creating: true,
            prompt: format!("Passphrase for the export of {}", self.name),
        };
        let instead = "--key-file, --key-env or --key-command";
        let passphrase = keys::passphrase(&source, &about, instead)?;
        keyring.export_certificate(&self.name, &self.out, &passphrase)?;
        let line = format!(
            "certificate {} exported to {}, read back and proved to open",
            self.name,
            self.out.display()
        );
        context.output.line(&line)
    }
}
