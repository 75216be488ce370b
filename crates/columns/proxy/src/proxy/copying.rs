//! COPY's messages from the client.
//!
//! Invariants:
//! - C1 Data is sent only after the server has announced the COPY, because only then is it known
//!   which columns are confidential.
//! - C2 Data belongs to the request that was sent last: a COPY of an older request gets none of it.
//!
//! Must not: keep data after the end of its COPY.

use std::sync::Arc;

use strongroom_postgres_wire::{Builder, Message, append};

use super::copy::Incoming;
use super::session::{Copying, State};
use super::upstream::{Failure, Outcome, POISON, Upstream};

impl Upstream {
    /// Handles `CopyData`, `CopyDone` or `CopyFail` of the client: sends the rows that are
    /// complete, with their confidential fields sealed. Outside a COPY it is ignored. If a value is
    /// not valid the server is sent a `CopyFail`, the client gets the refusal, and the rest of the
    /// data is ignored.
    pub(super) fn copy_message(&mut self, message: &Message) -> Outcome {
        let Some(copying) = self.copying()? else {
            // The server ignores data outside a COPY.
            self.incoming = None;
            return Ok(());
        };
        if self.copy_refused == Some(copying.request) {
            return Ok(());
        }
        if self.incoming.as_ref().map(|(request, _)| *request) != Some(copying.request) {
            let settings = self.session.lock().settings.clone();
            let incoming = copying
                .transform
                .map(|transform| Incoming::new(transform, Arc::clone(&self.shared.keys), settings));
            self.incoming = Some((copying.request, incoming));
        }
        let mut data = Vec::new();
        let converted = match self.incoming.as_mut() {
            Some((_, Some(incoming))) if message.tag == b'd' => {
                incoming.push(&message.body, &mut data)
            }
            Some((_, Some(incoming))) if message.tag == b'c' => incoming.finish(&mut data),
            _ => {
                if message.tag == b'd' {
                    data.extend_from_slice(&message.body);
                }
                Ok(())
            }
        };
        if let Err(refusal) = converted {
            self.session.lock().refuse_copy(copying.request, refusal);
            Builder::new(&mut self.out, b'f').string(POISON).end();
            self.incoming = None;
            self.copy_refused = Some(copying.request);
            // The server ends the COPY: it answers a Sync that comes behind.
            self.end_copying(copying.request);
            return Ok(());
        }
        if !data.is_empty() {
            append(&mut self.out, b'd', &data);
        }
        if message.tag != b'd' {
            append(&mut self.out, message.tag, &message.body);
            self.incoming = None;
            if message.tag == b'c' {
                self.session.lock().copied = Some(copying.request);
            }
            self.end_copying(copying.request);
        }
        Ok(())
    }

    /// Notes that the client sends no more data for this COPY, unless another one has begun.
    fn end_copying(&self, request: u64) {
        let mut state = self.session.lock();
        if state.copying.as_ref().map(|copying| copying.request) == Some(request) {
            state.copying = None;
        }
    }

    /// Returns the COPY that data from the client belongs to; waits until the server has announced
    /// it or answered everything. `None` if there is none; `Skipped` if the connection ends.
    fn copying(&mut self) -> Outcome<Option<Copying>> {
        let current = |state: &State| {
            let copying = state.copying.clone();
            copying.filter(|copying| copying.request == state.requests)
        };
        if let Some(copying) = current(&self.session.lock()) {
            return Ok(Some(copying));
        }
        if self.in_pipeline {
            // The server announces a COPY at once, but it sends an earlier error only after a
            // Flush.
            append(&mut self.out, b'H', &[]);
        }
        self.flush()?;
        let began = self.session.wait(|state| {
            current(state).is_some() || state.pending_answers.is_empty() || state.skipping
        });
        if !began {
            return Err(Failure::Skipped);
        }
        Ok(current(&self.session.lock()))
    }
}
