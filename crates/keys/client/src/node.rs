//! A node's configuration, `node.toml`: docs/spec/node.md.
//!
//! Invariant N1: who can write the configuration or the authority's file decides which servers are
//! trusted. So files that others may write are refused, and so is a private key that others may
//! read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use strongroom_keyring::pair::Pair;
use strongroom_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::address::Address;
use crate::certificate::{Validity, validity_and_name};
use crate::client::Client;
use crate::error::{Error, Kind, Result};
use crate::tls::{client_config, identity};

/// The default path of a node's configuration.
pub const DEFAULT_PATH: &str = "/etc/strongroom/node.toml";

/// The environment variable with another path.
pub const VARIABLE: &str = "STRONGROOM_NODE";

/// The longest file of a node, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// The most servers.
const SERVERS_MAX: usize = 16;

/// The default of `request_timeout_seconds`.
pub(crate) const REQUEST_TIMEOUT_S: u64 = 5;
/// The default of `total_timeout_seconds`.
pub(crate) const TOTAL_TIMEOUT_S: u64 = 60;

/// How often a certificate and a key that do not belong together are read.
const PAIR_TRIES: u32 = 4;
/// The pause before they are read again.
const PAIR_PAUSE: Duration = Duration::from_millis(20);

/// The longest times, in seconds.
const REQUEST_TIMEOUT_MAX_S: u64 = 600;
const TOTAL_TIMEOUT_MAX_S: u64 = 86_400;

/// The members of the file as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    servers: Vec<String>,
    authority: PathBuf,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    request_timeout_seconds: Option<u64>,
    total_timeout_seconds: Option<u64>,
}

/// A node's configuration with the files that it names.
pub struct Node {
    addresses: Vec<Address>,
    tls: Arc<ClientConfig>,
    validity: Validity,
    name: String,
    request_timeout: Duration,
    total_timeout: Duration,
}

impl Node {
    /// Returns the path of the configuration: `named`, else that of the environment variable
    /// `STRONGROOM_NODE` unless it is empty, else [`DEFAULT_PATH`]. Nothing is read.
    #[must_use]
    pub fn path(named: Option<&Path>) -> PathBuf {
        let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        match named {
            Some(path) => path.to_owned(),
            None => variable().map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from),
        }
    }

    /// Reads the configuration and the files that it names: authority, certificate and private key.
    /// Reads a pair that does not fit again, for less than a tenth of a second: it may just be
    /// renewed.
    ///
    /// # Errors
    /// [`Kind::Config`] if the configuration is missing, writable by others, or not valid;
    /// [`Kind::NodeFile`] if one of the other files is missing, cannot be used, or may be written
    /// (or, with a private key, read) by others.
    pub fn load(path: &Path) -> Result<Self> {
        let config = Config::load(path)?;
        let files = Files::of(path, &config.members).map_err(|why| config_error(path, &why))?;
        let (tls, (validity, name)) = files.settings()?;
        Ok(Self {
            tls,
            validity,
            name,
            addresses: config.addresses,
            request_timeout: config.request_timeout,
            total_timeout: config.total_timeout,
        })
    }

    /// Reads a configuration and returns a client for requests that need no certificate. It uses
    /// the certificate of the configuration if that names a certificate or a key.
    ///
    /// # Errors
    /// [`Kind::Config`] if the configuration is missing or not valid; [`Kind::NodeFile`] if a file
    /// that it names cannot be used.
    pub fn client_with_or_without_certificate(path: &Path) -> Result<Client> {
        let config = Config::load(path)?;
        if config.members.certificate.is_some() || config.members.key.is_some() {
            return Ok(Self::load(path)?.client());
        }
        let beside = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(Client {
            tls: tls_without_certificate(&beside.join(&config.members.authority))?,
            addresses: config.addresses,
            request_timeout: config.request_timeout,
            total_timeout: config.total_timeout,
            absence_timeout: None,
        })
    }

    /// Returns a client without a certificate for these servers, with the default times.
    /// `authority` is the file of the certificates that have to have signed the servers'
    /// certificates.
    ///
    /// # Errors
    /// [`Kind::Address`] for a text that is not an address; [`Kind::NodeFile`] for the authority's
    /// file.
    pub fn client_without_certificate(servers: &[String], authority: &Path) -> Result<Client> {
        Ok(Client {
            tls: tls_without_certificate(authority)?,
            addresses: servers
                .iter()
                .map(|server| Address::parse(server))
                .collect::<Result<_>>()?,
            request_timeout: Duration::from_secs(REQUEST_TIMEOUT_S),
            total_timeout: Duration::from_secs(TOTAL_TIMEOUT_S),
            absence_timeout: None,
        })
    }

    /// When this node's certificate is valid.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The node's name in its certificate. A server uses the name in its own records instead.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks the text of a configuration without reading any file. It has to name a certificate
    /// and a key.
    ///
    /// # Errors
    /// [`Kind::Config`] if it is not valid.
    pub fn check(text: &str) -> Result<()> {
        Config::parse(text)
            .and_then(|config| Files::of(Path::new(""), &config.members))
            .map(drop)
            .map_err(|why| Error::new(Kind::Config, why))
    }

    /// Checks that texts are addresses of servers.
    ///
    /// # Errors
    /// [`Kind::Address`] for the first one that is not.
    pub fn check_servers(servers: &[String]) -> Result<()> {
        servers
            .iter()
            .try_for_each(|server| Address::parse(server).map(drop))
    }

    /// Returns the servers' addresses, in the order in which they are asked.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(Address::text)
    }

    /// Returns the longest time of one call, with all servers and rounds.
    #[must_use]
    pub fn total_timeout(&self) -> Duration {
        self.total_timeout
    }

    /// Returns a client for the configured servers with the node's certificate. While servers are
    /// absent it repeats requests until the total time is over.
    #[must_use]
    pub fn client(&self) -> Client {
        Client {
            addresses: self.addresses.clone(),
            tls: Arc::clone(&self.tls),
            request_timeout: self.request_timeout,
            total_timeout: self.total_timeout,
            absence_timeout: None,
        }
    }
}

