//! COPY's messages from the server.
//!
//! Invariants:
//! - C3 A COPY begins once for each statement that is one, in that statement's direction; data
//!   comes within it. A client would take data that answers another statement for its result, and
//!   send the server what it means as SQL.
//! - C4 A COPY from the client succeeds only after the client has sent all its data: it would send
//!   the rest as SQL.
//!
//! Must not: open a value.

use std::sync::Arc;

use strongroom_postgres_wire::{Fields, append};

use super::copy::Transform;
use super::downstream::Downstream;
use super::messages::unexpected;
use super::session::{Copying, PendingAnswer, State};
use super::upstream::int16s;
use crate::sql::Copies;
use crate::sql::refusal::Refusal;

/// The COPY of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    /// None has begun.
    Nothing,
    /// From the client.
    In,
    /// To the client.
    Out,
    /// To the client; all data has come.
    Done,
}

/// Checks that the server announces data of the form that the statement says: a client would read
/// other rows than the proxy. Fails with SR-8105 if it does not.
fn check_format(transform: &Transform, body: &[u8]) -> Result<(), Refusal> {
    let mut fields = Fields(body);
    let format = fields.byte();
    let columns = int16s(&mut fields).ok_or_else(unexpected)?;
    let binary = u8::from(transform.is_binary());
    let is_of_format = |column: &i16| *column == i16::from(binary);
    let is_long_enough = transform
        .columns_count()
        .is_none_or(|count| count == columns.len());
    if format == Some(binary) && columns.iter().all(is_of_format) && is_long_enough {
        Ok(())
    } else {
        Err(unexpected())
    }
}

impl Downstream {
    /// Handles the beginning of a COPY: notes how its data is converted, and passes it on. Fails
    /// with SR-8105 if no COPY was expected.
    pub(super) fn handle_copy_response(
        &mut self,
        state: &mut State,
        tag: u8,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let front = state.pending_answers.front();
        // A COPY that was not requested gets no data, and gives none.
        let is_requested = match front.map(PendingAnswer::copies) {
            Some(Copies::FromClient) => tag == b'G',
            Some(Copies::ToClient) => tag == b'H',
            Some(Copies::Anything) => true,
            Some(Copies::Nothing) | None => false,
        };
        if !is_requested || self.copying != CopyState::Nothing {
            return Err(unexpected());
        }
        let (transform, request) = match front {
            Some(
                PendingAnswer::Execute { copy, request, .. }
                | PendingAnswer::Query { copy, request, .. },
            ) => (copy.clone(), *request),
            _ => return Err(unexpected()),
        };
        self.copying = CopyState::Out;
        state.copied = None;
        if tag == b'G' {
            self.copying = CopyState::In;
            if matches!(
                state.pending_answers.front(),
                Some(PendingAnswer::Execute { .. })
            ) {
                // Those that were sent together with the command get no answer.
                state.take_syncs();
            }
            state.copying = Some(Copying { request, transform });
        } else if let Some(transform) = transform {
            check_format(&transform, body)?;
            self.copy = Some(super::copy::Outgoing::new(
                transform,
                Arc::clone(&self.keys),
                state.settings.clone(),
                (Arc::clone(&state.results), Arc::clone(&state.catalog)),
            ));
        }
        append(&mut self.out, tag, body);
        Ok(())
    }

    /// Notes that the server has ended the statement that it answers now without an error, before
    /// what belongs to that statement is forgotten. Fails with SR-8105 if it is a COPY from the
    /// client whose data the client has not sent. Where a text has statements that are not known,
    /// the one that has ended may be another one.
    pub(super) fn end_copy_from_client(&self, state: &mut State) -> Result<(), Refusal> {
        let copied = state.copied.take();
        let Some(front) = state.pending_answers.front() else {
            return Ok(());
        };
        if front.copies() != Copies::FromClient {
            return Ok(());
        }
        if self.copying == CopyState::In && copied.is_some() && copied == front.request() {
            let mut behind = state.pending_answers.iter().skip(1);
            state.copy_doubted = behind.any(|answer| answer.copies() == Copies::FromClient);
            return Ok(());
        }
        match front {
            PendingAnswer::Query {
                is_exact: false, ..
            } => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Passes data of a COPY on, with its confidential values opened. Fails if one does not open or
    /// a row is malformed.
    pub(super) fn handle_copy_data(&mut self, body: &[u8]) -> Result<(), Refusal> {
        if self.copying != CopyState::Out {
            return Err(unexpected());
        }
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

    /// Handles the end of a COPY's data, and passes it on. Fails with SR-8105 if none has begun.
    pub(super) fn handle_copy_done(&mut self, body: &[u8]) -> Result<(), Refusal> {
        if self.copying != CopyState::Out {
            return Err(unexpected());
        }
        self.copying = CopyState::Done;
        self.copy = None;
        append(&mut self.out, b'c', body);
        Ok(())
    }
}
