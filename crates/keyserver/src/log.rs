//! What the server says while it runs: one JSON object a line on standard error.
//!
//! Must not: be given key material, tokens, shares, or anything a client sent that was not checked to be a name.

use std::io::Write as _;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Worth a look.
    Warning,
    /// Somebody has to act.
    Error,
}

/// Writes one line. A closed standard error stops nothing.
pub fn log(level: Level, event: &str, members: &[(&str, &str)]) {
    let level = match level {
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let mut line = serde_json::Map::new();
    line.insert("time".to_owned(), crate::now().into());
    line.insert("level".to_owned(), level.into());
    line.insert("event".to_owned(), event.into());
    for (name, value) in members {
        line.insert((*name).to_owned(), (*value).into());
    }
    let mut text = serde_json::Value::Object(line).to_string();
    text.push('\n');
    drop(std::io::stderr().write_all(text.as_bytes()));
}
