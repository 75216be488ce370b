//! Key material from the key server that this node is configured for.
//!
//! Must not: take a server's address from anywhere but the node's configuration (V3).

use std::path::Path;

use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;
use strongroom_keys_client::{Client, Error as ClientError, Kind, Node, Version};

use crate::keys::{Destruction, Fate, Keys, Material, Report};
use strongroom_luks2::Provider;

/// Keys of a key server.
pub struct ServerKeys {
    client: Client,
    servers: Vec<String>,
}

impl ServerKeys {
    /// Reads the node's configuration at `path`, and returns the keys of its servers. Connects to
    /// none yet.
    ///
    /// # Errors
    /// SR-8400 when the configuration is missing or not valid; SR-8401 when a file that it names
    /// cannot be used.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let node = Node::load(path).map_err(|error| from_client(&error))?;
        Ok(Self {
            client: node.client(),
            servers: node.servers().map(str::to_owned).collect(),
        })
    }

    /// Limits each call to this time in all.
    #[must_use]
    pub fn within(self, total: std::time::Duration) -> Self {
        Self {
            client: self.client.within(total),
            servers: self.servers,
        }
    }
}

impl Keys for ServerKeys {
    /// Returns [`Provider::KeyServer`].
    fn provider(&self) -> Provider {
        Provider::KeyServer
    }

    /// Returns the addresses of the node's configuration.
    fn servers(&self) -> Vec<String> {
        self.servers.clone()
    }

    /// Fetches this version of the key, or the newest, from the key server. Fails as the server or
    /// the connection does; SR-2003 for a version of more than 32 bits.
    fn fetch(&mut self, name: &str, version: Option<u32>) -> Result<Material, Error> {
        let wanted = version.map_or(Version::Latest, |version| Version::Number(version.into()));
        let fetched = self
            .client
            .material(name, wanted)
            .map_err(|error| from_client(&error))?;
        let version = u32::try_from(fetched.version)
            .map_err(|_| Error::new(&code::UNKNOWN_KEY_ID, "a version beyond all bounds"))?;
        Ok(Material {
            version,
            key: fetched.material,
        })
    }

    /// Makes the key at the key server, unless it exists, and fetches its newest version. A node
    /// that may not make keys fetches one that it was granted. Fails as the server or the
    /// connection does.
    fn fetch_or_create(&mut self, name: &str) -> Result<Material, Error> {
        match self.client.create(name) {
            Ok(_) => self.fetch(name, None),
            // The key exists, or whether it exists is not known: fetching it tells.
            Err(error) if matches!(error.kind(), Kind::Exists | Kind::Uncertain) => {
                self.fetch(name, None)
            }
            // A node that may not make keys can use one that it was granted.
            Err(error) if error.kind() == Kind::Denied => {
                self.fetch(name, None).map_err(|_| from_client(&error))
            }
            Err(error) => Err(from_client(&error)),
        }
    }

    /// Makes a new version of the key at the key server, and fetches it. Fails as the server or the
    /// connection does.
    fn rotate(&mut self, name: &str) -> Result<Material, Error> {
        self.client
            .rotate(name)
            .map_err(|error| from_client(&error))?;
        self.fetch(name, None)
    }

    /// Asks the key server for the key's destruction, which may take effect later or need a second
    /// administrator: the result says which. Fails as the server or the connection does.
    fn destroy(&mut self, name: &str) -> Result<Destruction, Error> {
        let ending = self
            .client
            .destroy(name, None)
            .map_err(|error| from_client(&error))?;
        let backups = "backups of the server's store keep it, wrapped";
        Ok(match ending.state.as_str() {
            "destroyed" => Destruction {
                fate: Fate::Destroyed,
                left: format!("the key {name} is erased at the key server; {backups}"),
            },
            "destroy-pending" => Destruction {
                fate: Fate::Pending(ending.destroy_at),
                left: format!(
                    "the key {name} is still at the key server, which erases it when its delay is over; until then an administrator can restore it; {backups}"
                ),
            },
            state => Destruction {
                fate: Fate::Kept,
                left: format!(
                    "the key {name} is still at the key server, and {state}: its destruction was asked for, and somebody else has to ask for it too"
                ),
            },
        })
    }

    /// Returns the objects other than `object_id` that need the key, in words, as the key server
    /// knows them. Fails as the server or the connection does.
    fn others_that_need(&mut self, name: &str, object_id: &[u8; 16]) -> Result<Vec<String>, Error> {
        let needs = self.client.needs(name);
        let needs = needs.map_err(|error| from_client(&error))?;
        let own = hex(object_id);
        let others = needs.named.iter().filter(|object| object.object_id != own);
        Ok(others.map(ToString::to_string).collect())
    }

    /// Always true: a key server stores header backups.
    fn keeps_headers(&self) -> bool {
        true
    }

    /// Stores a sealed header backup at the key server, or removes it when `sealed` is `None`; that
    /// there is none to remove is no error.
    fn escrow(&mut self, object_id: &[u8; 16], sealed: Option<&[u8]>) -> Result<(), Error> {
        match sealed {
            Some(sealed) => self.client.put_escrow(object_id, sealed),
            None => match self.client.delete_escrow(object_id) {
                Err(error) if error.kind() == Kind::NotFound => Ok(()),
                other => other,
            },
        }
        .map_err(|error| from_client(&error))
    }

    /// Fetches the sealed header backup from the key server. Fails as the server or the connection
    /// does, also when it has none.
    fn escrowed(&mut self, object_id: &[u8; 16]) -> Result<Vec<u8>, Error> {
        self.client
            .escrow(object_id)
            .map_err(|error| from_client(&error))
    }

    /// Reports a volume to the key server, for its fleet page. Fails as the server or the
    /// connection does.
    fn report(&mut self, object_id: &[u8; 16], report: &Report<'_>) -> Result<(), Error> {
        let report = strongroom_keys_client::Report {
            kind: "volume".to_owned(),
            name: report.name.to_owned(),
            cipher: report.cipher.to_owned(),
            key_id: report.key_id.to_owned(),
            key_version: report.key_version.into(),
            created: report.created,
            rotated: report.rotated,
            shredded: report.shredded,
            ..strongroom_keys_client::Report::default()
        };
        self.client
            .report(object_id, &report)
            .map_err(|error| from_client(&error))
    }
}

/// Returns the client's error with its code and detail.
fn from_client(error: &ClientError) -> Error {
    Error::new(error.code(), error.detail())
}
