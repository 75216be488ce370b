//! A node's configuration, `node.toml`: docs/spec/node.md.
//!
//! Invariant N1: whoever can write the configuration or the authority's file decides who is
//! believed, so files that others may write are refused, and so is a private key that others may
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

/// Where a node's configuration is, unless it is said otherwise.
pub const DEFAULT_PATH: &str = "/etc/strongroom/node.toml";

/// The environment variable that says otherwise.
pub const VARIABLE: &str = "STRONGROOM_NODE";

/// Longest file of a node, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// Most servers.
const SERVERS_MAX: usize = 16;

/// The times, in seconds, when the file does not say.
pub(crate) const REQUEST_TIMEOUT_S: u64 = 5;
pub(crate) const TOTAL_TIMEOUT_S: u64 = 60;

/// How often, and how soon again, a pair that does not fit together is read.
const PAIR_TRIES: u32 = 4;
const PAIR_PAUSE: Duration = Duration::from_millis(20);

/// The longest times, in seconds.
const REQUEST_TIMEOUT_MAX_S: u64 = 600;
const TOTAL_TIMEOUT_MAX_S: u64 = 86_400;

/// The members of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    servers: Vec<String>,
    authority: PathBuf,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    request_timeout_seconds: Option<u64>,
    total_timeout_seconds: Option<u64>,
}

/// What a node knows of its key servers.
pub struct Node {
    addresses: Vec<Address>,
    tls: Arc<ClientConfig>,
    validity: Validity,
    name: String,
    request_timeout: Duration,
    total_timeout: Duration,
}

impl Node {
    /// The configuration's path: what was named, else the variable's, else [`DEFAULT_PATH`].
    #[must_use]
    pub fn path(named: Option<&Path>) -> PathBuf {
        let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        match named {
            Some(path) => path.to_owned(),
            None => variable().map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from),
        }
    }

    /// Reads the configuration and the files that it names.
    ///
    /// # Errors
    /// [`Kind::Config`], [`Kind::NodeFile`].
    pub fn load(path: &Path) -> Result<Self> {
        let about = |text: String| Error::new(Kind::Config, format!("{}: {text}", path.display()));
        let bytes = read(path, Access::NotWritable).map_err(about)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| about(String::from("is not text")))?;
        let said = Said::parse(text).map_err(about)?;
        let files = Files::of(path, &said.written).map_err(about)?;
        let (tls, (validity, name)) = files.settings()?;
        Ok(Self {
            tls,
            validity,
            name,
            addresses: said.addresses,
            request_timeout: said.request_timeout,
            total_timeout: said.total_timeout,
        })
    }

    /// A client for what needs no certificate: with the one that the configuration names, or with
    /// none where it names none.
    ///
    /// # Errors
    /// [`Kind::Config`], [`Kind::NodeFile`].
    pub fn client_without_need(path: &Path) -> Result<Client> {
        let about = |text: String| Error::new(Kind::Config, format!("{}: {text}", path.display()));
        let bytes = read(path, Access::NotWritable).map_err(about)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| about(String::from("is not text")))?;
        let said = Said::parse(text).map_err(about)?;
        if said.written.certificate.is_some() || said.written.key.is_some() {
            return Ok(Self::load(path)?.client());
        }
        let beside = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(Client {
            tls: tls_without_certificate(&beside.join(&said.written.authority))?,
            addresses: said.addresses,
            request_timeout: said.request_timeout,
            total_timeout: said.total_timeout,
            nobody_timeout: None,
        })
    }

    /// A client without a certificate of these servers, which have to show one of this authority.
    ///
    /// # Errors
    /// [`Kind::Address`], [`Kind::NodeFile`].
    pub fn client_without_certificate(servers: &[String], authority: &Path) -> Result<Client> {
        Ok(Client {
            tls: tls_without_certificate(authority)?,
            addresses: servers
                .iter()
                .map(|server| Address::parse(server))
                .collect::<Result<_>>()?,
            request_timeout: Duration::from_secs(REQUEST_TIMEOUT_S),
            total_timeout: Duration::from_secs(TOTAL_TIMEOUT_S),
            nobody_timeout: None,
        })
    }

    /// When this node's certificate counts.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whom its certificate is for. A server goes by what it has written down, not by this.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a configuration's text could be one. No file is looked at.
    ///
    /// # Errors
    /// [`Kind::Config`].
    pub fn check(text: &str) -> Result<()> {
        Said::parse(text)
            .and_then(|said| Files::of(Path::new(""), &said.written))
            .map(drop)
            .map_err(|why| Error::new(Kind::Config, why))
    }

    /// Whether texts that were given one by one are addresses of servers.
    ///
    /// # Errors
    /// [`Kind::Address`] for the first one that is not.
    pub fn check_servers(servers: &[String]) -> Result<()> {
        servers
            .iter()
            .try_for_each(|server| Address::parse(server).map(drop))
    }

    /// The servers' addresses, in the order in which they are asked.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(Address::text)
    }

    /// Time for all servers and rounds of one call.
    #[must_use]
    pub fn total_timeout(&self) -> Duration {
        self.total_timeout
    }

    /// A client of its servers.
    #[must_use]
    pub fn client(&self) -> Client {
        Client {
            addresses: self.addresses.clone(),
            tls: Arc::clone(&self.tls),
            request_timeout: self.request_timeout,
            total_timeout: self.total_timeout,
            nobody_timeout: None,
        }
    }
}

