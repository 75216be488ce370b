//! The certificate of a server that runs: renewed by itself before it ends, and taken anew when
//! somebody has replaced it. And the alarm of an administrator who was made with the root key, by
//! whichever process.
//!
//! Invariant R4: a certificate that cannot be written to the disk is used all the same, as long as
//! the server runs, and the log says so once an hour.
//!
//! Must not: ask for the root key; a sealed server keeps the certificate that it has.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::config::Config;
use crate::log::{Level, log};
use crate::server::Server;
use crate::{now, offline, tls};

/// How often a failure is told.
const TOLD_EVERY_S: u64 = 3600;

/// What is shown to clients, as far as is known here.
pub(crate) struct Keeper {
    stamp: Vec<Option<(u64, i64, i64)>>,
    validity: (u64, u64),
    told: u64,
}

impl Keeper {
    /// Of a server that has just read its files.
    pub(crate) fn new(server: &Server) -> Self {
        let config = server.config();
        let keeper = Self {
            stamp: tls::stamp(&config),
            validity: tls::validity(&config).unwrap_or_default(),
            told: 0,
        };
        keeper.tell(server);
        keeper
    }

    /// Looks at the files and at the clock. What is to be shown from now on, when that is something
    /// else.
    pub(crate) fn look(&mut self, server: &Server) -> Option<Arc<ServerConfig>> {
        if let Ok(service) = server.service()
            && let Err(error) = service.watch_glass()
        {
            self.warn(&error.to_string());
        }
        let config = server.config();
        let stamp = tls::stamp(&config);
        let fresh = match stamp == self.stamp {
            false => self.replaced(&config),
            true if self.is_due(&config) => self.renewed(server, &config),
            true => return None,
        };
        self.stamp = tls::stamp(&config);
        self.tell(server);
        fresh.unwrap_or_else(|error| {
            self.warn(&error.to_string());
            None
        })
    }

    fn is_due(&self, config: &Config) -> bool {
        let (begins, ends) = self.validity;
        let days = u64::from(config.policy.server_certificate_days);
        // One of an older build is valid for ten years.
        let third = ends.saturating_sub(begins).min(days.saturating_mul(86_400)) / 3;
        ends != 0 && now() >= ends.saturating_sub(third)
    }

    /// Somebody has put another pair there.
    fn replaced(&mut self, config: &Config) -> Result<Option<Arc<ServerConfig>>, Error> {
        let fresh = tls::server_config(config)?;
        self.validity = tls::validity(config)?;
        log(Level::Info, "certificate taken", &[]);
        Ok(Some(fresh))
    }

    fn renewed(
        &mut self,
        server: &Server,
        config: &Config,
    ) -> Result<Option<Arc<ServerConfig>>, Error> {
        // Sealed, there is no authority.
        let service = server.service()?;
        let days = config.policy.server_certificate_days;
        let issued = service.server_certificate(&config.names, days, "by itself")?;
        let fresh = tls::server_config_of(config, &issued.certificate, &issued.key)?;
        self.validity = (now(), issued.expires);
        match offline::kept(config, &issued) {
            Ok(()) => log(Level::Info, "certificate renewed", &[]),
            Err(error) => self.warn(&format!("until the next start only: {error}")),
        }
        Ok(Some(fresh))
    }

    fn tell(&self, server: &Server) {
        let (_, ends) = self.validity;
        server.metrics.certificate_ends.store(ends, Relaxed);
    }

    fn warn(&mut self, detail: &str) {
        if self.told.saturating_add(TOLD_EVERY_S) > now() {
            return;
        }
        self.told = now();
        let what = code::SERVER_CERTIFICATE_ENDS;
        log(
            Level::Error,
            "certificate",
            &[
                ("code", &format!("SR-{}", what.number)),
                ("error", detail),
                ("todo", what.todo),
                ("ends", &self.validity.1.to_string()),
            ],
        );
    }
}
