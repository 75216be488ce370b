//! A small client of PostgreSQL: simple queries, prepared statements, COPY in; values in text form;
//! trust authentication over a unix socket.
//!
//! It is small, so that a test sees each message and each error unchanged, and so that the load
//! costs little compared with the server. Must not: hide an error, or try again by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use strongroom_postgres_wire::{Builder, Fields, Message, error_field, text_row};

/// A server that sends nothing for this long has hung.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Protocol version 3.0.
const PROTOCOL: i32 = 0x0003_0000;

/// Why an operation failed.
#[derive(Debug)]
pub enum Failure {
    /// An error of the server or of the proxy.
    Server {
        /// SQLSTATE.
        state: String,
        /// The message.
        message: String,
    },
    /// The connection failed.
    Lost(io::Error),
}

impl Failure {
    /// The SQLSTATE, when there is one.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Server { state, .. } => Some(state),
            Self::Lost(_) => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { state, message } => write!(f, "{state}: {message}"),
            Self::Lost(error) => write!(f, "the connection is lost: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// One field of a row: its text, or NULL.
pub type Field = Option<String>;

/// The result of one statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Rows, in order.
    pub rows: Vec<Vec<Field>>,
    /// The command's tag: `INSERT 0 1`.
    pub tag: String,
}

impl Answer {
    /// A field as text; empty when it is not there.
    #[must_use]
    pub fn text(&self, row: usize, column: usize) -> &str {
        let field = self.rows.get(row).and_then(|row| row.get(column));
        field.and_then(Option::as_deref).unwrap_or_default()
    }

    /// Rows that the statement changed, from the tag.
    #[must_use]
    pub fn changed(&self) -> u64 {
        let last = self.tag.rsplit(' ').next();
        last.and_then(|last| last.parse().ok()).unwrap_or_default()
    }
}

/// A connection.
pub struct Client {
    stream: BufReader<UnixStream>,
    out: Vec<u8>,
    /// Statements that are prepared, with their names.
    prepared: BTreeMap<String, String>,
    /// Status of the transaction, as the last message said: `I`, `T` or `E`.
    status: u8,
    process: u32,
}

impl Client {
    /// Connects to the socket in `directory` as `postgres`, to the database `postgres`.
    ///
    /// # Errors
    /// The server's error, or that there is no server.
    pub fn connect(directory: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(directory.join(".s.PGSQL.5432"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            out: Vec::new(),
            prepared: BTreeMap::new(),
            status: b'I',
            process: 0,
        };
        let mut packet = Builder::untagged(&mut client.out);
        packet.int32(PROTOCOL);
        for text in ["user", "postgres", "database", "postgres", ""] {
            packet.string(text.as_bytes());
        }
        packet.end();
        client.flush()?;
        client.until_ready()?;
        Ok(client)
    }

    /// The process number of the server's backend.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Whether a transaction is open, also a failed one.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.status != b'I'
    }

    /// Runs SQL as one message of the simple protocol. One answer for each statement.
    ///
    /// # Errors
    /// The first one; the connection is ready for the next query if it was the server's.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Answer>, Failure> {
        Builder::new(&mut self.out, b'Q')
            .string(sql.as_bytes())
            .end();
        self.flush()?;
        self.until_ready()
    }

    /// Runs SQL; returns the rows of its last statement.
    ///
    /// # Errors
    /// As of [`Self::query`].
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Field>>, Failure> {
        let answers = self.query(sql)?;
        Ok(answers
            .into_iter()
            .last()
            .map(|last| last.rows)
            .unwrap_or_default())
    }

    /// Executes a statement with parameters; it is prepared at its first use.
    ///
    /// # Errors
    /// As of [`Self::query`].
    pub fn execute(&mut self, sql: &str, parameters: &[Option<&str>]) -> Result<Answer, Failure> {
        let name = match self.prepared.get(sql) {
            Some(name) => name.clone(),
            None => self.prepare(sql)?,
        };
        let mut bind = Builder::new(&mut self.out, b'B');
        // All parameters in text form, and all results.
        bind.string(b"").string(name.as_bytes()).count(0);
        bind.count(parameters.len());
        for parameter in parameters {
            bind.value(parameter.map(str::as_bytes));
        }
        bind.count(0).end();
        Builder::new(&mut self.out, b'E').string(b"").int32(0).end();
        Builder::new(&mut self.out, b'S').end();
        self.flush()?;
        Ok(self.until_ready()?.into_iter().last().unwrap_or_default())
    }

