//! Where an error is in the client's text, when the server has read another one.
//!
//! Must not: give a position that is not certain.

use std::sync::Arc;

/// A statement as the server has it, and the client's text that it was made from.
#[derive(Debug)]
pub(crate) struct Texts {
    /// The statement that was sent.
    pub(crate) sent: String,
    /// The client's whole text.
    pub(crate) original: Arc<str>,
    /// Where the statement is in it, in bytes.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Texts {
    /// Returns the place in the client's text, in characters from 1, that corresponds to this place
    /// in the statement that was sent: there stands the same word or sign, which both texts have
    /// equally often. `None` if there is none.
    pub(crate) fn original_position(&self, position: usize) -> Option<usize> {
        let statement = self
            .original
            .get(self.start..self.start.checked_add(self.len)?)?;
        let before = self.original.get(..self.start)?.chars().count();
        if statement == self.sent {
            return before.checked_add(position);
        }
        let at = byte_of_character(&self.sent, position.checked_sub(1)?)?;
        let sent = tokens(&self.sent)?;
        let word = sent.iter().find(|(start, _)| *start == at)?.1.clone();
        let places = |all: &[(usize, String)]| -> Vec<usize> {
            let same = all.iter().filter(|(_, text)| *text == word);
            same.map(|(start, _)| *start).collect()
        };
        let (sent, own) = (places(&sent), places(&tokens(statement)?));
        if sent.len() != own.len() {
            return None;
        }
        let which = sent.iter().position(|start| *start == at)?;
        let within = statement.get(..*own.get(which)?)?.chars().count();
        before.checked_add(within)?.checked_add(1)
    }
}

/// Returns the byte at which the character of this number, from 0, begins.
fn byte_of_character(text: &str, number: usize) -> Option<usize> {
    text.char_indices().nth(number).map(|(byte, _)| byte)
}

/// Returns the tokens of a statement: where each begins, in bytes, and its text, in lower case and
/// without the quotes that the writer of a statement leaves out. `None` if it cannot be read.
fn tokens(text: &str) -> Option<Vec<(usize, String)>> {
    let scanned = pg_query::scan(text).ok()?;
    let token = |token: &pg_query::protobuf::ScanToken| {
        let start = usize::try_from(token.start).ok()?;
        let end = usize::try_from(token.end).ok()?;
        let text = text.get(start..end)?.trim_matches('"').to_lowercase();
        Some((start, text))
    };
    scanned.tokens.iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(sent: &str, original: &str, part: &str, at: usize) -> Option<usize> {
        let start = original.find(part)?;
        let texts = Texts {
            sent: sent.to_owned(),
            original: Arc::from(original),
            start,
            len: part.len(),
        };
        texts.original_position(at)
    }

    #[test]
    fn a_word_is_found_in_the_clients_text() {
        let original = "SELECT é;  select a FROM \"t\" /* t */ where A = 'x' and b=5";
        let part = &original[original.find("  select").unwrap()..];
        let sent = "SELECT a FROM t WHERE a = $1 AND b = 5";
        let at = |word: &str| sent.rfind(word).unwrap() + 1;
        let is = |word: &str| original[..original.find(word).unwrap()].chars().count() + 1;
        assert_eq!(position(sent, original, part, at("t ")), Some(is("\"t\"")));
        assert_eq!(position(sent, original, part, at("a =")), Some(is("A =")));
        assert_eq!(position(sent, original, part, at("b =")), Some(is("b=5")));
        // The constant is not there, and nothing begins within a word.
        assert_eq!(position(sent, original, part, at("$1")), None);
        assert_eq!(position(sent, original, part, 2), None);
        assert_eq!(position(sent, original, part, 500), None);
        // What stays as it is has its place in the whole text.
        assert_eq!(position(part, original, part, 3), Some(is("select")));
    }
}
