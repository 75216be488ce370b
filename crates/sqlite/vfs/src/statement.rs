//! Recognises two statements by SQL's lexical rules: `ATTACH ... KEY` and `VACUUM ... INTO`.
//!
//! SQLite parses the KEY clause and ignores it (attach.c), and a VFS has no other way to know of
//! it.
//! Must not: try to understand expressions; where in doubt a clause counts as present, because that
//! is the safe side.

/// Whether a statement is an ATTACH, and with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    /// Another statement.
    Other,
    /// An ATTACH without a KEY clause, or with the empty string, which means "plain" in other
    /// products.
    Plain,
    /// An ATTACH with a KEY clause.
    WithKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'sql> {
    /// A bare word, which may be a keyword.
    Word(&'sql str),
    /// A quoted name or a string, with its quotes.
    Quoted(&'sql str),
    /// Any other character.
    Other(char),
}

/// Says whether a statement is an ATTACH, and whether it has a KEY clause. A clause with only the
/// empty string counts as none.
#[must_use]
pub(crate) fn attach_key(sql: &str) -> Attach {
    // The first word excludes most statements; on some connections this is called for each
    // statement.
    if !tokens(sql)
        .next()
        .is_some_and(|token| is_word(token, "attach"))
    {
        return Attach::Other;
    }
    let tokens: Vec<Token<'_>> = tokens(sql).collect();
    let mut depth = 0_u32;
    let mut after_as = false;
    let mut schema_seen = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Other('(') => depth += 1,
            Token::Other(')') => depth = depth.saturating_sub(1),
            Token::Word(_) if depth == 0 && !after_as && is_word(*token, "as") => {
                after_as = true;
                continue;
            }
            Token::Word(_) if depth == 0 && schema_seen && is_word(*token, "key") => {
                let empty = matches!(tokens.get(at + 1), Some(Token::Quoted("''")));
                let last = matches!(tokens.get(at + 2), None | Some(Token::Other(';')));
                return if empty && last {
                    Attach::Plain
                } else {
                    Attach::WithKey
                };
            }
            _ => {}
        }
        schema_seen |= after_as;
    }
    Attach::Plain
}

/// Returns the source schema of a `VACUUM ... INTO`, "main" if it names none. `None` for every
/// other statement.
#[must_use]
pub(crate) fn vacuum_into(sql: &str) -> Option<String> {
    let mut tokens = tokens(sql);
    if !is_word(tokens.next()?, "vacuum") {
        return None;
    }
    match tokens.next()? {
        token if is_word(token, "into") => Some("main".to_owned()),
        schema => is_word(tokens.next()?, "into").then(|| unquote(schema)),
    }
}

/// Whether the token is the keyword `word`, in any case, and not quoted.
fn is_word(token: Token<'_>, word: &str) -> bool {
    matches!(token, Token::Word(text) if text.eq_ignore_ascii_case(word))
}

/// Returns the text of a token without its quotes; doubled quotes in it become single ones.
fn unquote(token: Token<'_>) -> String {
    match token {
        Token::Word(text) => text.to_owned(),
        Token::Other(other) => other.to_string(),
        Token::Quoted(text) => {
            let inner = text
                .get(1..text.len().saturating_sub(1))
                .unwrap_or_default();
            match text.chars().next() {
                Some('[') | None => inner.to_owned(),
                Some(quote) => inner.replace(&format!("{quote}{quote}"), &quote.to_string()),
            }
        }
    }
}

