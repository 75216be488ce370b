//! The session with the zone that each connection begins with, and has again after the zone was started anew: the zone attests, the proxy checks it, and releases the column keys under a
//! ticket for this connection. A ticket is good for a while; as long as the client is there it is renewed, and when the client leaves the
//! session is closed. The server passes sealed messages on.
//!
//! Must not: release a key to a zone whose attestation was not accepted.

use std::io::{self, BufReader, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strongroom_crypto::random16;
use strongroom_format::columns::channel::{Request, Ticket, right};
use strongroom_format::hex::{from_hex, hex};

use super::stream::Stream;
use super::upstream::{Failure, Outcome, Upstream};
use super::wire::{self, Builder, invalid};
use crate::channel::{Accepted, OpenSession, Question};
use crate::keys::ColumnKeys;
use crate::sql::refusal::Refusal;

/// A session is opened anew once in this time at most.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// How long the server is waited for when a client has left.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// What a connection's ticket allows.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Which zones get the keys.
    pub accepted: Accepted,
    /// How long a ticket is good. It is renewed while the client is there.
    pub lifetime: Duration,
    /// How many truths (comparisons, tests, tokens, ranks) a connection may learn. `None`: any number.
    pub truths: Option<u64>,
    /// Whether a connection may have values in clear in the server, and may take values from there.
    pub declassify: bool,
}

