//! What is done on the server's machine with the root key in hand, and without anybody's
//! certificate: the server's own certificate, and an administrator when the last one's key is lost.
//! Who has the root key and the store has every key anyway.
//!
//! Invariant O1: nothing is done without a row in the audit log, which servers that run on the same
//! store show too.
//!
//! Must not: keep the root key or a share; work on another user's files, which that user's server
//! could not read afterwards.

use std::path::{Path, PathBuf};

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::pair::{Pair, must_be_ours};
use strongroom_keyring::{Error, Keyring, durable};

use crate::authority::Issued;
use crate::config::Config;
use crate::keys::Keys;
use crate::server::ROOT_NAME;
use crate::service::Service;
use crate::shares::Given;
use crate::store;

/// A server's store, opened beside the server.
pub struct Offline {
    config: Config,
    service: Service,
    by: &'static str,
}

impl Offline {
    /// Opens the store of a configuration: with the root key's provider, or with these shares.
    ///
    /// # Errors
    /// SR-8434; SR-8440 for another user's files; SR-8410, SR-8432, SR-8441 for shares, SR-8437 for
    /// the root key; what provider and store report.
    pub fn open(path: &Path, shares: &[SecretBytes]) -> Result<Self, Error> {
        let config = Config::read(path)?;
        ours(&config)?;
        let (root, by) = root_key(&config, shares)?;
        let service = opened(&config, &root)?;
        Ok(Self {
            config,
            service,
            by,
        })
    }

    /// How many shares a configuration's root key needs; 0 when a provider delivers it.
    ///
    /// # Errors
    /// SR-8434.
    pub fn shares_needed(path: &Path) -> Result<u8, Error> {
        Ok(Config::read(path)?.root.threshold.unwrap_or(0))
    }

    /// The first certificate of a server whose configuration is there: another one on the same
    /// store. Its files, and when it ends.
    ///
    /// # Errors
    /// SR-1002 when it has one; SR-8412 for a name that clients could not use; what the store
    /// reports.
    pub fn issue(&self) -> Result<(Vec<PathBuf>, u64), Error> {
        crate::names::check(&self.config.names)?;
        let tls = &self.config.tls;
        let [certificate, key, authority] =
            [&tls.certificate, &tls.key, &tls.authority].map(|path| self.config.path(path));
        for file in [&certificate, &key] {
            if file.symlink_metadata().is_ok() {
                return Err(Error::new(&code::EXISTS, file.display().to_string()));
            }
        }
        let issued = self.signed()?;
        let ours = self.service.authority();
        match std::fs::read(&authority) {
            Ok(there) if there == ours.as_bytes() => {}
            Ok(_) => {
                let detail = format!("{}: of another server", authority.display());
                return Err(Error::new(&code::SERVER_TLS, detail));
            }
            Err(_) => written(&authority, ours.as_bytes(), 0o644)?,
        }
        written(&key, issued.key.as_bytes(), 0o600)?;
        written(&certificate, issued.certificate.as_bytes(), 0o644)?;
        Ok((vec![authority, certificate, key], issued.expires))
    }

    /// Another certificate with another key in place of those that the server has. When it ends.
    ///
    /// # Errors
    /// SR-8440 for the files; what the store reports.
    pub fn renew(&self) -> Result<u64, Error> {
        let issued = self.signed()?;
        kept(&self.config, &issued)?;
        Ok(issued.expires)
    }

    fn signed(&self) -> Result<Issued, Error> {
        let days = self.config.policy.server_certificate_days;
        self.service
            .server_certificate(&self.config.names, days, self.by)
    }

    /// An administrator of this name, or another certificate for the one that has it.
    ///
    /// # Errors
    /// SR-8424 for the name of a client that is no administrator; what the store reports.
    pub fn break_glass(&self, name: &str) -> Result<Issued, Error> {
        self.service.break_glass(name, self.by)
    }
}

/// Replaces a server's certificate and key, as one.
pub(crate) fn kept(config: &Config, issued: &Issued) -> Result<(), Error> {
    let key = config.path(&config.tls.key);
    let pair = pair(config);
    let replaced = pair.lock().and_then(|lock| {
        pair.put(&lock, issued.certificate.as_bytes(), issued.key.as_bytes())?;
        pair.place(&lock)?;
        pair.settle(&lock)
    });
    replaced.map_err(|error| Error::new(&code::SERVER_TLS, format!("{}: {error}", key.display())))
}

/// The certificate and key of a server, as they are replaced.
pub(crate) fn pair(config: &Config) -> Pair {
    let tls = &config.tls;
    Pair::new(&config.path(&tls.certificate), &config.path(&tls.key))
}

/// Opens the service with a root key that is the configuration's.
pub(crate) fn opened(config: &Config, root: &SecretKey) -> Result<Service, Error> {
    let id = config.server_id()?;
    if Keys::check(root, &id)? != config.root.check_value()? {
        return Err(Error::new(&code::SERVER_ROOT, "its check value is another"));
    }
    let store = store::open(config, root, false)?;
    let service = Service::open(store, Keys::of(root, id)?, config.rules())?;
    service.set_syslog(config)?;
    Ok(service)
}

impl Drop for Offline {
    fn drop(&mut self) {
        self.service.settle_syslog();
    }
}

/// What root would write here, the server could not read.
fn ours(config: &Config) -> Result<(), Error> {
    let key = config.path(&config.tls.key);
    let file = match key.exists() {
        true => key,
        false => config.directory.clone(),
    };
    must_be_ours(&file)
        .map_err(|error| Error::new(&code::SERVER_TLS, format!("{}: {error}", file.display())))
}

fn root_key(config: &Config, shares: &[SecretBytes]) -> Result<(SecretKey, &'static str), Error> {
    let refused = |detail: String| Error::new(&code::SERVER_SHARE, detail);
    let Some((threshold, hashes)) = config.root.shares()? else {
        if !shares.is_empty() {
            return Err(refused(
                "the root key of this server comes from a provider".to_owned(),
            ));
        }
        let keyring = config.root.keyring.clone().unwrap_or_default();
        let keyring = Keyring::open(&config.path(&keyring))?;
        return Ok((keyring.key(ROOT_NAME, None)?, "provider"));
    };
    let mut given = Given::none(config.server_id()?, threshold, hashes);
    for share in shares {
        let text = std::str::from_utf8(share.as_slice());
        let text = text.map_err(|_| refused("not text".to_owned()))?;
        if let Some(root) = given.give(text)? {
            return Ok((root, "shares"));
        }
    }
    let detail = format!("{} of the {threshold} that are needed", given.count());
    Err(Error::new(&code::KEYSERVER_SHARES, detail))
}

fn written(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    durable::create_new(path, bytes, mode)
        .map_err(|error| Error::io(path.display().to_string(), error))
}
