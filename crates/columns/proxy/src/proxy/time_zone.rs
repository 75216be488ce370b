//! Asks the server for its time zone, where it may have another one than it has reported.
//!
//! Must not: ask where no value depends on it.

use std::sync::{Arc, OnceLock};

use strongroom_postgres_wire::append;

use super::collected_rows::CollectedRows;
use super::own_queries::{OWN, own_messages};
use super::session::{PendingAnswer, RowsSlot};
use super::session_zone::Known;
use super::settings::Settings;
use super::upstream::{Failure, Outcome, Upstream};

/// How many statements and portals are closed for a question.
const CLOSES: u8 = 4;

impl Upstream {
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
