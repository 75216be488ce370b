//! The source of key material: the key server that the node's configuration names, or the keyring.
//!
//! Must not: decide which of them has a volume's key; that is strongroom-volume's.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use strongroom_luks2::Provider;
use strongroom_volume::host_keys::HostKeys;

use crate::context::Context;

/// Who has the key.
#[derive(Args, Clone, Default)]
pub(super) struct ProviderOptions {
    /// Who has the key [default: keyserver where this node is configured for one, else keyring]
    #[arg(long, value_name = "WHO", help_heading = "Key options")]
    provider: Option<ProviderChoice>,
    /// The node's configuration [default: `STRONGROOM_NODE`, else /etc/strongroom/node.toml]
    #[arg(long, value_name = "FILE", help_heading = "Key options")]
    pub(super) node: Option<PathBuf>,
}

/// The source, as on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProviderChoice {
    /// The key server of the node's configuration
    Keyserver,
    /// The keyring of this host
    Keyring,
}

impl From<ProviderChoice> for Provider {
    fn from(choice: ProviderChoice) -> Self {
        match choice {
            ProviderChoice::Keyserver => Self::KeyServer,
            ProviderChoice::Keyring => Self::Keyring,
        }
    }
}

impl ProviderOptions {
    /// Returns the sources of keys as the options name them. Nothing is read.
    pub(super) fn host_keys(&self, context: &Context) -> HostKeys {
        HostKeys {
            provider: self.provider.map(Provider::from),
            node: self.node.clone(),
            keyring: context.keyring_path(),
        }
    }
}
