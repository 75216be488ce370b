//! How the commands that are clients of a database connect to it.
//!
//! Must not: take a password from the command line.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use strongroom_columns_proxy::conversion::server_error;
use strongroom_columns_proxy::proxy::Address;
use strongroom_columns_proxy::server::{Error, Login, LoginTls, StatementClient, TLS_OVER_UNIX};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;

use crate::failure::Failure;

/// Longer files hold no password.
const PASSWORD_MAX: usize = 1000;

/// Who asks, and for which database.
#[derive(Args)]
pub(super) struct LoginOptions {
    /// User of the database
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    user: String,
    /// Database
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    database: String,
    /// File whose first line is the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// TLS of the connection
    #[arg(long, value_enum, default_value_t = TlsMode::Disable)]
    tls: TlsMode,
    /// Authorities in PEM that vouch for the certificate of the other end
    #[arg(long, value_name = "FILE", required_if_eq("tls", "verify-full"))]
    tls_ca: Option<PathBuf>,
}

/// How TLS protects a connection.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TlsMode {
    /// None
    Disable,
    /// With any certificate: keeps out who listens, not who stands between
    Require,
    /// With a certificate for the server's name that an authority vouches for
    VerifyFull,
}

/// What is at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Server,
    Proxy,
}

impl LoginOptions {
    /// The names of the user and the database.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.user, &self.database)
    }

    /// Connects to the server or proxy at `address` and logs in, with the password from the file if
    /// one was named. SR-1006 or SR-1001 for the file; SR-1001 for options of TLS that contradict
    /// each other; SR-8122 if the server refuses, SR-5001 if the connection fails.
    pub(super) fn connect(&self, address: &str, peer: Peer) -> Result<StatementClient, Failure> {
        let tls = match (self.tls, &self.tls_ca) {
            (TlsMode::VerifyFull, Some(file)) => LoginTls::Verified(file.clone()),
            (TlsMode::Disable | TlsMode::Require, Some(_)) => {
                return Err(Failure::usage("--tls-ca needs --tls verify-full"));
            }
            (TlsMode::Require, None) => LoginTls::AnyCertificate,
            _ => LoginTls::Off,
        };
        if tls != LoginTls::Off && address.contains('/') {
            return Err(Failure::usage(TLS_OVER_UNIX));
        }
        let password = self.password_file.as_deref().map(password).transpose()?;
        let login = Login {
            address: self::address(address),
            user: self.user.clone(),
            database: self.database.clone(),
            password,
            tls,
        };
        login
            .connect(peer == Peer::Proxy)
            .map_err(|error| refused(&error).with_prefix(&format!("{address}: ")))
    }
}

/// Returns the address of a command line unchanged if it is HOST:PORT or a path, that is, has a
/// slash. The error is the text that clap shows. A port alone is refused here, because it would be
/// taken for the name of a host later.
pub(super) fn checked(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok()
    });
    if text.contains('/') || parts.is_some() {
        return Ok(text.to_owned());
    }
    let example = match text.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => String::from("127.0.0.1:6432"),
    };
    Err(format!(
        "not HOST:PORT, as {example}, nor the path of a socket, which has a / in it"
    ))
}

/// Returns the address as the path of a socket if it has a slash, otherwise as HOST:PORT.
pub(super) fn address(text: &str) -> Address {
    if text.contains('/') {
        Address::Unix(PathBuf::from(text))
    } else {
        Address::Tcp(text.to_owned())
    }
}

/// Returns the failure for a statement or its connection: SR-8122 if the server refused it, SR-5001
/// if the connection failed.
pub(super) fn refused(error: &Error) -> Failure {
    server_error(error).into()
}

/// Returns the first line of a file, without the line end. SR-1006 if there is no file, SR-1001 if
/// the line is longer than 1000 bytes; SR-5001 when the system reports an error.
pub(super) fn password(path: &Path) -> Result<SecretBytes, Failure> {
    let mut bytes = std::fs::read(path).map_err(|error| Failure::open(path, &error))?;
    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    let end = end.unwrap_or(bytes.len());
    let secret = SecretBytes::take(&mut bytes);
    let mut secret = secret.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
    if end > PASSWORD_MAX {
        let what = format!("{}: too long for a password", path.display());
        return Err(Failure::usage(&what));
    }
    secret.truncate(end);
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::checked;

    #[test]
    fn an_address_has_a_port_or_is_a_path() {
        for good in [
            "127.0.0.1:6432",
            "db.example.org:5432",
            "[::1]:6432",
            "/run/postgresql/.s.PGSQL.5432",
            "./socket",
        ] {
            assert_eq!(checked(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "localhost",
            ":6432",
            "::1",
            "::1:6432",
            "h:99999",
            "h:",
            "socket",
        ] {
            let told = checked(bad).unwrap_err();
            assert!(told.contains("127.0.0.1:6432"), "{bad}: {told}");
        }
        assert!(checked("7000").unwrap_err().contains("127.0.0.1:7000"));
    }
}
