//! The TLS settings of a node.
//!
//! Invariant N1: the only trust anchors are those of the configured file. The system's are never
//! read, names are always checked, versions below TLS 1.2 and suites that do not authenticate are
//! not compiled in, and no option changes any of this.

use std::sync::Arc;

use strongroom_tls::rustls::ClientConfig;
use strongroom_tls::{Identity, ServerCheck, TlsClient, authorities, certificates};

/// Builds the TLS settings of every connection. `authority` is PEM with at least one certificate;
/// only these are trusted. With an `identity`, each connection shows the node's certificate anew,
/// because no session is resumed, so that a revoked one is noticed. Returns a text for an operator
/// if the authority cannot be used, or certificate and private key do not belong together.
pub(crate) fn client_config(
    authority: &[u8],
    identity: Option<Identity>,
) -> Result<Arc<ClientConfig>, String> {
    let found = certificates(authority).map_err(|error| error.to_string())?;
    let roots =
        authorities(found).map_err(|error| format!("not usable as an authority: {error}"))?;
    let config = TlsClient::new(ServerCheck::Authorities(roots))
        .identity(identity)
        .http()
        .without_resumption()
        .build()
        .map_err(|error| format!("certificate and private key: {error}"))?;
    Ok(Arc::new(config))
}

/// Parses a node's certificate and private key from PEM. Whether they belong together is found
/// later, by [`client_config`]. Returns a text for an operator, which never quotes the key, if one
/// of them cannot be parsed.
pub(crate) fn identity(certificate: &[u8], key: &[u8]) -> Result<Identity, String> {
    Identity::from_pem(certificate, key).map_err(|error| error.to_string())
}
