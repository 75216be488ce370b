//! `strongroom keyring rotate-root`: seals the keyring for new root key material.
//!
//! The data keys that the keyring's keys wrap stay as they are: no sealed object is touched.
//! Must not: print the provider's argument as if it were verified before the change succeeded.

use clap::Args;
use strongroom_keyring::{Keyring, Provider};

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;

/// Seal the keyring for a new root key.
///
/// The present provider is asked for the old root key, then the new provider (or the present one
/// again) for the new. Exports and copies made before still open with the old root key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring rotate-root --provider file:/etc/strongroom/root2.key"))]
pub(super) struct RotateRootArgs {
    /// The new provider; without it, the present one is asked again
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
}

impl RotateRootArgs {
    /// Opens the keyring, seals it for the root key that the new provider, or else the present one,
    /// delivers now, and prints that. Writes a note if the root key is the same as before. SR-2020
    /// if the provider is not valid; the errors of the keyring and of the providers.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = context.keyring_path();
        let provider = self.provider.as_deref().map(Provider::parse).transpose()?;
        let mut keyring = Keyring::open(&path)?;
        let other_root = keyring.rotate_root(provider)?;
        if !other_root {
            note("the provider delivered the same root key as before");
        }
        context
            .output
            .line(&format!("root rotated {}", path.display()))
    }
}
