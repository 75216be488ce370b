//! The server's state, sealed or open, and how it changes.
//!
//! Invariants:
//! - W1: While the server is sealed, there is no [`Service`], so that nothing can be delivered.
//! - W2: The server opens only with the root key that fits the check value of its configuration.
//! - W3: A server that an administrator has sealed opens only when shares are given, or after a
//!   restart.
//!
//! Must not: keep the root key; only keys derived from it are kept.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;
use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::{Error, Keyring};

use crate::config::Config;
use crate::connections::Connections;
use crate::header_memory::HeaderMemory;
use crate::keys::ROOT_KEY_NAME;
use crate::limits::Limiter;
use crate::log::{Level, log};
use crate::metrics::Metrics;
use crate::offline;
use crate::records::Role;
use crate::service::{Peer, Service, SpaceInfo};
use crate::shares::CollectedShares;

/// What a sealed server needs before it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// Shares of the custodians.
    Shares,
    /// The provider of the root key, to which the server repeats its request.
    Provider,
    /// The store: the root key was available, but the store did not respond, was full, missing or
    /// damaged.
    Store,
    /// A restart: an administrator sealed it, and its root key comes from a provider.
    Start,
}

impl WaitsFor {
    /// Returns the detail of SR-8428: what the server waits for.
    const fn detail(self) -> &'static str {
        match self {
            Self::Shares => "it waits for the shares of its custodians",
            Self::Provider => "it waits for the provider of its root key",
            Self::Store => {
                "the root key was there, but the store did not answer or has no room: see its log"
            }
            Self::Start => "an administrator sealed it; it opens when it is started anew",
        }
    }
}

/// The state of a server, as `/v1/status` returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether it is sealed.
    pub sealed: bool,
    /// What a sealed server needs before it opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// How many shares it needs; 0 when its root key comes from a provider.
    pub threshold: u8,
    /// How many shares were given.
    pub shares_given: usize,
    /// The server's version.
    pub version: &'static str,
    /// How much space its store has, for viewers and administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<SpaceInfo>,
}

enum SealState {
    Open(Arc<Service>),
    Sealed {
        /// Whether an administrator sealed it, so that a provider does not open it (W3).
        by_admin: bool,
        /// Whether the last attempt to open it had the root key but failed at the store.
        store_failed: bool,
    },
}

/// A key server, sealed or open.
pub struct Server {
    config: RwLock<Arc<Config>>,
    seal: RwLock<SealState>,
    /// The shares that were given; `None` when the root key comes from a provider.
    shares: Mutex<Option<CollectedShares>>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The open connections.
    pub connections: Arc<Connections>,
    /// The limits on requests.
    pub limiter: Limiter,
    /// The limits on headers in memory.
    pub header_memory: HeaderMemory,
}

impl Server {
    /// Makes a sealed server with this configuration. It opens no store and does not listen.
    ///
    /// # Errors
    /// SR-8434 for the id or the hashes of the shares.
    pub fn sealed(config: Config) -> Result<Self, Error> {
        let id = config.server_id()?;
        let shares = config
            .root
            .shares()?
            .map(|(threshold, hashes)| CollectedShares::new(id, threshold, hashes));
        let metrics = Arc::new(Metrics::default());
        Ok(Self {
            limiter: Limiter::new(&config.limits),
            config: RwLock::new(Arc::new(config)),
            seal: RwLock::new(SealState::Sealed {
                by_admin: false,
                store_failed: false,
            }),
            shares: Mutex::new(shares),
            connections: Arc::new(Connections::new(Arc::clone(&metrics))),
            metrics,
            header_memory: HeaderMemory::default(),
        })
    }

