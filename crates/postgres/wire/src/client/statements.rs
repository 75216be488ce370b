//! Statements on a [`Session`], with values in text format.
//!
//! One call is one pipeline, whose answers have to fit into the sockets' buffers. Must not: put a
//! parameter or a row into an error.

use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use super::authentication::AuthenticationPolicy;
use super::config::Config;
use super::error::{Error, Result};
use super::message_stream::WaitLimit;
use super::reply::{self, Reply};
use super::session::{Session, SessionOptions};
use super::socket::Socket;
use crate::message::MESSAGE_MAX;

/// A server that asks for a hash by MD5 is refused: the hash in the server's catalog would be as
/// good as the password.
const OPTIONS: SessionOptions = SessionOptions {
    parameters: &[],
    body_max: MESSAGE_MAX,
    authentication: AuthenticationPolicy {
        accepts_md5: false,
        // More than any server uses.
        rounds_max: 10_000_000,
    },
};

const DURING: &str = "a statement was being executed";
const ZERO_BYTE: Error = Error::Misuse("a statement or name with a zero byte");

/// A row: text, or NULL.
pub type TextRow = Vec<Option<String>>;

/// The result of statements.
#[derive(Debug, Default)]
pub struct Answer {
    /// OIDs of the columns' types.
    pub types: Vec<u32>,
    /// Its rows.
    pub rows: Vec<TextRow>,
    /// Sum of the rows that statements without a result have written.
    pub written: u64,
}

/// A connection that runs statements.
#[derive(Debug)]
pub struct StatementClient {
    session: Session,
}

impl StatementClient {
    /// Sends the startup packet and authenticates on a socket that is connected already, with TLS
    /// as the settings say.
    ///
    /// # Errors
    /// Every kind but [`Error::GivenUp`] and [`Error::Unsupported`].
    pub fn on_socket(socket: Socket, config: &Config) -> Result<Self> {
        let session = Session::on_socket(socket, config, &OPTIONS)?;
        Ok(Self { session })
    }

    /// Runs statements without parameters, by the simple query protocol, and waits for their
    /// results without a time limit. The answer has the rows of all statements.
    ///
    /// # Errors
    /// The server's first error; the statements before it were executed, or are rolled back with
    /// their transaction. [`Error::Misuse`] if `sql` has a zero byte; nothing is sent then. Those
    /// of the protocol and of the connection.
    pub fn run(&mut self, sql: &str) -> Result<Answer> {
        let appended = frontend::query(sql, self.session.output()).map_err(|_| ZERO_BYTE);
        self.exchange(appended)
    }

    /// Runs one statement with parameters, whose types the server infers, and waits for its rows
    /// without a time limit. A parameter that is `None` is NULL.
    ///
    /// # Errors
    /// As [`Self::run`]; [`Error::Misuse`] also for parameters that are too many or too long.
    pub fn ask(&mut self, sql: &str, parameters: &[Option<&str>]) -> Result<Answer> {
        let appended = self
            .append_parse("", sql)
            .and_then(|()| self.append_execute("", parameters.iter().copied()));
        frontend::sync(self.session.output());
        self.exchange(appended)
    }

