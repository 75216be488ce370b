//! `strongroom key create NAME`.
//!
//! Must not: show the key.

use clap::Args;
use strongroom_keyring::Keyring;

use super::report;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make a new key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom key create app"))]
pub(super) struct CreateArgs {
    /// The key's name: a-z, A-Z, 0-9, '.', '_', '-'
    #[arg(value_name = "NAME")]
    name: String,
}

impl CreateArgs {
    /// Opens the keyring, adds the key, and prints its name and version, with a warning (SR-2022)
    /// while it is in no export. SR-2014 if the keyring has a key of that name, SR-2013 if the name
    /// is not valid, SR-2024 if the keyring is full; the errors of opening it.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let key = keyring.create_key(&self.name)?;
        report::report(context, &keyring, &key)
    }
}