impl Terms {
    fn ticket(&self, keys: &ColumnKeys, ticket_id: [u8; 16]) -> io::Result<Ticket> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(io::Error::other)?
            .as_secs();
        Ok(Ticket {
            rights: if self.declassify {
                right::ORDINARY | right::DECLASSIFY
            } else {
                right::ORDINARY
            },
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
pub(super) struct Held {
    session: OpenSession,
    ticket_id: [u8; 16],
    /// When the ticket was issued.
    issued: Instant,
}

/// Opens a session with the zone over this connection. `ask` calls a function of the extension from bytes to bytes, and gives the
/// server's message where that fails. The refusal is for the client.
pub(super) fn open<E>(
    keys: &ColumnKeys,
    terms: &Terms,
    mut ask: impl FnMut(&str, &[u8]) -> Result<Result<Vec<u8>, String>, E>,
) -> Result<Result<Held, Refusal>, E> {
    let refused = |why: &dyn std::fmt::Display| {
        Ok(Err(Refusal::postgres(
            "28000",
            format!("no session with the zone: {why}"),
        )))
    };
    let question = match Question::new() {
        Ok(question) => question,
        Err(error) => return refused(&error),
    };
    let answer = match ask("attest", question.nonce())? {
        Ok(answer) => answer,
        Err(message) => return refused(&message),
    };
    let ticket = random16()
        .map_err(io::Error::other)
        .and_then(|id| terms.ticket(keys, id));
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(error) => return refused(&error),
    };
    let issued = Instant::now();
    let attested = question.check(&answer, &terms.accepted);
    let (message, opening) =
        match attested.and_then(|attested| attested.open(&keys.released(), &ticket)) {
            Ok(pair) => pair,
            Err(error) => return refused(&error),
        };
    let reply = match ask("message", &message)? {
        Ok(reply) => reply,
        Err(message) => return refused(&message),
    };
    match opening.answered(&reply) {
        Ok(session) => Ok(Ok(Held {
            session,
            ticket_id: ticket.ticket_id,
            issued,
        })),
        Err(error) => refused(&error),
    }
}

/// The statement that calls a function of the extension from bytes to bytes.
fn calling(function: &str, bytes: &[u8]) -> String {
    format!(
        "SELECT pg_catalog.encode(strongroom_columns.{function}('\\x{}'::pg_catalog.bytea), 'hex')",
        hex(bytes)
    )
}

/// The bytes that it gives.
fn called(row: Vec<Option<String>>) -> Result<Vec<u8>, String> {
    let text = row.into_iter().next().flatten();
    text.and_then(|text| from_hex(&text))
        .ok_or_else(|| "a malformed answer".to_owned())
}

impl Upstream {
    /// Has a session with the zone as long as the client is there: opens one anew when the server has said that the zone has forgotten
    /// it, and renews the ticket long before its end.
    pub(super) fn keep_session(&mut self) -> Outcome {
        if self.in_pipeline {
            return Ok(());
        }
        if self.session.lock().lost {
            return self.reopen();
        }
        let Some(lifetime) = self.shared.terms.as_ref().map(|terms| terms.lifetime) else {
            return Ok(());
        };
        let age = self.held.as_ref().map(|held| held.issued.elapsed());
        if age.is_some_and(|age| age >= lifetime / 2) {
            self.renew(age >= Some(lifetime - lifetime / 4))?;
        }
        Ok(())
    }

    /// Renews the ticket, between transactions, or in one where it is `urgent`: by then nothing is changed any more by there having been a
    /// statement.
    fn renew(&mut self, urgent: bool) -> Outcome {
        self.quiet()?;
        let state = self.session.lock().transaction;
        if state != b'I' && !(urgent && state == b'T') {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let (Some(terms), Some(held)) = (&shared.terms, &mut self.held) else {
            return Ok(());
        };
        held.issued = Instant::now();
        let ticket = terms.ticket(&shared.keys, held.ticket_id)?;
        let message = held.session.renew(&shared.keys.released(), &ticket);
        let message = message.map_err(io::Error::other)?;
        // What comes of it shows with the next statement that needs the ticket.
        if let Some(reply) = self.call("message", &message)?
            && let Some(held) = &mut self.held
        {
            let _renewed = held.session.receive(&reply);
        }
        Ok(())
    }

    /// Opens a session anew, between transactions, and with no more truths than the connection was allowed at its beginning.
    fn reopen(&mut self) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let Some(terms) = &shared.terms else {
            return Ok(());
        };
        self.quiet()?;
        if self.session.lock().transaction != b'I' || self.opened.elapsed() < REOPEN_PAUSE {
            return Ok(());
        }
        // A new ticket would have a new budget: a new connection has to ask for that.
        if terms.truths.is_some() {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        }
        self.session.lock().lost = false;
        self.opened = Instant::now();
        let opened = open(&shared.keys, terms, |function, bytes| {
            let answer = self.call(function, bytes)?;
            Ok::<_, Failure>(answer.ok_or_else(|| "no answer".to_owned()))
        })?;
        match opened {
            Ok(held) => self.held = Some(held),
            // The statement goes to the server all the same, whose error says more than this one; then it is tried again.
            Err(_) => self.session.lock().lost = true,
        }
        Ok(())
    }

    /// The client has left: closes the session, so that nobody uses it any more. Where the server still works for the client, the session
    /// ends with the connection; and a ticket that a server has kept for itself ends with its time.
    pub(super) fn leave(&mut self) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        let idle = {
            let state = self.session.lock();
            state.expects.is_empty() && !state.skipping && matches!(state.transaction, b'I' | b'T')
        };
        if !idle || self.in_pipeline {
            return;
        }
        if let Ok(message) = held.session.send(Request::Close)
            && let Ok(rows) = self.send_own(calling("message", &message).as_bytes())
        {
            self.session.wait_for(LEAVE_LIMIT, |_| rows.get().is_some());
        }
    }

    /// Waits until the server has answered everything.
    fn quiet(&mut self) -> Outcome {
        self.flush()?;
        if self.session.wait(|state| state.expects.is_empty()) {
            Ok(())
        } else {
            Err(Failure::Skipped)
        }
    }

    /// Calls a function of the extension from bytes to bytes. `None`: the server refuses it.
    fn call(&mut self, function: &str, bytes: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let rows = self.own(calling(function, bytes).as_bytes())?;
        let row = rows.and_then(|rows| rows.into_iter().next());
        Ok(row.and_then(|row| called(row).ok()))
    }
}

/// Calls a function of the extension from bytes to bytes, before there is a session to relay. The inner error is the server's message.
pub(super) fn ask(
    server: &mut BufReader<Stream>,
    function: &str,
    bytes: &[u8],
) -> io::Result<Result<Vec<u8>, String>> {
    let mut out = Vec::new();
    Builder::new(&mut out, b'Q')
        .string(calling(function, bytes).as_bytes())
        .end();
    server.get_mut().write_all(&out)?;
    let mut answer = Err("no answer".to_owned());
    loop {
        let message = wire::read(server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match message.tag {
            b'D' => {
                let row = super::downstream::text_row(&message.body)
                    .ok_or_else(|| invalid("a malformed row"))?;
                answer = called(row);
            }
            b'E' => answer = Err(error_message(&message.body)),
            b'Z' => return Ok(answer),
            _ => {}
        }
    }
}

/// The text of an `ErrorResponse`.
fn error_message(body: &[u8]) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let text = fields.find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(text.unwrap_or(b"the server reports an error")).into_owned()
}
