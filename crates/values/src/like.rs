//! LIKE and ILIKE on UTF-8 text, collation "C": `like_match.c`, error and all.
//!
//! PostgreSQL recurses at every `%`; here a `%` is a place to come back to, and only the last one is kept, which finds the
//! same matches because no `%` before it can then lead to another result. Must not: recurse on outside bytes.

use strongroom_rpc::Fault;

use crate::value::Out;

/// Whether `text` matches `pattern`.
///
/// # Errors
/// [`Fault::LikeEscapeAtEnd`] when matching comes to an escape character at the pattern's end; a pattern that fails earlier gives no error,
/// as in PostgreSQL.
pub(crate) fn matches(text: &[u8], pattern: &[u8], fold: bool) -> Result<bool, Fault> {
    let folded = |byte: u8| {
        if fold {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    let (mut t, mut p) = (0, 0);
    // Where to go on when what follows the last `%` does not match: pattern behind it, text position to try next.
    let mut resume: Option<(usize, usize)> = None;
    loop {
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
                resume = Some((p, t));
                true
            }
            Some(b'_') => {
                t += width(text, t);
                p += 1;
                true
            }
            Some(b'\\') => {
                let wanted = *pattern.get(p + 1).ok_or(Fault::LikeEscapeAtEnd)?;
                let same = folded(wanted) == folded(text[t]);
                (t, p) = (t + 1, p + 2);
                same
            }
            Some(byte) => {
                let same = folded(*byte) == folded(text[t]);
                (t, p) = (t + 1, p + 1);
                same
            }
            None => false,
        };
        if !advanced {
            let Some((again, from)) = resume else {
                return Ok(false);
            };
            // The next place where the first character behind the `%` can be: its first byte is nowhere inside a character.
            let first = pattern[again];
            let first = folded(if first == b'\\' {
                pattern[again + 1]
            } else {
                first
            });
            let Some(skip) = text[from + 1..]
                .iter()
                .position(|byte| folded(*byte) == first)
            else {
                return Ok(false);
            };
            (t, p) = (from + 1 + skip, again);
            resume = Some((again, t));
        }
    }
}

/// Skips the run of wildcards at `p` (a `%` first): one character for each `_`. The place behind; `None` when the text is too short.
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

/// Bytes of the character at `at`; at most those that are left.
fn width(text: &[u8], at: usize) -> usize {
    let rest = text.get(at + 1..).unwrap_or(&[]);
    1 + rest.iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// `like_escape`: the pattern with `\` as its escape character, whatever it was.
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

    #[test]
    fn a_pattern_of_many_wildcards_ends() {
        let text = "a".repeat(5000);
        let pattern = "%a".repeat(50) + "b";
        assert_eq!(
            matches(text.as_bytes(), pattern.as_bytes(), false),
            Ok(false)
        );
    }
}
