//! Asks the server for its time zone, where it may have another one than it has reported.
//!
//! Must not: ask where no value depends on it.

use super::session_zone::Known;
use super::settings::Settings;
use super::upstream::{Outcome, Upstream};

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
        let told = self.run_within("SHOW TimeZone")?;
        let zone = told
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next());
        Ok(zone.flatten().unwrap_or_default())
    }
}
