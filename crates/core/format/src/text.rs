//! Text of unknown origin, made harmless for a terminal.
//!
//! Must not: be used for what another program reads back.

use alloc::string::String;

/// `text` with every control character replaced by U+FFFD: names of files and SQL may hold control
/// characters, and a terminal must not obey them.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
