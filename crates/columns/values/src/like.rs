//! LIKE and ILIKE on UTF-8 text, collation "C": `like_match.c`, error and all.
//!
//! PostgreSQL recurses at every `%`; here a `%` is a place to come back to, and only the last one
//! is kept, which finds the same matches because no `%` before it can then lead to another result.
//! What follows the last `%` is looked for at the text's end only, and what follows another one by
//! a search in linear time for its first characters. Patterns that take too long for all that, as
//! PostgreSQL's would, are given up: nobody can cancel them. Must not: recurse on outside bytes.

use memchr::memmem;
use strongroom_columns_ring::Fault;

use crate::value::Out;

/// Steps before a match is given up: some tenths of a second.
const STEPS_MAX: usize = 1 << 27;

/// Whether `text` matches the LIKE pattern, whose escape character is `\`; with `fold`, ASCII
/// letters match in either case (ILIKE).
///
/// # Errors
/// [`Fault::StringTooLong`] after [`STEPS_MAX`] steps, where PostgreSQL would go on.
/// [`Fault::LikeEscapeAtEnd`] if matching comes to an escape character at the pattern's end; a
/// pattern that fails earlier gives no error, as in PostgreSQL.
pub(crate) fn matches(text: &[u8], pattern: &[u8], fold: bool) -> Result<bool, Fault> {
    let same = |a: u8, b: u8| is_same(a, b, fold);
    let (mut t, mut p) = (0, 0);
    // Where to go on when what follows the last `%` does not match: pattern behind it, text
    // position to try next.
    let mut resume: Option<(usize, usize)> = None;
    let mut steps = 0_usize;
    loop {
        steps += 1;
        if steps > STEPS_MAX {
            return Err(Fault::StringTooLong);
        }
        if t == text.len() {
            // What is left of the pattern may match nothing at all; and a later start cannot help.
            return Ok(pattern[p..].iter().all(|byte| *byte == b'%'));
        }
        let advanced = match pattern.get(p) {
            Some(b'%') => {
                let Some(next) = wildcards(text, pattern, &mut t, p) else {
                    return Ok(false);
                };
                p = next;
                if p == pattern.len() {
                    return Ok(true);
                }
                if pattern[p] == b'\\' && p + 1 == pattern.len() {
                    return Err(Fault::LikeEscapeAtEnd);
                }
                if let Some(from) = last(text, &pattern[p..]) {
                    if from < t {
                        return Ok(false);
                    }
                    // It can be nowhere else, so there is no coming back.
                    (t, resume) = (from, None);
                } else {
                    resume = Some((p, t));
                }
                true
            }
            Some(b'_') => {
                t += width(text, t);
                p += 1;
                true
            }
            Some(b'\\') => {
                let wanted = *pattern.get(p + 1).ok_or(Fault::LikeEscapeAtEnd)?;
                (t, p) = (t + 1, p + 2);
                same(wanted, text[t - 1])
            }
            Some(byte) => {
                (t, p) = (t + 1, p + 1);
                same(*byte, text[t - 1])
            }
            None => false,
        };
        if !advanced {
            let Some((again, from)) = resume else {
                return Ok(false);
            };
            steps += prefix(&pattern[again..]).len() / 16;
            let Some(place) = place_behind(text, &pattern[again..], from, fold) else {
                return Ok(false);
            };
            (t, p) = (place, again);
            resume = Some((again, t));
        }
    }
}

/// The next offset in the text after `from` at which `part`, the pattern after a `%`, may match.
/// `None` if there is none.
fn place_behind(text: &[u8], part: &[u8], from: usize, fold: bool) -> Option<usize> {
    let (prefix, rest) = (prefix(part), text.get(from + 1..)?);
    let skip = match part {
        // Where its first character can be: the first byte of one is nowhere inside another.
        [b'\\', first, ..] => rest.iter().position(|byte| is_same(*byte, *first, fold)),
        [first, ..] if fold => rest.iter().position(|byte| is_same(*byte, *first, fold)),
        _ => memmem::find(rest, prefix),
    };
    Some(from + 1 + skip?)
}

/// Whether two bytes are the same; with `fold`, also upper and lower case of one ASCII letter.
fn is_same(a: u8, b: u8, fold: bool) -> bool {
    a == b || fold && a.eq_ignore_ascii_case(&b)
}

/// The part of a pattern up to its first wildcard or escape character.
fn prefix(part: &[u8]) -> &[u8] {
    let end = part
        .iter()
        .position(|byte| matches!(byte, b'%' | b'_' | b'\\'));
    &part[..end.unwrap_or(part.len())]
}

/// The offset in the text at which the last part of a pattern, one without `%` and escapes, has to
/// match: so many characters before the end. `None` for a part that has `%` or escapes, or a text
/// that has fewer characters.
fn last(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.iter().any(|byte| matches!(byte, b'%' | b'\\')) {
        return None;
    }
    let mut at = text.len();
    for _ in 0..part.iter().filter(|byte| is_first(**byte)).count() {
        at = text[..at].iter().rposition(|byte| is_first(*byte))?;
    }
    Some(at)
}

