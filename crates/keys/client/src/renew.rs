//! A node's certificate before it ends: a new key pair, certified with the certificate that still
//! counts.
//!
//! Invariant N9: at any moment, and whoever is killed there, what [`crate::Node::load`] reads is a
//! pair that the server takes. The server lets the former certificate count until the new one is
//! used; here the files change as one ([`strongroom_keyring::pair`]).
//!
//! Must not: use up the former certificate before the new one is on the disk.

use std::path::{Path, PathBuf};

use strongroom_keyring::pair::{Lock, Pair};
use ureq::http::Method;

use crate::certificate::{Validity, validity_and_name};
use crate::client::{change, malformed, parsed};
use crate::enrol::key_and_request;
use crate::error::{Error, Kind, Result};
use crate::node::{Files, Node};
use crate::tls::{client_config, identity};
use crate::wire::{Issued, Renew};

/// A renewal. No other one of the same files runs as long as it is there.
pub struct Renewal {
    config: PathBuf,
    files: Files,
    pair: Pair,
    lock: Lock,
}

impl Renewal {
    /// Begins one.
    ///
    /// # Errors
    /// [`Kind::Config`], [`Kind::NodeFile`]: the files, somebody else's files, another renewal.
    pub fn begin(config: &Path) -> Result<Self> {
        let files = Files::load(config)?;
        let pair = files.pair();
        let lock = pair.lock().map_err(|error| failed(&files.key, &error))?;
        Ok(Self {
            config: config.to_owned(),
            files,
            pair,
            lock,
        })
    }

    /// Whether one was begun and not finished: there is a new certificate already.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.pair.is_unsettled()
    }

    /// Asks for a new certificate and keeps it with its key. From then on this host shows it; the
    /// former one counts until it does.
    ///
    /// # Errors
    /// All kinds; the former certificate is then as it was.
    pub fn ask(&self) -> Result<Validity> {
        let node = Node::load(&self.config)?;
        let (key, request) = key_and_request(node.name())?;
        let body = serde_json::to_vec(&Renew { csr: &request })
            .map_err(|error| Error::new(Kind::Host, error.to_string()))?;
        // Asked twice, the server forgets the certificate that it made first: nobody has used it.
        let answer = node
            .client()
            .ask(&change(String::from("/v1/renew"), &body, true))?;
        let issued: Issued = parsed(&answer)?;
        let certificate = issued.certificate.as_bytes();
        let (validity, name) = validity_and_name(certificate).map_err(|why| malformed(&why))?;
        if name != node.name() || issued.node != node.name() {
            return Err(malformed("the certificate is for another node"));
        }
        let authority = self.files.authority()?;
        identity(certificate, key.as_slice())
            .and_then(|identity| client_config(&authority, Some(identity)))
            .map_err(|why| malformed(&why))?;
        self.pair
            .put(&self.lock, certificate, key.as_slice())
            .map_err(|error| failed(&self.pair.next(), &error))?;
        Ok(validity)
    }

    /// Brings the new pair to the names that the configuration has. May be repeated.
    ///
    /// # Errors
    /// [`Kind::NodeFile`]; the new pair is in use all the same.
    pub fn place(&self) -> Result<()> {
        let placed = self.pair.place(&self.lock);
        placed.map_err(|error| failed(&self.files.key, &error))
    }

    /// Shows the new certificate to a server, which ends the former one.
    ///
    /// # Errors
    /// All kinds; the new pair stays in use.
    pub fn finish(&self) -> Result<()> {
        let client = Node::load(&self.config)?.client();
        client.call(&Method::GET, "/v1/keys?limit=1", None, true)?;
        let settled = self.pair.settle(&self.lock);
        settled.map_err(|error| failed(&self.pair.next(), &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(Kind::NodeFile, format!("{}: {error}", path.display()))
}
