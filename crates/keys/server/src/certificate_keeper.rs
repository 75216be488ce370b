//! The certificate of a running server: it is renewed before it expires, and loaded again when its
//! files were replaced. Also logs the alarm of an administrator who was created with the root key.
//!
//! Invariant R4: a renewed certificate that cannot be written to the disk is used until the server
//! stops, and the log says so once an hour.
//!
//! Must not: request the root key. A sealed server keeps the certificate that it has.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::config::Config;
use crate::log::{Level, log};
use crate::server::Server;
use crate::tls::FileStamp;
use crate::{now, offline, tls};

/// How often a failure is logged, in seconds.
const LOG_INTERVAL_S: u64 = 3600;

/// The state of the certificate that the server uses.
pub(crate) struct CertificateKeeper {
    /// The file stamp when the files were read.
    stamp: FileStamp,
    /// From when to when the certificate is valid, in seconds since the Unix epoch.
    validity: (u64, u64),
    /// When a failure was logged last, in seconds since the Unix epoch.
    logged: u64,
}

impl CertificateKeeper {
    /// Reads the state of the certificate of a server that has just read its files, and puts its
    /// expiry into the metrics.
    pub(crate) fn new(server: &Server) -> Self {
        let config = server.config();
        let keeper = Self {
            stamp: tls::file_stamp(&config),
            validity: tls::validity(&config).unwrap_or_default(),
            logged: 0,
        };
        keeper.update_metrics(server);
        keeper
    }

    /// Loads the certificate if its files were replaced, or else renews it if it is due. Returns
    /// the TLS configuration for new connections when it has changed, otherwise `None`. Also logs a
    /// use of the root key to create an administrator. Failures are logged, at most once an hour,
    /// and leave the certificate in use.
    pub(crate) fn check(&mut self, server: &Server) -> Option<Arc<ServerConfig>> {
        if let Ok(service) = server.service()
            && let Err(error) = service.watch_break_glass()
        {
            self.warn(&error.to_string());
        }
        let config = server.config();
        let stamp = tls::file_stamp(&config);
        let fresh = match stamp == self.stamp {
            false => self.reload(&config),
            true if self.is_due(&config) => self.renew(server, &config),
            true => return None,
        };
        self.stamp = tls::file_stamp(&config);
        self.update_metrics(server);
        fresh.unwrap_or_else(|error| {
            self.warn(&error.to_string());
            None
        })
    }

    /// Whether at most a third of the validity is left, of which at most the configured days count.
    /// False when the validity is not known.
    fn is_due(&self, config: &Config) -> bool {
        let (begins, ends) = self.validity;
        let days = u64::from(config.policy.server_certificate_days);
        // A certificate of an older build is valid for ten years.
        let third = ends.saturating_sub(begins).min(days.saturating_mul(86_400)) / 3;
        ends != 0 && now() >= ends.saturating_sub(third)
    }

    /// Loads files that were replaced, logs that, and returns the TLS configuration (never `None`).
    /// Errors of [`tls::server_config`]: SR-8440 for a file that cannot be used, SR-5001 when the
    /// system reports an error.
    fn reload(&mut self, config: &Config) -> Result<Option<Arc<ServerConfig>>, Error> {
        let fresh = tls::server_config(config)?;
        self.validity = tls::validity(config)?;
        log(Level::Info, "certificate taken", &[]);
        Ok(Some(fresh))
    }

    /// Issues a new certificate with the server's own authority, with a row of the audit log, and
    /// replaces the files on the disk. If they cannot be replaced, the new certificate is used all
    /// the same and the failure is logged. Returns the TLS configuration (never `None`). SR-8428
    /// while the server is sealed; what the store reports.
    fn renew(
        &mut self,
        server: &Server,
        config: &Config,
    ) -> Result<Option<Arc<ServerConfig>>, Error> {
        // A sealed server cannot use its authority.
        let service = server.service()?;
        let days = config.policy.server_certificate_days;
        let issued = service.server_certificate(&config.names, days, "by itself")?;
        let fresh = tls::server_config_with(config, &issued.certificate, &issued.key)?;
        self.validity = (now(), issued.expires);
        match offline::replace_certificate(config, &issued) {
            Ok(()) => log(Level::Info, "certificate renewed", &[]),
            Err(error) => self.warn(&format!("until the next start only: {error}")),
        }
        Ok(Some(fresh))
    }

    /// Puts the expiry of the certificate into the metrics.
    fn update_metrics(&self, server: &Server) {
        let (_, ends) = self.validity;
        server.metrics.certificate_expires.store(ends, Relaxed);
    }

    /// Logs a failure as SR-8473, unless one was logged within the last hour.
    fn warn(&mut self, detail: &str) {
        if self.logged.saturating_add(LOG_INTERVAL_S) > now() {
            return;
        }
        self.logged = now();
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