/// Yields the tokens of a statement, without white space, comments, and semicolons at its
/// beginning.
fn tokens(sql: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = skip_blanks_and_comments(sql);
    // SQLite's grammar lets empty statements stand before the one that is prepared, and keeps them
    // in its text.
    while let Some(after) = rest.strip_prefix(';') {
        rest = skip_blanks_and_comments(after);
    }
    std::iter::from_fn(move || {
        rest = skip_blanks_and_comments(rest);
        let first = rest.chars().next()?;
        let len = match first {
            '\'' | '"' | '`' => quoted_len(rest, first),
            '[' => rest.find(']').map_or(rest.len(), |at| at + 1),
            _ if is_word_char(first) => rest.find(|next| !is_word_char(next)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (text, tail) = rest.split_at(len);
        rest = tail;
        Some(match first {
            '\'' | '"' | '`' | '[' => Token::Quoted(text),
            _ if is_word_char(first) => Token::Word(text),
            _ => Token::Other(first),
        })
    })
}

/// Whether SQLite's tokenizer takes the character as part of a word: letters, digits, `_`, `$`, and
/// every character that is not ASCII.
fn is_word_char(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$' || !character.is_ascii()
}

/// Returns the length in bytes of the quoted text at the start of `text`, with both quotes. A
/// doubled quote does not end it. The whole length if it does not end.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find(quote)) {
        let end = at + found + 1;
        if !text.get(end..).is_some_and(|rest| rest.starts_with(quote)) {
            return end;
        }
        at = end + 1;
    }
    text.len()
}

/// Returns the text without the white space, byte-order marks and comments (`--` to the end of the
/// line, `/* */`) at its beginning. A comment that does not end takes all of it.
fn skip_blanks_and_comments(mut text: &str) -> &str {
    loop {
        // SQLite's tokenizer takes a byte-order mark for white space, wherever it stands between
        // tokens.
        let trimmed =
            text.trim_start_matches(|next: char| next.is_whitespace() || next == '\u{feff}');
        let after = if let Some(comment) = trimmed.strip_prefix("--") {
            comment.find('\n').map_or("", |at| &comment[at..])
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            comment.find("*/").map_or("", |at| &comment[at + 2..])
        } else {
            return trimmed;
        };
        text = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_clause_is_seen_however_it_is_written() {
        for sql in [
            "ATTACH 'a.db' AS a KEY 'secret'",
            "attach database 'a.db' as a key 'secret';",
            "ATTACH/**/'a' AS/* x */b--\n KEY ?1",
            ";; /* c */ ; ATTACH 'a.db' AS a KEY 'secret'",
            "\u{feff}ATTACH 'a.db' AS a \u{feff}KEY 'secret'",
            "ATTACH 'it''s AS x' AS [k e y] KEY x'00'",
            "ATTACH lower('A') AS key KEY 'k'",
            "ATTACH 'a' AS a KEY ''||'x'",
            "  ATTACH 'a' AS \"a\" KEY(\"\")",
        ] {
            assert_eq!(attach_key(sql), Attach::WithKey, "{sql}");
        }
    }

    #[test]
    fn attach_without_key_is_let_through() {
        for sql in [
            "ATTACH 'a.db' AS a",
            "ATTACH 'KEY' AS key",
            "ATTACH key AS x",
            "ATTACH 'a as b key c' AS d;",
            "ATTACH 'a.db' AS a KEY ''",
            "ATTACH 'a.db' AS a KEY '';",
        ] {
            assert_eq!(attach_key(sql), Attach::Plain, "{sql}");
        }
        for sql in ["SELECT 1", "", "-- ATTACH 'a' AS a KEY 'b'", "DETACH a"] {
            assert_eq!(attach_key(sql), Attach::Other, "{sql}");
        }
    }

    #[test]
    fn vacuum_into_names_its_source() {
        assert_eq!(vacuum_into("VACUUM INTO 'x'").as_deref(), Some("main"));
        assert_eq!(vacuum_into(";VACUUM INTO 'x'").as_deref(), Some("main"));
        assert_eq!(
            vacuum_into("vacuum \"a\"\"b\" into ?").as_deref(),
            Some("a\"b")
        );
        assert_eq!(
            vacuum_into("VACUUM/*c*/aux INTO 'y'").as_deref(),
            Some("aux")
        );
        assert_eq!(vacuum_into("VACUUM"), None);
        assert_eq!(vacuum_into("VACUUM main"), None);
    }
}
