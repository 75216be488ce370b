//! Connection settings: from a connection string, and from the environment for keywords that the
//! string does not have, as in libpq.
//!
//! Invariants: Q1, the password is never shown; Q2, an unknown keyword is refused, and so is a
//! setting that libpq supports and this crate does not, because ignoring it could mean another
//! server or a weaker connection. docs/internals/postgres-wire.md lists the differences.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::connection_string::{self, Pairs};
use super::error::{AuthenticationError, Error, Result};
use super::passfile::{self, Found, Wanted};
use super::secret::Secret;

/// How TLS protects the connection. On a local socket it is ignored, as in libpq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS where the server offers it; its certificate is not checked.
    Prefer,
    /// TLS; the certificate is checked only if there is a file of root certificates.
    Require,
    /// TLS, with a certificate from a trusted authority.
    VerifyCa,
    /// TLS, with a certificate from a trusted authority that names the host.
    VerifyFull,
}

/// Whether authentication has to be bound to the TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelBindingMode {
    /// Never.
    Disable,
    /// Where the server offers it.
    Prefer,
    /// Always: a server that cannot is refused.
    Require,
}

/// TCP keepalive, which detects a peer that has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keepalive {
    pub(crate) on: bool,
    pub(crate) idle: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    pub(crate) count: Option<u32>,
    pub(crate) user_timeout: Option<Duration>,
}

/// Settings of TLS, before any file is read.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    /// Trusted authorities. `None`: there are none, and the mode does not need any.
    pub(crate) roots: Option<Roots>,
    /// The files of the client's certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) only_13: bool,
}

/// Where the trusted authorities come from.
#[derive(Clone, Debug)]
pub(crate) enum Roots {
    System,
    File(PathBuf),
}

/// A connection's settings.
#[derive(Debug)]
pub struct Config {
    pub(crate) host: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    password: Option<Secret>,
    password_in_text: bool,
    passfile: Option<PathBuf>,
    pub(crate) tls: TlsSettings,
    pub(crate) channel_binding: ChannelBindingMode,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) application_name: String,
    pub(crate) options: String,
    pub(crate) keepalive: Keepalive,
}

/// How a keyword is treated.
enum Support {
    /// The crate does what it says.
    Used,
    /// It changes nothing for a physical replication connection.
    Ignored,
    /// These values mean what this crate does anyway; any other one is refused.
    Only(&'static [&'static str]),
}
use Support::{Ignored, Only, Used};

/// Keyword, variable of the environment, support. libpq's list, as of PostgreSQL 18.
const KEYWORDS: [(&str, &str, Support); 46] = [
    ("host", "PGHOST", Used),
    ("hostaddr", "PGHOSTADDR", Used),
    ("port", "PGPORT", Used),
    ("dbname", "PGDATABASE", Used),
    ("user", "PGUSER", Used),
    ("password", "PGPASSWORD", Used),
    ("passfile", "PGPASSFILE", Used),
    ("sslmode", "PGSSLMODE", Used),
    ("sslrootcert", "PGSSLROOTCERT", Used),
    ("sslcert", "PGSSLCERT", Used),
    ("sslkey", "PGSSLKEY", Used),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Used),
    ("channel_binding", "PGCHANNELBINDING", Used),
    ("connect_timeout", "PGCONNECT_TIMEOUT", Used),
    ("application_name", "PGAPPNAME", Used),
    ("fallback_application_name", "", Used),
    ("options", "PGOPTIONS", Used),
    ("keepalives", "", Used),
    ("keepalives_idle", "", Used),
    ("keepalives_interval", "", Used),
    ("keepalives_count", "", Used),
    ("tcp_user_timeout", "", Used),
    ("client_encoding", "PGCLIENTENCODING", Ignored),
    ("replication", "", Ignored),
    ("sslcompression", "PGSSLCOMPRESSION", Ignored),
    ("sslsni", "PGSSLSNI", Ignored),
    ("krbsrvname", "PGKRBSRVNAME", Ignored),
    ("gsslib", "PGGSSLIB", Ignored),
    ("gssdelegation", "PGGSSDELEGATION", Ignored),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION", Ignored),
    (
        "min_protocol_version",
        "PGMINPROTOCOLVERSION",
        Only(&["3.0"]),
    ),
    (
        "ssl_max_protocol_version",
        "PGSSLMAXPROTOCOLVERSION",
        Only(&["TLSv1.3"]),
    ),
    ("gssencmode", "PGGSSENCMODE", Only(&["disable", "prefer"])),
    (
        "target_session_attrs",
        "PGTARGETSESSIONATTRS",
        Only(&["any"]),
    ),
    (
        "load_balance_hosts",
        "PGLOADBALANCEHOSTS",
        Only(&["disable"]),
    ),
    ("sslnegotiation", "PGSSLNEGOTIATION", Only(&["postgres"])),
    ("sslcertmode", "PGSSLCERTMODE", Only(&["allow"])),
    ("service", "PGSERVICE", Only(&[])),
    ("servicefile", "", Only(&[])),
    ("sslpassword", "", Only(&[])),
    ("sslcrl", "PGSSLCRL", Only(&[])),
    ("sslcrldir", "PGSSLCRLDIR", Only(&[])),
    ("sslkeylogfile", "", Only(&[])),
    ("requirepeer", "PGREQUIREPEER", Only(&[])),
    ("requiressl", "PGREQUIRESSL", Only(&["0"])),
    ("require_auth", "PGREQUIREAUTH", Only(&[])),
];

