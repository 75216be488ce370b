//! The transport below HTTP: TLS on a socket, with buffers that are wiped.
//!
//! Invariants: `https` is spoken with the client's settings of TLS or not at all; each wait ends
//! when the request's time is over; what was read and written is wiped when it is no longer needed.
//! Buffers inside the TLS library are out of reach: see docs/internals/keyclient.md.
//!
//! It also records whether a part of a request was handed over for sending, so that a caller knows
//! whether repeating a change is safe.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::time::{Duration, Instant};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, NextTimeout, Transport, TransportAdapter,
};
use zeroize::{Zeroize as _, Zeroizing};

use super::SentFlag;

/// Bytes of each buffer: above the largest header that is accepted, and a TLS record.
const BUFFER_LEN: usize = 64 * 1024;

/// Puts TLS on a socket where the address has `https`, and leaves it as it is where the address has
/// `http`.
pub(super) struct TlsConnector {
    /// `None`: `https` is refused.
    pub(super) config: Option<Arc<ClientConfig>>,
    pub(super) sent: SentFlag,
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport<In>>;

    /// Returns the socket (never `None`) as it is for `http`; for `https` makes the TLS handshake
    /// on it, within what is left of the time to connect. Fails if there is no socket, with
    /// `TlsRequired` if the client has no settings of TLS, with `Tls` if the host cannot be in a
    /// certificate, with `Timeout`, and if the handshake fails.
    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(socket) = chained else {
            return Err(Error::ConnectionFailed);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(socket)));
        }
        let config = self.config.as_ref().ok_or(Error::TlsRequired)?;
        let host = details.uri.host().unwrap_or_default();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let name = ServerName::try_from(bare.unwrap_or(host).to_owned())
            .map_err(|_| Error::Tls("the host is not a name that a certificate could have"))?;
        let mut client = ClientConnection::new(Arc::clone(config), name)?;
        let mut socket = TransportAdapter::new(socket, Arc::clone(&details.current_time));
        socket.set_timeout(handshake_timeout(details)?);
        client.complete_io(&mut socket)?;
        Ok(Some(Either::B(TlsTransport {
            stream: StreamOwned::new(client, socket),
            buffers: WipedBuffers::new(),
            sent: self.sent.clone(),
        })))
    }
}

/// Returns the time that is left for the handshake: the time to connect, less what has passed since
/// connecting began. Fails with `Timeout` if none is left.
fn handshake_timeout(details: &ConnectionDetails<'_>) -> Result<NextTimeout, Error> {
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
pub(super) struct TlsTransport<In: Transport> {
    stream: StreamOwned<ClientConnection, TransportAdapter<In>>,
    buffers: WipedBuffers,
    sent: SentFlag,
}

impl<In: Transport> fmt::Debug for TlsTransport<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl<In: Transport> Transport for TlsTransport<In> {
    /// Returns the buffers of the data to send and of the data received.
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    /// Sends the first `amount` bytes of the output buffer through TLS and wipes them, also after
    /// an error. Sets [`SentFlag`] before it writes.
    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.sent.set();
        self.stream.get_mut().set_timeout(timeout);
        let output = self.buffers.output.get_mut(..amount).unwrap_or_default();
        let done = self.stream.write_all(output);
        output.zeroize();
        Ok(done?)
    }

    /// Waits for data and appends it to the input buffer. `Ok(false)` means that the peer has ended
    /// the connection. Fails if nothing arrives in time.
    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Returns whether the socket below is still open. Sends nothing.
    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    /// Returns true: the connection uses TLS.
    fn is_tls(&self) -> bool {
        true
    }
}

/// Buffers of a fixed size, wiped as soon as their content was used, and at the end.
struct WipedBuffers {
    input: Zeroizing<Vec<u8>>,
    /// Bytes of `input` before this were used.
    used: usize,
    /// Bytes of `input` from `used` to this are waiting.
    filled: usize,
    output: Zeroizing<Vec<u8>>,
    progress: bool,
}

impl WipedBuffers {
    /// Allocates both buffers, filled with zeros.
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

impl Buffers for WipedBuffers {
    /// Returns the whole output buffer.
    fn output(&mut self) -> &mut [u8] {
        &mut self.output
    }

    /// Returns the bytes that were received and are not consumed yet.
    fn input(&self) -> &[u8] {
        self.input.get(self.used..self.filled).unwrap_or_default()
    }

    /// Moves the unconsumed bytes to the start of the input buffer, wipes the rest, and returns the
    /// rest for the next read.
    fn input_append_buf(&mut self) -> &mut [u8] {
        self.input.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        let free = self.input.get_mut(self.filled..).unwrap_or_default();
        free.zeroize();
        free
    }

    /// Counts `amount` more bytes of the input buffer as received.
    fn input_appended(&mut self, amount: usize) {
        self.filled = self.filled.saturating_add(amount).min(self.input.len());
    }

    /// Counts the first `amount` received bytes as consumed, and wipes them.
    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        let until = self.used.saturating_add(amount).min(self.filled);
        if let Some(gone) = self.input.get_mut(self.used..until) {
            gone.zeroize();
        }
        self.used = until;
    }

    /// Returns the free part of the input buffer, for use as scratch space, and the output buffer.
    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        let free = self.input.get_mut(self.filled..).unwrap_or_default();
        (free, &mut self.output)
    }

    /// Returns whether bytes are waiting and the last call of `input_consume` consumed any. If it
    /// consumed none, the parser needs more data first.
    fn can_use_input(&self) -> bool {
        self.used < self.filled && self.progress
    }
}