/// What the configuration says, checked.
struct Said {
    addresses: Vec<Address>,
    request_timeout: Duration,
    total_timeout: Duration,
    written: Written,
}

impl Said {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let addresses = written
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
            written.request_timeout_seconds,
            REQUEST_TIMEOUT_S,
            REQUEST_TIMEOUT_MAX_S,
        )?;
        let total = seconds(
            "total_timeout_seconds",
            written.total_timeout_seconds,
            TOTAL_TIMEOUT_S,
            TOTAL_TIMEOUT_MAX_S,
        )?;
        Ok(Self {
            addresses,
            request_timeout: Duration::from_secs(request.min(total)),
            total_timeout: Duration::from_secs(total),
            written,
        })
    }
}

/// The files that a configuration names; relative ones stand beside it.
pub struct Files {
    /// Whom it believes.
    pub authority: PathBuf,
    /// Its certificate.
    pub certificate: PathBuf,
    /// The private key to it.
    pub key: PathBuf,
}

impl Files {
    fn of(config: &Path, written: &Written) -> std::result::Result<Self, String> {
        let beside = config.parent().unwrap_or_else(|| Path::new("."));
        let named = |file: Option<&PathBuf>, member: &str| {
            let missing = || format!("it has no `{member}`");
            file.map(|file| beside.join(file)).ok_or_else(missing)
        };
        Ok(Self {
            authority: beside.join(&written.authority),
            certificate: named(written.certificate.as_ref(), "certificate")?,
            key: named(written.key.as_ref(), "key")?,
        })
    }

    /// Those of a configuration. Only the configuration is read.
    ///
    /// # Errors
    /// [`Kind::Config`].
    pub fn load(config: &Path) -> Result<Self> {
        let about =
            |text: String| Error::new(Kind::Config, format!("{}: {text}", config.display()));
        let bytes = read(config, Access::NotWritable).map_err(about)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| about(String::from("is not text")))?;
        Self::of(config, &Said::parse(text).map_err(about)?.written).map_err(about)
    }

    pub(crate) fn authority(&self) -> Result<Zeroizing<Vec<u8>>> {
        named(&self.authority, read(&self.authority, Access::NotWritable))
    }

    /// TLS with them, and when the certificate counts.
    fn settings(&self) -> Result<(Arc<ClientConfig>, (Validity, String))> {
        let authority = self.authority()?;
        // Tells a broken authority from a certificate that is not the key's.
        named(&self.authority, client_config(&authority, None).map(drop))?;
        let mut tries = PAIR_TRIES;
        loop {
            tries = tries.saturating_sub(1);
            match self.read_pair(&authority) {
                Ok(settings) => return Ok(settings),
                // The one was read before a renewal and the other one after it.
                Err(error) if tries == 0 => return Err(error),
                Err(_) => std::thread::sleep(PAIR_PAUSE),
            }
        }
    }

    fn read_pair(&self, authority: &[u8]) -> Result<(Arc<ClientConfig>, (Validity, String))> {
        let (shown, certificate, key) = match self.renewed()? {
            Some((path, both)) => (path, both.clone(), both),
            None => (
                self.certificate.clone(),
                named(
                    &self.certificate,
                    read(&self.certificate, Access::NotWritable),
                )?,
                named(&self.key, read(&self.key, Access::Private))?,
            ),
        };
        let identity = named(&shown, identity(&certificate, &key))?;
        let about = named(&shown, validity_and_name(&certificate))?;
        let tls = named(&shown, client_config(authority, Some(identity)))?;
        Ok((tls, about))
    }

    /// A renewed certificate and its key in one file, which takes the place of the other two from
    /// the moment that it is there.
    fn renewed(&self) -> Result<Option<(PathBuf, Zeroizing<Vec<u8>>)>> {
        let path = self.pair().next();
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let both = match read(&path, Access::Private) {
            // Brought to its place meanwhile.
            Err(_) if path.symlink_metadata().is_err() => return Ok(None),
            other => named(&path, other)?,
        };
        Ok(Some((path, both)))
    }

    /// Certificate and private key, as they are replaced.
    #[must_use]
    pub fn pair(&self) -> Pair {
        Pair::new(&self.certificate, &self.key)
    }
}

fn tls_without_certificate(authority: &Path) -> Result<Arc<ClientConfig>> {
    let bytes = named(authority, read(authority, Access::NotWritable))?;
    named(authority, client_config(&bytes, None))
}

fn named<T>(path: &Path, result: std::result::Result<T, String>) -> Result<T> {
    result.map_err(|text| Error::new(Kind::NodeFile, format!("{}: {text}", path.display())))
}

/// What others may do with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    NotWritable,
    Private,
}

fn read(path: &Path, access: Access) -> std::result::Result<Zeroizing<Vec<u8>>, String> {
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
    // Room for all of it: a buffer that grows leaves copies behind.
    let room = usize::try_from(about.len()).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(1)));
    file.take(FILE_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}
