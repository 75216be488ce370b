//! From the server to the client: matches answers with the expected ones, opens values, and shows
//! types as base types.
//!
//! Invariants: P1 to P3 of `session.rs`; an envelope that does not open ends the connection,
//! because an error in the middle of a pipeline could not undo the statements that the server
//! executes after it. Must not: write to the server.

use std::io::{self, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strongroom_postgres_wire::{self as wire, Builder, Fields, Message, append, error_field};

use super::convert::{Converter, ResultColumn, format_at};
use super::copy_answers::CopyState;
use super::messages::{append_error, transaction_status, unexpected};
use super::rows::{Rows, check_columns, expected_columns, has_parameters, is_as_known};
use super::server_error::{self, interrupt, is_lost};
use super::session::{Columns, Completed, Description, PendingAnswer, Session, State};
use super::shared::Shared;
use super::stream::Stream;
use crate::keys::ColumnKeys;
use crate::sql::refusal::Refusal;

/// Bytes collected for the client before they are written although more messages wait.
const BATCH: usize = 64 * 1024;

pub(crate) struct Downstream {
    session: Arc<Session>,
    pub(super) keys: Arc<ColumnKeys>,
    shared: Arc<Shared>,
    server: BufReader<Stream>,
    client: Stream,
    pub(super) out: Vec<u8>,
    /// Columns of the last `RowDescription`.
    described: Vec<ResultColumn>,
    /// How the rows of the current execution are opened.
    current: Option<Rows>,
    pub(super) copy: Option<super::copy::Outgoing>,
    /// The COPY of the statement that the server answers now.
    pub(super) copying: CopyState,
    /// The statement of a simple query that the server answers now has been described.
    is_described: bool,
    /// A statement's parameters, between their description and that of its result.
    parameters_kept: Vec<u32>,
}

impl Downstream {
    /// Takes over the server's messages and the client's connection. Nothing is read yet.
    pub(crate) fn new(
        session: Arc<Session>,
        shared: Arc<Shared>,
        server: BufReader<Stream>,
        client: Stream,
    ) -> Self {
        Self {
            session,
            keys: Arc::clone(&shared.keys),
            shared,
            server,
            client,
            out: Vec::new(),
            described: Vec::new(),
            current: None,
            copy: None,
            copying: CopyState::Nothing,
            is_described: false,
            parameters_kept: Vec::new(),
        }
    }

    /// Relays until either side has closed its connection. If a message of the server is refused or
    /// malformed, the client gets a FATAL error and the relay ends. Fails with the errors of the
    /// connections.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let ended = self.relay();
        if std::mem::take(&mut self.session.lock().announces) {
            self.shared.epoch.fetch_add(1, Ordering::AcqRel);
        }
        if let Err(error) = &ended
            && error.kind() == io::ErrorKind::InvalidData
        {
            let refusal = Refusal::protocol(&error.to_string());
            append_error(&mut self.out, "FATAL", &refusal);
        }
        self.flush().and(ended)
    }

    /// Relays the server's messages. Returns Ok when the server's connection ends, and when the
    /// proxy refuses a message: a FATAL error for the client is then in the output, not yet sent.
    /// Fails with the errors of the connections, and with `InvalidData` for a message of an
    /// impossible length.
    fn relay(&mut self) -> io::Result<()> {
        loop {
            if self.server.buffer().is_empty() || self.out.len() >= BATCH {
                self.flush()?;
            }
            let Some(message) = wire::read(&mut self.server)? else {
                return Ok(());
            };
            if let Err(refusal) = self.handle_message(message) {
                append_error(&mut self.out, "FATAL", &refusal);
                return Ok(());
            }
        }
    }

    /// Writes the collected messages to the client. Fails with the connection's error.
    fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.client.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Appends what the client gets for one message of the server, if anything, and wakes the other
    /// thread. Fails if the client's connection must end: the message is not expected, or an
    /// envelope does not open.
    fn handle_message(&mut self, message: Message) -> Result<(), Refusal> {
        match message.tag {
            b'D' => return self.handle_data_row(&message.body),
            b'd' => return self.handle_copy_data(&message.body),
            b'N' | b'A' => {
                append(&mut self.out, message.tag, &message.body);
                return Ok(());
            }
            _ => {}
        }
        let session = Arc::clone(&self.session);
        let mut state = session.lock();
        let front = state.pending_answers.front();
        if !matches!(message.tag, b'E' | b'S') {
            // Else it would be taken for an answer to something else: what is expected would not be
            // compared with it. A message that was made to fail is answered by an error alone.
            let is_expected =
                |front: &PendingAnswer| front.may_contain(message.tag) && !front.is_refused();
            let is_late = message.tag == b'Z' && state.is_ready_late();
            if !is_late && !front.is_some_and(is_expected) {
                return Err(unexpected());
            }
        }
        let done = self.handle_answer(&mut state, message);
        drop(state);
        session.wake();
        done
    }

    /// Handles a message that is neither a row, COPY's data nor a notice. Fails as
    /// [`Self::handle_message`] does.
    fn handle_answer(&mut self, state: &mut State, message: Message) -> Result<(), Refusal> {
        let Message { tag, body } = message;
        match tag {
            b'S' => {
                let mut fields = Fields(&body);
                if let (Some(name), Some(value)) = (fields.string(), fields.string()) {
                    state.settings.apply_status(name, value);
                }
                append(&mut self.out, tag, &body);
                Ok(())
            }
            b'E' => self.handle_error(state, &body),
            b'1' | b'2' | b'3' => self.handle_completion(state, tag, &body),
            b't' => self.handle_parameter_description(state, &body),
            b'T' | b'n' => self.handle_row_description(state, tag, &body),
            b'C' | b'I' | b's' => self.handle_command_complete(state, tag, &body),
            b'G' | b'H' | b'W' => self.handle_copy_response(state, tag, &body),
            b'c' => self.handle_copy_done(&body),
            b'Z' => self.handle_ready(state, &body),
            _ => {
                append(&mut self.out, tag, &body);
                Ok(())
            }
        }
    }

    /// Handles an `ErrorResponse`: passes it on, or the refusal that the proxy has put in its
    /// place, or keeps it from the client if the statement was the proxy's own. Drops the answers
    /// that will not come. Fails with SR-8105 if it answers nothing, unless the server ends the
    /// connection by it.
    fn handle_error(&mut self, state: &mut State, body: &[u8]) -> Result<(), Refusal> {
        state.late_syncs = std::mem::take(&mut state.syncs_within_copy);
        self.end_statement(state);
        let is_fatal = matches!(error_field(body, b'V'), Some(b"FATAL" | b"PANIC"));
        // Between the messages of a pipeline time goes on, for `statement_timeout` too.
        let is_timely = state.is_in_pipeline && !state.skipping;
        if state.pending_answers.is_empty() && !is_fatal && !is_timely {
            return Err(unexpected());
        }
        state.lost |= is_lost(body);
        let (refusal, texts) = match state.pending_answers.front_mut() {
            Some(PendingAnswer::Parse { refusal, texts, .. }) => (refusal.take(), texts.take()),
            Some(PendingAnswer::Query {
                refusal,
                has_failed,
                ..
            }) => {
                *has_failed = true;
                (refusal.take(), None)
            }
            Some(PendingAnswer::Execute { refusal, .. }) => (refusal.take(), None),
            Some(PendingAnswer::Own { rows, .. }) => {
                if error_field(body, b'C') == Some(b"57014") {
                    state.interrupted = Some(interrupt(body));
                }
                rows.get_or_init(|| None);
                if is_fatal {
                    append(&mut self.out, b'E', body);
                }
                return Ok(());
            }
            _ => (None, None),
        };
        state.note_undone();
        match refusal {
            Some(refusal) => append_error(&mut self.out, "ERROR", &refusal),
            None => {
                let shown = server_error::for_application(body, texts.as_deref());
                append(&mut self.out, b'E', &shown);
            }
        }
        if !state
            .pending_answers
            .front()
            .is_some_and(PendingAnswer::awaits_ready)
        {
            state.skip_to_sync();
        }
        Ok(())
    }

    /// Handles `ParseComplete`, `BindComplete` or `CloseComplete`: takes it off the expected
    /// answers and passes it on if the client is to see it, which it is not during a query of the
    /// proxy's own. Fails with SR-8105 if it was not expected.
    fn handle_completion(
        &mut self,
        state: &mut State,
        tag: u8,
        body: &[u8],
    ) -> Result<(), Refusal> {
        match state.pending_answers.front_mut() {
            Some(PendingAnswer::Own { .. }) => return Ok(()),
            Some(PendingAnswer::Within { closes, .. }) => {
                *closes = closes.saturating_sub(u8::from(tag == b'3'));
                if *closes == 0
                    && let Some(PendingAnswer::Within {
                        rows, collected, ..
                    }) = state.pending_answers.pop_front()
                {
                    rows.get_or_init(|| Some(collected.into_rows()));
                }
                return Ok(());
            }
            _ => {}
        }
        let forward = match (tag, state.pending_answers.pop_front()) {
            (b'1', Some(PendingAnswer::Parse { told, .. }))
            | (b'2', Some(PendingAnswer::Bind { told })) => {
                note_completed(told.as_ref());
                told.is_some()
            }
            (b'3', Some(PendingAnswer::Close { ends })) => {
                note_completed(Some(&ends));
                true
            }
            _ => return Err(unexpected()),
        };
        if forward {
            append(&mut self.out, tag, body);
        }
        Ok(())
    }

    /// Handles `ParameterDescription`: the client sees base types, and only its own parameters.
    /// Fails with SR-8105 if it is malformed or was not expected.
    fn handle_parameter_description(
        &mut self,
        state: &mut State,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let catalog = Arc::clone(&state.catalog);
        let Some(PendingAnswer::DescribeStatement {
            slot,
            forward,
            known,
            ..
        }) = state.pending_answers.front_mut()
        else {
            return Err(unexpected());
        };
        let mut fields = Fields(body);
        let count = fields.count().ok_or_else(unexpected)?;
        let oids: Option<Vec<u32>> = (0..count).map(|_| fields.oid()).collect();
        let oids = oids.ok_or_else(unexpected)?;
        if !has_parameters(known.as_ref(), &oids) {
            return Err(unexpected());
        }
        if let Some(shown) = *forward {
            let shown = oids.get(..shown).unwrap_or(&oids);
            let base = |oid: &u32| super::convert::client_type_oid(&catalog, *oid);
            if shown.len() == oids.len() && oids.iter().all(|oid| base(oid) == *oid) {
                // The count does not say how many there are if that needs more than 16 bits.
                append(&mut self.out, b't', body);
            } else {
                let mut message = Builder::new(&mut self.out, b't');
                message.count(shown.len());
                for oid in shown {
                    message.oid(base(oid));
                }
                message.end();
            }
        }
        self.described = Vec::new();
        if slot.is_some() {
            self.parameters_kept = oids;
        }
        Ok(())
    }

    /// Handles `RowDescription` or `NoData`: the client sees base types. Wakes, by the slot, a
    /// thread that waits for the description. Fails with SR-8105 if it is malformed or was not
    /// expected, with SR-8106 if a pinned column is plain.
    fn handle_row_description(
        &mut self,
        state: &mut State,
        tag: u8,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let catalog = Arc::clone(&state.catalog);
        let mut shown = Vec::new();
        let columns = match tag {
            b'T' => super::convert::rewrite_row_description(&catalog, body, &mut shown)?,
            _ => Vec::new(),
        };
        let forward = match state.pending_answers.front_mut() {
            Some(PendingAnswer::DescribeStatement {
                slot,
                forward,
                known,
                expected,
            }) => {
                if !is_as_known(known.as_ref(), &columns) {
                    return Err(unexpected());
                }
                if tag == b'T' {
                    check_columns(&columns, expected)?;
                }
                if let Some(slot) = slot.take() {
                    let parameters = std::mem::take(&mut self.parameters_kept);
                    slot.get_or_init(|| {
                        Some(Description {
                            parameters,
                            columns: columns.clone(),
                        })
                    });
                }
                let forward = forward.is_some();
                state.pending_answers.pop_front();
                forward
            }
            Some(PendingAnswer::DescribePortal {
                forward,
                rows_only,
                known,
                expected,
            }) => {
                if !is_as_known(known.as_ref(), &columns) {
                    return Err(unexpected());
                }
                if tag == b'T' {
                    check_columns(&columns, expected)?;
                }
                let forward = *forward && (tag == b'T' || !*rows_only);
                state.pending_answers.pop_front();
                forward
            }
            Some(PendingAnswer::Own { .. }) => return Ok(()),
            Some(PendingAnswer::Query { is_bound, .. }) => {
                // A second result within a statement is another statement's for the client. Rules
                // have them (`DO ALSO SELECT`): where nothing is bound they may come.
                if std::mem::replace(&mut self.is_described, true) && *is_bound {
                    return Err(unexpected());
                }
                tag == b'T'
            }
            Some(_) => tag == b'T',
            None => return Err(unexpected()),
        };
        self.described = columns;
        // Rows that follow are of this description.
        self.current = None;
        if forward && tag == b'T' {
            append(&mut self.out, b'T', &shown);
        } else if forward {
            append(&mut self.out, tag, body);
        }
        Ok(())
    }

    /// Handles `DataRow`: the client gets it with its confidential values opened, or nothing of it;
    /// a row of the proxy's own query is collected. Fails with SR-8105 if it is malformed, and if a
    /// value does not open.
    fn handle_data_row(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let before = self.out.len();
        let done = self.open_data_row(body);
        if done.is_err() {
            // The error that follows is a message of its own.
            self.out.truncate(before);
        }
        done
    }

    /// Appends a row with its confidential values opened to the messages for the client, or
    /// collects it. Fails as [`Self::handle_data_row`] does, but may leave a part of the message.
    fn open_data_row(&mut self, body: &[u8]) -> Result<(), Refusal> {
        if self.current.is_none() {
            let session = Arc::clone(&self.session);
            let mut state = session.lock();
            let front = state.pending_answers.front();
            let may_have = |front: &PendingAnswer| front.may_contain(b'D') && front.may_have_rows();
            if !front.is_some_and(may_have) {
                return Err(unexpected());
            }
            if let Some(
                PendingAnswer::Own { collected, .. } | PendingAnswer::Within { collected, .. },
            ) = state.pending_answers.front_mut()
            {
                collected.push(body).ok_or_else(unexpected)?;
                return Ok(());
            }
            let rows = Rows {
                columns: self.result_columns(&state),
                settings: state.settings.clone(),
                results: Arc::clone(&state.results),
                expected: expected_columns(&state),
                catalog: Arc::clone(&state.catalog),
            };
            check_columns(&rows.columns, &rows.expected)?;
            self.current = Some(rows);
        }
        let Some(rows) = self.current.as_ref() else {
            return Err(unexpected());
        };
        let columns = &rows.columns;
        let mut fields = Fields(body);
        let count = fields.count().ok_or_else(unexpected)?;
        if count != columns.len() {
            // Values beyond the description would be shown as they are.
            return Err(unexpected());
        }
        if columns.iter().all(|column| column.enc.is_none()) {
            append(&mut self.out, b'D', body);
            return Ok(());
        }
        let converter = Converter::new(&self.keys, &rows.settings).opening(&rows.results);
        let mut message = Builder::new(&mut self.out, b'D');
        message.count(count);
        for at in 0..count {
            let value = fields.value().ok_or_else(unexpected)?;
            match (value, columns.get(at)) {
                (
                    Some(bytes),
                    Some(ResultColumn {
                        enc: Some(enc),
                        format,
                        ..
                    }),
                ) => {
                    let expected = rows.expected.get(at);
                    let origins = expected.and_then(|expected| expected.origins.as_ref());
                    let converter = converter.expecting(origins, &rows.catalog);
                    let shown = converter.open_result(*enc, *format, bytes)?;
                    message.value(Some(shown.as_slice()));
                }
                (value, _) => {
                    message.value(value);
                }
            }
        }
        message.end();
        Ok(())
    }

    /// Returns the columns of the rows that the server sends now, each with its format.
    fn result_columns(&self, state: &State) -> Vec<ResultColumn> {
        let Some(PendingAnswer::Execute {
            columns: Columns::Statement(slot, formats),
            ..
        }) = state.pending_answers.front()
        else {
            return self.described.clone();
        };
        let described = slot
            .get()
            .and_then(Option::as_ref)
            .map(|description| description.columns.clone());
        let mut columns = described.unwrap_or_default();
        for (at, column) in columns.iter_mut().enumerate() {
            column.format = format_at(formats, at);
        }
        columns
    }

    /// Handles `CommandComplete`, `EmptyQueryResponse` or `PortalSuspended`: passes it on, but for
    /// a query of the proxy's own. Fails with SR-8105 if it was not expected.
    fn handle_command_complete(
        &mut self,
        state: &mut State,
        tag: u8,
        body: &[u8],
    ) -> Result<(), Refusal> {
        self.end_copy_from_client(state)?;
        self.end_statement(state);
        match state.pending_answers.front_mut() {
            Some(PendingAnswer::Execute { ends, .. }) => {
                note_completed(ends.as_ref());
                state.pending_answers.pop_front();
            }
            Some(PendingAnswer::Query {
                expected, is_exact, ..
            }) => {
                let ended = expected.pop_front();
                // One more end than statements: the rows of the next one would be bound to nothing.
                if ended.is_none() && *is_exact {
                    return Err(unexpected());
                }
                // Else another statement may have ended.
                let ended = ended.filter(|_| *is_exact);
                note_completed(ended.and_then(|ended| ended.ends).as_ref());
            }
            Some(PendingAnswer::Own { .. } | PendingAnswer::Within { .. }) => return Ok(()),
            _ => return Err(unexpected()),
        }
        append(&mut self.out, tag, body);
        Ok(())
    }

    /// Forgets what belongs to the statement that has ended.
    fn end_statement(&mut self, state: &mut State) {
        self.is_described = false;
        state.syncs_within_copy = 0;
        self.current = None;
        self.copy = None;
        self.copying = CopyState::Nothing;
        state.copying = None;
    }

    /// Handles `ReadyForQuery`: notes the transaction's state, and passes it on if the client is to
    /// see it. Rows of the proxy's own query are handed to the thread that waits. Fails with
    /// SR-8105 if it was not expected, or tells no state that a transaction has.
    fn handle_ready(&mut self, state: &mut State, body: &[u8]) -> Result<(), Refusal> {
        let front = state.pending_answers.front();
        if front.is_some_and(|front| !front.is_complete()) {
            return Err(unexpected());
        }
        // By any other state the catalog would not be read again.
        let transaction = transaction_status(body).ok_or_else(unexpected)?;
        self.end_statement(state);
        state.transaction = transaction;
        let forward = match state.pending_answers.pop_front() {
            None if state.is_ready_late() => {
                state.take_late_ready();
                state.end_statements();
                self.announce(state);
                true
            }
            Some(PendingAnswer::Sync { forward }) => {
                state.end_statements();
                self.announce(state);
                forward
            }
            Some(PendingAnswer::Query { .. } | PendingAnswer::FunctionCall) => {
                state.end_statements();
                self.announce(state);
                true
            }
            Some(PendingAnswer::Own { rows, collected }) => {
                rows.get_or_init(|| Some(collected.into_rows()));
                false
            }
            _ => return Err(unexpected()),
        };
        if forward {
            append(&mut self.out, b'Z', body);
        }
        Ok(())
    }

    /// Tells the other connections of definitions whose transaction has ended. Where the server
    /// says that it goes on, although the client has begun none, they are told now, and once more
    /// when it has ended: it is the client's word that counts, but an honest server may have begun
    /// one by a statement that the proxy does not read.
    fn announce(&self, state: &mut State) {
        let is_over = state.transaction == b'I';
        if state.announces && (is_over || !state.is_open && state.pending_answers.is_empty()) {
            state.announces = !is_over;
            self.shared.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Tells the other thread that the server has completed what makes a statement or ends others.
fn note_completed(ends: Option<&Completed>) {
    if let Some(ends) = ends {
        ends.store(true, Ordering::Release);
    }
}
