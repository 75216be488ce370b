//! Rows that queries of the proxy's own get, before and while a client is served.
//!
//! Must not: grow without a limit: how many rows come is the server's word.

use strongroom_postgres_wire::text_row;

/// The most that the rows of one query may have, in bytes: a catalog of a hundred thousand columns
/// has a tenth of it.
const BYTES_MAX: usize = 256 << 20;

/// Rows of text.
#[derive(Default)]
pub(crate) struct CollectedRows {
    rows: Vec<Vec<Option<String>>>,
    bytes: usize,
}

impl CollectedRows {
    /// Adds the row of a `DataRow`. `None` if that is malformed, or the rows are more than one
    /// query may have.
    pub(crate) fn push(&mut self, body: &[u8]) -> Option<()> {
        // What a row takes besides its bytes.
        let taken = body.len().saturating_add(64);
        self.bytes = self.bytes.saturating_add(taken);
        if self.bytes > BYTES_MAX {
            return None;
        }
        self.rows.push(text_row(body)?);
        Some(())
    }

    /// Returns the rows.
    pub(crate) fn into_rows(self) -> Vec<Vec<Option<String>>> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_limit() {
        let mut rows = CollectedRows::default();
        let mut body = vec![0, 1];
        body.extend_from_slice(&[0, 0x10, 0, 0]);
        body.resize(body.len() + (1 << 20), b'x');
        let taken = (0..1000).take_while(|_| rows.push(&body).is_some()).count();
        assert!((200..256).contains(&taken), "{taken}");
        assert_eq!(rows.into_rows().len(), taken);
        assert!(CollectedRows::default().push(&[0, 1]).is_none());
    }
}
