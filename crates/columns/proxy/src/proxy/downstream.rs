//! From the server to the client: answers are matched with what is expected, values decrypted, types shown as base types.
//!
//! Invariants: P1 to P3 of `session.rs`; an envelope that does not open ends the connection, because an error in the middle of
//! a pipeline could not undo what the server goes on to do. Must not: write to the server.

use std::io::{self, BufReader, Write};
use std::sync::Arc;

use super::convert::{Converter, formats_at};
use super::session::{
    Columns, Copying, Description, Expect, ResultColumn, Session, Settings, State,
};
use super::stream::Stream;
use super::wire::{self, Builder, Fields, Message, append, append_error, without_field};
use crate::keys::ColumnKeys;
use crate::sql::refusal::Refusal;

/// Bytes collected for the client before they are written although more is at hand.
const BATCH: usize = 64 * 1024;

pub(crate) struct Downstream {
    session: Arc<Session>,
    keys: Arc<ColumnKeys>,
    server: BufReader<Stream>,
    client: Stream,
    out: Vec<u8>,
    /// Columns of the rows that come now, from the last `RowDescription`.
    described: Vec<ResultColumn>,
    /// Columns of the rows of this execution, while they come.
    current: Option<(Vec<ResultColumn>, Settings)>,
    copy: Option<super::copy::Outgoing>,
    /// A statement's parameters, between their description and that of its result.
    parameters_kept: Vec<u32>,
}

impl Downstream {
    pub(crate) fn new(
        session: Arc<Session>,
        keys: Arc<ColumnKeys>,
        server: BufReader<Stream>,
        client: Stream,
    ) -> Self {
        Self {
            session,
            keys,
            server,
            client,
            out: Vec::new(),
            described: Vec::new(),
            current: None,
            copy: None,
            parameters_kept: Vec::new(),
        }
    }

