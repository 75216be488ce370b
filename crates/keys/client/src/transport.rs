//! The way of bytes below HTTP: TLS on a socket, with buffers that are wiped.
//!
//! Invariants: N1 (TLS always, with the settings of `tls`), N2 (each wait ends when the exchange's
//! time is over), N5 (what was read and written is wiped when it is no longer needed. Buffers
//! inside the TLS library are out of reach; see docs/internals/keyclient.md).
//!
//! It also knows whether any of a request left this host, so that a change is not asked for twice.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::time::{Duration, Instant};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, Transport, TransportAdapter,
};
use zeroize::{Zeroize as _, Zeroizing};

/// Bytes of each buffer: above the largest header that is accepted, and a TLS record.
const BUFFER_LEN: usize = 64 * 1024;

/// Puts TLS on a socket.
pub(crate) struct Secure {
    pub(crate) config: Arc<ClientConfig>,
    /// Set as soon as part of a request is handed over for sending.
    pub(crate) sent: Arc<AtomicBool>,
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secure")
    }
}

impl<In: Transport> Connector<In> for Secure {
    type Out = Secured<In>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let (Some(below), true) = (chained, details.needs_tls()) else {
            return Err(Error::TlsRequired);
        };
        let host = details.uri.host().unwrap_or_default();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let name = ServerName::try_from(bare.unwrap_or(host).to_owned())
            .map_err(|_| Error::Tls("the host is not a name that a certificate could have"))?;
        let mut client = ClientConnection::new(Arc::clone(&self.config), name)?;
        let mut socket = TransportAdapter::new(below, Arc::clone(&details.current_time));
        socket.set_timeout(what_is_left(details)?);
        client.complete_io(&mut socket)?;
        Ok(Some(Secured {
            stream: StreamOwned::new(client, socket),
            buffers: Wiped::new(),
            sent: Arc::clone(&self.sent),
        }))
    }
}

/// The time for the handshake: what connecting took is gone.
fn what_is_left(details: &ConnectionDetails<'_>) -> Result<NextTimeout, Error> {
    let mut left = details.timeout;
    if let (Duration::Exact(limit), Instant::Exact(started)) = (left.after, details.now) {
        left.after = Duration::Exact(limit.saturating_sub(started.elapsed()));
        if left.after.is_zero() {
            return Err(Error::Timeout(left.reason));
        }
    }
    Ok(left)
}

/// A connection under TLS.
pub(crate) struct Secured<In: Transport> {
    stream: StreamOwned<ClientConnection, TransportAdapter<In>>,
    buffers: Wiped,
    sent: Arc<AtomicBool>,
}

impl<In: Transport> fmt::Debug for Secured<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secured")
    }
}

impl<In: Transport> Transport for Secured<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.sent.store(true, Ordering::Relaxed);
        self.stream.get_mut().set_timeout(timeout);
        let output = self.buffers.output.get_mut(..amount).unwrap_or_default();
        let done = self.stream.write_all(output);
        output.zeroize();
        Ok(done?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// Buffers of a fixed size, wiped as soon as their content was used, and at the end.
struct Wiped {
    input: Zeroizing<Vec<u8>>,
    /// Bytes of `input` before this were used.
    used: usize,
    /// Bytes of `input` from `used` to this are waiting.
    filled: usize,
    output: Zeroizing<Vec<u8>>,
    progress: bool,
}

impl Wiped {
    fn new() -> Self {
        Self {
            input: Zeroizing::new(vec![0; BUFFER_LEN]),
            used: 0,
            filled: 0,
            output: Zeroizing::new(vec![0; BUFFER_LEN]),
            progress: false,
        }
    }
}

impl Buffers for Wiped {
    fn output(&mut self) -> &mut [u8] {
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        self.input.get(self.used..self.filled).unwrap_or_default()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.input.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        let free = self.input.get_mut(self.filled..).unwrap_or_default();
        free.zeroize();
        free
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled = self.filled.saturating_add(amount).min(self.input.len());
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        let until = self.used.saturating_add(amount).min(self.filled);
        if let Some(gone) = self.input.get_mut(self.used..until) {
            gone.zeroize();
        }
        self.used = until;
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        let free = self.input.get_mut(self.filled..).unwrap_or_default();
        (free, &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        self.used < self.filled && self.progress
    }
}
