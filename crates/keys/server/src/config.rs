//! `server.toml`: where the server listens, where its store is, how its root key comes, its limits. Nothing in it is secret.
//!
//! Invariant: strict; a member that is not known is an error, so that a mistyped limit does not go unnoticed.
//! Must not: read a key. Documented in docs/guides/keyserver.md, "Configuration".

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

use crate::config_audit::{Alarms, Audit};
use crate::keys::ServerId;
use crate::service::{Quotas, Rules};

/// The version of the file's form.
const FORMAT: u32 = 1;

/// The configuration, with paths as they stand in the file: relative to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    format: u32,
    server_id: String,
    /// Names and addresses that the server's certificate is for; clients use the first one.
    pub names: Vec<String>,
    /// Where to listen.
    pub address: SocketAddr,
    /// Where the fleet page is shown, to browsers. Nothing can be changed there. None: there is no
    /// page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<SocketAddr>,
    /// `sqlite:FILE`, or `etcd:URL,URL...`.
    pub store: String,
    /// How the root key comes.
    pub root: Root,
    /// The files of TLS.
    pub tls: Tls,
    /// Who may do how much.
    #[serde(default)]
    pub limits: Limits,
    /// What is due when.
    #[serde(default)]
    pub policy: Policy,
    /// How long rows of the audit log stay in the store, and where they go.
    #[serde(default)]
    pub audit: Audit,
    /// From when on the server says that its store is filling up.
    #[serde(default)]
    pub alarms: Alarms,
    /// How to reach etcd, where the store is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
    /// Where the file is.
    #[serde(skip)]
    pub directory: PathBuf,
}

/// How the root key comes: from the keyring's provider, or in shares.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Tells the root key from others.
    pub check: String,
    /// The keyring that holds the root key; its own root key comes from its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
    /// How many shares give the root key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u8>,
    /// SHA-256 of each share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_hashes: Vec<String>,
}

/// How many shares are needed, and the SHA-256 of each share there is.
pub type ShareHashes = (u8, Vec<[u8; 32]>);

/// The files of TLS, in PEM.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its private key, readable by nobody else.
    pub key: PathBuf,
    /// The authority whose clients are believed.
    pub authority: PathBuf,
}

/// Who may do how much.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests a second of one client, in the long run.
    pub client_per_second: u32,
    /// Requests of one client at once, after a rest.
    pub client_burst: u32,
    /// The same, of one address without a certificate.
    pub address_per_second: u32,
    /// The same at once.
    pub address_burst: u32,
    /// Connections in all.
    pub connections: usize,
    /// Connections of one address.
    pub connections_per_address: usize,
    /// Time for a handshake, and for the head of a request, in seconds.
    pub head_seconds: u64,
    /// Time for the body of a request, in seconds.
    pub body_seconds: u64,
    /// Time for a request to be served, in seconds.
    pub request_seconds: u64,
    /// Headers that one node may keep here.
    pub headers_per_node: u32,
    /// Bytes of all headers of one node, in MiB.
    pub header_mib_per_node: u32,
    /// Objects that one node may report.
    pub objects_per_node: u32,
    /// Keys that one node may make.
    pub keys_per_node: u32,
    /// Versions that a key may get in a day, all counted, for nodes to make another one.
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

/// What is due when. The days for the fleet page: 0 for never.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How long clients' certificates are valid.
    pub certificate_days: u32,
    /// How long the server's own certificate is valid.
    pub server_certificate_days: u32,
    /// How long a key can be restored after its destruction was requested, unless the request names
    /// another time.
    pub destroy_after_days: u32,
    /// The least such time, whoever says otherwise.
    pub destroy_least_days: u32,
    /// How many must want a key destroyed: with 2, an administrator other than the one who asked
    /// for it.
    pub destroy_administrators: u32,
    /// Whether who gives a share has to show a certificate of the server's authority.
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

