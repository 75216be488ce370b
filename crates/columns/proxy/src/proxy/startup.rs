//! The start of a connection: the startup packet, authentication, which is passed through, and the
//! catalog.
//!
//! Must not: interpret a password: its bytes are passed on.

use std::borrow::Cow;
use std::io::{self, BufReader, Read as _, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strongroom_postgres_wire::{self as wire, Builder, Fields, Message, append, invalid};

use super::collected_rows::CollectedRows;
use super::messages::{append_error, transaction_status};
use super::session::Session;
use super::settings::Settings;
use super::shared::Shared;
use super::stream::{Address, Stream, TIMEOUT};
use super::zone_session::{self, ZoneSession};
use crate::relations::{Changer, Standing};
use crate::results::Results;
use crate::sql::catalog::Catalog;
use crate::sql::catalog_query::CATALOG_QUERY;
use crate::sql::comparable::Names;
use crate::sql::refusal::Refusal;

/// Request codes of startup packets (src/include/libpq/pqcomm.h).
const CANCEL: i32 = 80_877_102;
const SSL: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
/// Major version 3.
const VERSION_MAJOR: i32 = 3;
/// `AuthenticationSASL`.
const SASL: i32 = 10;
/// How long a client that is one too many may take to say what it wants.
const SURPLUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Mechanisms with this suffix bind the exchange to one TLS connection, and here there are two.
const CHANNEL_BINDING_SUFFIX: &[u8] = b"-PLUS";

/// A connection whose client is authenticated.
pub(crate) struct Connection {
    pub(crate) client: BufReader<Stream>,
    pub(crate) server: BufReader<Stream>,
    pub(crate) session: Session,
    /// What the names of comparable columns are made from.
    pub(super) names: Arc<Names>,
    /// What its statements may be changing.
    pub(super) relations: Changer,
    /// The name that the owner sees in the ledgers.
    pub(super) name: String,
    /// The session with the zone.
    pub(super) zone_session: Option<ZoneSession>,
}

/// Runs the start of a connection: connects to the server, passes authentication through, reads the
/// catalog and opens the session with the zone. `None` when there is nothing to relay: after a
/// cancel request, a failed authentication, or a refusal, which the client was sent. Fails with the
/// errors of the connections, and after 60 seconds of the client's silence.
pub(crate) fn accept_client(
    client: Stream,
    address: &Address,
    shared: &Shared,
) -> io::Result<Option<Connection>> {
    client.set_read_timeout(Some(TIMEOUT))?;
    let mut client = BufReader::new(client);
    let Some(packet) = startup_packet(&mut client, address, shared)? else {
        return Ok(None);
    };
    let mut server = BufReader::new(match address.connect(shared.tls.connect.as_ref()) {
        Ok(server) => server,
        Err(error) => {
            let refusal = Refusal::postgres(
                "08001",
                format!("the proxy cannot connect to the server at {address}: {error}"),
            );
            return refuse(&mut client, &refusal);
        }
    });
    let mut out = Vec::new();
    Builder::untagged(&mut out).bytes(&packet).end();
    server.get_mut().write_all(&out)?;
    let mut settings = Settings::default();
    let Some(ready) = authenticate(&mut client, &mut server, &mut settings)? else {
        return Ok(None);
    };
    let transaction = transaction_status(&ready.body);
    let transaction = transaction.ok_or_else(|| invalid("no state of a transaction"))?;
    let asked = Instant::now();
    let Some((mut catalog, in_time)) = read_catalog(&mut server)? else {
        return refuse(&mut client, &unread_catalog());
    };
    let names = Arc::new(Names::new(
        database(&packet),
        &shared.adopted_databases,
        &shared.adopted,
    ));
    catalog.set_names(Arc::clone(&names));
    if let Err(column) = catalog.pin(&shared.pinned) {
        return refuse(&mut client, &Refusal::denied(column));
    }
    let text = |wanted| String::from_utf8_lossy(parameter(&packet, wanted).unwrap_or_default());
    let name =
        zone_session::client_name(&text(b"user"), &names.database, &text(b"application_name"));
    let relations = shared.relations.connection(address.to_string());
    if let Err(error) = relations.check(&names.database, (Standing::Settled, asked), &mut catalog) {
        return refuse(&mut client, &unkept(&error));
    }
    let zone_session = match open_session(&mut server, &catalog, shared, (&name, in_time))? {
        Ok(session) => session,
        Err(refusal) => return refuse(&mut client, &refusal),
    };
    let mut out = Vec::new();
    append(&mut out, ready.tag, &ready.body);
    client.get_mut().write_all(&out)?;
    client.get_ref().set_read_timeout(None)?;
    let results = match (&zone_session, &shared.terms) {
        (Some(zone), _) => zone.results(),
        (None, Some(_)) => Results::default(),
        (None, None) => Results::of_anybody(),
    };
    Ok(Some(Connection {
        client,
        server,
        session: Session::new(catalog, settings, results, transaction),
        names,
        relations,
        name,
        zone_session,
    }))
}

/// Serves a connection that is one too many: passes a cancel request on, and refuses anything else
/// with 53300. Fails with the errors of the connections, and after a few seconds of the client's
/// silence.
pub(super) fn accept_cancel_request(client: Stream, shared: &Shared) -> io::Result<()> {
    client.set_read_timeout(Some(SURPLUS_TIMEOUT))?;
    let mut client = BufReader::new(client);
    if startup_packet(&mut client, &shared.server, shared)?.is_some() {
        refuse(&mut client, &one_too_many())?;
    }
    Ok(())
}

/// Makes the refusal (53300) of a connection that is one too many.
pub(super) fn one_too_many() -> Refusal {
    let text = "the proxy has as many connections as it may have (--connections)";
    Refusal::postgres("53300", text.to_owned())
}

/// Opens the session with the zone; `None` where there is none, as in a database without the
/// extension. `name`: the one that the owner sees in the ledgers; `in_time`: the session's
/// `statement_timeout` is long enough. The outer error is the connection's, the inner one why the
/// client is refused.
fn open_session(
    server: &mut BufReader<Stream>,
    catalog: &Catalog,
    shared: &Shared,
    (name, in_time): (&str, bool),
) -> io::Result<Result<Option<ZoneSession>, Refusal>> {
    let Some(terms) = shared.terms.as_ref().filter(|_| catalog.has_types()) else {
        return Ok(Ok(None));
    };
    let opened = zone_session::open(&shared.keys, terms, name, |function, bytes| {
        let statement = zone_session::call_statement(function, bytes);
        let statement = if in_time {
            statement
        } else {
            unlimited(&statement)
        };
        zone_session::call(server, &statement)
    })?;
    Ok(opened.map(Some))
}

/// Makes the refusal of a server whose catalog cannot be read.
pub(super) fn unread_catalog() -> Refusal {
    let what = "the proxy cannot read which columns are confidential";
    Refusal::postgres("58000", what.to_owned())
}

/// Makes the refusal (58030) for a file of known relations that cannot be used.
pub(super) fn unkept(error: &io::Error) -> Refusal {
    let message = format!("the proxy's file of known relations (--pins) cannot be used: {error}");
    Refusal::postgres("58030", message)
}

/// Sends the client a FATAL error; returns `None`, no connection.
fn refuse(client: &mut BufReader<Stream>, refusal: &Refusal) -> io::Result<Option<Connection>> {
    let mut out = Vec::new();
    append_error(&mut out, "FATAL", refusal);
    client.get_mut().write_all(&out)?;
    Ok(None)
}

/// Reads the packet that begins a session. TLS is spoken if there is a certificate, GSSAPI
/// encryption is declined. `None` for replication, which is refused, and for a cancel request,
/// which is passed on: the process id and the secret that the client has are the server's own.
/// Fails with `InvalidData` if the packet is malformed or of another protocol version.
fn startup_packet(
    client: &mut BufReader<Stream>,
    address: &Address,
    shared: &Shared,
) -> io::Result<Option<Vec<u8>>> {
    // A client asks for TLS and for GSSAPI once each.
    for _ in 0..3 {
        let packet = wire::read_startup(client)?;
        let code = Fields(&packet)
            .int32()
            .ok_or_else(|| invalid("a startup packet without a version"))?;
        match code {
            SSL | GSS => match &shared.tls.accept {
                Some(config) if code == SSL && !client.get_ref().is_tls() => {
                    // Bytes after the request came in clear: an attacker between could have sent
                    // them.
                    if !client.buffer().is_empty() {
                        return Err(invalid("bytes behind a request for TLS"));
                    }
                    client.get_mut().write_all(b"S")?;
                    client.get_mut().accept_tls(config)?;
                }
                _ => client.get_mut().write_all(b"N")?,
            },
            CANCEL => {
                let mut out = Vec::new();
                Builder::untagged(&mut out).bytes(&packet).end();
                let mut server = address.connect(shared.tls.connect.as_ref())?;
                server.write_all(&out)?;
                // The server closes when it has done what is asked. A client that waits for that
                // may send its next statement, which must not be cancelled.
                server.set_read_timeout(Some(TIMEOUT))?;
                let _end = server.read(&mut [0; 1]);
                server.close();
                return Ok(None);
            }
            version if version >> 16 == VERSION_MAJOR => {
                if parameter(&packet, b"replication").is_some_and(|value| !is_off(value)) {
                    let what = "replication does not go through the proxy: the server's own stream has no plaintext".to_owned();
                    refuse(client, &Refusal::postgres("0A000", what))?;
                    return Ok(None);
                }
                return Ok(Some(packet));
            }
            _ => return Err(invalid("a protocol version other than 3")),
        }
    }
    Err(invalid("no startup packet"))
}

/// Returns whether PostgreSQL takes the text for `false` (`parse_bool` of
/// src/backend/utils/adt/bool.c).
fn is_off(text: &[u8]) -> bool {
    let text = text.to_ascii_lowercase();
    let begins = |whole: &[u8], least| text.len() >= least && whole.starts_with(&text);
    begins(b"false", 1) || begins(b"no", 1) || begins(b"off", 2) || text == b"0"
}

/// Returns the value of a parameter of the startup packet. `None` if it has no such parameter.
fn parameter<'p>(packet: &'p [u8], wanted: &[u8]) -> Option<&'p [u8]> {
    let mut fields = Fields(packet);
    fields.int32();
    while let Some(name) = fields.string().filter(|name| !name.is_empty()) {
        let value = fields.string();
        if name == wanted {
            return value;
        }
    }
    None
}

