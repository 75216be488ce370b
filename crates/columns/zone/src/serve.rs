//! Serving: binds the socket, closes the sandbox and runs the engine, in this order.
//!
//! Invariant: the store is open and the socket bound before the sandbox closes; backends are served
//! only after that. Must not: run operations itself.

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
    /// Binds the zone's Unix socket at `path`, whose file gets the permissions `mode`, and listens.
    /// Backends are served only by [`Self::run`]; which of them is decided by their user id, not by
    /// `mode`.
    ///
    /// # Errors
    /// `AddrInUse` if a zone listens there, or something other than a socket is there; otherwise
    /// the kernel's.
    pub fn bind(zone: Zone, path: &Path, mode: u32) -> io::Result<Self> {
        let server = Server::bind(path, mode, zone.incarnation())?;
        Ok(Self { zone, server })
    }

    /// A handle that stops the server from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.server.stopper()
    }

    /// Closes the sandbox, if one is given, calls `report` with what it could close, and serves
    /// backends on this thread until a [`Stopper`] stops it. Returns the zone, for a last
    /// [`Zone::checkpoint`].
    ///
    /// # Errors
    /// If the sandbox cannot be closed; those of `report`; those of the kernel.
    pub fn run(
        mut self,
        sandbox: Option<&Sandbox>,
        report: impl FnOnce(Closed) -> io::Result<()>,
    ) -> io::Result<Zone> {
        if let Some(sandbox) = sandbox {
            report(sandbox::close(sandbox)?)?;
        }
        self.server.run(&mut self.zone)?;
        Ok(self.zone)
    }
}
