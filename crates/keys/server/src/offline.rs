//! Commands on the server's machine that use the root key instead of a client's certificate:
//! issuing the server's own certificate, and creating an administrator when every administrator's
//! key is lost. Anybody with the root key and the store can read every key in any case.
//!
//! Invariant O1: every command writes a row of the audit log, which all servers on the store show.
//!
//! Must not: keep the root key or a share; replace files of another user, whose server could not
//! read them afterwards.

use std::path::{Path, PathBuf};

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::pair::{Lock, Pair, must_be_ours};
use strongroom_keyring::{Error, Keyring};

use crate::authority::IssuedCertificate;
use crate::config::{Config, unusable};
use crate::init::write_new;
use crate::keys::{Keys, ROOT_KEY_NAME};
use crate::service::Service;
use crate::shares::CollectedShares;
use crate::store;

/// A server's store, opened by a command while the server may be running.
pub struct Offline {
    config: Config,
    service: Service,
    /// How the root key was given: `provider` or `shares`.
    by: &'static str,
}

impl Offline {
    /// Opens the store of a configuration, with the root key from its provider or from these
    /// shares. Rows of the audit log also go to syslog, if it is configured.
    ///
    /// # Errors
    /// SR-1006, SR-8434 for the configuration; SR-8440 for files of another user; SR-8410 for too
    /// few shares, SR-8432 for a wrong one, SR-8441 for one that is given twice; SR-8437 for
    /// another root key; what the provider and the store report.
    pub fn open(path: &Path, shares: &[SecretBytes]) -> Result<Self, Error> {
        let config = Config::read(path)?;
        check_file_owner(&config)?;
        let (root, by) = root_key(&config, shares)?;
        let service = open_service(&config, &root)?;
        Ok(Self {
            config,
            service,
            by,
        })
    }

    /// Reads how many shares the root key of a configuration needs; 0 when it comes from a
    /// provider.
    ///
    /// # Errors
    /// SR-1006 or SR-8434 for the configuration.
    pub fn shares_needed(path: &Path) -> Result<u8, Error> {
        Ok(Config::read(path)?.root.threshold.unwrap_or(0))
    }

