//! A node's configuration, `node.toml`: docs/spec/node.md.
//!
//! Invariant N1: whoever can write the configuration or the authority's file decides who is believed, so files that
//! others may write are refused, and so is a private key that others may read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::address::Address;
use crate::client::Client;
use crate::error::{Error, Kind, Result};
use crate::tls::{self, Identity};

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

/// The longest times, in seconds.
const REQUEST_TIMEOUT_MAX_S: u64 = 600;
const TOTAL_TIMEOUT_MAX_S: u64 = 86_400;

/// The members of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    servers: Vec<String>,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    request_timeout_seconds: Option<u64>,
    total_timeout_seconds: Option<u64>,
}

/// What a node knows of its key servers.
pub struct Node {
    addresses: Vec<Address>,
    tls: Arc<ClientConfig>,
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
        Ok(Self {
            tls: settings(path, &said.written)?,
            addresses: said.addresses,
            request_timeout: said.request_timeout,
            total_timeout: said.total_timeout,
        })
    }

    /// Whether a configuration's text could be one. No file is looked at.
    ///
    /// # Errors
    /// [`Kind::Config`].
    pub fn check(text: &str) -> Result<()> {
        Said::parse(text)
            .map(drop)
            .map_err(|why| Error::new(Kind::Config, why))
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

/// TLS with the files that the configuration names; relative ones stand beside it.
fn settings(config: &Path, written: &Written) -> Result<Arc<ClientConfig>> {
    let beside = config.parent().unwrap_or_else(|| Path::new("."));
    let file = |path: &Path, access| {
        let path = beside.join(path);
        read(&path, access)
            .map_err(|text| Error::new(Kind::NodeFile, format!("{}: {text}", path.display())))
    };
    let authority = file(&written.authority, Access::NotWritable)?;
    let certificate = file(&written.certificate, Access::NotWritable)?;
    let key = file(&written.key, Access::Private)?;
    let named = |path: &Path| {
        let path = beside.join(path).display().to_string();
        move |text| Error::new(Kind::NodeFile, format!("{path}: {text}"))
    };
    let identity = Identity::from_pem(&certificate, &key).map_err(named(&written.certificate))?;
    // Tells a broken authority from a certificate that is not the key's.
    tls::config(&authority, None).map_err(named(&written.authority))?;
    tls::config(&authority, Some(identity)).map_err(named(&written.certificate))
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