/// Returns the name of the database that the startup packet asks for: the user's if it names none,
/// as the server takes it (`ProcessStartupPacket` of src/backend/postmaster/postmaster.c).
fn database(packet: &[u8]) -> String {
    let named = parameter(packet, b"database").filter(|name| !name.is_empty());
    let name = named.or_else(|| parameter(packet, b"user"));
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}

/// Passes authentication through until the server is ready. Returns its `ReadyForQuery`, which the
/// client has not seen yet. `None` when the server refuses the login or either side ends its
/// connection.
fn authenticate(
    client: &mut BufReader<Stream>,
    server: &mut BufReader<Stream>,
    settings: &mut Settings,
) -> io::Result<Option<Message>> {
    loop {
        let Some(message) = wire::read(server)? else {
            return Ok(None);
        };
        if message.tag == b'Z' {
            return Ok(Some(message));
        }
        if message.tag == b'S' {
            let mut fields = Fields(&message.body);
            if let (Some(name), Some(value)) = (fields.string(), fields.string()) {
                settings.apply_status(name, value);
            }
        }
        let mut out = Vec::new();
        append(&mut out, message.tag, &without_channel_binding(&message));
        client.get_mut().write_all(&out)?;
        match message.tag {
            b'E' => return Ok(None),
            b'R' if expects_response(&message.body) => {
                let Some(answer) = wire::read(client)? else {
                    return Ok(None);
                };
                let mut out = Vec::new();
                append(&mut out, answer.tag, &answer.body);
                server.get_mut().write_all(&out)?;
            }
            _ => {}
        }
    }
}

