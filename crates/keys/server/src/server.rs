//! The server's state: sealed or open, and what brings it from one to the other.
//!
//! Invariants: W1, while it is sealed there is no service, so nothing can be served; W2, it opens only with the root key that its
//! configuration's check value names; W3, an administrator's seal holds until shares are given or the server is started anew.
//!
//! Must not: keep the root key: what is derived from it is kept.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;
use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::{Error, Keyring};

use crate::config::Config;
use crate::connections::Connections;
use crate::large::Large;
use crate::limits::Limiter;
use crate::log::{Level, log};
use crate::metrics::Metrics;
use crate::offline;
use crate::records::Role;
use crate::service::{Peer, RoomInfo, Service};
use crate::shares::Given;

/// The name of the root key in its keyring.
pub const ROOT_NAME: &str = "keyserver";

/// What a sealed server needs before it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// Shares of the custodians.
    Shares,
    /// The provider of the root key, which the server asks again and again.
    Provider,
    /// The store: the root key was there, and the store did not answer or had no room.
    Store,
    /// A new start: an administrator sealed it, and a provider has its root key.
    Start,
}

impl WaitsFor {
    /// The detail of SR-8428.
    const fn in_words(self) -> &'static str {
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

/// What everybody may know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether nothing is served.
    pub sealed: bool,
    /// What it needs before it opens, while it is sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// How many shares are needed; 0 when a provider delivers the root key.
    pub threshold: u8,
    /// How many were given.
    pub shares_given: usize,
    /// The server's version.
    pub version: &'static str,
    /// How much room its store has: for viewers and administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomInfo>,
}

enum Seal {
    Open(Arc<Service>),
    Sealed {
        /// By an administrator, so that no provider opens it.
        held: bool,
        /// The root key was there at the last attempt, and the store was not.
        without_store: bool,
    },
}

/// The server.
pub struct Server {
    config: RwLock<Arc<Config>>,
    seal: RwLock<Seal>,
    given: Mutex<Option<Given>>,
    /// What was counted.
    pub metrics: Metrics,
    /// Which connections are open.
    pub connections: Connections,
    /// Who may ask how often.
    pub limiter: Limiter,
    /// Who has a header in memory.
    pub large: Large,
}

