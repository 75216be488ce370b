//! Where this host has its keys: at the key server of the node's configuration, or in a keyring.
//!
//! Invariant V3: a volume's token chooses between the two, and never names the server.
//!
//! Must not: keep material.

use std::path::PathBuf;

use strongroom_keyring::Error;
use strongroom_keys_client::Node;
use strongroom_luks2::Provider;

use crate::keys::{KeyringKeys, Keys};
use crate::server::ServerKeys;

/// The sources of keys of this host, and which of them was named.
#[derive(Clone, Debug)]
pub struct HostKeys {
    /// The source that was named; `None`: that of the token, otherwise the configured one.
    pub provider: Option<Provider>,
    /// The node's configuration, unless it is at its usual place.
    pub node: Option<PathBuf>,
    /// The keyring.
    pub keyring: PathBuf,
}

impl HostKeys {
    /// Returns the source of keys (a keyring or the key server): the one that was named, otherwise
    /// `hint`, which is that of a volume's token, otherwise the key server when a node's
    /// configuration was named or exists, otherwise the keyring. No request is made, and the
    /// keyring is opened when a key is asked for.
    ///
    /// # Errors
    /// SR-8400 or SR-8401 when the node's configuration cannot be used.
    pub fn open(&self, hint: Option<Provider>) -> Result<Box<dyn Keys>, Error> {
        match self.provider.or(hint).unwrap_or_else(|| self.configured()) {
            Provider::Keyring => Ok(Box::new(KeyringKeys::new(&self.keyring))),
            Provider::KeyServer => {
                let node = Node::path(self.node.as_deref());
                Ok(Box::new(ServerKeys::new(&node)?))
            }
        }
    }

    /// Returns the key server when a node's configuration was named or exists, otherwise the
    /// keyring.
    fn configured(&self) -> Provider {
        if self.node.is_some() || Node::path(None).exists() {
            Provider::KeyServer
        } else {
            Provider::Keyring
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_source_goes_before_the_tokens_and_that_before_the_configured_one() {
        let room = tempfile::tempdir().unwrap();
        let keys = |provider| HostKeys {
            provider,
            node: Some(room.path().join("node.toml")),
            keyring: room.path().join("keyring"),
        };
        let (keyring, server) = (Some(Provider::Keyring), Some(Provider::KeyServer));
        // The node's configuration is missing, so that the key server is an error.
        for (named, hint, expected) in [
            (None, None, None),
            (None, keyring, keyring),
            (None, server, None),
            (keyring, server, keyring),
            (server, keyring, None),
        ] {
            let opened = keys(named).open(hint).ok();
            assert_eq!(opened.map(|keys| keys.provider()), expected);
        }
    }
}
