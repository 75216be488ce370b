//! A session with the zone: the zone attests, the proxy checks the attestation and releases the
//! column keys under a ticket for one connection. The server passes the sealed messages on.
//!
//! Must not: release a key to a zone whose attestation was not accepted, or to another zone than
//! the one that holds the key already.

use std::io::{self, BufReader, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strongroom_crypto::random16;
use strongroom_format::columns::channel::{CLIENT_NAME_MAX, Ticket};
use strongroom_format::hex::{from_hex, hex};
use strongroom_postgres_wire::{self as wire, Builder, invalid};

use super::stream::Stream;
use crate::channel::{AttestationPolicy, AttestationRequest, OpenSession};
use crate::keys::ColumnKeys;
use crate::results::Results;
use crate::sql::refusal::Refusal;
use crate::zones::KnownZones;

/// The terms of a connection's ticket.
#[derive(Clone, Debug)]
pub struct TicketTerms {
    /// Which zones get the keys.
    pub accepted: AttestationPolicy,
    /// The keys that a zone has shown to hold: from then on no other zone gets them.
    pub zones: Arc<KnownZones>,
    /// How long a ticket is valid. It is renewed while the client is connected.
    pub lifetime: Duration,
    /// How many truths (comparisons, tests, tokens, ranks) a connection may learn. `None`: any
    /// number.
    pub truths: Option<u64>,
    /// What a connection may do: bits of [`strongroom_format::columns::channel::right`].
    pub rights: u32,
}

impl TicketTerms {
    /// Makes a ticket with this id for all keys, valid from five minutes ago until its lifetime has
    /// passed. Fails if the system's clock is before 1970.
    pub(super) fn ticket(&self, keys: &ColumnKeys, ticket_id: [u8; 16]) -> io::Result<Ticket> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(io::Error::other)?
            .as_secs();
        Ok(Ticket {
            rights: self.rights,
            ticket_id,
            // Clocks of two machines differ.
            not_before: now.saturating_sub(300),
            not_after: now.saturating_add(self.lifetime.as_secs()),
            truths: self.truths.unwrap_or(u64::MAX),
            outputs: u64::MAX,
            keys: keys.ids().collect(),
        })
    }
}

/// A session with the zone, and its ticket.
pub(crate) struct ZoneSession {
    pub(crate) session: OpenSession,
    pub(super) ticket_id: [u8; 16],
    /// When the ticket was issued.
    pub(super) issued: Instant,
}

impl ZoneSession {
    /// Returns what takes the results of this session.
    pub(super) fn results(&self) -> Results {
        Results::of_session(*self.session.id())
    }
}

/// Opens a session with the zone over this connection: requests an attestation, checks it, and
/// releases the keys under a new ticket, to a client of this name. `call` calls a function of the
/// extension from bytes to bytes, and returns the server's message where that fails. The outer
/// error is the error of `call`; the inner one (SQLSTATE 28000) says, for the client, why there is
/// no session.
pub(crate) fn open<E>(
    keys: &ColumnKeys,
    terms: &TicketTerms,
    name: &str,
    mut call: impl FnMut(&str, &[u8]) -> Result<Result<Vec<u8>, String>, E>,
) -> Result<Result<ZoneSession, Refusal>, E> {
    let refuse = |why: &dyn std::fmt::Display| {
        Ok(Err(Refusal::postgres(
            "28000",
            format!("no session with the zone: {why}"),
        )))
    };
    let request = match AttestationRequest::new() {
        Ok(request) => request,
        Err(error) => return refuse(&error),
    };
    let answer = match call("attest", request.nonce())? {
        Ok(answer) => answer,
        Err(message) => return refuse(&message),
    };
    let ticket = random16()
        .map_err(io::Error::other)
        .and_then(|id| terms.ticket(keys, id));
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(error) => return refuse(&error),
    };
    let issued = Instant::now();
    let released = keys.released();
    let opened = request
        .check(&answer, &terms.accepted)
        .and_then(|attested| {
            terms.zones.admit(&released, &attested)?;
            attested.open(&released, &ticket, name)
        });
    let (message, opening) = match opened {
        Ok(pair) => pair,
        Err(error) => return refuse(&error),
    };
    let reply = match call("message", &message)? {
        Ok(reply) => reply,
        Err(message) => return refuse(&message),
    };
    match opening.complete(&reply) {
        Ok(session) => Ok(Ok(ZoneSession {
            session,
            ticket_id: ticket.ticket_id,
            issued,
        })),
        Err(error) => refuse(&error),
    }
}