/// The keywords of a connection string that were not taken yet, and the environment.
struct Keywords<'a> {
    pairs: Pairs,
    environment: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Keywords<'_> {
    /// Takes the value of a keyword out of the connection string, where the last of several counts,
    /// else from its environment variable. An empty value counts as not given. `None` if it is
    /// given nowhere. Fails with [`Error::Config`] if the variable is not UTF-8.
    fn take(&mut self, keyword: &str) -> Result<Option<String>> {
        let mut found = None;
        self.pairs.retain_mut(|(name, value)| {
            let here = name == keyword;
            if here {
                found = Some(std::mem::take(value));
            }
            !here
        });
        if let Some(value) = found.filter(|value| !value.is_empty()) {
            return Ok(Some(value));
        }
        let variable = KEYWORDS.iter().find(|(name, _, _)| *name == keyword);
        let Some(given) = variable.and_then(|(_, variable, _)| self.variable(variable)) else {
            return Ok(None);
        };
        let text = given.into_string();
        text.map(Some)
            .map_err(|_| Error::Config(format!("the environment's {keyword} is not UTF-8")))
    }

    /// Returns an environment variable. `None` if it is not set or empty.
    fn variable(&self, name: &str) -> Option<OsString> {
        let value = (!name.is_empty()).then(|| (self.environment)(name))?;
        value.filter(|value| !value.is_empty())
    }

    /// Takes a keyword's value, as [`Self::take`] does, from the connection string or else from its
    /// environment variable, as a number or another type that text can be parsed into; blanks
    /// around it do not matter. `None` if it is empty or not given in both. Fails with
    /// [`Error::Config`] if it cannot be parsed, or the variable is not UTF-8.
    fn number<T: std::str::FromStr>(&mut self, keyword: &str) -> Result<Option<T>> {
        let Some(text) = self.take(keyword)? else {
            return Ok(None);
        };
        let number = text.trim().parse().map(Some);
        number.map_err(|_| Error::Config(format!("{keyword} is not a number that it can be")))
    }

    /// Takes a keyword's value, which must be one of several names, and returns what the name
    /// means. `None` if it is not given. Fails with [`Error::Config`], which lists the names, for
    /// another value.
    fn choice<T: Copy>(&mut self, keyword: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.take(keyword)? else {
            return Ok(None);
        };
        let chosen = choices.iter().find(|(name, _)| *name == text);
        match chosen {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                Err(Error::Config(format!("{keyword} is one of {names}")))
            }
        }
    }

    /// Fails with [`Error::Config`] if the connection string has a keyword that is not known, or if
    /// a keyword, there or in the environment, has a value that is not supported.
    fn refuse_unsupported(&mut self) -> Result<()> {
        let known = |name: &str| KEYWORDS.iter().any(|(keyword, _, _)| *keyword == name);
        if let Some((name, _)) = self.pairs.iter().find(|(name, _)| !known(name)) {
            // After a password with spaces that was not quoted, the keyword is a part of the
            // password.
            let secret = self.pairs.iter().any(|(name, _)| name == "password");
            return Err(Error::Config(match secret {
                true => String::from("a keyword is not known; a value with spaces needs quotes"),
                false => format!("the keyword {name:?} is not known"),
            }));
        }
        for (keyword, _, support) in &KEYWORDS {
            let Only(values) = support else { continue };
            let Some(value) = self.take(keyword)? else {
                continue;
            };
            if !values.contains(&value.as_str()) {
                let text = format!("{keyword} has a value that this program does not support");
                return Err(Error::Config(text));
            }
        }
        Ok(())
    }

    /// Returns the path of a file in `~/.postgresql`. `None` if it does not exist or HOME is not
    /// set.
    fn personal(&self, name: &str) -> Option<PathBuf> {
        self.personal_path(name).filter(|path| path.exists())
    }

    /// Returns the path that a file in `~/.postgresql` has or would have. `None` if HOME is not
    /// set.
    fn personal_path(&self, name: &str) -> Option<PathBuf> {
        let home = PathBuf::from(self.variable("HOME")?);
        Some(home.join(".postgresql").join(name))
    }
}

