//! A client connection to PostgreSQL, or to the proxy, for commands that run statements themselves.
//!
//! Authentication: nothing, a password in clear over a UNIX socket or TLS, or SCRAM-SHA-256.

use std::io;
use std::path::PathBuf;

use strongroom_crypto::SecretBytes;
use strongroom_postgres_wire::client::{
    AuthenticationError, ChannelBindingMode, Config, Secret, SslMode,
};

use crate::proxy::Address;

pub use strongroom_postgres_wire::client::{Answer, Error, StatementClient, TextRow};

/// The server to connect to, and the user to connect as.
pub struct Login {
    /// The server's, or the proxy's.
    pub address: Address,
    /// User of the database.
    pub user: String,
    /// Database.
    pub database: String,
    /// Password, when one is asked for.
    pub password: Option<SecretBytes>,
    /// How TLS protects the connection.
    pub tls: LoginTls,
}

/// Why TLS is refused for the path of a socket.
pub const TLS_OVER_UNIX: &str =
    "PostgreSQL speaks no TLS over a UNIX socket: name the server by HOST:PORT";

/// How TLS protects a connection to an address of TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginTls {
    /// Not at all.
    Off,
    /// With any certificate: this keeps out who listens, and nobody who is in the middle.
    AnyCertificate,
    /// With a certificate for the name in the address, from an authority in this PEM file.
    Verified(PathBuf),
}

impl Login {
    /// Connects and authenticates. With `is_proxy` the login is not bound to the TLS connection:
    /// the proxy passes it on to the server over another one.
    ///
    /// # Errors
    /// [`Error::Config`] for TLS over a UNIX socket; errors of the server, the system or the
    /// protocol.
    pub fn connect(&self, is_proxy: bool) -> Result<StatementClient, Error> {
        let password = self.password.as_ref();
        let password = password.map(|password| Secret::new(password.as_slice().to_vec()));
        let mut config = Config::without_tls(&self.user, &self.database, password);
        let (mode, roots) = match &self.tls {
            LoginTls::Off => (SslMode::Disable, None),
            LoginTls::AnyCertificate => (SslMode::Require, None),
            LoginTls::Verified(roots) => (SslMode::VerifyFull, Some(roots.clone())),
        };
        if mode != SslMode::Disable {
            let Address::Tcp(address) = &self.address else {
                return Err(Error::Config(String::from(TLS_OVER_UNIX)));
            };
            let host = address.rsplit_once(':').map_or(address.as_str(), |it| it.0);
            let host = host.trim_matches(['[', ']']);
            let binding = if is_proxy {
                ChannelBindingMode::Disable
            } else {
                ChannelBindingMode::Prefer
            };
            config = config.with_tls(host, mode, roots, binding);
        }
        let socket = self.address.socket().map_err(Error::Io)?;
        StatementClient::on_socket(socket, &config)
    }
}

/// Returns the text of an error for the user of a command.
#[must_use]
pub fn describe(error: &Error) -> String {
    match error {
        Error::Server(error) => format!("{} (SQLSTATE {})", error.message, error.sqlstate),
        Error::Authentication(error) => describe_login(error),
        Error::Io(error) => format!("the connection to the server: {error}"),
        Error::EndedEarly(_) => {
            let end = io::Error::from(io::ErrorKind::UnexpectedEof);
            format!("the connection to the server: {end}")
        }
        Error::Protocol(what) => format!("the server's answer: {what}"),
        other => other.to_string(),
    }
}

/// Returns the text of a failed login for the user of a command.
fn describe_login(error: &AuthenticationError) -> String {
    let text = match error {
        AuthenticationError::NoPassword(_) => "the server asks for a password: name a file with it",
        AuthenticationError::NotPrivate(_) => {
            "the server asks for the password in clear over a network: use scram-sha-256 in pg_hba.conf"
        }
        AuthenticationError::NoScram => "the server offers no SCRAM-SHA-256",
        AuthenticationError::NotProven | AuthenticationError::EndedWithoutProof => {
            "the server has not proved that it knows the password"
        }
        AuthenticationError::Unsupported(_) => {
            "the server asks for a sort of authentication that this command does not have: use scram-sha-256"
        }
        AuthenticationError::Refused(error) => {
            return format!("{} (SQLSTATE {})", error.message, error.sqlstate);
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

/// Returns whether the server reported the error, at any time of the connection.
#[must_use]
pub const fn is_from_server(error: &Error) -> bool {
    matches!(
        error,
        Error::Server(_) | Error::Authentication(AuthenticationError::Refused(_))
    )
}

/// Quotes an identifier for SQL.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text constant for SQL, as an `E''` string if it has a backslash.
#[must_use]
pub fn constant(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use strongroom_postgres_wire::client::ServerError;

    use super::*;

    #[test]
    fn names_and_constants_are_quoted() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(constant("it's"), "'it''s'");
        assert_eq!(constant("a\\'b"), " E'a\\\\''b'");
    }

    #[test]
    fn errors_of_the_server_are_told_as_they_are() {
        let mut error = ServerError::default();
        "42P01".clone_into(&mut error.sqlstate);
        "no such table".clone_into(&mut error.message);
        let error = Error::Server(Box::new(error));
        assert_eq!(error.sqlstate(), Some("42P01"));
        assert_eq!(describe(&error), "no such table (SQLSTATE 42P01)");
        assert!(is_from_server(&error));
    }
}
