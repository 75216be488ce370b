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

/// The rules of every client, to which the caller adds its own. There is no proxy and no
/// redirection: a response that redirects is returned like any other, and so is one with an error
/// status. The header of a response is bounded, and no connection is kept open.
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

/// A client of these rules. Without settings of TLS it refuses addresses with `https`.
#[must_use]
pub fn client(rules: Config, tls: Option<Arc<ClientConfig>>) -> Agent {
    watched_client(rules, tls, &SentFlag::default())
}

/// As [`client`]; `sent` is set as soon as a part of a request is handed over to TLS for sending.
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
    /// Whether a part was handed over for sending.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
