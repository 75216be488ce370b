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
    /// Returns the source of keys: `--provider`, otherwise the one that `hint` (of a volume's
    /// token) names, otherwise the one that is configured. No server's address comes from the hint.
    /// SR-8400 or SR-8401 if the node's configuration cannot be used; a keyring is opened later.
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

    /// Returns the key server if a node's configuration was named or exists, otherwise the keyring.
    fn configured(&self) -> ProviderChoice {
        if self.node.is_some() || Node::path(None).exists() {
            ProviderChoice::Keyserver
        } else {
            ProviderChoice::Keyring
        }
    }

    /// Returns the key server of the node's configuration, without a request. SR-8400 or SR-8401 if
    /// the configuration or one of its files cannot be used.
    pub(super) fn server(&self) -> Result<ServerKeys, Failure> {
        Ok(ServerKeys::new(&Node::path(self.node.as_deref()))?)
    }
}