    /// Returns the configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a configuration in force: limits, policy, syslog. Another store or another source of
    /// the root key takes effect after a restart. A failure to start syslog is logged.
    pub fn reconfigure(&self, config: Config) {
        self.limiter.set_limits(&config.limits);
        if let Ok(service) = self.service() {
            service.set_rules(config.rules());
            if config.audit.syslog != self.config().audit.syslog
                && let Err(error) = service.set_syslog(&config)
            {
                log(Level::Error, "syslog", &[("error", &error.to_string())]);
            }
        }
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Returns the service of an open server.
    ///
    /// # Errors
    /// SR-8428 while the server is sealed; the detail says what it waits for.
    pub fn service(&self) -> Result<Arc<Service>, Error> {
        self.open_service()
            .map_err(|waits_for| Error::new(&code::SERVER_SEALED, waits_for.detail()))
    }

    /// Returns the service of an open server, or as the error what a sealed one waits for.
    fn open_service(&self) -> Result<Arc<Service>, WaitsFor> {
        let (by_admin, store_failed) =
            match &*self.seal.read().unwrap_or_else(PoisonError::into_inner) {
                SealState::Open(service) => return Ok(Arc::clone(service)),
                SealState::Sealed {
                    by_admin,
                    store_failed,
                } => (*by_admin, *store_failed),
            };
        Err(match (store_failed, self.config().root.keyring.is_some()) {
            (true, _) => WaitsFor::Store,
            (false, false) => WaitsFor::Shares,
            (false, true) if by_admin => WaitsFor::Start,
            (false, true) => WaitsFor::Provider,
        })
    }

    /// Returns the state that every client may know.
    #[must_use]
    pub fn status(&self) -> Status {
        let shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let waits_for = self.open_service().err();
        Status {
            sealed: waits_for.is_some(),
            waits_for,
            threshold: self.config().root.threshold.unwrap_or(0),
            shares_given: shares.as_ref().map_or(0, CollectedShares::count),
            version: env!("CARGO_PKG_VERSION"),
            room: None,
        }
    }

    /// Returns the state, with the store's space if the client is an enrolled viewer or
    /// administrator and the space can be measured.
    #[must_use]
    pub fn status_for(&self, peer: &Peer) -> Status {
        let mut status = self.status();
        if peer.certificate.is_some()
            && let Ok(service) = self.service()
            && let Ok(client) = service.identify(peer)
            && [Role::Admin, Role::Viewer].contains(&client.identity.role)
        {
            status.room = service.space(&self.config()).ok();
        }
        status
    }

    /// Whether the server should request its root key from the provider: it is sealed, but not by
    /// an administrator, and has a keyring.
    #[must_use]
    pub fn wants_provider(&self) -> bool {
        let sealed = &*self.seal.read().unwrap_or_else(PoisonError::into_inner);
        matches!(
            sealed,
            SealState::Sealed {
                by_admin: false,
                ..
            }
        ) && self.config().root.keyring.is_some()
    }

    /// Requests the root key from its provider, and opens the server, with a row of the audit log.
    /// May block for as long as the provider takes.
    ///
    /// # Errors
    /// What the provider or the store reports; SR-8437 for another root key; SR-8434 when the root
    /// key comes in shares.
    pub fn unseal_by_provider(&self) -> Result<(), Error> {
        let config = self.config();
        let Some(keyring) = &config.root.keyring else {
            return Err(Error::new(
                &code::SERVER_CONFIG,
                "the root key comes in shares",
            ));
        };
        let root = Keyring::open(&config.path(keyring)).and_then(|it| it.key(ROOT_KEY_NAME, None));
        let root = root.inspect_err(|_| self.set_store_failed(false))?;
        self.open(&root, "provider")
    }

    /// Adds a share, and opens the server if it was the last one that was needed, with a row of the
    /// audit log. The shares are then wiped, also when opening fails.
    ///
    /// # Errors
    /// SR-8432 when the text is no share of this server's root key, SR-8441 when it was given
    /// already; SR-8439 when the server is open, or its root key comes from a provider; SR-8437
    /// when the root key that the shares give does not open the store; what the store reports.
    pub fn give_share(&self, text: &str) -> Result<(), Error> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let unwanted = |why| Error::new(&code::SERVER_STATE, why);
        if self.service().is_ok() {
            return Err(unwanted("the server is open already"));
        }
        let provided = "the server's root key comes from a provider, not from shares";
        let shares = shares.as_mut().ok_or_else(|| unwanted(provided))?;
        match shares.add(text)? {
            Some(root) => self.open(&root, "shares"),
            None => Ok(()),
        }
    }

    /// Opens the store with the root key, writes a row of the audit log, and lets the server be
    /// open. After a failure it stays sealed and remembers whether that was the store's. SR-8437
    /// for another root key; what the store reports.
    fn open(&self, root: &SecretKey, by: &str) -> Result<(), Error> {
        let config = self.config();
        let opened = offline::open_service(&config, root).and_then(|service| {
            service
                .record_event("-", "unseal", "", by)
                .map(|()| service)
        });
        let service = opened.inspect_err(|error| {
            self.set_store_failed(is_about_store(error));
        })?;
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) =
            SealState::Open(Arc::new(service));
        log(Level::Info, "unsealed", &[("by", by)]);
        Ok(())
    }

    /// Notes whether the last attempt to open failed at the store. Does nothing while the server is
    /// open.
    fn set_store_failed(&self, failed: bool) {
        let mut seal = self.seal.write().unwrap_or_else(PoisonError::into_inner);
        if let SealState::Sealed { store_failed, .. } = &mut *seal {
            *store_failed = failed;
        }
    }

    /// Seals the server as an administrator's request does: wipes shares that were given, and logs
    /// it. Requests that are running end; no further ones are served. A provider does not open it
    /// again before a restart.
    pub fn seal(&self) {
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = SealState::Sealed {
            by_admin: true,
            store_failed: false,
        };
        if let Some(shares) = &mut *self.shares.lock().unwrap_or_else(PoisonError::into_inner) {
            shares.clear();
        }
        log(Level::Warning, "sealed", &[]);
    }
}

/// Whether an error of opening the server with a root key is about the store: any that is not about
/// the root key, the configuration or this process. A store has many codes, since a SQLite file may
/// be missing or damaged.
fn is_about_store(error: &Error) -> bool {
    let others = [
        &code::SERVER_ROOT,
        &code::SERVER_CONFIG,
        &code::IO,
        &code::BUG,
    ];
    !others.contains(&error.code())
}
