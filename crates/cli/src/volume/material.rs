//! Where key material comes from: the key server that the node's configuration names, or the keyring.
//!
//! Invariant V3: a volume's token never says whom to ask.
//! Must not: keep material.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strongroom_keyclient::Node;
use strongroom_volume::keys::{Keys, OfKeyring};
use strongroom_volume::server::OfServer;
use strongroom_volume::token::Provider;

use crate::failure::Failure;
use crate::{Context, keyring};

/// Who has the key.
#[derive(Args, Clone, Default)]
pub(super) struct ProviderOptions {
    /// Who has the key [default: keyserver where this node is configured for one, else keyring]
    #[arg(long, value_name = "WHO", help_heading = "Key options")]
    pub(super) provider: Option<Who>,
    /// The node's configuration [default: `STRONGROOM_NODE`, else /etc/strongroom/node.toml]
    #[arg(long, value_name = "FILE", help_heading = "Key options")]
    pub(super) node: Option<PathBuf>,
}

/// As on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Who {
    /// The key server of the node's configuration
    Keyserver,
    /// The keyring of this host
    Keyring,
}

impl From<Provider> for Who {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::KeyServer => Self::Keyserver,
            Provider::Keyring => Self::Keyring,
        }
    }
}

impl ProviderOptions {
    /// Whoever was named, else `hint` of a token, else whoever is configured. A hint chooses between what this node is
    /// configured for; it names nobody.
    pub(super) fn keys(
        &self,
        context: &Context,
        hint: Option<Provider>,
    ) -> Result<Box<dyn Keys>, Failure> {
        self.keys_within(context, hint, None)
    }

    /// As [`ProviderOptions::keys`], with this much time for each call to a server instead of what is configured.
    pub(super) fn keys_within(
        &self,
        context: &Context,
        hint: Option<Provider>,
        time: Option<Duration>,
    ) -> Result<Box<dyn Keys>, Failure> {
        let hint = hint.map(Who::from);
        match self.provider.or(hint).unwrap_or_else(|| self.configured()) {
            Who::Keyring => Ok(Box::new(OfKeyring::new(&keyring::path(context)))),
            Who::Keyserver => self.server(time),
        }
    }

    /// Who is configured: a key server when this node knows one.
    fn configured(&self) -> Who {
        if self.node.is_some() || Node::path(None).exists() {
            Who::Keyserver
        } else {
            Who::Keyring
        }
    }

    fn server(&self, time: Option<Duration>) -> Result<Box<dyn Keys>, Failure> {
        let server = OfServer::new(&Node::path(self.node.as_deref()))?;
        Ok(match time {
            Some(time) => Box::new(server.within(time)),
            None => Box::new(server),
        })
    }
}
