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

/// What everybody may know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether nothing is served.
    pub sealed: bool,
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
            seal: RwLock::new(Seal::Sealed { held: false }),
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
            Seal::Sealed { .. } => Err(Error::new(&code::SERVER_SEALED, "")),
        }
    }

    /// What everybody may know.
    #[must_use]
    pub fn status(&self) -> Status {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        Status {
            sealed: self.service().is_err(),
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
        matches!(sealed, Seal::Sealed { held: false }) && self.config().root.keyring.is_some()
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
        let keyring = Keyring::open(&config.path(keyring))?;
        self.open(&keyring.key(ROOT_NAME, None)?, "provider")
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
        let service = offline::opened(&config, root)?;
        service.note("-", "unseal", "", by)?;
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = Seal::Open(Arc::new(service));
        log(Level::Info, "unsealed", &[("by", by)]);
        Ok(())
    }

    /// Seals the server: what runs still ends, nothing begins.
    pub fn seal(&self) {
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = Seal::Sealed { held: true };
        if let Some(given) = &mut *self.given.lock().unwrap_or_else(PoisonError::into_inner) {
            given.forget();
        }
        log(Level::Warning, "sealed", &[]);
    }
}
