//! `strongroom keyring init`: makes an empty keyring, sealed for the root key that a provider
//! delivers.
//!
//! Must not: overwrite anything.

use clap::Args;
use strongroom_keyring::{Keyring, Provider};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::keys;

/// Make an empty keyring.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring init --keyring ./team.keyring --provider env:TEAM_ROOT_KEY"))]
pub(super) struct InitArgs {
    #[arg(
        long,
        value_name = "PROVIDER",
        help = "What delivers the root key: passphrase, env:VAR, file:PATH, command:CMD, or another: docs/guides/providers.md"
    )]
    provider: String,
}

impl InitArgs {
    /// Creates an empty keyring with the provider's root key, and prints its path. SR-2015 if
    /// something is at that path, SR-2020 if the provider is not valid; SR-5001 when the system
    /// reports an error; the errors of the provider.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = context.keyring_path();
        let provider = Provider::parse(&self.provider)?;
        let instead = "another --provider, as env:VAR, file:PATH or command:CMD";
        Keyring::init(&path, &provider).map_err(|error| keys::without_terminal(error, instead))?;
        context.output.line(&format!("keyring {}", path.display()))
    }
}
