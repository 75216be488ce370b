//! The session with the zone that each connection begins with: the zone attests, the proxy checks it, and releases the column keys under a
//! ticket for this connection. The server passes sealed messages on.
//!
//! Must not: release a key to a zone whose attestation was not accepted.

use std::io::{self, BufReader, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use strongroom_crypto::random16;
use strongroom_format::columns::channel::{Ticket, right};
use strongroom_format::hex::{from_hex, hex};

use super::stream::Stream;
use super::wire::{self, Builder, invalid};
use crate::channel::{Accepted, Question};
use crate::keys::ColumnKeys;
use crate::sql::refusal::Refusal;

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

/// Opens a session with the zone over this connection. The refusal is for the client.
pub(super) fn open(
    server: &mut BufReader<Stream>,
    keys: &ColumnKeys,
    terms: &Terms,
) -> io::Result<Result<(), Refusal>> {
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
    let answer = match ask(server, "attest", question.nonce())? {
        Ok(answer) => answer,
        Err(message) => return refused(&message),
    };
    let ticket = terms.ticket(keys)?;
    let attested = question.check(&answer, &terms.accepted);
    let (message, opening) =
        match attested.and_then(|attested| attested.open(&keys.released(), &ticket)) {
            Ok(pair) => pair,
            Err(error) => return refused(&error),
        };
    let reply = match ask(server, "message", &message)? {
        Ok(reply) => reply,
        Err(message) => return refused(&message),
    };
    match opening.answered(&reply) {
        Ok(_) => Ok(Ok(())),
        Err(error) => refused(&error),
    }
}

/// Calls a function of the extension from bytes to bytes. The inner error is the server's message.
fn ask(
    server: &mut BufReader<Stream>,
    function: &str,
    bytes: &[u8],
) -> io::Result<Result<Vec<u8>, String>> {
    let query = format!(
        "SELECT pg_catalog.encode(strongroom_columns.{function}('\\x{}'::pg_catalog.bytea), 'hex')",
        hex(bytes)
    );
    let mut out = Vec::new();
    Builder::new(&mut out, b'Q').string(query.as_bytes()).end();
    server.get_mut().write_all(&out)?;
    let mut answer = Err("no answer".to_owned());
    loop {
        let message = wire::read(server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match message.tag {
            b'D' => {
                let row = super::downstream::text_row(&message.body)
                    .ok_or_else(|| invalid("a malformed row"))?;
                let text = row.into_iter().next().flatten();
                answer = text
                    .and_then(|text| from_hex(&text))
                    .ok_or_else(|| "a malformed answer".to_owned());
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
