//! Command lines that people copy into a shell.
//!
//! Must not: leave a character that the shell would read otherwise.

/// Returns a line of the shell's language of these words.
pub(crate) fn shell_line(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

/// Returns a word of the shell's language: unchanged if it has letters, digits and `-_./:@` only,
/// otherwise between single quotes.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_are_quoted_where_the_shell_would_read_them_otherwise() {
        assert_eq!(
            shell_word("/run/postgresql/.s.PGSQL.5432"),
            "/run/postgresql/.s.PGSQL.5432"
        );
        assert_eq!(shell_word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_word(""), "''");
    }
}