    /// Issues the first certificate of a server that has a configuration: a further server on the
    /// same store. Writes certificate, private key and, if it is missing, the authority's
    /// certificate, and a row of the audit log. Returns the files, and when the certificate
    /// expires, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// SR-1002 when it has a certificate or a key; SR-8412 for a name that clients could not use;
    /// SR-8440 when the file of the authority is that of another server; SR-5001 when the system
    /// reports an error; what the store reports. The row is written only when nothing stands in the
    /// way of the files; if one of them then cannot be written, or somebody else makes it meanwhile
    /// (SR-1002), the row stays.
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
        let expected = self.service.authority();
        let is_missing = match std::fs::read(&authority) {
            Ok(present) if present == expected.as_bytes() => false,
            Ok(_) => {
                return Err(unusable(&authority, &"it belongs to another server"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(Error::on_path(&authority, error)),
        };
        let issued = self.issue_certificate()?;
        if is_missing {
            write_new(&authority, expected.as_bytes(), 0o644)?;
        }
        write_new(&key, issued.key.as_bytes(), 0o600)?;
        write_new(&certificate, issued.certificate.as_bytes(), 0o644)?;
        Ok((vec![authority, certificate, key], issued.expires))
    }

    /// Replaces the server's certificate and key by new ones, with a row of the audit log, and
    /// overwrites the former key. Returns when the certificate expires, in seconds since the Unix
    /// epoch.
    ///
    /// # Errors
    /// SR-8440 for the files, without a row when another process has their lock; what the store
    /// reports.
    pub fn renew(&self) -> Result<u64, Error> {
        let files = LockedFiles::of(&self.config)?;
        let issued = self.issue_certificate()?;
        files.replace(&issued)?;
        Ok(issued.expires)
    }

    /// Issues a certificate with a new key for the configured names, and adds a row to the audit
    /// log, which is in the store. Writes no file. SR-8440 for a name that cannot be in a
    /// certificate; what the store reports.
    fn issue_certificate(&self) -> Result<IssuedCertificate, Error> {
        let days = self.config.policy.server_certificate_days;
        self.service
            .server_certificate(&self.config.names, days, self.by)
    }

    /// Creates an administrator, or issues another certificate to the administrator of this name,
    /// whose former certificates end. Writes a row of the audit log and raises an alarm, but writes
    /// no file.
    ///
    /// # Errors
    /// SR-8424 for the name of a client that is no administrator; SR-8429 for an invalid name;
    /// SR-8442 when others keep changing the record; what the store reports.
    pub fn break_glass(&self, name: &str) -> Result<IssuedCertificate, Error> {
        self.service.break_glass(name, self.by)
    }
}

/// Replaces a server's certificate and key atomically, and overwrites the former key. SR-8440 when
/// another process has the lock, the files belong to another user, or cannot be written.
pub(crate) fn replace_certificate(
    config: &Config,
    issued: &IssuedCertificate,
) -> Result<(), Error> {
    LockedFiles::of(config)?.replace(issued)
}

/// The files of a server's certificate and key, which no other process replaces meanwhile.
struct LockedFiles {
    pair: Pair,
    lock: Lock,
    /// The path of the key, for errors.
    key: PathBuf,
}

impl LockedFiles {
    /// Locks the files of a configuration, without waiting. SR-8440 when another process has the
    /// lock, they belong to another user, or there is no key.
    fn of(config: &Config) -> Result<Self, Error> {
        let key = config.path(&config.tls.key);
        let pair = certificate_files(config);
        match pair.lock() {
            Ok(lock) => Ok(Self { pair, lock, key }),
            Err(error) => Err(unusable(&key, &error)),
        }
    }

    /// Replaces certificate and key atomically, and overwrites the former key. SR-8440 when they
    /// cannot be written.
    fn replace(&self, issued: &IssuedCertificate) -> Result<(), Error> {
        let Self { pair, lock, key } = self;
        let written = pair
            .put(lock, issued.certificate.as_bytes(), issued.key.as_bytes())
            .and_then(|()| pair.place(lock))
            .and_then(|()| pair.settle(lock));
        written.map_err(|error| unusable(key, &error))
    }
}

/// Returns the pair of files of a server's certificate and key. Reads nothing.
pub(crate) fn certificate_files(config: &Config) -> Pair {
    let tls = &config.tls;
    Pair::new(&config.path(&tls.certificate), &config.path(&tls.key))
}

/// Opens the service with a root key, after checking that it is the configuration's, and begins to
/// send rows to syslog if that is configured.
///
/// # Errors
/// SR-8437 for another root key; what the store reports.
pub(crate) fn open_service(config: &Config, root: &SecretKey) -> Result<Service, Error> {
    let id = config.server_id()?;
    if Keys::check_value(root, &id)? != config.root.check_value()? {
        return Err(Error::new(&code::SERVER_ROOT, "its check value is another"));
    }
    let store = store::open(config, root, false)?;
    let service = Service::open(store, Keys::derive(root, id)?, config.rules())?;
    service.set_syslog(config)?;
    Ok(service)
}

impl Drop for Offline {
    /// Waits for at most two seconds until syslog has every row.
    fn drop(&mut self) {
        self.service.flush_syslog();
    }
}

/// Checks that the server's files belong to this process's user: the server could not read files
/// that root writes. SR-8440 if not.
fn check_file_owner(config: &Config) -> Result<(), Error> {
    let key = config.path(&config.tls.key);
    let file = match key.exists() {
        true => key,
        false => config.directory.clone(),
    };
    must_be_ours(&file).map_err(|error| unusable(&file, &error))
}

/// Gets the root key of a configuration from its keyring or from these shares, and returns how it
/// was given: `provider` or `shares`. SR-8410 for too few shares; SR-8432 for a wrong one, or for
/// any if there is a provider; SR-8441 for a share that is given twice; what the keyring and its
/// provider report.
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
        return Ok((keyring.key(ROOT_KEY_NAME, None)?, "provider"));
    };
    let mut collected = CollectedShares::new(config.server_id()?, threshold, hashes);
    for share in shares {
        let text = std::str::from_utf8(share.as_slice());
        let text = text.map_err(|_| refused("not text".to_owned()))?;
        if let Some(root) = collected.add(text)? {
            return Ok((root, "shares"));
        }
    }
    let detail = format!("{} of the {threshold} that are needed", collected.count());
    Err(Error::new(&code::KEYSERVER_SHARES, detail))
}