/// A configuration's content, checked.
struct Config {
    addresses: Vec<Address>,
    request_timeout: Duration,
    total_timeout: Duration,
    members: Members,
}

impl Config {
    /// Reads and checks a configuration, but no file that it names. [`Kind::Config`] if it is
    /// missing, larger than 1 MiB, writable by others, or not valid.
    fn load(path: &Path) -> Result<Self> {
        let bytes = read_file(path, Access::NotWritable).map_err(|why| config_error(path, &why))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| config_error(path, "is not text"))?;
        Self::parse(text).map_err(|why| config_error(path, &why))
    }

    /// Parses and checks the text of a configuration: 1 to 16 servers, times from 1 second to 10
    /// minutes for a request and to a day in all. The time for a request is lowered to the total
    /// time. Returns a text for an operator if it is not valid.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let members: Members = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let addresses = members
            .servers
            .iter()
            .map(|server| Address::parse(server).map_err(|error| error.detail().to_owned()))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        if !(1..=SERVERS_MAX).contains(&addresses.len()) {
            return Err(String::from("`servers` has 1 to 16 entries"));
        }
        let seconds = |name: &str, written: Option<u64>, default, max| {
            let value = written.unwrap_or(default);
            match (1..=max).contains(&value) {
                true => Ok(value),
                false => Err(format!(
                    "`{name}` is 1 to {max}: a wait without a limit is not offered"
                )),
            }
        };
        let request = seconds(
            "request_timeout_seconds",
            members.request_timeout_seconds,
            REQUEST_TIMEOUT_S,
            REQUEST_TIMEOUT_MAX_S,
        )?;
        let total = seconds(
            "total_timeout_seconds",
            members.total_timeout_seconds,
            TOTAL_TIMEOUT_S,
            TOTAL_TIMEOUT_MAX_S,
        )?;
        Ok(Self {
            addresses,
            request_timeout: Duration::from_secs(request.min(total)),
            total_timeout: Duration::from_secs(total),
            members,
        })
    }
}

/// Makes a [`Kind::Config`] error with the path of this file and the reason.
fn config_error(path: &Path, why: &str) -> Error {
    Error::new(Kind::Config, format!("{}: {why}", path.display()))
}

/// The files that a configuration names. Relative paths start at the configuration's directory.
pub struct Files {
    /// The trusted certificates.
    pub authority: PathBuf,
    /// The node's certificate.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

impl Files {
    /// Resolves the files that a configuration names, relative to the directory of the
    /// configuration. Returns a text for an operator if it names no certificate or no key. Nothing
    /// is read.
    fn of(config: &Path, members: &Members) -> std::result::Result<Self, String> {
        let beside = config.parent().unwrap_or_else(|| Path::new("."));
        let required = |file: Option<&PathBuf>, member: &str| {
            let missing = || format!("it has no `{member}`");
            file.map(|file| beside.join(file)).ok_or_else(missing)
        };
        Ok(Self {
            authority: beside.join(&members.authority),
            certificate: required(members.certificate.as_ref(), "certificate")?,
            key: required(members.key.as_ref(), "key")?,
        })
    }

    /// Reads a configuration and returns the files that it names. Only the configuration itself is
    /// read.
    ///
    /// # Errors
    /// [`Kind::Config`] if it cannot be read, is not valid, or names no certificate or no key.
    pub fn load(config: &Path) -> Result<Self> {
        let members = Config::load(config)?.members;
        Self::of(config, &members).map_err(|why| config_error(config, &why))
    }

