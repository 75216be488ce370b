//! A small client of PostgreSQL's protocol, version 3: simple queries, prepared statements, COPY
//! in; values in text form; trust authentication over a unix socket.
//!
//! It is small, so that a test sees each message and each error unchanged, and so that the load
//! costs little compared with the server. Source: PostgreSQL's documentation, "Frontend/Backend
//! Protocol". Must not: hide an error, or try again by itself.
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that sends nothing for this long has hung.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Protocol version 3.0.
const PROTOCOL: u32 = 0x0003_0000;
/// The longest message that is accepted.
const MESSAGE_MAX: usize = 0x3fff_ffff;

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

struct Message {
    tag: u8,
    body: Vec<u8>,
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
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for text in ["user", "postgres", "database", "postgres", ""] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        client
            .out
            .extend_from_slice(&length(body.len() + 4)?.to_be_bytes());
        client.out.extend_from_slice(&body);
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
        self.message(b'Q', |out| text(out, sql))?;
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
        self.message(b'B', |out| {
            text(out, "");
            text(out, &name);
            // All parameters in text form, and all results.
            out.extend_from_slice(&0_u16.to_be_bytes());
            let count = u16::try_from(parameters.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&count.to_be_bytes());
            for parameter in parameters {
                match parameter {
                    None => out.extend_from_slice(&u32::MAX.to_be_bytes()),
                    Some(value) => {
                        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
                        out.extend_from_slice(&length.to_be_bytes());
                        out.extend_from_slice(value.as_bytes());
                    }
                }
            }
            out.extend_from_slice(&0_u16.to_be_bytes());
        })?;
        self.message(b'E', |out| {
            text(out, "");
            out.extend_from_slice(&0_u32.to_be_bytes());
        })?;
        self.message(b'S', |_| {})?;
        self.flush()?;
        Ok(self.until_ready()?.into_iter().last().unwrap_or_default())
    }

    /// Prepares a statement; returns its name.
    ///
    /// # Errors
    /// As of [`Self::query`].
    pub fn prepare(&mut self, sql: &str) -> Result<String, Failure> {
        let name = format!("s{}", self.prepared.len());
        self.message(b'P', |out| {
            text(out, &name);
            text(out, sql);
            out.extend_from_slice(&0_u16.to_be_bytes());
        })?;
        self.message(b'S', |_| {})?;
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
        self.message(b'Q', |out| text(out, sql))?;
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
                self.message(b'd', |out| out.append(&mut chunk))?;
                self.flush()?;
            }
        }
        self.message(b'd', |out| out.append(&mut chunk))?;
        self.message(b'c', |_| {})?;
        self.flush()?;
        Ok(self
            .until_ready()?
            .last()
            .map(Answer::changed)
            .unwrap_or_default())
    }

    fn message(&mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        self.out.push(tag);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        body(&mut self.out);
        let length = length(self.out.len() - at)?.to_be_bytes();
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&length);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let out = std::mem::take(&mut self.out);
        Ok(self.stream.get_mut().write_all(&out)?)
    }

    fn read(&mut self) -> Result<Message, Failure> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let [tag, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let length = length
            .checked_sub(4)
            .filter(|length| *length <= MESSAGE_MAX);
        let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Message { tag, body })
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
                b'D' => answer.rows.push(row(&message.body)),
                b'C' => {
                    answer.tag = string(&message.body);
                    answers.push(std::mem::take(&mut answer));
                }
                b'E' => failure = failure.or_else(|| Some(failed(&message))),
                b'R' if message.body != [0; 4] => {
                    return Err(io::Error::other("this client has no password").into());
                }
                b'K' => {
                    let number = message.body.first_chunk::<4>();
                    self.process = number.map_or(0, |number| u32::from_be_bytes(*number));
                }
                _ => {}
            }
        }
        failure.map_or(Ok(answers), Err)
    }
}

fn length(length: usize) -> Result<u32, Failure> {
    u32::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput).into())
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

fn failed(message: &Message) -> Failure {
    let (mut state, mut said) = (String::new(), String::new());
    for field in message.body.split(|byte| *byte == 0) {
        match field.split_first() {
            Some((b'C', rest)) => state = string(rest),
            Some((b'M', rest)) => said = string(rest),
            _ => {}
        }
    }
    Failure::Server {
        state,
        message: said,
    }
}

fn row(body: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let Some((_count, mut rest)) = body.split_first_chunk::<2>() else {
        return fields;
    };
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length);
        if length == u32::MAX {
            fields.push(None);
            rest = behind;
            continue;
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some((field, behind)) = behind.split_at_checked(length) else {
            break;
        };
        fields.push(Some(String::from_utf8_lossy(field).into_owned()));
        rest = behind;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::{Failure, Message, failed, row};

    #[test]
    fn rows_and_errors_are_read() {
        let body = [0, 2, 0, 0, 0, 1, b'x', 255, 255, 255, 255];
        assert_eq!(row(&body), [Some("x".to_owned()), None]);
        // A row that is cut gives what is whole.
        assert_eq!(row(&[0, 2, 0, 0, 0, 9, b'x']), []);
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