impl Server {
    /// A sealed server.
    ///
    /// # Errors
    /// SR-8434.
    pub fn sealed(config: Config) -> Result<Self, Error> {
        let id = config.server_id()?;
        let given = config
            .root
            .shares()?
            .map(|(threshold, hashes)| Given::none(id, threshold, hashes));
        Ok(Self {
            limiter: Limiter::new(&config.limits),
            config: RwLock::new(Arc::new(config)),
            seal: RwLock::new(Seal::Sealed {
                held: false,
                without_store: false,
            }),
            given: Mutex::new(given),
            metrics: Metrics::default(),
            connections: Connections::default(),
            large: Large::default(),
        })
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes limits and policy of another configuration; where the store is and how the root key comes need a new start.
    pub fn reconfigure(&self, config: Config) {
        self.limiter.set(&config.limits);
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

    /// The service.
    ///
    /// # Errors
    /// SR-8428 while the server is sealed.
    pub fn service(&self) -> Result<Arc<Service>, Error> {
        match &*self.seal.read().unwrap_or_else(PoisonError::into_inner) {
            Seal::Open(service) => Ok(Arc::clone(service)),
            Seal::Sealed {
                held,
                without_store,
            } => {
                let waits_for = self.waits_for(*held, *without_store);
                Err(Error::new(&code::SERVER_SEALED, waits_for.in_words()))
            }
        }
    }

    fn waits_for(&self, held: bool, without_store: bool) -> WaitsFor {
        match (without_store, self.config().root.keyring.is_some()) {
            (true, _) => WaitsFor::Store,
            (false, false) => WaitsFor::Shares,
            (false, true) if held => WaitsFor::Start,
            (false, true) => WaitsFor::Provider,
        }
    }

    /// What everybody may know.
    #[must_use]
    pub fn status(&self) -> Status {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waits_for = match &*self.seal.read().unwrap_or_else(PoisonError::into_inner) {
            Seal::Open(_) => None,
            Seal::Sealed {
                held,
                without_store,
            } => Some(self.waits_for(*held, *without_store)),
        };
        Status {
            sealed: waits_for.is_some(),
            waits_for,
            threshold: self.config().root.threshold.unwrap_or(0),
            shares_given: given.as_ref().map_or(0, Given::count),
            version: env!("CARGO_PKG_VERSION"),
            room: None,
        }
    }

    /// The same, and the store's room where who asks is a viewer or an administrator.
    #[must_use]
    pub fn status_for(&self, peer: &Peer) -> Status {
        let mut status = self.status();
        if peer.shown.is_some()
            && let Ok(service) = self.service()
            && let Ok(client) = service.identify(peer)
            && [Role::Admin, Role::Viewer].contains(&client.identity.role)
        {
            status.room = service.room(&self.config()).ok();
        }
        status
    }

    /// Whether the root key's provider is to be asked.
    #[must_use]
    pub fn wants_provider(&self) -> bool {
        let sealed = &*self.seal.read().unwrap_or_else(PoisonError::into_inner);
        matches!(sealed, Seal::Sealed { held: false, .. }) && self.config().root.keyring.is_some()
    }

    /// Asks the root key's provider, and opens.
    ///
    /// # Errors
    /// What the provider or the store reports; SR-8437.
    pub fn unseal_by_provider(&self) -> Result<(), Error> {
        let config = self.config();
        let Some(keyring) = &config.root.keyring else {
            return Err(Error::new(
                &code::SERVER_CONFIG,
                "the root key comes in shares",
            ));
        };
        let root = Keyring::open(&config.path(keyring)).and_then(|it| it.key(ROOT_NAME, None));
        let root = root.inspect_err(|_| self.set_without_store(false))?;
        self.open(&root, "provider")
    }

    /// Takes a share; opens when it was the last that was needed.
    ///
    /// # Errors
    /// SR-8432, SR-8441; SR-8439 when the server is open, or takes no shares; what the store
    /// reports.
    pub fn give_share(&self, text: &str) -> Result<(), Error> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let unwanted = |why| Error::new(&code::SERVER_STATE, why);
        if self.service().is_ok() {
            return Err(unwanted("the server is open already"));
        }
        let provided = "the server's root key comes from a provider, not from shares";
        let shares = given.as_mut().ok_or_else(|| unwanted(provided))?;
        match shares.give(text)? {
            Some(root) => self.open(&root, "shares"),
            None => Ok(()),
        }
    }

    fn open(&self, root: &SecretKey, by: &str) -> Result<(), Error> {
        let config = self.config();
        let opened = offline::opened(&config, root)
            .and_then(|service| service.note("-", "unseal", "", by).map(|()| service));
        let service = opened.inspect_err(|error| {
            self.set_without_store(error.code() == &code::SERVER_STORE);
        })?;
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = Seal::Open(Arc::new(service));
        log(Level::Info, "unsealed", &[("by", by)]);
        Ok(())
    }

    fn set_without_store(&self, is: bool) {
        let mut seal = self.seal.write().unwrap_or_else(PoisonError::into_inner);
        if let Seal::Sealed { without_store, .. } = &mut *seal {
            *without_store = is;
        }
    }

    /// Seals the server: what runs still ends, nothing begins.
    pub fn seal(&self) {
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = Seal::Sealed {
            held: true,
            without_store: false,
        };
        if let Some(given) = &mut *self.given.lock().unwrap_or_else(PoisonError::into_inner) {
            given.forget();
        }
        log(Level::Warning, "sealed", &[]);
    }
}
