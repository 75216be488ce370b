//! What a statement of the client does besides giving a result: to the transaction, to relations.
//!
//! Must not: look at its text.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::startup::unkept;
use super::upstream::{Outcome, Upstream};
use crate::sql::Effects;
use crate::sql::changes::Changes;

impl Upstream {
    /// Notes the effects of a statement that is about to be executed, and which relations it may
    /// change. Fails with SR-8107 if that cannot be kept.
    pub(super) fn note_effects(&mut self, effects: Effects, changes: &Changes) -> Outcome {
        let mut state = self.session.lock();
        if state.skipping || state.refused {
            // It is not sent.
            return Ok(());
        }
        self.defined |= effects.defines;
        state.announces |= effects.defines;
        if let Some(fate) = &state.fate {
            fate.note_statement(effects.ends || effects.chains, effects.undoes_part);
        }
        if effects.begins && !state.is_open {
            state.undone_before = state.undone.load(Ordering::Acquire);
        }
        state.is_open = (state.is_open || effects.begins) && !effects.ends;
        if effects.undoes {
            state.note_undone();
        }
        let fate = (!changes.is_empty()).then(|| state.fate());
        drop(state);
        if effects.ends || effects.undoes || effects.chains {
            self.named_queries.end_transaction();
            self.relations.end_transaction();
        }
        if effects.chains {
            self.begun = SystemTime::now();
        }
        let Some(fate) = fate else {
            return Ok(());
        };
        let database = &self.names.database;
        let begun = self.relations.begin_change(database, changes, &fate);
        begun.map_err(|error| unkept(&error).into())
    }
}