impl Config {
    /// Parses a connection string, pairs of `keyword=value` or a URI. Settings that it leaves out
    /// come from `environment`, under libpq's names of variables and HOME. A program passes
    /// `&|name| std::env::var_os(name)`. Without a user, the name of the process's account is used
    /// (/etc/passwd); nothing is connected and no password file is read yet.
    ///
    /// # Errors
    /// [`Error::Config`] for a malformed string, an unknown keyword, a value that is not valid or
    /// not supported, more than one host, or settings of TLS that contradict one another.
    pub fn parse(text: &str, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let mut keywords = Keywords {
            pairs: connection_string::pairs(text)?,
            environment,
        };
        keywords.refuse_unsupported()?;
        let host = keywords.take("host")?;
        let address = keywords.number::<IpAddr>("hostaddr")?;
        if host.as_deref().is_some_and(|host| host.contains(',')) {
            let text = "the connection string must name one host: a backup is made of one server";
            return Err(Error::Config(String::from(text)));
        }
        let port = keywords.number("port")?.unwrap_or(5432);
        let host = host.unwrap_or_else(|| default_host(address, port));
        if host.contains(['\0', '\n']) {
            return Err(Error::Config(String::from("the host is not a name")));
        }
        let password_in_text = keywords
            .pairs
            .iter()
            .any(|(name, value)| name == "password" && !value.is_empty());
        let password = password(&mut keywords)?;
        let passfile = match keywords.take("passfile")? {
            Some(path) => Some(PathBuf::from(path)),
            None => keywords
                .variable("HOME")
                .map(|home| PathBuf::from(home).join(".pgpass")),
        };
        let application_name = match keywords.take("application_name")? {
            Some(name) => name,
            None => keywords
                .take("fallback_application_name")?
                .unwrap_or_else(|| String::from("strongroom")),
        };
        Ok(Self {
            host,
            address,
            port,
            user: user(&mut keywords)?,
            database: keywords.take("dbname")?.unwrap_or_default(),
            password,
            password_in_text,
            passfile,
            tls: tls(&mut keywords)?,
            channel_binding: channel_binding(&mut keywords)?,
            connect_timeout: keywords
                .number("connect_timeout")?
                .filter(|seconds: &i32| *seconds > 0)
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(Duration::from_secs),
            application_name,
            options: keywords.take("options")?.unwrap_or_default(),
            keepalive: keepalive(&mut keywords)?,
        })
    }

    /// Returns settings for a socket that the caller has connected: without TLS, with this password
    /// or none. They name no host and no password file.
    #[must_use]
    pub fn without_tls(user: &str, database: &str, password: Option<Secret>) -> Self {
        Self {
            host: String::new(),
            address: None,
            port: 0,
            user: String::from(user),
            database: String::from(database),
            password,
            password_in_text: false,
            passfile: None,
            tls: TlsSettings {
                mode: SslMode::Disable,
                roots: None,
                identity: None,
                only_13: false,
            },
            channel_binding: ChannelBindingMode::Prefer,
            connect_timeout: None,
            application_name: String::from("strongroom"),
            options: String::new(),
            keepalive: Keepalive {
                on: false,
                idle: None,
                interval: None,
                count: None,
                user_timeout: None,
            },
        }
    }

