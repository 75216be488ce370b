//! `strongroom cert retire NAME`.
//!
//! Must not: remove the certificate or its private key; what was sealed under it must still open.

use clap::Args;
use strongroom_keyring::Keyring;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Retire a certificate: its private key still opens, but nothing new is sealed under it.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert retire backup-2025"))]
pub(super) struct RetireArgs {
    /// The certificate's name
    #[arg(value_name = "NAME")]
    name: String,
}

impl RetireArgs {
    /// Retires the certificate, so that nothing new is sealed for it, writes the keyring, and
    /// prints that; prints the same, and writes nothing, if it is retired already. SR-2026 if there
    /// is no such certificate; the errors of opening and of writing the keyring, such as SR-2016
    /// while another process keeps its lock; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut keyring = Keyring::open(&context.keyring_path())?;
        keyring.retire_certificate(&self.name)?;
        let line = format!("certificate {} retired", self.name);
        context.output.line(&line)
    }
}
