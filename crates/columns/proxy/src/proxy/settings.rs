//! Settings of a session that the forms of values depend on, as the server reports them.
//!
//! Must not: know a value.

use strongroom_columns_values::TimeZone;

/// Settings of the session that values depend on, as the server reports them.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) date_style: String,
    pub(crate) interval_style: String,
    /// `None` for a time zone that is not in the IANA database.
    pub(crate) time_zone: Option<TimeZone>,
    pub(crate) client_encoding: String,
    pub(crate) standard_strings: bool,
}

impl Default for Settings {
    /// Returns PostgreSQL's own defaults, in UTC and UTF-8.
    fn default() -> Self {
        Self {
            date_style: "ISO, MDY".to_owned(),
            interval_style: "postgres".to_owned(),
            time_zone: Some(TimeZone::utc()),
            client_encoding: "UTF8".to_owned(),
            standard_strings: true,
        }
    }
}

impl Settings {
    /// Takes over a setting from a `ParameterStatus`, if values depend on it.
    pub(crate) fn apply_status(&mut self, name: &[u8], value: &[u8]) {
        let value = String::from_utf8_lossy(value).into_owned();
        match name {
            b"DateStyle" => self.date_style = value,
            b"IntervalStyle" => self.interval_style = value,
            b"TimeZone" => self.time_zone = TimeZone::by_name(&value).ok(),
            b"client_encoding" => self.client_encoding = value,
            b"standard_conforming_strings" => self.standard_strings = value == "on",
            _ => {}
        }
    }
}
