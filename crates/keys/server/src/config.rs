//! `server.toml`: the addresses of the server, its store, the source of its root key, its limits.
//! Documented in docs/guides/keyserver.md, "Configuration". Nothing in the file is secret.
//!
//! Invariant: an unknown member is an error, so that a mistyped limit does not go unnoticed.
//!
//! Must not: read a key.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

use crate::config_audit::{Alarms, Audit};
use crate::keys::ServerId;
use crate::rules::{Quotas, Rules};

/// The version of the file format.
const FORMAT: u32 = 1;

/// The permissions by which the group or every user may write a file.
pub(crate) const WRITABLE_BY_OTHERS: u32 = 0o022;
/// What is said of a file that decides whom the server trusts and has such permissions.
pub(crate) const OTHERS_MAY_WRITE: &str = "others may write to it; give it mode 0644";

/// Makes the error for a TLS file of the configuration that cannot be used (SR-8440).
pub(crate) fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(&code::SERVER_TLS, format!("{}: {why}", path.display()))
}

/// The configuration. Paths are as they are in the file, relative to its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    format: u32,
    server_id: String,
    /// Names and addresses in the server's certificate. Clients use the first one.
    pub names: Vec<String>,
    /// The address on which the API listens.
    pub address: SocketAddr,
    /// The address on which the fleet page listens, for browsers. No request to it can change
    /// anything. `None`: there is no page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<SocketAddr>,
    /// `sqlite:FILE`, or `etcd:URL,URL...`.
    pub store: String,
    /// The source of the root key.
    pub root: Root,
    /// The TLS files.
    pub tls: Tls,
    /// Limits on requests, connections and stored data.
    #[serde(default)]
    pub limits: Limits,
    /// Validity of certificates, rules for destroying keys, and intervals for the fleet page.
    #[serde(default)]
    pub policy: Policy,
    /// How long rows of the audit log stay in the store, and where they are archived.
    #[serde(default)]
    pub audit: Audit,
    /// The thresholds of the alarms about the store's space.
    #[serde(default)]
    pub alarms: Alarms,
    /// The connection to etcd, if the store is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
    /// The directory of the file.
    #[serde(skip)]
    pub directory: PathBuf,
}

/// The source of the root key: a keyring, or shares.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// The check value, which distinguishes the root key from others.
    pub check: String,
    /// The keyring that holds the root key. The keyring's own root key comes from its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
    /// How many shares are needed for the root key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u8>,
    /// SHA-256 of each share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_hashes: Vec<String>,
}

/// How many shares are needed, and the SHA-256 of every share.
pub type ShareHashes = (u8, Vec<[u8; 32]>);

/// The TLS files, in PEM.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its private key, readable by its owner only.
    pub key: PathBuf,
    /// The authority of clients' certificates.
    pub authority: PathBuf,
}

/// Limits on requests, connections and stored data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests of one client in a second, on average.
    pub client_per_second: u32,
    /// Requests of one client in a burst.
    pub client_burst: u32,
    /// Requests without a certificate of one address in a second, on average.
    pub address_per_second: u32,
    /// Requests without a certificate of one address in a burst.
    pub address_burst: u32,
    /// Open connections in all.
    pub connections: usize,
    /// Open connections of one address.
    pub connections_per_address: usize,
    /// The time for a handshake, and for the head of a request, in seconds.
    pub head_seconds: u64,
    /// The time for the body of a request, in seconds.
    pub body_seconds: u64,
    /// The time for serving a request, in seconds.
    pub request_seconds: u64,
    /// Headers that one node may have in escrow.
    pub headers_per_node: u32,
    /// The size of all headers of one node in escrow, in MiB.
    pub header_mib_per_node: u32,
    /// Objects that one node may report.
    pub objects_per_node: u32,
    /// Keys that one node may create.
    pub keys_per_node: u32,
    /// Versions of one key in a day, counting all nodes; beyond them, no node may rotate the key.
    pub rotations_per_day: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            client_per_second: 100,
            client_burst: 200,
            address_per_second: 10,
            address_burst: 50,
            connections: 1024,
            connections_per_address: 256,
            head_seconds: 10,
            body_seconds: 60,
            request_seconds: 30,
            headers_per_node: 64,
            header_mib_per_node: 256,
            objects_per_node: 4096,
            keys_per_node: 1024,
            rotations_per_day: 24,
        }
    }
}