    /// Relays until either side is gone.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let ended = self.relay();
        if let Err(error) = &ended
            && error.kind() == io::ErrorKind::InvalidData
        {
            let refusal = Refusal::protocol(&error.to_string());
            append_error(&mut self.out, "FATAL", &refusal);
        }
        self.flush().and(ended)
    }

    fn relay(&mut self) -> io::Result<()> {
        loop {
            if self.server.buffer().is_empty() || self.out.len() >= BATCH {
                self.flush()?;
            }
            let Some(message) = wire::read(&mut self.server)? else {
                return Ok(());
            };
            if let Err(refusal) = self.message(message) {
                append_error(&mut self.out, "FATAL", &refusal);
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.client.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn message(&mut self, message: Message) -> Result<(), Refusal> {
        match message.tag {
            b'D' => return self.row(&message.body),
            b'd' => return self.copy_data(&message.body),
            b'N' | b'A' => {
                append(&mut self.out, message.tag, &message.body);
                return Ok(());
            }
            _ => {}
        }
        let session = Arc::clone(&self.session);
        let mut state = session.lock();
        let done = self.answer(&mut state, message);
        drop(state);
        session.wake();
        done
    }

    fn answer(&mut self, state: &mut State, message: Message) -> Result<(), Refusal> {
        let Message { tag, body } = message;
        match tag {
            b'S' => {
                let mut fields = Fields(&body);
                if let (Some(name), Some(value)) = (fields.string(), fields.string()) {
                    state.settings.report(name, value);
                }
                append(&mut self.out, tag, &body);
                Ok(())
            }
            b'E' => {
                self.error(state, &body);
                Ok(())
            }
            b'1' | b'2' | b'3' => self.done(state, tag, &body),
            b't' => self.parameters(state, &body),
            b'T' | b'n' => self.description(state, tag, &body),
            b'C' | b'I' | b's' => self.complete(state, tag, &body),
            b'G' | b'H' | b'W' => self.begin_copy(state, tag, &body),
            b'c' => {
                self.end_copy();
                append(&mut self.out, tag, &body);
                Ok(())
            }
            b'Z' => self.ready(state, &body),
            _ => {
                append(&mut self.out, tag, &body);
                Ok(())
            }
        }
    }

    fn error(&mut self, state: &mut State, body: &[u8]) {
        self.current = None;
        self.copy = None;
        state.copying = None;
        state.lost |= is_lost(body);
        let (refusal, changed) = match state.expects.front_mut() {
            Some(Expect::Parse {
                refusal, changed, ..
            }) => (refusal.take(), *changed),
            Some(Expect::Query { refusal, .. }) => (refusal.take(), false),
            Some(Expect::Own { rows, .. }) => {
                rows.get_or_init(|| None);
                return;
            }
            _ => (None, false),
        };
        match refusal.or_else(|| state.replacement.take()) {
            Some(refusal) => append_error(&mut self.out, "ERROR", &refusal),
            None if changed => append(&mut self.out, b'E', &without_field(body, b'P')),
            None => append(&mut self.out, b'E', body),
        }
        if !state.expects.front().is_some_and(Expect::ends_ready) {
            state.fail();
        }
    }

    /// `ParseComplete`, `BindComplete`, `CloseComplete`.
    fn done(&mut self, state: &mut State, tag: u8, body: &[u8]) -> Result<(), Refusal> {
        let forward = match (tag, state.expects.pop_front()) {
            (b'1', Some(Expect::Parse { forward, .. }))
            | (b'2', Some(Expect::Bind { forward })) => forward,
            (b'3', Some(Expect::Close)) => true,
            _ => return Err(unexpected()),
        };
        if forward {
            append(&mut self.out, tag, body);
        }
        Ok(())
    }

    /// `ParameterDescription`: the client sees base types, and only its own parameters.
    fn parameters(&mut self, state: &mut State, body: &[u8]) -> Result<(), Refusal> {
        let catalog = Arc::clone(&state.catalog);
        let Some(Expect::DescribeStatement { slot, forward }) = state.expects.front_mut() else {
            return Err(unexpected());
        };
        let mut fields = Fields(body);
        let count = fields.count().ok_or_else(unexpected)?;
        let oids: Option<Vec<u32>> = (0..count).map(|_| fields.oid()).collect();
        let oids = oids.ok_or_else(unexpected)?;
        if let Some(shown) = *forward {
            let mut message = Builder::new(&mut self.out, b't');
            let shown = oids.get(..shown).unwrap_or(&oids);
            message.count(shown.len());
            for oid in shown {
                message.oid(super::convert::shown_oid(&catalog, *oid));
            }
            message.end();
        }
        self.described = Vec::new();
        if slot.is_some() {
            self.parameters_kept = oids;
        }
        Ok(())
    }

    /// `RowDescription` or `NoData`.
    fn description(&mut self, state: &mut State, tag: u8, body: &[u8]) -> Result<(), Refusal> {
        let catalog = Arc::clone(&state.catalog);
        let mut shown = Vec::new();
        let columns = match tag {
            b'T' => super::convert::shown_columns(&catalog, body, &mut shown)?,
            _ => Vec::new(),
        };
        let forward = match state.expects.front_mut() {
            Some(Expect::DescribeStatement { slot, forward }) => {
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
                state.expects.pop_front();
                forward
            }
            Some(Expect::DescribePortal { forward, rows_only }) => {
                let forward = *forward && (tag == b'T' || !*rows_only);
                state.expects.pop_front();
                forward
            }
            Some(Expect::Own { .. }) => return Ok(()),
            Some(_) => tag == b'T',
            None => return Err(unexpected()),
        };
        self.described = columns;
        if forward && tag == b'T' {
            append(&mut self.out, b'T', &shown);
        } else if forward {
            append(&mut self.out, tag, body);
        }
        Ok(())
    }

    /// `DataRow`.
    fn row(&mut self, body: &[u8]) -> Result<(), Refusal> {
        if self.current.is_none() {
            let session = Arc::clone(&self.session);
            let mut state = session.lock();
            if let Some(Expect::Own { collected, .. }) = state.expects.front_mut() {
                collected.push(text_row(body).ok_or_else(unexpected)?);
                return Ok(());
            }
            self.current = Some((self.columns_of(&state), state.settings.clone()));
        }
        let Some((columns, settings)) = self.current.as_ref() else {
            return Err(unexpected());
        };
        if columns.iter().all(|column| column.enc.is_none()) {
            append(&mut self.out, b'D', body);
            return Ok(());
        }
        let converter = Converter::new(&self.keys, settings);
        let mut fields = Fields(body);
        let count = fields.count().ok_or_else(unexpected)?;
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
                    }),
                ) => {
                    let shown = converter.reveal(*enc, *format, bytes)?;
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

    fn columns_of(&self, state: &State) -> Vec<ResultColumn> {
        let Some(Expect::Execute {
            columns: Columns::Statement(slot, formats),
            ..
        }) = state.expects.front()
        else {
            return self.described.clone();
        };
        let described = slot
            .get()
            .and_then(Option::as_ref)
            .map(|description| description.columns.clone());
        let mut columns = described.unwrap_or_default();
        for (at, column) in columns.iter_mut().enumerate() {
            column.format = formats_at(formats, at);
        }
        columns
    }

    /// `CommandComplete`, `EmptyQueryResponse`, `PortalSuspended`.
    fn complete(&mut self, state: &mut State, tag: u8, body: &[u8]) -> Result<(), Refusal> {
        self.current = None;
        self.copy = None;
        state.copying = None;
        match state.expects.front() {
            Some(Expect::Execute { .. }) => drop(state.expects.pop_front()),
            Some(Expect::Query { .. }) => {}
            Some(Expect::Own { .. }) => return Ok(()),
            _ => return Err(unexpected()),
        }
        append(&mut self.out, tag, body);
        Ok(())
    }

    fn begin_copy(&mut self, state: &mut State, tag: u8, body: &[u8]) -> Result<(), Refusal> {
        // What nobody asked for gets no data.
        let (transform, request) = match state.expects.front() {
            Some(Expect::Execute { copy, request, .. } | Expect::Query { copy, request, .. }) => {
                (copy.clone(), *request)
            }
            _ => return Err(unexpected()),
        };
        if tag == b'G' {
            // The server ignores a Sync that it reads while it copies (src/backend/commands/copyfromparse.c): of those that
            // were sent together with the command no answer will come.
            if matches!(state.expects.front(), Some(Expect::Execute { .. })) {
                state
                    .expects
                    .retain(|expect| !matches!(expect, Expect::Sync { .. }));
            }
            state.copying = Some(Copying { request, transform });
        } else if let Some(transform) = transform {
            self.copy = Some(super::copy::Outgoing::new(
                transform,
                Arc::clone(&self.keys),
                state.settings.clone(),
            ));
        }
        append(&mut self.out, tag, body);
        Ok(())
    }

    fn copy_data(&mut self, body: &[u8]) -> Result<(), Refusal> {
        match self.copy.as_mut() {
            None => append(&mut self.out, b'd', body),
            Some(copy) => {
                let mut shown = Vec::new();
                copy.push(body, &mut shown)?;
                if !shown.is_empty() {
                    append(&mut self.out, b'd', &shown);
                }
            }
        }
        Ok(())
    }

    fn end_copy(&mut self) {
        self.copy = None;
    }

    /// `ReadyForQuery`.
    fn ready(&mut self, state: &mut State, body: &[u8]) -> Result<(), Refusal> {
        self.current = None;
        self.copy = None;
        state.copying = None;
        state.transaction = body.first().copied().unwrap_or(b'I');
        let forward = match state.expects.pop_front() {
            Some(Expect::Sync { forward }) => forward,
            Some(Expect::Query { .. } | Expect::FunctionCall) => true,
            Some(Expect::Own { rows, collected }) => {
                rows.get_or_init(|| Some(collected));
                false
            }
            _ => return Err(unexpected()),
        };
        if forward {
            append(&mut self.out, b'Z', body);
        }
        Ok(())
    }
}

/// Whether an error says that the zone has forgotten the session: it was started anew (SR-8003), has no ticket for the session (SR-8006), or
/// not the keys (SR-8008).
fn is_lost(body: &[u8]) -> bool {
    let message = body
        .split(|byte| *byte == 0)
        .find_map(|field| field.strip_prefix(b"M"))
        .unwrap_or_default();
    [b"(SR-8003)", b"(SR-8006)", b"(SR-8008)"]
        .iter()
        .any(|code| message.windows(code.len()).any(|window| window == *code))
}

pub(super) fn unexpected() -> Refusal {
    Refusal::protocol("the server's answer is not the one that was expected")
}

pub(crate) fn text_row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let mut fields = Fields(body);
    let count = fields.count()?;
    let mut row = Vec::with_capacity(count);
    for _ in 0..count {
        row.push(
            fields
                .value()?
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        );
    }
    Some(row)
}
