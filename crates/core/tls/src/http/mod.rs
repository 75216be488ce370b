//! Blocking HTTP clients.
//!
//! Must not: follow a redirection; take a proxy from the environment; say more about this host than
//! the product's name and version.

mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::ClientConfig;
use ureq::Agent;
use ureq::config::{Config, ConfigBuilder};
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};

use self::transport::TlsConnector;

/// The longest header of a response, in bytes.
const HEADER_MAX: usize = 16 * 1024;

/// Returns the settings that all HTTP clients have in common, to which the caller adds its own.
/// There is no proxy and no redirection: a response that redirects is returned like any other, and
/// so is one with an error status. The header of a response has at most 16 KiB, and no idle
/// connection is kept open.
#[must_use]
pub fn client_rules() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(HEADER_MAX)
        .max_idle_connections(0)
        .user_agent(concat!("strongroom/", env!("CARGO_PKG_VERSION")))
}

/// Builds an HTTP client with these settings. Without settings of TLS, requests to `https`
/// addresses fail. It opens no connection yet.
#[must_use]
pub fn client(rules: Config, tls: Option<Arc<ClientConfig>>) -> Agent {
    watched_client(rules, tls, &SentFlag::default())
}

/// Builds an HTTP client as [`client`] does. The client sets `sent` as soon as it hands a part of a
/// request to TLS for sending, so that the caller knows whether the server may have received it.
#[must_use]
pub fn watched_client(rules: Config, tls: Option<Arc<ClientConfig>>, sent: &SentFlag) -> Agent {
    let tls = TlsConnector {
        config: tls,
        sent: sent.clone(),
    };
    let connector = ().chain(TcpConnector::default()).chain(tls);
    Agent::with_parts(rules, connector, DefaultResolver::default())
}

/// Whether a part of a request may have reached a server over TLS.
#[derive(Clone, Debug, Default)]
pub struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    /// Returns whether a part of a request was handed to TLS for sending.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records that a part of a request was handed to TLS.
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
