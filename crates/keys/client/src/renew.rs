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
    /// Begins a renewal: reads the configuration, takes the lock on the files, and removes
    /// unfinished files that a killed renewal left.
    ///
    /// # Errors
    /// [`Kind::Config`]; [`Kind::NodeFile`] for files that cannot be used or belong to another
    /// user, or while another renewal has the lock.
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

    /// Whether an earlier renewal was not finished: there is a new certificate that was not yet
    /// confirmed by [`Renewal::finish`].
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.pair.is_unsettled()
    }

    /// Makes a new key pair, requests a certificate for it with the present one, and stores both in
    /// one file, durably. From then on this host uses it; the former certificate is valid until the
    /// first use. Returns the validity of the new certificate.
    ///
    /// # Errors
    /// All kinds of a request; [`Kind::Malformed`] for a certificate of another node or key;
    /// [`Kind::Config`] and [`Kind::NodeFile`] for the files. The former certificate and key are
    /// then as they were.
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

    /// Copies the new pair to the two file names of the configuration and overwrites the former
    /// private key. Does nothing when there is no new pair. May be repeated.
    ///
    /// # Errors
    /// [`Kind::NodeFile`] if a file cannot be written; the new pair is in use nevertheless.
    pub fn place(&self) -> Result<()> {
        let placed = self.pair.place(&self.lock);
        placed.map_err(|error| failed(&self.files.key, &error))
    }

    /// Uses the new certificate at a server once, which invalidates the former one, and then
    /// removes the file of the renewal. [`Renewal::place`] comes before it.
    ///
    /// # Errors
    /// All kinds of a request, and [`Kind::NodeFile`] if the file cannot be removed; the new pair
    /// stays in use.
    pub fn finish(&self) -> Result<()> {
        let client = Node::load(&self.config)?.client();
        client.call(&Method::GET, "/v1/keys?limit=1", None, true)?;
        let settled = self.pair.settle(&self.lock);
        settled.map_err(|error| failed(&self.pair.next(), &error))
    }
}

/// Makes a [`Kind::NodeFile`] error of the system's error on a file.
fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(Kind::NodeFile, format!("{}: {error}", path.display()))
}