    /// Returns these settings with TLS on the socket, which the caller has connected to `host`.
    /// `roots` is a PEM file of authorities: [`SslMode::VerifyCa`] and [`SslMode::VerifyFull`] need
    /// one, and with it [`SslMode::Require`] checks the certificate too. The files are read when
    /// the connection begins.
    #[must_use]
    pub fn with_tls(
        mut self,
        host: &str,
        mode: SslMode,
        roots: Option<PathBuf>,
        channel_binding: ChannelBindingMode,
    ) -> Self {
        host.clone_into(&mut self.host);
        self.tls.mode = mode;
        self.tls.roots = roots.map(Roots::File);
        self.channel_binding = channel_binding;
        self
    }

    /// Returns whether the connection string itself held a password: a program should refuse that
    /// in a string from its command line.
    #[must_use]
    pub const fn password_in_text(&self) -> bool {
        self.password_in_text
    }

    /// Returns whether the connection is a local socket: the host is a directory, and there is no
    /// address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.address.is_none() && self.host.starts_with('/')
    }

    /// Returns the host's name or address, or the directory of its socket.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, which is part of a local socket's name too.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the name of the database user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns how TLS protects the connection. Means nothing when [`Self::is_local`].
    #[must_use]
    pub const fn ssl_mode(&self) -> SslMode {
        self.tls.mode
    }

    /// Returns a copy of the password: from the settings, else from the password file, which is
    /// read at each call. Fails with `NoPassword` if there is none, or if the file may not be used.
    pub(crate) fn password(&self) -> std::result::Result<Secret, AuthenticationError> {
        if let Some(password) = &self.password {
            return Ok(password.again());
        }
        let Some(path) = &self.passfile else {
            return Err(AuthenticationError::NoPassword(None));
        };
        let standard = self.is_local() && SOCKET_DIRECTORIES.contains(&self.host.as_str());
        let wanted = Wanted {
            host: if standard { "localhost" } else { &self.host },
            port: self.port,
            database: "replication",
            user: &self.user,
        };
        match passfile::look(path, &wanted) {
            Found::Password(password) => Ok(password),
            Found::Nothing => Err(AuthenticationError::NoPassword(None)),
            Found::NotUsed(why) => Err(AuthenticationError::NoPassword(Some(why))),
        }
    }
}

/// Directories of local sockets: Debian's, and PostgreSQL's own.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Returns the host where none is named: the address, else the first directory of
/// [`SOCKET_DIRECTORIES`] with a socket of this port, else the first of all.
fn default_host(address: Option<IpAddr>, port: u16) -> String {
    if let Some(address) = address {
        return address.to_string();
    }
    let there = SOCKET_DIRECTORIES.iter().find(|directory| {
        std::path::Path::new(directory)
            .join(format!(".s.PGSQL.{port}"))
            .exists()
    });
    String::from(*there.unwrap_or(&SOCKET_DIRECTORIES[0]))
}

/// Takes the password from the connection string, else from PGPASSWORD, where it need not be UTF-8.
/// An empty one counts as not given; `None` if it is given nowhere. Fails with [`Error::Config`]
/// only if the string has an empty `password` and PGPASSWORD is not UTF-8.
fn password(keywords: &mut Keywords<'_>) -> Result<Option<Secret>> {
    let here = keywords.pairs.iter().any(|(name, _)| name == "password");
    if here && let Some(password) = keywords.take("password")? {
        return Ok(Some(Secret::new(password.into_bytes())));
    }
    let variable = keywords.variable("PGPASSWORD");
    Ok(variable.map(|password| Secret::new(password.into_vec())))
}

/// Takes the user's name; if none is given, the name of the account that the process runs under.
/// Fails with [`Error::Config`] if that has none.
fn user(keywords: &mut Keywords<'_>) -> Result<String> {
    if let Some(user) = keywords.take("user")? {
        return Ok(user);
    }
    account().ok_or_else(|| {
        Error::Config(String::from(
            "no user is named, and this account has no name",
        ))
    })
}

/// Returns the name of the account that this process runs under. `None` if /etc/passwd does not
/// have it.
fn account() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let me = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == me).then(|| String::from(name))
    })
}