    /// Prepares a statement; returns its name.
    ///
    /// # Errors
    /// As of [`Self::query`].
    pub fn prepare(&mut self, sql: &str) -> Result<String, Failure> {
        let name = format!("s{}", self.prepared.len());
        Builder::new(&mut self.out, b'P')
            .string(name.as_bytes())
            .string(sql.as_bytes())
            .count(0)
            .end();
        Builder::new(&mut self.out, b'S').end();
        self.flush()?;
        let _nothing = self.until_ready()?;
        let _former = self.prepared.insert(sql.to_owned(), name.clone());
        Ok(name)
    }

    /// Runs `COPY ... FROM STDIN` with these lines in text form, each with its newline.
    ///
    /// # Errors
    /// As of [`Self::query`].
    pub fn copy_in(
        &mut self,
        sql: &str,
        lines: impl IntoIterator<Item = String>,
    ) -> Result<u64, Failure> {
        Builder::new(&mut self.out, b'Q')
            .string(sql.as_bytes())
            .end();
        self.flush()?;
        let first = self.read()?;
        if first.tag != b'G' {
            let failure = failed(&first);
            let _rest = self.until_ready();
            return Err(failure);
        }
        let mut chunk = Vec::new();
        for line in lines {
            chunk.extend_from_slice(line.as_bytes());
            if chunk.len() > 1 << 15 {
                Builder::new(&mut self.out, b'd').bytes(&chunk).end();
                chunk.clear();
                self.flush()?;
            }
        }
        Builder::new(&mut self.out, b'd').bytes(&chunk).end();
        Builder::new(&mut self.out, b'c').end();
        self.flush()?;
        Ok(self
            .until_ready()?
            .last()
            .map(Answer::changed)
            .unwrap_or_default())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let out = std::mem::take(&mut self.out);
        Ok(self.stream.get_mut().write_all(&out)?)
    }

    /// Reads a message; the end of the stream is an error.
    fn read(&mut self) -> Result<Message, Failure> {
        let message = strongroom_postgres_wire::read(&mut self.stream)?;
        message.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Reads until the server waits for the next query.
    fn until_ready(&mut self) -> Result<Vec<Answer>, Failure> {
        let (mut answers, mut answer, mut failure) = (Vec::new(), Answer::default(), None);
        loop {
            let message = match self.read() {
                Ok(message) => message,
                // An error before the end is the reason for the end.
                Err(lost) => return Err(failure.unwrap_or(lost)),
            };
            match message.tag {
                b'Z' => {
                    self.status = message.body.first().copied().unwrap_or(b'I');
                    break;
                }
                b'D' => {
                    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
                    answer
                        .rows
                        .push(text_row(&message.body).ok_or_else(malformed)?);
                }
                b'C' => {
                    answer.tag = string(&message.body);
                    answers.push(std::mem::take(&mut answer));
                }
                b'E' => failure = failure.or_else(|| Some(failed(&message))),
                b'R' if message.body != [0; 4] => {
                    return Err(io::Error::other("this client has no password").into());
                }
                b'K' => {
                    let number = Fields(&message.body).int32();
                    self.process = number.map_or(0, i32::cast_unsigned);
                }
                _ => {}
            }
        }
        failure.map_or(Ok(answers), Err)
    }
}

fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

fn failed(message: &Message) -> Failure {
    let field = |tag| error_field(&message.body, tag).map(string);
    Failure::Server {
        state: field(b'C').unwrap_or_default(),
        message: field(b'M').unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Message, failed};

    #[test]
    fn errors_are_read() {
        let message = Message {
            tag: b'E',
            body: b"SERROR\0C22012\0Mdivision by zero\0\0".to_vec(),
        };
        let Failure::Server { state, message } = failed(&message) else {
            panic!("not the server's");
        };
        assert_eq!((&*state, &*message), ("22012", "division by zero"));
    }
}
