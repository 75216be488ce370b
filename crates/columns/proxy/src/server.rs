//! A connection to PostgreSQL, or to the proxy before it, for the commands that are clients themselves.
//!
//! Protocol 3 in text format (PostgreSQL's documentation, "Frontend/Backend Protocol"); authentication is in `server/login.rs`. A
//! pipeline is at most what the caller gives at once: its answers have to fit into the sockets' buffers. Must not: repeat a parameter or a row in
//! an error.

mod login;

use std::fmt;
use std::io::{self, BufReader, Write as _};

use strongroom_crypto::SecretBytes;

use crate::proxy::Address;
use crate::proxy::stream::Stream;
use crate::proxy::wire::{self, Builder, Fields, Message};

/// Whom to connect to, and as whom.
pub struct Login {
    /// The server's, or the proxy's.
    pub address: Address,
    /// User of the database.
    pub user: String,
    /// Database.
    pub database: String,
    /// Password, when one is asked for.
    pub password: Option<SecretBytes>,
}

/// Why something was not done.
#[derive(Debug)]
pub enum Error {
    /// The connection has failed.
    Io(io::Error),
    /// The server says no.
    Server {
        /// SQLSTATE.
        state: String,
        /// Its message.
        message: String,
    },
    /// An answer that the protocol does not have here.
    Protocol(&'static str),
    /// The server wants to know more than was given, or has not proved that it knows the password.
    Login(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the connection to the server: {error}"),
            Self::Server { state, message } => write!(f, "{message} (SQLSTATE {state})"),
            Self::Protocol(what) => write!(f, "the server's answer: {what}"),
            Self::Login(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Error {
    /// The server's SQLSTATE, if it is the server's.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Server { state, .. } => Some(state),
            _ => None,
        }
    }
}

/// A row: text, or NULL.
pub type Row = Vec<Option<String>>;

/// What a statement gave.
#[derive(Debug, Default)]
pub struct Answer {
    /// OIDs of the columns' types.
    pub types: Vec<u32>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Rows that statements without a result have written, all together.
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
    /// What the server, the system or the protocol has against it.
    pub fn open(login: &Login) -> Result<Self, Error> {
        let mut connection = Self {
            stream: BufReader::new(login.address.connect(None)?),
        };
        login::log_in(&mut connection, login)?;
        // Parameters, the key for cancelling, and then the server is ready.
        connection.answers().map(drop)?;
        Ok(connection)
    }

    /// Runs statements as they are.
    ///
    /// # Errors
    /// The first error; what came before it has been done, or is undone with its transaction.
    pub fn run(&mut self, sql: &str) -> Result<Answer, Error> {
        let mut out = Vec::new();
        Builder::new(&mut out, b'Q').string(sql.as_bytes()).end();
        self.stream.get_mut().write_all(&out)?;
        self.answers()
    }

    /// Runs one statement with parameters whose types the server finds.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn ask(&mut self, sql: &str, parameters: &[Option<&str>]) -> Result<Answer, Error> {
        let mut out = Vec::new();
        parse(&mut out, "", sql);
        execute(&mut out, "", parameters.iter().copied());
        Builder::new(&mut out, b'S').end();
        self.stream.get_mut().write_all(&out)?;
        self.answers()
    }

    /// Makes a prepared statement.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<(), Error> {
        let mut out = Vec::new();
        parse(&mut out, name, sql);
        Builder::new(&mut out, b'S').end();
        self.stream.get_mut().write_all(&out)?;
        self.answers().map(drop)
    }

    /// Executes a prepared statement once for each row of parameters, without waiting in between.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn execute_each(&mut self, name: &str, rows: &[Row]) -> Result<Answer, Error> {
        let mut out = Vec::new();
        for row in rows {
            execute(&mut out, name, row.iter().map(Option::as_deref));
        }
        Builder::new(&mut out, b'S').end();
        self.stream.get_mut().write_all(&out)?;
        self.answers()
    }

    /// A message, which has to come.
    fn message(&mut self) -> Result<Message, Error> {
        let message = wire::read(&mut self.stream)?;
        message.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Everything up to `ReadyForQuery`.
    fn answers(&mut self) -> Result<Answer, Error> {
        let mut answer = Answer::default();
        let mut failed = None;
        loop {
            let message = self.message()?;
            match message.tag {
                b'Z' => return failed.map_or(Ok(answer), Err),
                b'E' => {
                    failed.get_or_insert_with(|| refused(&message.body));
                }
                b'T' => answer.types = types(&message.body).ok_or_else(malformed)?,
                b'D' => answer.rows.push(row(&message.body).ok_or_else(malformed)?),
                b'C' => answer.written = answer.written.saturating_add(written(&message.body)),
                // COPY is nothing that these commands begin.
                b'G' | b'H' | b'W' => return Err(Error::Protocol("data where none was asked for")),
                _ => {}
            }
        }
    }
}

fn malformed() -> Error {
    Error::Protocol("a malformed message, or text that is not UTF-8")
}

fn parse(out: &mut Vec<u8>, name: &str, sql: &str) {
    Builder::new(out, b'P')
        .string(name.as_bytes())
        .string(sql.as_bytes())
        .count(0)
        .end();
}

/// Binds the unnamed portal, in text, and executes it.
fn execute<'a>(
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

/// An `ErrorResponse`.
fn refused(body: &[u8]) -> Error {
    let field = |tag: u8| {
        let mut fields = Fields(body);
        while let Some(found) = fields.byte().filter(|found| *found != 0) {
            let text = fields.string()?;
            if found == tag {
                return Some(String::from_utf8_lossy(text).into_owned());
            }
        }
        None
    };
    Error::Server {
        state: field(b'C').unwrap_or_default(),
        message: field(b'M').unwrap_or_default(),
    }
}

/// The types of a `RowDescription`.
fn types(body: &[u8]) -> Option<Vec<u32>> {
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

fn row(body: &[u8]) -> Option<Row> {
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
fn written(body: &[u8]) -> u64 {
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
        assert_eq!(written(b"UPDATE 17\0"), 17);
        assert_eq!(written(b"INSERT 0 3\0"), 3);
        assert_eq!(written(b"SELECT 5\0"), 0);
        assert_eq!(
            row(b"\0\x02\0\0\0\x01x\xff\xff\xff\xff"),
            Some(vec![Some("x".to_owned()), None])
        );
        assert_eq!(row(b"\0\x01\0\0\0\x01\xff"), None, "not UTF-8");
        assert_eq!(row(b"\0\x01\0\0\0\x09x"), None);
        let error = refused(b"SERROR\0C42P01\0Mno such table\0\0");
        assert_eq!(error.state(), Some("42P01"));
        assert_eq!(error.to_string(), "no such table (SQLSTATE 42P01)");
    }
}