/// Takes the settings of TLS. Without `sslmode` it is `prefer`, or `verify-full` with
/// `sslrootcert=system`. Fails with [`Error::Config`] if a value is not valid, if
/// `sslrootcert=system` has a weaker mode, if the mode needs root certificates and there are none,
/// or if a client's certificate has no key.
fn tls(keywords: &mut Keywords<'_>) -> Result<TlsSettings> {
    let modes = [
        ("disable", SslMode::Disable),
        ("prefer", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ];
    let given = keywords.choice("sslmode", &modes)?;
    let roots = match keywords.take("sslrootcert")? {
        Some(name) if name == "system" => Some(Roots::System),
        Some(path) => Some(Roots::File(PathBuf::from(path))),
        None => keywords.personal("root.crt").map(Roots::File),
    };
    let system = matches!(roots, Some(Roots::System));
    let mode = match given {
        None if system => SslMode::VerifyFull,
        None => SslMode::Prefer,
        // Everyone can get a certificate from a public authority for some name.
        Some(mode) if system && mode < SslMode::VerifyFull => {
            let text = "sslrootcert=system needs sslmode=verify-full";
            return Err(Error::Config(String::from(text)));
        }
        Some(mode) => mode,
    };
    if mode >= SslMode::VerifyCa && roots.is_none() {
        let text =
            "this sslmode needs trusted certificates: set sslrootcert to a file, or to system";
        return Err(Error::Config(String::from(text)));
    }
    let identity = identity(keywords)?;
    let versions = [
        ("TLSv1", false),
        ("TLSv1.1", false),
        ("TLSv1.2", false),
        ("TLSv1.3", true),
    ];
    let only_13 = keywords.choice("ssl_min_protocol_version", &versions)?;
    Ok(TlsSettings {
        mode,
        roots,
        identity,
        only_13: only_13.unwrap_or(false),
    })
}

/// Takes the files of the client's certificate and key. `None` if there is no certificate: a key
/// alone is ignored, as in libpq. Where a certificate has no key, libpq refuses to connect with
/// TLS; so here the file in which its key would be is named, which fails when it is read. Fails
/// with [`Error::Config`] if there is no such file for want of HOME.
fn identity(keywords: &mut Keywords<'_>) -> Result<Option<(PathBuf, PathBuf)>> {
    let certificate = keywords.take("sslcert")?.map(PathBuf::from);
    let certificate = certificate.or_else(|| keywords.personal("postgresql.crt"));
    let key = keywords.take("sslkey")?.map(PathBuf::from);
    let Some(certificate) = certificate else {
        return Ok(None);
    };
    match key.or_else(|| keywords.personal_path("postgresql.key")) {
        Some(key) => Ok(Some((certificate, key))),
        None => {
            let text = "sslcert needs sslkey: a certificate is of no use without its private key";
            Err(Error::Config(String::from(text)))
        }
    }
}

/// Takes how authentication is bound to TLS; `prefer` if it is not given. Fails with
/// [`Error::Config`] for another value.
fn channel_binding(keywords: &mut Keywords<'_>) -> Result<ChannelBindingMode> {
    let modes = [
        ("disable", ChannelBindingMode::Disable),
        ("prefer", ChannelBindingMode::Prefer),
        ("require", ChannelBindingMode::Require),
    ];
    let given = keywords.choice("channel_binding", &modes)?;
    Ok(given.unwrap_or(ChannelBindingMode::Prefer))
}

/// Takes the settings of TCP keepalive, which is on by default. 0 means the system's default. Fails
/// with [`Error::Config`] if a value is not a number.
fn keepalive(keywords: &mut Keywords<'_>) -> Result<Keepalive> {
    let on = keywords.number::<i32>("keepalives")?.unwrap_or(1) != 0;
    let mut seconds = |keyword: &str| -> Result<Option<u64>> {
        let number = keywords.number::<u64>(keyword)?;
        Ok(number.filter(|seconds| *seconds > 0))
    };
    let idle = seconds("keepalives_idle")?.map(Duration::from_secs);
    let interval = seconds("keepalives_interval")?.map(Duration::from_secs);
    let user_timeout = seconds("tcp_user_timeout")?.map(Duration::from_millis);
    let count = keywords.number::<u32>("keepalives_count")?;
    Ok(Keepalive {
        on,
        idle,
        interval,
        count: count.filter(|count| *count > 0),
        user_timeout,
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