/// Validity of certificates, rules for destroying keys, and intervals for the fleet page, of which
/// 0 means never.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How long clients' certificates are valid, in days.
    pub certificate_days: u32,
    /// How long the server's own certificate is valid, in days.
    pub server_certificate_days: u32,
    /// How many days after a request a key is destroyed, unless the request names another time.
    pub destroy_after_days: u32,
    /// The least such time, also for administrators.
    pub destroy_least_days: u32,
    /// How many administrators have to agree to a destruction: 1 or 2.
    pub destroy_administrators: u32,
    /// Whether a custodian needs a certificate of the server's authority to give a share.
    pub unseal_certificate: bool,
    /// After how many days a key's rotation is overdue.
    pub rotation_days: u32,
    /// After how many days an object's backup is overdue.
    pub backup_days: u32,
    /// After how many days an object's verification is overdue.
    pub verification_days: u32,
    /// After how many days an object's report is overdue.
    pub report_days: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            certificate_days: 1825,
            server_certificate_days: 90,
            destroy_after_days: 7,
            destroy_least_days: 7,
            destroy_administrators: 1,
            unseal_certificate: false,
            rotation_days: 365,
            backup_days: 1,
            verification_days: 30,
            report_days: 2,
        }
    }
}

/// The connection to etcd.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Etcd {
    /// The time for one call, with all members and repetitions, in seconds. It has to be longer
    /// than an election.
    pub timeout_seconds: u64,
    /// The authority of the members' certificates.
    pub authority: Option<PathBuf>,
    /// The client certificate of the server.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            timeout_seconds: 20,
            authority: None,
            certificate: None,
            key: None,
        }
    }
}

impl Config {
    /// Makes a new configuration, with default limits and the usual file names. Writes nothing.
    #[must_use]
    pub fn new(
        id: &ServerId,
        names: Vec<String>,
        address: SocketAddr,
        store: String,
        root: Root,
    ) -> Self {
        Self {
            format: FORMAT,
            server_id: hex(id),
            names,
            address,
            page: None,
            store,
            root,
            tls: Tls {
                certificate: "server.pem".into(),
                key: "server.key".into(),
                authority: "authority.pem".into(),
            },
            limits: Limits::default(),
            policy: Policy::default(),
            audit: Audit::default(),
            alarms: Alarms::default(),
            etcd: None,
            directory: PathBuf::new(),
        }
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// SR-1006 when there is none; SR-5001 when it cannot be read; SR-8434 when it is not valid,
    /// has an unknown member, or its group or every user may write to it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let mut file = File::open(path).map_err(|error| Error::opening(path, error))?;
        let about = file.metadata().map_err(|e| Error::on_path(path, e))?;
        let invalid = |what: String| Error::new(&code::SERVER_CONFIG, format!("{shown}: {what}"));
        // Anybody who may write the file could name another authority.
        if about.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(invalid(OTHERS_MAY_WRITE.to_owned()));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|error| Error::on_path(path, error))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|error| invalid(error.message().to_owned()))?;
        if config.format != FORMAT {
            return Err(invalid(format!("format {}", config.format)));
        }
        let absolute =
            std::path::absolute(path).map_err(|error| Error::io(shown.to_string(), error))?;
        config.directory = absolute.parent().map(Path::to_path_buf).unwrap_or_default();
        config
            .check()
            .map_err(|error| invalid(error.detail().to_owned()))?;
        Ok(config)
    }

    /// Checks the values of the configuration. SR-8434 for the first that is not valid.
    fn check(&self) -> Result<(), Error> {
        let refused = |what: &str| Err(Error::new(&code::SERVER_CONFIG, what));
        self.server_id()?;
        self.root.check()?;
        let limits = &self.limits;
        let rates = [
            limits.client_per_second,
            limits.client_burst,
            limits.address_per_second,
            limits.address_burst,
        ];
        let quotas = [
            limits.headers_per_node,
            limits.header_mib_per_node,
            limits.objects_per_node,
            limits.keys_per_node,
            limits.rotations_per_day,
        ];
        let times = [
            limits.head_seconds,
            limits.body_seconds,
            limits.request_seconds,
        ];
        if rates.contains(&0)
            || quotas.contains(&0)
            || times.contains(&0)
            || limits.connections == 0
            || limits.connections_per_address == 0
        {
            return refused("limits: none may be 0");
        }
        if times.iter().any(|time| *time > 3600) {
            return refused("limits: no time above an hour");
        }
        if !(1..=7300).contains(&self.policy.certificate_days)
            || self
                .policy
                .destroy_after_days
                .max(self.policy.destroy_least_days)
                > 366
            || !(1..=2).contains(&self.policy.destroy_administrators)
        {
            return refused(
                "policy: certificate_days 1 to 7300, destroy_after_days and destroy_least_days at most 366, destroy_administrators 1 or 2",
            );
        }
        if !(1..=7300).contains(&self.policy.server_certificate_days) {
            return refused("policy: server_certificate_days 1 to 7300");
        }
        if self.names.is_empty() {
            return refused("names: at least one");
        }
        self.alarms.check()
    }

    /// Returns the server's id.
    ///
    /// # Errors
    /// SR-8434 if it is not 32 hexadecimal digits.
    pub fn server_id(&self) -> Result<ServerId, Error> {
        let id = from_hex(&self.server_id).and_then(|id| id.try_into().ok());
        id.ok_or_else(|| Error::new(&code::SERVER_CONFIG, "server_id: 32 hexadecimal digits"))
    }

    /// Returns the URL under which clients reach the server: `https`, its first name (`localhost`
    /// if it has none), and the port on which it listens.
    #[must_use]
    pub fn url(&self) -> String {
        let first = self.names.first().map_or("localhost", String::as_str);
        let port = self.address.port();
        match first.contains(':') {
            true => format!("https://[{first}]:{port}"),
            false => format!("https://{first}:{port}"),
        }
    }

    /// Resolves a path of the configuration relative to its directory.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// Returns the text of the configuration file, as TOML with a comment at its beginning. Writes
    /// no file.
    ///
    /// # Errors
    /// SR-9001 if a value cannot be written as TOML.
    pub fn text(&self) -> Result<String, Error> {
        let text =
            toml::to_string(self).map_err(|error| Error::new(&code::BUG, error.to_string()))?;
        Ok(format!(
            "# The key server's configuration: docs/guides/keyserver.md. Nothing in it is secret.\n{text}"
        ))
    }

    /// Returns the settings that decide about operations, with the waits before a destruction in
    /// seconds and sizes in bytes; certificates' validity stays in days.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            certificate_days: self.policy.certificate_days,
            destroy_after_s: days_in_s(
                self.policy
                    .destroy_after_days
                    .max(self.policy.destroy_least_days),
            ),
            destroy_least_s: days_in_s(self.policy.destroy_least_days),
            needs_two_administrators: self.policy.destroy_administrators > 1,
            quotas: Quotas {
                headers: self.limits.headers_per_node.into(),
                header_bytes: u64::from(self.limits.header_mib_per_node) << 20,
                objects: self.limits.objects_per_node.into(),
                keys: self.limits.keys_per_node.into(),
                rotations_per_day: self.limits.rotations_per_day,
            },
        }
    }
}