/// Returns the body of a server's message for the client. That of `AuthenticationSASL` loses the
/// mechanisms that bind the exchange to a TLS connection (`-PLUS`), because the client's connection
/// is not the server's; its list may become empty. The body of any other message stays as it is.
fn without_channel_binding(message: &Message) -> Cow<'_, [u8]> {
    let mut fields = Fields(&message.body);
    if message.tag != b'R' || fields.int32() != Some(SASL) {
        return Cow::Borrowed(&message.body);
    }
    let mut body = message.body.get(..4).unwrap_or_default().to_vec();
    while let Some(name) = fields.string() {
        if !name.ends_with(CHANNEL_BINDING_SUFFIX) {
            body.extend_from_slice(name);
            body.push(0);
        }
    }
    Cow::Owned(body)
}

/// Returns whether the client answers the request: any but `AuthenticationOk` and
/// `AuthenticationSASLFinal`.
fn expects_response(body: &[u8]) -> bool {
    !matches!(Fields(body).int32(), Some(0 | 12) | None)
}

/// Returns a simple query that runs a statement without the session's `statement_timeout`, outside
/// a transaction.
pub(super) fn unlimited(statement: &str) -> String {
    format!("BEGIN; SET LOCAL statement_timeout = 0; {statement}; COMMIT")
}

/// Reads the catalog, before the client may send anything, and returns it with whether the
/// session's `statement_timeout` was long enough for that. `None` when the server refuses the
/// query.
fn read_catalog(server: &mut BufReader<Stream>) -> io::Result<Option<(Catalog, bool)>> {
    let (rows, is_late) = query(server, CATALOG_QUERY)?;
    let rows = if is_late {
        query(server, &unlimited(CATALOG_QUERY))?.0
    } else {
        rows
    };
    Ok(rows.map(|rows| (Catalog::from_rows(&rows), !is_late)))
}

/// Rows of a query, `None` if it fails, and whether it did because it took too long.
type Answer = (Option<Vec<Vec<Option<String>>>>, bool);

/// Runs a query before the client may send anything. Fails with the connection's errors.
fn query(server: &mut BufReader<Stream>, text: &str) -> io::Result<Answer> {
    let mut out = Vec::new();
    Builder::new(&mut out, b'Q').string(text.as_bytes()).end();
    server.get_mut().write_all(&out)?;
    let mut rows = CollectedRows::default();
    let (mut failed, mut is_late) = (false, false);
    loop {
        let message = wire::read(server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match message.tag {
            b'D' => {
                let pushed = rows.push(&message.body);
                pushed.ok_or_else(|| invalid("a malformed row, or too many"))?;
            }
            b'E' => {
                failed = true;
                is_late = wire::error_field(&message.body, b'C') == Some(b"57014");
            }
            b'Z' => return Ok(((!failed).then(|| rows.into_rows()), is_late)),
            _ => {}
        }
    }
}