/// Makes the name that the owner sees in the ledgers from what a client says of itself: the user,
/// the database, and the application if it names itself. It is cut where it is too long, characters
/// that it may not have become question marks, and several blanks one, so that it does not look
/// like columns of a table.
pub(crate) fn client_name(user: &str, database: &str, application: &str) -> String {
    let application = match application {
        "" => String::new(),
        named => format!(" ({named})"),
    };
    let mut name = format!("{user}@{database}{application}");
    name = name.replace(char::is_control, "?");
    name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    while name.len() > CLIENT_NAME_MAX {
        name.pop();
    }
    name
}

/// Returns the statement that calls a function of the extension from bytes to bytes. It has no
/// backslash, which a session with `standard_conforming_strings` off would take for an escape.
pub(crate) fn call_statement(function: &str, bytes: &[u8]) -> String {
    format!(
        "SELECT pg_catalog.encode(strongroom_columns.{function}(pg_catalog.decode('{}', 'hex')), 'hex')",
        hex(bytes)
    )
}

/// Returns the bytes in the row that a statement of [`call_statement`] returns; an error's text if
/// it is malformed.
pub(crate) fn bytes_of_row(row: Vec<Option<String>>) -> Result<Vec<u8>, String> {
    let text = row.into_iter().next().flatten();
    text.and_then(|text| from_hex(&text))
        .ok_or_else(|| "a malformed answer".to_owned())
}

/// Runs a statement of [`call_statement`] before the relay runs, and waits for its result. The
/// outer error is the connection's; the inner one is the server's message.
pub(super) fn call(
    server: &mut BufReader<Stream>,
    statement: &str,
) -> io::Result<Result<Vec<u8>, String>> {
    let mut out = Vec::new();
    Builder::new(&mut out, b'Q')
        .string(statement.as_bytes())
        .end();
    server.get_mut().write_all(&out)?;
    let mut answer = Err("no answer".to_owned());
    loop {
        let message = wire::read(server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match message.tag {
            b'D' => {
                let row =
                    wire::text_row(&message.body).ok_or_else(|| invalid("a malformed row"))?;
                answer = bytes_of_row(row);
            }
            b'E' => answer = Err(error_message(&message.body)),
            b'Z' => return Ok(answer),
            _ => {}
        }
    }
}

/// Returns the message of an `ErrorResponse`, or a general one if it has none.
fn error_message(body: &[u8]) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let text = fields.find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(text.unwrap_or(b"the server reports an error")).into_owned()
}

#[cfg(test)]
mod tests {
    use strongroom_format::columns::channel::is_name;

    use super::client_name;

    #[test]
    fn what_a_client_says_of_itself_becomes_a_name() {
        assert_eq!(client_name("payroll", "shop", ""), "payroll@shop");
        assert_eq!(client_name("p", "shop", "psql"), "p@shop (psql)");
        assert_eq!(client_name("a\nb", "c\u{85}d", ""), "a?b@c?d");
        assert_eq!(client_name(" a ", "b", "x)    0  0 "), "a @b (x) 0 0 )");
        for name in [
            client_name("", "", ""),
            client_name(&"ü".repeat(40), "shop", "psql"),
            client_name("owner", "shop", &"x".repeat(1000)),
        ] {
            assert!(is_name(&name), "{name}");
        }
    }
}