    /// Reads the bytes of the authority's file. [`Kind::NodeFile`] if it is missing, larger than 1
    /// MiB, or others may write it.
    pub(crate) fn authority(&self) -> Result<Zeroizing<Vec<u8>>> {
        with_path(
            &self.authority,
            read_file(&self.authority, Access::NotWritable),
        )
    }

    /// Reads the files and returns the TLS settings with them, and the certificate's validity and
    /// name. Tries certificate and key up to four times, with pauses of 20 ms, because a renewal
    /// may replace them meanwhile. [`Kind::NodeFile`] if a file cannot be used.
    fn settings(&self) -> Result<(Arc<ClientConfig>, (Validity, String))> {
        let authority = self.authority()?;
        // So that an unusable authority is not reported as a certificate that does not fit its key.
        with_path(&self.authority, client_config(&authority, None).map(drop))?;
        let mut tries = PAIR_TRIES;
        loop {
            tries = tries.saturating_sub(1);
            match self.read_pair(&authority) {
                Ok(settings) => return Ok(settings),
                // Perhaps one was read before a renewal and the other one after it.
                Err(error) if tries == 0 => return Err(error),
                Err(_) => std::thread::sleep(PAIR_PAUSE),
            }
        }
    }

    /// Reads the certificate and the private key once: the pair of a renewal if there is one
    /// ([`Files::renewed`]), else the two configured files. [`Kind::NodeFile`] if they cannot be
    /// used or do not belong together.
    fn read_pair(&self, authority: &[u8]) -> Result<(Arc<ClientConfig>, (Validity, String))> {
        let (shown, certificate, key) = match self.renewed()? {
            Some((path, both)) => (path, both.clone(), both),
            None => (
                self.certificate.clone(),
                with_path(
                    &self.certificate,
                    read_file(&self.certificate, Access::NotWritable),
                )?,
                with_path(&self.key, read_file(&self.key, Access::Private))?,
            ),
        };
        let identity = with_path(&shown, identity(&certificate, &key))?;
        let about = with_path(&shown, validity_and_name(&certificate))?;
        let tls = with_path(&shown, client_config(authority, Some(identity)))?;
        Ok((tls, about))
    }

    /// Reads `KEY.next`, the file with a renewed certificate and its private key, and returns its
    /// path and bytes. From the moment that it exists it counts instead of the certificate's and
    /// the key's file. `None` where it does not exist, or was moved to the names of these two
    /// meanwhile. [`Kind::NodeFile`] if it cannot be read, or others may read it. Moves nothing.
    fn renewed(&self) -> Result<Option<(PathBuf, Zeroizing<Vec<u8>>)>> {
        let path = self.pair().next();
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let both = match read_file(&path, Access::Private) {
            // It was moved to the other two names meanwhile.
            Err(_) if path.symlink_metadata().is_err() => return Ok(None),
            other => with_path(&path, other)?,
        };
        Ok(Some((path, both)))
    }

    /// Returns the certificate and the private key as a pair of files that are replaced together.
    /// Symbolic links are resolved; nothing is read.
    #[must_use]
    pub fn pair(&self) -> Pair {
        Pair::new(&self.certificate, &self.key)
    }
}

/// Reads the authority's file and returns the TLS settings of a client without a certificate.
/// [`Kind::NodeFile`] if the file cannot be used, or others may write it.
fn tls_without_certificate(authority: &Path) -> Result<Arc<ClientConfig>> {
    let bytes = with_path(authority, read_file(authority, Access::NotWritable))?;
    with_path(authority, client_config(&bytes, None))
}

/// Turns an error's text into a [`Kind::NodeFile`] error with the path before the text.
fn with_path<T>(path: &Path, result: std::result::Result<T, String>) -> Result<T> {
    result.map_err(|text| Error::new(Kind::NodeFile, format!("{}: {text}", path.display())))
}

/// What others may not do with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Write it.
    NotWritable,
    /// Read or write it.
    Private,
}

/// Reads a file of at most 1 MiB into memory that is wiped. Returns a text for an operator if it
/// cannot be read, is larger, is not a regular file, or its mode lets others do what `access`
/// forbids.
fn read_file(path: &Path, access: Access) -> std::result::Result<Zeroizing<Vec<u8>>, String> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| error.to_string();
    let file = fs::File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(String::from("is not a file"));
    }
    let (forbidden, why) = match access {
        Access::NotWritable => (0o022, "others may write it; give it mode 0644"),
        Access::Private => (0o077, "others may read it; give it mode 0600"),
    };
    if about.mode() & forbidden != 0 {
        return Err(String::from(why));
    }
    if about.len() > FILE_MAX {
        return Err(String::from("is larger than 1 MiB"));
    }
    // Room for all of it, because a buffer that grows leaves copies in freed memory.
    let room = usize::try_from(about.len()).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(1)));
    file.take(FILE_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}
