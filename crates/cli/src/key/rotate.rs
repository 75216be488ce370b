//! `strongroom key rotate NAME`.
//!
//! Must not: show the key.

use clap::Args;
use strongroom_keyring::Keyring;

use super::report;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make the next version of a key; older versions still open, but seal nothing new.
#[derive(Args)]
#[command(after_help = tail!("  strongroom key rotate app"))]
pub(super) struct RotateArgs {
    /// The key's name: a-z, A-Z, 0-9, '.', '_', '-'
    #[arg(value_name = "NAME")]
    name: String,
}

impl RotateArgs {
    /// Opens the keyring, adds the next version of the key, retires the older ones, and prints name
    /// and version, with a warning (SR-2022) while it is in no export. A retired key becomes active
    /// again. SR-2003 if there is no such key, SR-2024 if the keyring is full; the errors of
    /// opening it.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let key = keyring.rotate_key(&self.name)?;
        report::report(context, &keyring, &key)
    }
}
