//! `strongroom key retire NAME`.
//!
//! Must not: remove the key; what it sealed must still open.

use clap::Args;
use strongroom_keyring::Keyring;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Retire a key: it still opens, but seals nothing new.
#[derive(Args)]
#[command(after_help = tail!("  strongroom key retire app"))]
pub(super) struct RetireArgs {
    /// The key's name
    #[arg(value_name = "NAME")]
    name: String,
}

impl RetireArgs {
    /// Opens the keyring, retires every version of the key, and prints that. A key that is retired
    /// already is no error; SR-2003 if there is no such key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut keyring = Keyring::open(&context.keyring_path())?;
        keyring.retire_key(&self.name)?;
        context.output.line(&format!("key {} retired", self.name))
    }
}
