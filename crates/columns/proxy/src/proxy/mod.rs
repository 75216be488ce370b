//! The proxy: PostgreSQL drivers connect to it and see base types; the server sees envelopes.
//!
//! Two threads for each connection, one for each direction (`upstream.rs`, `downstream.rs`), and
//! their shared state (`session.rs`). Authentication passes through: the proxy has no credentials
//! of its own. Must not: log a statement or a value.

mod clock;
mod collected_rows;
mod convert;
mod copy;
mod copy_answers;
mod copy_fields;
mod copying;
mod downstream;
mod driver_statements;
mod effects;
mod ended_statements;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod messages;
mod named_queries;
mod opening;
mod own_queries;
mod planning;
mod portals;
mod prepared;
mod renewal;
mod rows;
mod server_error;
mod session;
mod session_zone;
mod settings;
mod shared;
mod simple_query;
mod sql_prepared;
mod startup;
mod statement;
pub(crate) mod stream;
mod time_zone;
mod tls;
mod upstream;
pub(crate) mod zone_session;

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

pub use shared::PlaintextConstants;
pub use stream::Address;
pub use tls::Tls;
pub use zone_session::TicketTerms;

use downstream::Downstream;
use messages::append_error;
use session::Session;
use shared::Shared;
use startup::Connection;
use stream::{Listener, Stream};
use upstream::Upstream;

use crate::keys::ColumnKeys;
use crate::relations::KnownRelations;
use crate::sql::comparable::{ColumnPath, FormerName};
use crate::sql::pins::PinnedColumn;

/// So many connections above the configured number may be there at a time until they have said what
/// they want: a cancel request is not refused.
const SURPLUS_MAX: usize = 64;
/// How long a client that is refused may take to say who it is, when there are more than those.
const REFUSED_WAIT: Duration = Duration::from_millis(50);
/// Stack of the thread that parses: deep enough for the parser's own limit on nesting.
const PARSER_STACK: usize = 64 << 20;
/// Pause after a failed accept (no descriptors left), in milliseconds.
const ACCEPT_PAUSE_MS: u64 = 50;

/// The configuration of a proxy.
pub struct Config {
    /// The addresses that clients connect to.
    pub listen: Vec<Address>,
    /// The server's address.
    pub server: Address,
    /// TLS towards clients and the server.
    pub tls: Tls,
    /// The column keys.
    pub keys: ColumnKeys,
    /// The zones that get the keys, and the terms of their tickets. `None`: no zone gets them;
    /// values can be stored and read, but not computed on.
    pub terms: Option<TicketTerms>,
    /// See [`PlaintextConstants`].
    pub plaintext_constants: PlaintextConstants,
    /// Columns that are confidential whatever the server says. Without pinned columns the proxy
    /// trusts the server's catalog: values are protected from a server that stores and computes
    /// honestly, not from one that lies about the types of its columns.
    pub pinned: Vec<PinnedColumn>,
    /// Columns whose values have the lineage of another name, which they had before.
    pub adopted: BTreeMap<ColumnPath, FormerName>,
    /// What databases were called when their values were stored.
    pub adopted_databases: BTreeMap<String, String>,
    /// What relations with confidential columns looked like when they were seen first.
    pub relations: Arc<KnownRelations>,
    /// The most connections at a time; more are refused.
    pub connections_max: usize,
}

/// A listening proxy.
pub struct Proxy {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on the configured addresses; serves nobody yet.
    ///
    /// # Errors
    /// An address cannot be listened on; the error names it.
    pub fn bind(config: Config) -> io::Result<Self> {
        let listen = |address: &Address| {
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
            address.listen().map_err(named)
        };
        let listeners = config
            .listen
            .iter()
            .map(listen)
            .collect::<io::Result<Vec<_>>>()?;
        let shared = Shared {
            server: config.server,
            tls: config.tls,
            keys: Arc::new(config.keys),
            terms: config.terms,
            plaintext_constants: config.plaintext_constants,
            pinned: config.pinned,
            adopted: config.adopted,
            adopted_databases: config.adopted_databases,
            relations: config.relations,
            epoch: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            surplus: AtomicUsize::new(0),
            connections_max: config.connections_max,
        };
        Ok(Self {
            listeners,
            shared: Arc::new(shared),
        })
    }

    /// Returns the addresses that it listens on, with the ports that the system chose.
    ///
    /// # Errors
    /// The system does not say.
    pub fn addresses(&self) -> io::Result<Vec<Address>> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Serves until the process ends: one thread for each address, and more for each connection.
    ///
    /// # Errors
    /// No listening thread can be started, or one has ended.
    pub fn run(self) -> io::Result<()> {
        let mut threads = Vec::new();
        for listener in self.listeners {
            let shared = Arc::clone(&self.shared);
            threads.push(
                Builder::new()
                    .name("listen".to_owned())
                    .spawn(move || accept(&listener, &shared))?,
            );
        }
        for thread in threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a listening thread has ended"))?;
        }
        Ok(())
    }
}

