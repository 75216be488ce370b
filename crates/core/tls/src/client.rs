//! The settings of a TLS client.
//!
//! Must not: have a default for how a server is checked.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore, version};

use crate::pem::Identity;

/// What is sent as the protocol inside TLS by a client of HTTP.
const ALPN_HTTP: &[u8] = b"http/1.1";

/// How a client checks a server's certificate.
pub enum ServerCheck {
    /// By chain to one of these authorities, name and dates.
    Authorities(RootCertStore),
    /// By rules of the caller's own.
    Custom(Arc<dyn ServerCertVerifier>),
}

/// Which versions of TLS a client offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.3 and 1.2.
    #[default]
    Both,
    /// TLS 1.3.
    Only13,
}

/// A TLS client, before it is built.
pub struct TlsClient {
    check: ServerCheck,
    identity: Option<Identity>,
    versions: Versions,
    is_http: bool,
    resumes: bool,
}

impl TlsClient {
    /// Returns the settings of a client that has no certificate of its own, offers TLS 1.3 and 1.2,
    /// and resumes sessions.
    #[must_use]
    pub fn new(check: ServerCheck) -> Self {
        Self {
            check,
            identity: None,
            versions: Versions::default(),
            is_http: false,
            resumes: true,
        }
    }

    /// Sets the certificate and private key that the client identifies itself with; `None`: it has
    /// none.
    #[must_use]
    pub fn identity(self, identity: Option<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// Sets the versions of TLS that the client offers.
    #[must_use]
    pub fn versions(self, versions: Versions) -> Self {
        Self { versions, ..self }
    }

    /// Makes the client announce HTTP/1.1 as the protocol inside TLS (ALPN).
    #[must_use]
    pub fn http(self) -> Self {
        Self {
            is_http: true,
            ..self
        }
    }

    /// Turns session resumption off: each connection shows the certificates anew, so that a revoked
    /// one is not accepted longer than necessary.
    #[must_use]
    pub fn without_resumption(self) -> Self {
        Self {
            resumes: false,
            ..self
        }
    }

    /// Builds the configuration for rustls. Opens no connection.
    ///
    /// # Errors
    /// If the certificate and the private key of the identity cannot be used together, such as when
    /// they do not belong together.
    pub fn build(self) -> Result<ClientConfig, rustls::Error> {
        let versions: &[_] = match self.versions {
            Versions::Both => &[&version::TLS13, &version::TLS12],
            Versions::Only13 => &[&version::TLS13],
        };
        let builder = ClientConfig::builder_with_provider(crate::crypto_provider())
            .with_protocol_versions(versions)?;
        let builder = match self.check {
            ServerCheck::Authorities(roots) => builder.with_root_certificates(roots),
            ServerCheck::Custom(verifier) => builder
                .dangerous()
                .with_custom_certificate_verifier(verifier),
        };
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
        };
        if self.is_http {
            config.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        }
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        Ok(config)
    }
}

/// Returns a store in which all of these certificates are trusted authorities.
///
/// # Errors
/// If one of them cannot be an authority.
pub fn authorities(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Returns a store of those of these certificates that can be authorities. The others are left out
/// without an error; the store may be empty.
#[must_use]
pub fn usable_authorities(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let _: (usize, usize) = roots.add_parsable_certificates(certificates);
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_another_ones_key_make_no_client() {
        let made = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec![String::from("a")]).unwrap();
            let certificate = params.self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let ((certificate, key), (_, other)) = (made(), made());
        let identity =
            |key: &str| Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let build = |identity| {
            let found = crate::certificates(certificate.as_bytes()).unwrap();
            let check = ServerCheck::Authorities(authorities(found).unwrap());
            TlsClient::new(check)
                .identity(Some(identity))
                .http()
                .build()
        };
        assert_eq!(
            build(identity(&key)).unwrap().alpn_protocols,
            [b"http/1.1".to_vec()]
        );
        assert!(identity(&key).check().is_ok() && identity(&other).check().is_err());
        assert!(build(identity(&other)).is_err());
    }

    #[test]
    fn a_key_in_the_place_of_a_certificate_is_not_quoted() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let none = Identity::from_pem(key.as_bytes(), key.as_bytes()).err();
        assert!(matches!(none, Some(crate::PemError::NoCertificate)));
        let broken = key.replace('\n', "?");
        let error = Identity::new(Vec::new(), broken.as_bytes()).err().unwrap();
        assert!(!error.to_string().contains(&key[40..60]));
    }
}
