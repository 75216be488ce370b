//! `strongroom cert create NAME`: a key pair and a certificate of it, signed by itself.
//!
//! Must not: show the private key.

use clap::Args;
use strongroom_keyring::{Keyring, NewCertificate};

use super::report;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make a key pair and a certificate of it, signed by itself.
///
/// Lose the keyring before the private key was exported, and no backup under the certificate can
/// ever be read.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert create backup --subject CN=backup,O=Example --days 3650"))]
pub(super) struct CreateArgs {
    /// The certificate's name: a-z, A-Z, 0-9, '.', '_', '-'
    #[arg(value_name = "NAME")]
    name: String,
    /// Who it is for, as CN=NAME,O=NAME,C=XX [default: CN=NAME]
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// Length of the RSA key in bits
    #[arg(long, value_name = "BITS", default_value = "3072", value_parser = ["3072", "4096"])]
    rsa: String,
    /// For how many days it is valid; afterwards what is sealed under it still opens
    #[arg(long, value_name = "N", default_value_t = 3650)]
    days: u32,
}

impl CreateArgs {
    /// Makes an RSA key pair and a self-signed certificate in the keyring, and prints name and id.
    /// Warns that the private key was not exported. SR-2025 if the name is taken, SR-2013 if it is
    /// not valid, SR-2037 for the subject or the days; the errors of the keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let new = NewCertificate {
            subject: self.subject.unwrap_or_else(|| format!("CN={}", self.name)),
            // One of the two: clap has looked.
            bits: if self.rsa == "4096" { 4096 } else { 3072 },
            days: self.days,
        };
        let made = keyring.create_certificate(&self.name, &new)?;
        report::report(context, &keyring, &made, "created")
    }
}
