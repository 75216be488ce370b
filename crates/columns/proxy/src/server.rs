//! A client connection to PostgreSQL, or to the proxy, for commands that run statements themselves.
//!
//! Protocol 3 in text format (PostgreSQL's documentation, "Frontend/Backend Protocol");
//! authentication is in `server/login.rs`. One call is one pipeline, whose answers have to fit into
//! the sockets' buffers. Must not: put a parameter or a row into an error.

mod error;
mod login;

use std::io::{self, BufReader, Write as _};

use crate::proxy::stream::Stream;
use crate::proxy::wire::{self, Builder, Fields, Message};

pub use error::Error;
pub use login::Login;

use error::server_error;

/// A row: text, or NULL.
pub type Row = Vec<Option<String>>;

/// The result of statements.
#[derive(Debug, Default)]
pub struct Answer {
    /// OIDs of the columns' types.
    pub types: Vec<u32>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Sum of the rows that statements without a result have written.
    pub written: u64,
}

/// A connection.
pub struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Errors of the server, the system or the protocol.
    pub fn open(login: &Login) -> Result<Self, Error> {
        let mut stream = BufReader::new(login.address.connect(None)?);
        login::log_in(&mut stream, login)?;
        let mut connection = Self { stream };
        // The server sends its parameters and the key for cancelling before it is ready.
        connection.read_answers().map(drop)?;
        Ok(connection)
    }

    /// Runs statements without parameters, by the simple protocol.
    ///
    /// # Errors
    /// The first error; earlier statements were executed, or are rolled back with their
    /// transaction.
    pub fn run(&mut self, sql: &str) -> Result<Answer, Error> {
        let mut out = Vec::new();
        Builder::new(&mut out, b'Q').string(sql.as_bytes()).end();
        self.stream.get_mut().write_all(&out)?;
        self.read_answers()
    }

    /// Runs one statement with parameters whose types the server finds.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn ask(&mut self, sql: &str, parameters: &[Option<&str>]) -> Result<Answer, Error> {
        let mut out = Vec::new();
        append_parse(&mut out, "", sql);
        append_execute(&mut out, "", parameters.iter().copied());
        Builder::new(&mut out, b'S').end();
        self.stream.get_mut().write_all(&out)?;
        self.read_answers()
    }

    /// Makes a prepared statement.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<(), Error> {
        let mut out = Vec::new();
        append_parse(&mut out, name, sql);
        Builder::new(&mut out, b'S').end();
        self.stream.get_mut().write_all(&out)?;
        self.read_answers().map(drop)
    }

    /// Executes a prepared statement once for each row of parameters, without waiting in between.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn execute_each(&mut self, name: &str, rows: &[Row]) -> Result<Answer, Error> {
        let mut out = Vec::new();
        for row in rows {
            append_execute(&mut out, name, row.iter().map(Option::as_deref));
        }
        Builder::new(&mut out, b'S').end();
        self.stream.get_mut().write_all(&out)?;
        self.read_answers()
    }

    /// Reads all answers up to `ReadyForQuery`.
    fn read_answers(&mut self) -> Result<Answer, Error> {
        let mut answer = Answer::default();
        let mut failed = None;
        loop {
            let message = read_message(&mut self.stream)?;
            match message.tag {
                b'Z' => return failed.map_or(Ok(answer), Err),
                b'E' => {
                    failed.get_or_insert_with(|| server_error(&message.body));
                }
                b'T' => answer.types = parse_types(&message.body).ok_or_else(malformed)?,
                b'D' => answer
                    .rows
                    .push(parse_row(&message.body).ok_or_else(malformed)?),
                b'C' => answer.written = answer.written.saturating_add(written_rows(&message.body)),
                // These commands never begin a COPY.
                b'G' | b'H' | b'W' => return Err(Error::Protocol("data where none was asked for")),
                _ => {}
            }
        }
    }
}

/// Reads a message; the end of the stream is an error.
fn read_message(stream: &mut BufReader<Stream>) -> Result<Message, Error> {
    let message = wire::read(stream)?;
    message.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
}

fn malformed() -> Error {
    Error::Protocol("a malformed message, or text that is not UTF-8")
}

fn append_parse(out: &mut Vec<u8>, name: &str, sql: &str) {
    Builder::new(out, b'P')
        .string(name.as_bytes())
        .string(sql.as_bytes())
        .count(0)
        .end();
}

/// Appends messages that bind the unnamed portal, in text format, and execute it.
fn append_execute<'a>(
    out: &mut Vec<u8>,
    name: &str,
    parameters: impl ExactSizeIterator<Item = Option<&'a str>>,
) {
    let mut bind = Builder::new(out, b'B');
    bind.string(b"").string(name.as_bytes()).count(0);
    bind.count(parameters.len());
    for parameter in parameters {
        bind.value(parameter.map(str::as_bytes));
    }
    bind.count(0).end();
    Builder::new(out, b'D').byte(b'P').string(b"").end();
    Builder::new(out, b'E').string(b"").int32(0).end();
}

/// The types of a `RowDescription`.
fn parse_types(body: &[u8]) -> Option<Vec<u32>> {
    let mut fields = Fields(body);
    let count = fields.count()?;
    let mut types = Vec::new();
    for _ in 0..count {
        fields.string()?;
        fields.bytes(6)?;
        types.push(fields.oid()?);
        fields.bytes(8)?;
    }
    Some(types)
}

fn parse_row(body: &[u8]) -> Option<Row> {
    let mut fields = Fields(body);
    let count = fields.count()?;
    let mut row = Vec::new();
    for _ in 0..count {
        row.push(match fields.value()? {
            Some(bytes) => Some(String::from_utf8(bytes.to_vec()).ok()?),
            None => None,
        });
    }
    Some(row)
}

/// The number at the end of a `CommandComplete` of a statement that writes rows.
fn written_rows(body: &[u8]) -> u64 {
    let text = core::str::from_utf8(body).unwrap_or_default();
    let text = text.trim_end_matches('\0');
    let writes = ["INSERT", "UPDATE", "DELETE", "MERGE"];
    let count = text
        .rsplit(' ')
        .next()
        .filter(|_| writes.iter().any(|command| text.starts_with(command)));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// An identifier, quoted.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A constant of text, quoted.
#[must_use]
pub fn constant(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_constants_are_quoted() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(constant("it's"), "'it''s'");
        assert_eq!(constant("a\\'b"), " E'a\\\\''b'");
    }

    #[test]
    fn answers_are_read_as_they_are() {
        assert_eq!(written_rows(b"UPDATE 17\0"), 17);
        assert_eq!(written_rows(b"INSERT 0 3\0"), 3);
        assert_eq!(written_rows(b"SELECT 5\0"), 0);
        assert_eq!(
            parse_row(b"\0\x02\0\0\0\x01x\xff\xff\xff\xff"),
            Some(vec![Some("x".to_owned()), None])
        );
        assert_eq!(parse_row(b"\0\x01\0\0\0\x01\xff"), None, "not UTF-8");
        assert_eq!(parse_row(b"\0\x01\0\0\0\x09x"), None);
        let error = server_error(b"SERROR\0C42P01\0Mno such table\0\0");
        assert_eq!(error.state(), Some("42P01"));
        assert_eq!(error.to_string(), "no such table (SQLSTATE 42P01)");
    }
}
