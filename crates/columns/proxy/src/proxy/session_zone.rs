//! What is known of the time zone in which values without an offset are read.
//!
//! Since PostgreSQL 14 the server reports a setting when it is ready for the next pipeline, and not
//! at once: it may have another zone than it has told. Must not: ask it.

use strongroom_format::columns::Kind;

use super::session::{Description, State};
use crate::sql::catalog::Catalog;
use crate::sql::{Constant, Effects, Token};

/// What is known of the session's time zone.
#[derive(Default)]
pub(super) struct SessionZone {
    pub(super) known: Known,
    /// A statement of the transaction that is open may have changed it: it may change again when
    /// the transaction ends.
    is_set: bool,
}

#[derive(Default)]
pub(super) enum Known {
    /// It is the one that the server has reported.
    #[default]
    Reported,
    /// It may be another one.
    Unreported,
    /// The server has been asked.
    Told(String),
}

impl SessionZone {
    /// Notes what a statement that is about to be sent may do to the time zone.
    pub(super) fn note(&mut self, effects: Effects) {
        let ends = effects.ends || effects.chains || effects.undoes;
        if effects.sets_zone || ends && self.is_set {
            self.known = Known::Unreported;
        }
        self.is_set |= effects.sets_zone;
    }

    /// Notes that the server has reported the time zone, if it has answered everything. Called
    /// between the client's pipelines.
    pub(super) fn settle(&mut self, state: &State) {
        if self.is_set && state.pending_answers.is_empty() && !state.is_in_pipeline {
            self.known = Known::Reported;
            self.is_set = state.transaction != b'I';
        }
    }
}

/// Returns whether a value that the statement gets may depend on the time zone: one of its
/// parameters' types, or the proxy's clock.
pub(super) fn needs_zone(
    catalog: &Catalog,
    description: &Description,
    constants: &[Constant],
) -> bool {
    let is_moment = |oid: &u32| {
        let of = catalog.enc_type(*oid);
        of.is_some_and(|of| of.kind == Kind::Timestamptz)
    };
    let is_clock = |constant: &Constant| matches!(constant.literal.token, Token::Clock(_));
    description.parameters.iter().any(is_moment) || constants.iter().any(is_clock)
}
