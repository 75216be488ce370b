//! The source of key material: the key server that the node's configuration names, or the keyring.
//!
//! Invariant V3: a volume's token never decides which server is called.
//!
//! Must not: keep material.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use strongroom_keys_client::Node;
use strongroom_luks2::Provider;
use strongroom_volume::keys::{KeyringKeys, Keys};
use strongroom_volume::server::ServerKeys;

use crate::context::Context;
use crate::failure::Failure;

/// Who has the key.
#[derive(Args, Clone, Default)]
pub(super) struct ProviderOptions {
    /// Who has the key [default: keyserver where this node is configured for one, else keyring]
    #[arg(long, value_name = "WHO", help_heading = "Key options")]
    pub(super) provider: Option<ProviderChoice>,
    /// The node's configuration [default: `STRONGROOM_NODE`, else /etc/strongroom/node.toml]
    #[arg(long, value_name = "FILE", help_heading = "Key options")]
    pub(super) node: Option<PathBuf>,
}

/// The source, as on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProviderChoice {
    /// The key server of the node's configuration
    Keyserver,
    /// The keyring of this host
    Keyring,
}

impl From<Provider> for ProviderChoice {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::KeyServer => Self::Keyserver,
            Provider::Keyring => Self::Keyring,
        }
    }
}

impl ProviderOptions {
    /// The source that was named, else the one that `hint` of a token names, else the one that is
    /// configured. A hint chooses between what this node is configured for; no server's address
    /// comes from it.
    pub(super) fn keys(
        &self,
        context: &Context,
        hint: Option<Provider>,
    ) -> Result<Box<dyn Keys>, Failure> {
        let hint = hint.map(ProviderChoice::from);
        match self.provider.or(hint).unwrap_or_else(|| self.configured()) {
            ProviderChoice::Keyring => Ok(Box::new(KeyringKeys::new(&context.keyring_path()))),
            ProviderChoice::Keyserver => Ok(Box::new(self.server()?)),
        }
    }

    /// The configured source: the key server when this node has a configuration for one.
    fn configured(&self) -> ProviderChoice {
        if self.node.is_some() || Node::path(None).exists() {
            ProviderChoice::Keyserver
        } else {
            ProviderChoice::Keyring
        }
    }

    /// The key server of the node's configuration.
    pub(super) fn server(&self) -> Result<ServerKeys, Failure> {
        Ok(ServerKeys::new(&Node::path(self.node.as_deref()))?)
    }
}
