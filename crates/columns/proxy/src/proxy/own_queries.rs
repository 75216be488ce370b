//! Queries of the proxy's own, which the client does not see: between its pipelines, and within
//! them.
//!
//! Must not: drop the client's unnamed statement and portal.

use std::sync::{Arc, OnceLock};

use strongroom_postgres_wire::{Builder, append};

use super::collected_rows::CollectedRows;
use super::session::{Interrupt, PendingAnswer, RowsSlot};
use super::startup::unlimited;
use super::upstream::{Failure, Outcome, Upstream};
use crate::sql::refusal::Refusal;

/// Name of the statement and the portal of the proxy's own statements.
const OWN: &[u8] = b"strongroom_own";
/// How many statements and portals are closed for a statement within the client's pipeline.
const CLOSES: u8 = 4;

/// Appends the messages by which a statement of the proxy's own runs, behind the one that closes an
/// earlier statement of its name.
fn own_messages(out: &mut Vec<u8>, text: &[u8]) {
    Builder::new(out, b'C').byte(b'P').string(OWN).end();
    let mut message = Builder::new(out, b'P');
    message.string(OWN).string(text).count(0).end();
    let mut message = Builder::new(out, b'B');
    message.string(OWN).string(OWN).count(0).count(0).count(0);
    message.end();
    Builder::new(out, b'E').string(OWN).int32(0).end();
    Builder::new(out, b'C').byte(b'P').string(OWN).end();
    Builder::new(out, b'C').byte(b'S').string(OWN).end();
}

/// Rows of a query of the proxy's own.
type OwnRows = Vec<Vec<Option<String>>>;

/// Makes the answer that a query of the proxy's own expects, and the slot for its rows.
fn own_answer() -> (RowsSlot, PendingAnswer) {
    let rows: RowsSlot = Arc::new(OnceLock::new());
    let expect = PendingAnswer::Own {
        rows: Arc::clone(&rows),
        collected: CollectedRows::default(),
    };
    (rows, expect)
}

impl Upstream {
    /// Runs a statement of the proxy's own, which the client does not see, and waits for its rows.
    /// Outside a transaction the session's `statement_timeout` does not end it. `None` when the
    /// server refuses it. Fails with `Skipped` if the connection ends, and with 57014 if the client
    /// has cancelled it, who meant the statement that waits for it.
    pub(super) fn query_own(&mut self, text: &str) -> Outcome<Option<OwnRows>> {
        self.session.lock().interrupted = None;
        let slot = self.send_own(text.as_bytes())?;
        let mut rows = self.wait_for_own(&slot)?;
        let mut interrupted = self.interrupted()?;
        if interrupted == Some(Interrupt::Timeout) && self.session.lock().transaction == b'I' {
            self.session.lock().interrupted = None;
            rows = self.query_simply(&unlimited(text))?;
            if self.session.lock().transaction == b'E' {
                self.query_simply("ROLLBACK")?;
            }
            // There was no time limit.
            interrupted = self.session.lock().interrupted.map(|_| Interrupt::Cancel);
        }
        if interrupted == Some(Interrupt::Cancel) {
            let message = "canceling statement due to user request".to_owned();
            return Err(Refusal::postgres("57014", message).into());
        }
        Ok(rows)
    }

    /// Returns why the server has ended the proxy's own query that was answered last, if it has.
    /// Where it says so in another language than English, the client has cancelled the query unless
    /// a time limit is set. Fails as [`Self::query_simply`] does.
    fn interrupted(&mut self) -> Outcome<Option<Interrupt>> {
        let (interrupted, transaction) = {
            let state = self.session.lock();
            (state.interrupted, state.transaction)
        };
        if interrupted != Some(Interrupt::Either) {
            return Ok(interrupted);
        }
        if transaction != b'I' {
            return Ok(Some(Interrupt::Cancel));
        }
        let limit = self.query_simply("SHOW statement_timeout")?;
        let is_unlimited = |row: &Vec<Option<String>>| row.first() == Some(&Some("0".to_owned()));
        let is_unlimited = limit.is_some_and(|rows| rows.first().is_some_and(is_unlimited));
        Ok(Some(match is_unlimited {
            true => Interrupt::Cancel,
            false => Interrupt::Timeout,
        }))
    }

    /// Runs a simple query of the proxy's own, and waits for its rows, as [`Self::query_own`] does.
    pub(super) fn query_simply(&mut self, text: &str) -> Outcome<Option<OwnRows>> {
        let (slot, expect) = own_answer();
        self.send(expect, b'Q', |message| {
            message.string(text.as_bytes());
        })?;
        self.flush()?;
        self.wait_for_own(&slot)
    }

    /// Waits for the rows of a query of the proxy's own, and for the `ReadyForQuery` after them.
    /// `None` when the server has refused it. Fails with `Skipped` if the connection ends.
    fn wait_for_own(&self, slot: &RowsSlot) -> Outcome<Option<OwnRows>> {
        if !self
            .session
            .wait(|state| slot.get().is_some() && state.pending_answers.is_empty())
        {
            return Err(Failure::Skipped);
        }
        Ok(slot.get().cloned().flatten())
    }

    /// Sends a statement of the proxy's own at once, by the extended protocol: a simple query would
    /// drop the client's unnamed statement and portal. Returns the slot that its rows will be put
    /// into. Fails with `Skipped` if the server would ignore it, or with the connection's error.
    pub(super) fn send_own(&mut self, text: &[u8]) -> Outcome<RowsSlot> {
        let (rows, expect) = own_answer();
        // Those of an earlier one that failed may still be there.
        self.send(expect, b'C', |message| {
            message.byte(b'S').string(OWN);
        })?;
        own_messages(&mut self.out, text);
        append(&mut self.out, b'S', &[]);
        self.flush()?;
        Ok(rows)
    }

    /// Runs a statement of the proxy's own within the client's pipeline, and waits for its rows.
    /// The client is told of its error, as of one of its own statements. Fails with `Skipped` after
    /// an error, and if the connection ends.
    pub(super) fn run_within(&mut self, text: &str) -> Outcome<OwnRows> {
        let rows: RowsSlot = Arc::new(OnceLock::new());
        let expect = PendingAnswer::Within {
            rows: Arc::clone(&rows),
            collected: CollectedRows::default(),
            closes: CLOSES,
        };
        self.send(expect, b'C', |message| {
            message.byte(b'S').string(OWN);
        })?;
        own_messages(&mut self.out, text.as_bytes());
        append(&mut self.out, b'H', &[]);
        self.flush()?;
        if !self.session.wait(|_| rows.get().is_some()) {
            return Err(Failure::Skipped);
        }
        rows.get().cloned().flatten().ok_or(Failure::Skipped)
    }
}
