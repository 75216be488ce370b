//! Keeps a connection's session with the zone: renews its ticket while the client is connected,
//! opens the session anew after the zone was started anew, and closes it when the client leaves.
//!
//! Invariant P7 (docs/internals/columns.md). Must not: give a connection a new budget of truths.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strongroom_format::columns::channel::Request;

use super::upstream::{Failure, Outcome, Upstream};
use super::zone_session::{self, bytes_of_row, call_statement};

/// A connection opens its session anew at most once in this time.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// The longest wait for the server when a client has left.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

impl Upstream {
    /// Keeps the session with the zone while the client is connected: opens one when the database
    /// has the extension only now, or when the server has said that the zone has forgotten the
    /// session, and renews the ticket after half of its lifetime. Does nothing within a pipeline.
    /// Fails if the connection ends, or if the zone has forgotten a session with a limited ticket.
    pub(super) fn keep_session(&mut self) -> Outcome {
        if self.in_pipeline {
            return Ok(());
        }
        let is_missing = {
            let state = self.session.lock();
            state.lost || self.zone_session.is_none() && state.catalog.has_types()
        };
        if is_missing {
            return self.open_session();
        }
        let Some(lifetime) = self.shared.terms.as_ref().map(|terms| terms.lifetime) else {
            return Ok(());
        };
        let age = self.zone_session.as_ref().map(|zone| zone.issued.elapsed());
        if age.is_some_and(|age| age >= lifetime / 2) {
            self.renew(age >= Some(lifetime - lifetime / 4))?;
        }
        Ok(())
    }

    /// Renews the ticket: between transactions, or within one when it is `urgent`; otherwise does
    /// nothing. Waits for the server's answers. A renewal that the zone refuses is no error here.
    fn renew(&mut self, urgent: bool) -> Outcome {
        self.wait_idle()?;
        let state = self.session.lock().transaction;
        if state != b'I' && !(urgent && state == b'T') {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let (Some(terms), Some(zone)) = (&shared.terms, &mut self.zone_session) else {
            return Ok(());
        };
        zone.issued = Instant::now();
        let ticket = terms.ticket(&shared.keys, zone.ticket_id)?;
        let message = zone.session.renew(&shared.keys.released(), &ticket);
        let message = message.map_err(io::Error::other)?;
        // If the renewal fails, the next statement that needs the ticket reports it.
        if let Some(reply) = self.call("message", &message)?
            && let Some(zone) = &mut self.zone_session
        {
            let _renewed = zone.session.receive(&reply);
        }
        Ok(())
    }

    /// Opens a session, between transactions and at most once a second; otherwise does nothing.
    /// With a budget of truths it ends the connection by an error instead if the connection has
    /// asked for a session before, because a new ticket would have a new budget. If the zone
    /// refuses, a later statement tries again.
    fn open_session(&mut self) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let Some(terms) = &shared.terms else {
            return Ok(());
        };
        self.wait_idle()?;
        let is_recent = |asked: Instant| asked.elapsed() < REOPEN_PAUSE;
        if self.session.lock().transaction != b'I' || self.asked.is_some_and(is_recent) {
            return Ok(());
        }
        // A new ticket would have a new budget: a new connection has to ask for that.
        if terms.truths.is_some() && self.asked.is_some() {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        }
        self.session.lock().lost = false;
        self.asked = Some(Instant::now());
        let name = self.name.clone();
        let opened = zone_session::open(&shared.keys, terms, &name, |function, bytes| {
            let answer = self.call(function, bytes)?;
            Ok::<_, Failure>(answer.ok_or_else(|| "no answer".to_owned()))
        })?;
        match opened {
            Ok(zone) => {
                self.session.lock().results = Arc::new(zone.results());
                self.zone_session = Some(zone);
            }
            // The statement goes to the server all the same, whose error says more than this one;
            // the next statement tries again.
            Err(_) => self.session.lock().lost = true,
        }
        Ok(())
    }

    /// Closes the session, because the client has left, and waits at most [`LEAVE_LIMIT`] for that.
    /// Where the server still works for the client, nothing is sent: the session ends with the
    /// connection, and a ticket that a server has kept for itself ends with its validity.
    pub(super) fn close_session(&mut self) {
        let Some(mut zone) = self.zone_session.take() else {
            return;
        };
        let idle = {
            let state = self.session.lock();
            state.pending_answers.is_empty()
                && !state.skipping
                && matches!(state.transaction, b'I' | b'T')
        };
        if !idle || self.in_pipeline {
            return;
        }
        if let Ok(message) = zone.session.send(Request::Close)
            && let Ok(rows) = self.send_own(call_statement("message", &message).as_bytes())
        {
            self.session.wait_for(LEAVE_LIMIT, |_| rows.get().is_some());
        }
    }

    /// Sends what was collected and waits until the server has answered everything. Fails with
    /// `Skipped` if the connection ends.
    fn wait_idle(&mut self) -> Outcome {
        self.flush()?;
        if self.session.wait(|state| state.pending_answers.is_empty()) {
            Ok(())
        } else {
            Err(Failure::Skipped)
        }
    }

    /// Calls a function of the extension from bytes to bytes, over the relayed connection, and
    /// waits for its result. `None` when the server refuses it or its answer is malformed.
    fn call(&mut self, function: &str, bytes: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let rows = self.query_own(&call_statement(function, bytes))?;
        let row = rows.and_then(|rows| rows.into_iter().next());
        Ok(row.and_then(|row| bytes_of_row(row).ok()))
    }
}
