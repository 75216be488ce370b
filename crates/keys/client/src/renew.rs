//! Renewing a node's certificate before it expires: a new key pair, whose certificate is requested
//! with the one that is still valid.
//!
//! Invariant N9: at any moment, even after a kill, [`crate::Node::load`] reads a pair that the
//! server accepts. The server accepts the former certificate until the new one is used; here the
//! two files are replaced together ([`strongroom_keyring::pair`]).
//!
//! Must not: use the new certificate before it is on the disk.

use std::path::{Path, PathBuf};

use strongroom_keyring::pair::{Lock, Pair};
use ureq::http::Method;

use crate::certificate::{Validity, validity_and_name};
use crate::client::{malformed, parse_json, post};
use crate::enrol::key_and_request;
use crate::error::{Error, Kind, Result};
use crate::node::{Files, Node};
use crate::tls::{client_config, identity};
use crate::wire::{Issued, Renew};

/// A renewal. While it exists, no other renewal of the same files can begin.
pub struct Renewal {
    config: PathBuf,
    files: Files,
    pair: Pair,
    lock: Lock,
}

impl Renewal {
    /// Begins a renewal.
    ///
    /// # Errors
    /// [`Kind::Config`]; [`Kind::NodeFile`] for files that cannot be used, or during another
    /// renewal.
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

    /// Whether an earlier renewal was not finished: there is a new certificate already.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.pair.is_unsettled()
    }

    /// Requests a new certificate and stores it with its key. From then on this host uses it; the
    /// former one is valid until the first use.
    ///
    /// # Errors
    /// All kinds; the former certificate is then as it was.
    pub fn ask(&self) -> Result<Validity> {
        let node = Node::load(&self.config)?;
        let (key, request) = key_and_request(node.name())?;
        let body = serde_json::to_vec(&Renew { csr: &request })
            .map_err(|error| Error::new(Kind::Host, error.to_string()))?;
        // Repeatable: at a second request the server drops the certificate that it made at the
        // first.
        let response = node
            .client()
            .ask(&post(String::from("/v1/renew"), &body, true))?;
        let issued: Issued = parse_json(&response)?;
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

    /// Moves the new pair to the file names of the configuration. May be repeated.
    ///
    /// # Errors
    /// [`Kind::NodeFile`]; the new pair is in use nevertheless.
    pub fn place(&self) -> Result<()> {
        let placed = self.pair.place(&self.lock);
        placed.map_err(|error| failed(&self.files.key, &error))
    }

    /// Uses the new certificate at a server once, which invalidates the former one.
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

/// The error of a file.
fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(Kind::NodeFile, format!("{}: {error}", path.display()))
}