    /// Makes a prepared statement of this name on the server.
    ///
    /// # Errors
    /// The server's error; [`Error::Misuse`] if the name or `sql` has a zero byte, and nothing is
    /// sent then; those of the protocol and of the connection.
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        let appended = self.append_parse(name, sql);
        frontend::sync(self.session.output());
        self.exchange(appended).map(drop)
    }

    /// Executes a prepared statement once for each row of parameters, in one pipeline, and waits
    /// for all results without a time limit. All executions are one transaction, unless one was
    /// begun before. The answer has all their rows and how many rows were written; what the server
    /// sends has to fit into the sockets' buffers, because nothing is read before everything is
    /// sent.
    ///
    /// # Errors
    /// The server's first error: it executes none of the rows that follow, and the executed ones
    /// are rolled back with their transaction. [`Error::Misuse`] for a zero byte in the name, and
    /// for parameters that are too many or too long; nothing is sent then. Those of the protocol
    /// and of the connection.
    pub fn execute_each(&mut self, name: &str, rows: &[TextRow]) -> Result<Answer> {
        let appended = rows
            .iter()
            .try_for_each(|row| self.append_execute(name, row.iter().map(Option::as_deref)));
        frontend::sync(self.session.output());
        self.exchange(appended)
    }

    /// Appends a message that prepares a statement; its types are left to the server. Fails with
    /// [`Error::Misuse`] if the statement or name has a zero byte.
    fn append_parse(&mut self, name: &str, sql: &str) -> Result<()> {
        frontend::parse(name, sql, [], self.session.output()).map_err(|_| ZERO_BYTE)
    }

    /// Appends messages that bind the parameters to the unnamed portal, in text format, describe it
    /// and execute it. Fails with [`Error::Misuse`] if the parameters are too many or too long, or
    /// the name has a zero byte.
    fn append_execute<'a>(
        &mut self,
        name: &str,
        parameters: impl Iterator<Item = Option<&'a str>>,
    ) -> Result<()> {
        let output = self.session.output();
        let write = |parameter: Option<&str>, out: &mut bytes::BytesMut| {
            Ok(match parameter {
                None => IsNull::Yes,
                Some(text) => {
                    out.extend_from_slice(text.as_bytes());
                    IsNull::No
                }
            })
        };
        frontend::bind("", name, [], parameters, write, [], output)
            .map_err(|_| Error::Misuse("parameters that are too many or too long"))?;
        frontend::describe(b'P', "", output).map_err(|_| ZERO_BYTE)?;
        frontend::execute("", 0, output).map_err(|_| ZERO_BYTE)
    }

    /// Sends the messages of the output buffer and reads all answers until the server is ready for
    /// the next statement. If `appended` is an error, it empties the buffer, sends nothing and
    /// returns the error. Fails with the server's first error, or that of the connection or the
    /// protocol.
    fn exchange(&mut self, appended: Result<()>) -> Result<Answer> {
        if let Err(error) = appended {
            self.session.output().clear();
            return Err(error);
        }
        self.session.send(None, DURING)?;
        let mut answer = Answer::default();
        let mut failed = None;
        loop {
            let reply = self.session.reply(WaitLimit::Silence(None), DURING);
            match reply.transpose() {
                Some(Ok(Reply::Ready)) => return failed.map_or(Ok(answer), Err),
                Some(Err(error @ Error::Server(_))) => {
                    failed.get_or_insert(error);
                }
                // An error before the end is the reason for the end.
                Some(Err(error)) => return Err(failed.unwrap_or(error)),
                None => return Err(Error::TimedOut(DURING)),
                Some(Ok(reply)) => answer.add(reply)?,
            }
        }
    }
}

impl Answer {
    /// Adds the content of one reply to the answer. Fails with [`Error::Protocol`] for a value that
    /// is not UTF-8, and for a message that does not belong to a statement.
    fn add(&mut self, reply: Reply) -> Result<()> {
        match reply {
            Reply::Columns(types) => self.types = types,
            Reply::Row(row) => {
                let text = |value: Option<Vec<u8>>| value.map(String::from_utf8).transpose();
                let row = row
                    .into_iter()
                    .map(text)
                    .collect::<std::result::Result<_, _>>();
                let row = row.map_err(|_| Error::protocol("a value that is not UTF-8"))?;
                self.rows.push(row);
            }
            Reply::Complete(tag) => self.written = self.written.saturating_add(written_rows(&tag)),
            Reply::Step(_) => {}
            Reply::Authentication(_) => return Err(reply::unexpected_message(b'R')),
            // These commands never begin a COPY.
            _ => return Err(Error::protocol("data where none was asked for")),
        }
        Ok(())
    }
}

/// Returns the number at the end of the command tag of INSERT, UPDATE, DELETE or MERGE; 0 for every
/// other tag.
fn written_rows(tag: &[u8]) -> u64 {
    let text = str::from_utf8(tag).unwrap_or_default();
    let writes = ["INSERT", "UPDATE", "DELETE", "MERGE"];
    let count = text
        .rsplit(' ')
        .next()
        .filter(|_| writes.iter().any(|command| text.starts_with(command)));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_rows_are_those_of_statements_that_write() {
        assert_eq!(written_rows(b"UPDATE 17"), 17);
        assert_eq!(written_rows(b"INSERT 0 3"), 3);
        assert_eq!(written_rows(b"SELECT 5"), 0);
    }

    #[test]
    fn rows_are_text() {
        let mut answer = Answer::default();
        let row = vec![Some(b"x".to_vec()), None];
        answer.add(Reply::Row(row)).unwrap();
        assert_eq!(answer.rows, [vec![Some("x".to_owned()), None]]);
        assert!(answer.add(Reply::Row(vec![Some(vec![0xff])])).is_err());
        assert!(answer.add(Reply::CopyIn).is_err());
    }
}
