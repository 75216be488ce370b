//! Whom a node trusts, and who it says it is: certificates and keys read from PEM, and the TLS
//! settings made of them.
//!
//! Invariant N1: the only trust anchors are those of the configured file. The system's are never
//! read, names are always checked, versions below TLS 1.2 and suites that do not authenticate are
//! not there at all, and nothing about it can be turned off.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, version};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::node::Validity;

/// What is sent as the protocol inside TLS.
const ALPN: &[u8] = b"http/1.1";

/// A node's certificate with its chain, and its private key.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// From PEM. The text of an error never quotes the key.
    pub(crate) fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        Ok(Self {
            chain: certificates(certificate)?,
            key: PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| String::from("the private key is not in PEM, or has a passphrase"))?,
        })
    }
}

/// The settings of every connection. `authority`: PEM, at least one certificate.
pub(crate) fn config(
    authority: &[u8],
    identity: Option<Identity>,
) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots
            .add(certificate)
            .map_err(|error| format!("not usable as an authority: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(|error| format!("certificate and private key: {error}"))?,
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Each connection shows the certificate anew: what was revoked is not resumed.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("certificates: {error}"))?;
    match found.is_empty() {
        true => Err(String::from("there is no certificate in it")),
        false => Ok(found),
    }
}

/// When the first certificate of a PEM file begins and ends, and for whom it is.
pub(crate) fn about(pem: &[u8]) -> Result<(Validity, String), String> {
    let found = certificates(pem)?;
    let first = found.first().map(AsRef::as_ref).unwrap_or_default();
    let (_, read) = X509Certificate::from_der(first)
        .map_err(|_| String::from("the certificate cannot be read"))?;
    let unix = |at: x509_parser::time::ASN1Time| u64::try_from(at.timestamp()).unwrap_or(0);
    let name = read.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok()).unwrap_or_default();
    let validity = Validity {
        begins: unix(read.validity().not_before),
        ends: unix(read.validity().not_after),
    };
    Ok((validity, name.to_owned()))
}