impl Root {
    /// Returns how many shares are needed, and their hashes. `None`: the root key comes from a
    /// provider.
    ///
    /// # Errors
    /// SR-8434 for a malformed hash.
    pub fn shares(&self) -> Result<Option<ShareHashes>, Error> {
        let Some(threshold) = self.threshold else {
            return Ok(None);
        };
        let hashes = self
            .share_hashes
            .iter()
            .map(|text| parse_hash(text))
            .collect::<Result<_, _>>()?;
        Ok(Some((threshold, hashes)))
    }

    /// Returns the check value of the root key.
    ///
    /// # Errors
    /// SR-8434 if it is not 64 hexadecimal digits.
    pub fn check_value(&self) -> Result<[u8; 32], Error> {
        parse_hash(&self.check)
    }

    /// Checks that there is either a keyring, or at least two shares with a threshold from 2 to
    /// their number. SR-8434 if not.
    fn check(&self) -> Result<(), Error> {
        self.check_value()?;
        let fits = match self.shares()? {
            Some((threshold, hashes)) => {
                self.keyring.is_none() && (2..=hashes.len()).contains(&threshold.into())
            }
            None => self.keyring.is_some() && self.share_hashes.is_empty(),
        };
        match fits {
            true => Ok(()),
            false => Err(Error::new(
                &code::SERVER_CONFIG,
                "root: either keyring, or threshold and share_hashes",
            )),
        }
    }
}

/// Returns the text of a configuration file with further names; names that it has already are left
/// out. Everything else in it stays unchanged. The file itself is not written.
///
/// # Errors
/// SR-1006, SR-5001 or SR-8434 for the file; SR-8412 for a name that is neither a DNS name nor an
/// address.
pub fn with_names(path: &Path, more: &[String]) -> Result<String, Error> {
    crate::names::check(more)?;
    #[derive(Deserialize)]
    struct Named {
        names: toml::Spanned<Vec<String>>,
    }
    let mut names = Config::read(path)?.names;
    names.extend(
        more.iter()
            .filter(|name| !names.contains(name))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let invalid =
        |what: &str| Error::new(&code::SERVER_CONFIG, format!("{}: {what}", path.display()));
    let mut text = std::fs::read_to_string(path)
        .map_err(|error| Error::io(path.display().to_string(), error))?;
    let parsed: Named = toml::from_str(&text).map_err(|error| invalid(error.message()))?;
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    text.replace_range(parsed.names.span(), &format!("[{}]", quoted.join(", ")));
    let read: Config = toml::from_str(&text).map_err(|error| invalid(error.message()))?;
    match read.names == names {
        true => Ok(text),
        false => Err(invalid("names: a name that cannot be written there")),
    }
}

/// Converts days into seconds.
fn days_in_s(days: u32) -> u64 {
    u64::from(days).saturating_mul(86_400)
}

/// Parses 32 bytes in hexadecimal digits. SR-8434 for any other text.
fn parse_hash(text: &str) -> Result<[u8; 32], Error> {
    let bytes = from_hex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::new(&code::SERVER_CONFIG, "root: 64 hexadecimal digits"))
}
