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
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut keyring = Keyring::open(&context.keyring_path())?;
        let key = keyring.create_key(&self.name)?;
        report::report(context, &keyring, &key)
    }
}