/// Whether this byte is the first of a UTF-8 character.
const fn is_first(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// Skips the run of wildcards at index `p` of the pattern, and moves `t` by one character of the
/// text for each `_`. Returns the index after the run; `None` if the text is too short.
fn wildcards(text: &[u8], pattern: &[u8], t: &mut usize, mut p: usize) -> Option<usize> {
    while let Some(byte @ (b'%' | b'_')) = pattern.get(p) {
        if *byte == b'_' {
            if *t >= text.len() {
                return None;
            }
            *t += width(text, *t);
        }
        p += 1;
    }
    Some(p)
}

/// The length in bytes of the character at offset `at`, as far as the text has them.
fn width(text: &[u8], at: usize) -> usize {
    let rest = text.get(at + 1..).unwrap_or(&[]);
    1 + rest.iter().take_while(|byte| !is_first(**byte)).count()
}

/// `like_escape`: sets `out` to the pattern with `\` as its escape character in place of `escape`,
/// which may be empty for none. `Fault::LikeEscapeLength` if that is more than one character.
pub(crate) fn escape(pattern: &str, escape: &str, out: &mut Out) -> Result<(), Fault> {
    let mut characters = escape.chars();
    let character = characters.next();
    if characters.next().is_some() {
        return Err(Fault::LikeEscapeLength);
    }
    if character == Some('\\') {
        out.set_bytes(pattern.as_bytes());
        return Ok(());
    }
    let buf = out.begin(pattern.len() * 2);
    let mut after = false;
    for c in pattern.chars() {
        if Some(c) == character && !after {
            buf.push(b'\\');
            after = true;
            continue;
        }
        if c == '\\' && !after {
            buf.push(b'\\');
        }
        buf.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
        after = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (text, pattern, matched) in [
            ("", "", true),
            ("", "%", true),
            ("a", "", false),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "a_c", true),
            ("abc", "a__c", false),
            ("h\u{e9}", "h_", true),
            ("aXbXc", "%X%X%", true),
            ("aXbc", "%X%X%", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("mississippi", "%iss%ip%i", true),
            ("mississippi", "%iss%ipp", false),
            ("special requests here", "%special%requests%", true),
        ] {
            assert_eq!(
                matches(text.as_bytes(), pattern.as_bytes(), false),
                Ok(matched),
                "{text} {pattern}"
            );
        }
        assert_eq!(matches(b"AbC", b"aB_", true), Ok(true));
    }

    #[test]
    fn an_escape_at_the_end_is_an_error_when_it_is_come_to() {
        assert_eq!(matches(b"a", b"\\", false), Err(Fault::LikeEscapeAtEnd));
        assert_eq!(matches(b"a", b"%\\", false), Err(Fault::LikeEscapeAtEnd));
        assert_eq!(matches(b"", b"\\", false), Ok(false));
        assert_eq!(matches(b"b", b"a\\", false), Ok(false));
    }

    /// `MatchText` of `like_match.c` for patterns without escapes: by recursion, character by
    /// character.
    fn slowly(text: &[char], pattern: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some(('%', rest)), _) => (0..=text.len()).any(|from| slowly(&text[from..], rest)),
            (Some(_), None) => false,
            (Some((wanted, rest)), Some((found, behind))) => {
                (*wanted == '_' || wanted == found) && slowly(behind, rest)
            }
        }
    }

    #[test]
    fn every_short_pattern_matches_what_postgresql_s_recursion_says() {
        let words = |alphabet: &[char], longest: u32| {
            let mut all = vec![String::new()];
            for length in 1..=longest {
                let count = alphabet.len().pow(length);
                all.extend((0..count).map(|mut number| {
                    let mut next = || {
                        let at = number % alphabet.len();
                        number /= alphabet.len();
                        alphabet[at]
                    };
                    (0..length).map(|_| next()).collect::<String>()
                }));
            }
            all
        };
        let patterns = words(&['a', '\u{e9}', '%', '_'], 5);
        for text in words(&['a', '\u{e9}'], 5) {
            let characters: Vec<char> = text.chars().collect();
            for pattern in &patterns {
                let expected = slowly(&characters, &pattern.chars().collect::<Vec<_>>());
                for fold in [false, true] {
                    let found = matches(text.as_bytes(), pattern.as_bytes(), fold);
                    assert_eq!(found, Ok(expected), "{text} {pattern}");
                }
            }
        }
    }

    #[test]
    fn long_texts_and_patterns_take_no_time_to_speak_of() {
        let text = "a".repeat(1 << 20);
        let half = "a".repeat(1 << 19);
        let begun = std::time::Instant::now();
        for (pattern, matched) in [
            ("%a".repeat(50) + "b", false),
            (format!("%{half}b%"), false),
            (format!("%{half}b"), false),
            (format!("%{half}_"), true),
            (format!("%{half}%{half}"), true),
            (format!("%{half}%{half}a"), false),
        ] {
            let found = matches(text.as_bytes(), pattern.as_bytes(), false);
            assert_eq!(found, Ok(matched), "{} characters", pattern.len());
        }
        // What PostgreSQL would take minutes for is given up.
        let pattern = format!("%{half}_b%");
        let found = matches(text.as_bytes(), pattern.as_bytes(), false);
        assert_eq!(found, Err(Fault::StringTooLong));
        assert!(begun.elapsed().as_secs() < 60);
    }
}
