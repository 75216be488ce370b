//! Serving: the socket, the engine's thread, the sandbox, in the order in which they have to come.
//!
//! Invariant: the store is open and the socket bound before the sandbox closes; backends are served only behind it. Must not: carry
//! out operations.

use std::io;
use std::path::Path;

use strongroom_columns_ring::{Server, Stopper};

use crate::engine::Zone;
use crate::sandbox::{self, Closed, Sandbox};

/// A zone that listens.
pub struct Serving {
    zone: Zone,
    server: Server,
}

impl Serving {
    /// Binds the socket at `path`, whose file gets the permissions `mode`. Who may connect is decided by user id, not by these.
    ///
    /// # Errors
    /// `AddrInUse` when a zone listens there, or something other than a socket is there; otherwise the kernel's.
    pub fn bind(zone: Zone, path: &Path, mode: u32) -> io::Result<Self> {
        let server = Server::bind(path, mode, zone.incarnation())?;
        Ok(Self { zone, server })
    }

    /// What stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.server.stopper()
    }

    /// Closes the sandbox, if there is one, tells what it could close, and serves until it is stopped. Gives the zone back: whoever stops
    /// it in order ends with [`Zone::checkpoint`].
    ///
    /// # Errors
    /// When the sandbox cannot be closed; `told`'s; of the kernel.
    pub fn run(
        mut self,
        sandbox: Option<&Sandbox>,
        told: impl FnOnce(Closed) -> io::Result<()>,
    ) -> io::Result<Zone> {
        if let Some(sandbox) = sandbox {
            told(sandbox::close(sandbox)?)?;
        }
        self.server.run(&mut self.zone)?;
        Ok(self.zone)
    }
}