/// How to reach etcd.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Etcd {
    /// Time for one call, all members and repetitions, in seconds; longer than an election.
    pub timeout_seconds: u64,
    /// The authority of its members.
    pub authority: Option<PathBuf>,
    /// The certificate to show them.
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
    /// A new one, with default limits and files of the usual names.
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

    /// Reads the file.
    ///
    /// # Errors
    /// SR-1006 when there is none; SR-8434.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(&code::NOT_FOUND, shown.to_string()),
            _ => Error::io(shown.to_string(), error),
        })?;
        // Who may write it may name another authority.
        if std::fs::metadata(path).is_ok_and(|about| about.mode() & 0o002 != 0) {
            let detail = format!("{shown}: anybody may write it");
            return Err(Error::new(&code::SERVER_CONFIG, detail));
        }
        let invalid = |what: String| Error::new(&code::SERVER_CONFIG, format!("{shown}: {what}"));
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

    /// The server's id.
    ///
    /// # Errors
    /// SR-8434.
    pub fn server_id(&self) -> Result<ServerId, Error> {
        let id = from_hex(&self.server_id).and_then(|id| id.try_into().ok());
        id.ok_or_else(|| Error::new(&code::SERVER_CONFIG, "server_id: 32 hexadecimal digits"))
    }

    /// The address at which clients find the server.
    #[must_use]
    pub fn url(&self) -> String {
        let first = self.names.first().map_or("localhost", String::as_str);
        let port = self.address.port();
        match first.contains(':') {
            true => format!("https://[{first}]:{port}"),
            false => format!("https://{first}:{port}"),
        }
    }

    /// A path of the file, seen from here.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// The file's text.
    ///
    /// # Errors
    /// SR-9001.
    pub fn text(&self) -> Result<String, Error> {
        let text =
            toml::to_string(self).map_err(|error| Error::new(&code::BUG, error.to_string()))?;
        Ok(format!(
            "# The key server's configuration: docs/guides/keyserver.md. Nothing in it is secret.\n{text}"
        ))
    }

    /// What it sets for operations.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            certificate_days: self.policy.certificate_days,
            destroy_after_s: days(
                self.policy
                    .destroy_after_days
                    .max(self.policy.destroy_least_days),
            ),
            destroy_least_s: days(self.policy.destroy_least_days),
            is_destroyed_by_two: self.policy.destroy_administrators > 1,
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
    /// The hashes of the shares, and how many shares are needed. `None`: the root key comes from a provider.
    ///
    /// # Errors
    /// SR-8434.
    pub fn shares(&self) -> Result<Option<ShareHashes>, Error> {
        let Some(threshold) = self.threshold else {
            return Ok(None);
        };
        let hashes = self
            .share_hashes
            .iter()
            .map(|text| hash(text))
            .collect::<Result<_, _>>()?;
        Ok(Some((threshold, hashes)))
    }

    /// What tells the root key from others.
    ///
    /// # Errors
    /// SR-8434.
    pub fn check_value(&self) -> Result<[u8; 32], Error> {
        hash(&self.check)
    }

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

/// The text of a configuration with further names; all else in it stays as somebody wrote it.
///
/// # Errors
/// SR-1006, SR-8434; SR-8412 for a name that is neither a DNS name nor an address.
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
    let named: Named = toml::from_str(&text).map_err(|error| invalid(error.message()))?;
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    text.replace_range(named.names.span(), &format!("[{}]", quoted.join(", ")));
    let read: Config = toml::from_str(&text).map_err(|error| invalid(error.message()))?;
    match read.names == names {
        true => Ok(text),
        false => Err(invalid("names: a name that cannot be written there")),
    }
}

fn days(days: u32) -> u64 {
    u64::from(days).saturating_mul(86_400)
}

fn hash(text: &str) -> Result<[u8; 32], Error> {
    let bytes = from_hex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::new(&code::SERVER_CONFIG, "root: 64 hexadecimal digits"))
}
