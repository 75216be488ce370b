//! Text of unknown origin, made harmless for a terminal.
//!
//! Must not: be used for what another program reads back.

use alloc::string::String;

/// `text` with every misleading character replaced by U+FFFD: names of files and SQL may hold such
/// characters, and a terminal must not obey them.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_misleading(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Whether a character is not shown as what it is: a control, a mark of direction (Unicode UAX #9),
/// without width, a line separator, a tag, or for private use.
#[must_use]
pub fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}'
            | '\u{e0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert_eq!(printable("Zürich, 北京 (psql)"), "Zürich, 北京 (psql)");
        let told = "a\u{1b}[2Jb\u{202e}c\u{200b}d\u{2028}e\u{2066}f\u{85}g\u{feff}h\u{61c}i";
        assert_eq!(
            printable(told),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}g\u{fffd}h\u{fffd}i"
        );
    }
}
