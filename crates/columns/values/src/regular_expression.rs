//! `~`, `!~`, `~*` and `!~*` on UTF-8 text, collation "C": PostgreSQL's advanced regular
//! expressions (src/backend/regex) by the `regex` crate.
//!
//! Whether a text matches depends neither on which alternative is tried first nor on greediness, so
//! an expression is translated and searched for in time linear in the text. Back references and
//! look-around cannot be had that way, and are refused. Invariant: what is translated matches
//! exactly the texts that it matches in PostgreSQL. Must not: compile a pattern for each row.

mod brackets;
mod translation;

use std::cell::RefCell;

use regex::{Regex, RegexBuilder};
use strongroom_columns_ring::Fault;
use zeroize::Zeroizing;

/// Bytes of a pattern.
const PATTERN_MAX: usize = 4096;
/// Bytes of the automaton that a pattern becomes: with the length of a text it bounds the time that
/// a search takes.
const AUTOMATON_MAX: usize = 1 << 18;
/// Bytes of a text that is searched.
const TEXT_MAX: usize = 1 << 20;
/// Patterns that stay compiled.
const KEPT: usize = 16;

/// A pattern and what it was compiled to.
struct Compiled {
    pattern: Zeroizing<String>,
    fold: bool,
    regex: Regex,
}

thread_local! {
    /// The patterns that were used last, the last one at the end.
    static COMPILED: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
}

/// Whether the pattern is found in `text`; with `fold`, ASCII letters match in either case.
///
/// # Errors
/// [`Fault::RegexInvalid`] for a pattern that PostgreSQL refuses; [`Fault::RegexNotComputed`] for
/// back references, look-around, the syntax of older expressions, and what would be too large;
/// [`Fault::StringTooLong`] for a text above a mebibyte.
pub(crate) fn matches(text: &str, pattern: &str, fold: bool) -> Result<bool, Fault> {
    if text.len() > TEXT_MAX {
        return Err(Fault::StringTooLong);
    }
    COMPILED.with_borrow_mut(|kept| {
        let known = kept
            .iter()
            .rposition(|one| one.fold == fold && *one.pattern == pattern);
        let found = match known {
            Some(at) => kept.remove(at),
            None => compile(pattern, fold)?,
        };
        let is_match = found.regex.is_match(text);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push(found);
        Ok(is_match)
    })
}

/// Translates and compiles a pattern. Fails as [`matches()`] does for it.
fn compile(pattern: &str, fold: bool) -> Result<Compiled, Fault> {
    if pattern.len() > PATTERN_MAX {
        return Err(Fault::RegexNotComputed);
    }
    let translated = Zeroizing::new(translation::translate(pattern, fold)?);
    let regex = RegexBuilder::new(&translated)
        .unicode(true)
        .dot_matches_new_line(true)
        .size_limit(AUTOMATON_MAX)
        .dfa_size_limit(AUTOMATON_MAX)
        .build()
        .map_err(|_| Fault::RegexNotComputed)?;
    Ok(Compiled {
        pattern: Zeroizing::new(pattern.to_owned()),
        fold,
        regex,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_and_what_is_not() {
        for (text, pattern, found) in [
            ("abc", "b", true),
            ("abc", "^b", false),
            ("a\nb", "^b|a$", false),
            ("a\nb", "a.b", true),
            ("\u{e9}", "^.$", true),
            ("\u{e9}", r"\w|[[:alpha:]]", false),
            ("b c", r"\mc\M", true),
            ("abc", r"\mc|b\M", false),
            ("x-y", "^[a-z-]+$", true),
            ("a]", "[]]$", true),
            ("5", r"[^\D]", true),
            ("a{", "a{", true),
            ("aaa", "^a{2}a*?$", true),
            ("X", "(?i)x", true),
            ("x.", "***=x.", true),
        ] {
            assert_eq!(
                matches(text, pattern, false),
                Ok(found),
                "{text} ~ {pattern}"
            );
        }
        // Only ASCII letters have two cases.
        for (text, pattern, found) in [
            ("K", "[[:lower:]]", true),
            ("k", "[A-Z]", true),
            ("\u{c9}", "\u{e9}", false),
            ("\u{17f}", "s", false),
            ("\u{212a}", "[a-z]", false),
        ] {
            assert_eq!(
                matches(text, pattern, true),
                Ok(found),
                "{text} ~* {pattern}"
            );
        }
    }

    #[test]
    fn what_is_refused() {
        for pattern in [
            "*", "a**", "^*", "(", ")", "[", "[]", "[b-a]", "a{2,1}", "a{256}", "a{1", r"\q", "\\",
            "[[:no:]]", "***x", "(?z)", "[a-b-c]", r"[a-\d]",
        ] {
            assert_eq!(
                matches("x", pattern, false),
                Err(Fault::RegexInvalid),
                "{pattern}"
            );
        }
        let long = "a".repeat(PATTERN_MAX + 1);
        let deep = "(".repeat(100) + &")".repeat(100);
        for pattern in [
            r"(a)\1",
            "(?=a)",
            "(?<!a)b",
            "(?b)a",
            "[[.a.]]",
            r"\x41",
            r"\Y",
            &long,
            &deep,
            "((a{255}){255}){255}",
        ] {
            assert_eq!(
                matches("x", pattern, false),
                Err(Fault::RegexNotComputed),
                "{pattern}"
            );
        }
        let text = "x".repeat(TEXT_MAX + 1);
        assert_eq!(matches(&text, "x", false), Err(Fault::StringTooLong));
    }
}