/// Accepts connections for ever and starts a thread for each. One above the configured number is
/// refused with 53300, unless it is a cancel request; one for which no thread can be started is
/// closed without a message.
fn accept(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        let Ok(client) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(ACCEPT_PAUSE_MS));
            continue;
        };
        let Some(count) = ConnectionCount::take(shared) else {
            refuse_one_too_many(&client);
            continue;
        };
        let work = move || serve_connection(client, &count);
        let started = Builder::new()
            .name("client".to_owned())
            .stack_size(PARSER_STACK)
            .spawn(work);
        // Without a thread the connection is closed; there is no way to send the client an error.
        drop(started);
    }
}

/// Tells a client that there are too many connections. A client that has asked for TLS takes the
/// error too, as it does from PostgreSQL. What it has sent is read first, for a moment: the system
/// would drop the error with a connection that is closed before.
fn refuse_one_too_many(client: &Stream) {
    let mut out = Vec::new();
    append_error(&mut out, "FATAL", &startup::one_too_many());
    // Whoever has gone needs no answer; it is one write into an empty buffer of the system's.
    if let Ok(mut client) = client.try_clone() {
        drop(client.set_read_timeout(Some(REFUSED_WAIT)));
        drop(client.read(&mut [0; 4096]));
        drop(client.write_all(&out));
    }
}

/// Counts a connection until it is dropped.
struct ConnectionCount {
    shared: Arc<Shared>,
    /// It is above the configured number.
    is_surplus: bool,
}

impl ConnectionCount {
    /// Counts one more connection, until the value is dropped. `None` if there are too many, those
    /// above the configured number included.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let limits = [(false, shared.connections_max), (true, SURPLUS_MAX)];
        let counted = |(is_surplus, max)| {
            let count = Self {
                shared: Arc::clone(shared),
                is_surplus,
            };
            let before = count.counter().fetch_add(1, Ordering::AcqRel);
            (before < max).then_some(count)
        };
        limits.into_iter().find_map(counted)
    }

    /// Returns what counts it.
    fn counter(&self) -> &AtomicUsize {
        match self.is_surplus {
            true => &self.shared.surplus,
            false => &self.shared.connections,
        }
    }
}

impl Drop for ConnectionCount {
    /// Counts the connection as ended.
    fn drop(&mut self) {
        self.counter().fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves one connection until it ends. Errors end this connection only, and are not reported.
fn serve_connection(client: Stream, count: &ConnectionCount) {
    let shared = &count.shared;
    if count.is_surplus {
        drop(startup::accept_cancel_request(client, shared));
    } else if let Ok(Some(connection)) = startup::accept_client(client, &shared.server, shared) {
        drop(relay(connection, shared));
    }
}

/// Relays a connection whose start is over, a thread for each direction, until either side ends.
/// Fails with the errors of the connections, or if no thread can be started.
fn relay(connection: Connection, shared: &Arc<Shared>) -> io::Result<()> {
    let Connection {
        client,
        server,
        session,
        names,
        relations,
        name,
        zone_session,
    } = connection;
    let session = Arc::new(session);
    let sockets = Sockets {
        client: client.get_ref().try_clone()?,
        server: server.get_ref().try_clone()?,
        session,
    };
    let to_client = client.get_ref().try_clone()?;
    let to_server = server.get_ref().try_clone()?;
    let mut down = Downstream::new(
        Arc::clone(&sockets.session),
        Arc::clone(shared),
        server,
        to_client,
    );
    let mut up = Upstream::new(
        Arc::clone(&sockets.session),
        Arc::clone(shared),
        client,
        to_server,
        (names, relations),
        (name, zone_session),
    );
    std::thread::scope(|scope| {
        let ends = &sockets;
        let down = Builder::new()
            .name("server".to_owned())
            .spawn_scoped(scope, move || {
                // Dropped on panic too, so that the other thread does not wait for ever.
                let _end = EndOnDrop(ends);
                down.run()
            })?;
        let end = EndOnDrop(&sockets);
        let done = up.run();
        drop(end);
        let other = down
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the relay has failed")));
        done.and(other)
    })
}

struct Sockets {
    client: Stream,
    server: Stream,
    session: Arc<Session>,
}

/// Ends both directions when it is dropped.
struct EndOnDrop<'a>(&'a Sockets);

impl Drop for EndOnDrop<'_> {
    /// Ends the session, which wakes the other thread, and closes both connections.
    fn drop(&mut self) {
        self.0.session.end();
        self.0.server.close();
        self.0.client.close();
    }
}

#[cfg(test)]
mod tests;
