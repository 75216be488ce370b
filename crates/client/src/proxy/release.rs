//! The session with the zone that each connection begins with, and has again after the zone was started anew: the zone attests, the proxy checks it, and releases the column keys under a
//! ticket for this connection. The server passes sealed messages on.
//!
//! Must not: release a key to a zone whose attestation was not accepted.

use std::io::{self, BufReader, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strongroom_crypto::random16;
use strongroom_format::columns::channel::{Ticket, right};
use strongroom_format::hex::{from_hex, hex};

use super::stream::Stream;
use super::upstream::{Failure, Outcome, Upstream};
use super::wire::{self, Builder, invalid};
use crate::channel::{Accepted, Question};
use crate::keys::ColumnKeys;
use crate::sql::refusal::Refusal;

/// A session is opened anew once in this time at most.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// What a connection's ticket allows.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Which zones get the keys.
    pub accepted: Accepted,
    /// How long a connection may compute. `None`: as long as it lasts.
    pub lifetime: Option<Duration>,
    /// How many truths (comparisons, tests, tokens, ranks) a connection may learn. `None`: any number.
    pub truths: Option<u64>,
    /// Whether a connection may have values in clear in the server, and may take values from there.
    pub declassify: bool,
}

impl Terms {
    fn ticket(&self, keys: &ColumnKeys) -> io::Result<Ticket> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(io::Error::other)?
            .as_secs();
        let until = self
            .lifetime
            .and_then(|lifetime| now.checked_add(lifetime.as_secs()));
        Ok(Ticket {
            rights: if self.declassify {
                right::ORDINARY | right::DECLASSIFY
            } else {
                right::ORDINARY
            },
            ticket_id: random16().map_err(io::Error::other)?,
            // Clocks of two machines differ.
            not_before: now.saturating_sub(300),
            not_after: until.unwrap_or(u64::MAX),
            truths: self.truths.unwrap_or(u64::MAX),
            outputs: u64::MAX,
            keys: keys.ids().collect(),
        })
    }
}

/// Opens a session with the zone over this connection. `ask` calls a function of the extension from bytes to bytes, and gives the
/// server's message where that fails. The refusal is for the client.
pub(super) fn open<E>(
    keys: &ColumnKeys,
    terms: &Terms,
    mut ask: impl FnMut(&str, &[u8]) -> Result<Result<Vec<u8>, String>, E>,
) -> Result<Result<(), Refusal>, E> {
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
    let ticket = match terms.ticket(keys) {
        Ok(ticket) => ticket,
        Err(error) => return refused(&error),
    };
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
        Ok(_) => Ok(Ok(())),
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
    /// Opens a session with the zone anew, when the server has said that the zone has forgotten it: between transactions, and
    /// within what the connection was allowed at its beginning.
    pub(super) fn reopen(&mut self) -> Outcome {
        if self.in_pipeline || !self.session.lock().lost {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let Some(mut terms) = shared.terms.clone() else {
            return Ok(());
        };
        self.flush()?;
        if !self.session.wait(|state| state.expects.is_empty()) {
            return Err(Failure::Skipped);
        }
        if self.session.lock().transaction != b'I' || self.opened.elapsed() < REOPEN_PAUSE {
            return Ok(());
        }
        // A new ticket would have a new budget: a new connection has to ask for that.
        if terms.truths.is_some() {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        }
        if let Some(lifetime) = terms.lifetime {
            let Some(left) = lifetime.checked_sub(self.began.elapsed()) else {
                return Ok(());
            };
            terms.lifetime = Some(left);
        }
        self.session.lock().lost = false;
        self.opened = Instant::now();
        let opened = open(&shared.keys, &terms, |function, bytes| {
            let rows = self.own(calling(function, bytes).as_bytes())?;
            let row = rows.and_then(|rows| rows.into_iter().next());
            Ok::<_, Failure>(row.map_or_else(|| Err("no answer".to_owned()), called))
        })?;
        // The statement goes to the server all the same, whose error says more than this one; then it is tried again.
        if opened.is_err() {
            self.session.lock().lost = true;
        }
        Ok(())
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
