//! The time zone in which values without an offset are read.
//!
//! Since PostgreSQL 14 the server reports a setting when it is ready for the next pipeline, and not
//! at once. So a value may be sealed when the server has the zone already and has not told it: then
//! it is asked. Must not: read a statement.

use std::sync::{Arc, OnceLock};

use strongroom_format::columns::Kind;
use strongroom_postgres_wire::append;

use super::collected_rows::CollectedRows;
use super::own_queries::{OWN, own_messages};
use super::session::{Description, PendingAnswer, RowsSlot};
use super::settings::Settings;
use super::upstream::{Failure, Outcome, Upstream};
use crate::sql::catalog::Catalog;
use crate::sql::{Constant, Effects, Token};

/// How many statements and portals are closed for a question.
pub(super) const CLOSES: u8 = 4;

/// What is known of the session's time zone.
#[derive(Default)]
pub(super) struct SessionZone {
    known: Known,
    /// A statement of the transaction that is open may have changed it: it may change again when
    /// the transaction ends.
    is_set: bool,
}

#[derive(Default)]
enum Known {
    /// It is the one that the server has reported.
    #[default]
    Reported,
    /// It may be another one.
    Unreported,
    /// The server has been asked.
    Told(String),
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

impl Upstream {
    /// Notes what a statement that is about to be sent may do to the time zone.
    pub(super) fn note_zone(&mut self, effects: Effects) {
        let ends = effects.ends || effects.chains || effects.undoes;
        if effects.sets_zone || ends && self.zone.is_set {
            self.zone.known = Known::Unreported;
        }
        self.zone.is_set |= effects.sets_zone;
    }

    /// Notes that the server has reported the time zone, if it has answered everything.
    pub(super) fn settle_zone(&mut self) {
        if !self.zone.is_set || self.in_pipeline {
            return;
        }
        let state = self.session.lock();
        if state.pending_answers.is_empty() && !state.is_in_pipeline {
            self.zone.known = Known::Reported;
            self.zone.is_set = state.transaction != b'I';
        }
    }

    /// Returns the session's settings for values that are to be sealed; with `needs_zone` the time
    /// zone is the one that the server has now. Fails with `Skipped` if the server does not say.
    pub(super) fn settings_now(&mut self, needs_zone: bool) -> Outcome<Settings> {
        let mut settings = self.session.lock().settings.clone();
        if needs_zone {
            if matches!(self.zone.known, Known::Unreported) {
                self.zone.known = Known::Told(self.ask_zone()?);
            }
            if let Known::Told(zone) = &self.zone.known {
                settings.apply_status(b"TimeZone", zone.as_bytes());
            }
        }
        Ok(settings)
    }

    /// Asks the server for its time zone within the client's pipeline. Fails with `Skipped` if it
    /// ignores the question because of an error, or the connection ends.
    fn ask_zone(&mut self) -> Outcome<String> {
        let rows: RowsSlot = Arc::new(OnceLock::new());
        let expect = PendingAnswer::Setting {
            rows: Arc::clone(&rows),
            collected: CollectedRows::default(),
            closes: CLOSES,
        };
        self.send(expect, b'C', |message| {
            message.byte(b'S').string(OWN);
        })?;
        own_messages(&mut self.out, b"SHOW TimeZone");
        append(&mut self.out, b'H', &[]);
        self.flush()?;
        if !self.session.wait(|_| rows.get().is_some()) {
            return Err(Failure::Skipped);
        }
        let told = rows
            .get()
            .and_then(Option::as_ref)
            .ok_or(Failure::Skipped)?;
        let zone = told.first().and_then(|row| row.first());
        Ok(zone.cloned().flatten().unwrap_or_default())
    }
}
