//! COPY's messages from the client.
//!
//! Must not: send data before the server has said that it copies, because only then is it known which columns are confidential.

use std::sync::Arc;

use super::copy::Incoming;
use super::upstream::{Outcome, POISON, Upstream};
use super::wire::{Builder, Message, append};

impl Upstream {
    /// `CopyData`, `CopyDone`, `CopyFail`.
    pub(super) fn copy_message(&mut self, message: &Message) -> Outcome {
        if self.copy_refused {
            self.copy_refused = message.tag == b'd';
            return Ok(());
        }
        if self.incoming.is_none() {
            self.flush()?;
            let began = self.session.wait(|state| {
                state.copying.is_some() || state.expects.is_empty() || state.skipping
            });
            let mut state = self.session.lock();
            let Some(transform) = state.copying.take().filter(|_| began) else {
                // The server ignores data when nothing is copied.
                return Ok(());
            };
            let settings = state.settings.clone();
            drop(state);
            self.incoming = Some(transform.map(|transform| {
                Incoming::new(transform, Arc::clone(&self.shared.keys), settings)
            }));
        }
        let mut data = Vec::new();
        let converted = match self.incoming.as_mut() {
            Some(Some(incoming)) if message.tag == b'd' => incoming.push(&message.body, &mut data),
            Some(Some(incoming)) if message.tag == b'c' => incoming.finish(&mut data),
            _ => {
                if message.tag == b'd' {
                    data.extend_from_slice(&message.body);
                }
                Ok(())
            }
        };
        if let Err(refusal) = converted {
            self.session.lock().replacement = Some(refusal);
            Builder::new(&mut self.out, b'f').string(POISON).end();
            self.incoming = None;
            self.copy_refused = message.tag == b'd';
            return Ok(());
        }
        if !data.is_empty() {
            append(&mut self.out, b'd', &data);
        }
        if message.tag != b'd' {
            append(&mut self.out, message.tag, &message.body);
            self.incoming = None;
        }
        Ok(())
    }
}
