//! The connection of a conversion to the proxy: transactions, notes for the user, and which errors
//! another attempt may not meet.
//!
//! Must not: put a value into a note or an error.

use std::time::Duration;

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_postgres_wire::client::{Answer, Error as ServerError, StatementClient};

use crate::server::{describe, is_from_server};

/// How often a transaction is tried that meets locks, with the session's `lock_timeout` each.
const TRIES: u32 = 100;
/// How often one is tried whose values the proxy cannot name a column for: for longer than the
/// proxy waits for the outcome of what a connection was changing that has ended
/// (`relations.rs`, `LEFT_LIMIT`), such as that of a conversion that was killed.
const UNNAMED_TRIES: u32 = 140;
/// The pause before it is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// The connection of a conversion, and where its notes go.
pub(super) struct Database<'a> {
    pub(super) connection: StatementClient,
    note: &'a mut dyn FnMut(&str),
    /// The pause between two attempts of [`Self::retry_until_locked`].
    pub(super) pause: Duration,
}

impl<'a> Database<'a> {
    /// Takes over a connection; `note` is called with each text for the user.
    pub(super) fn new(connection: StatementClient, note: &'a mut dyn FnMut(&str)) -> Self {
        Self {
            connection,
            note,
            pause: PAUSE,
        }
    }

    /// Passes a text on to the user.
    pub(super) fn note(&mut self, text: &str) {
        (self.note)(text);
    }

    /// Runs statements without parameters and returns their result; fails with SR-8122 for what the
    /// server refuses, SR-5001 if the connection fails.
    pub(super) fn run(&mut self, sql: &str) -> Result<Answer, Error> {
        self.connection
            .run(sql)
            .map_err(|error| server_error(&error))
    }

    /// Runs one statement with parameters and returns its result; fails with SR-8122 for what the
    /// server refuses, SR-5001 if the connection fails.
    pub(super) fn ask(&mut self, sql: &str, parameters: &[&str]) -> Result<Answer, Error> {
        let parameters: Vec<Option<&str>> = parameters.iter().copied().map(Some).collect();
        let answer = self.connection.ask(sql, &parameters);
        answer.map_err(|error| server_error(&error))
    }

    /// Runs `work` in a transaction of its own and commits it. Returns an error of the server that
    /// another attempt may not meet, such as a lock or a deadlock; fails with every other one:
    /// SR-8122 or SR-5001 for one of the server or connection, or as `work` gave it. After either
    /// the transaction is rolled back.
    fn attempt(
        &mut self,
        work: impl FnOnce(&mut StatementClient) -> Result<(), AttemptError>,
    ) -> Result<Result<(), ServerError>, Error> {
        self.run("BEGIN")?;
        let done = work(&mut self.connection)
            .and_then(|()| Ok(self.connection.run("COMMIT").map(drop)?));
        let failed = match done {
            Ok(()) => return Ok(Ok(())),
            Err(failed) => failed,
        };
        // The first error is the one to report.
        drop(self.connection.run("ROLLBACK"));
        match failed {
            AttemptError::Server(error) if is_transient(&error) || is_unnamed(&error) => {
                Ok(Err(error))
            }
            AttemptError::Server(error) => Err(server_error(&error)),
            AttemptError::Refused(failure) => Err(failure),
        }
    }

    /// Runs `work` in a transaction, again every half second while other sessions hold locks on the
    /// table, or the proxy waits for the outcome of what an earlier conversion was changing. Fails
    /// with SR-8121 after [`TRIES`] attempts that met locks, with SR-8122 for another error of the
    /// server, or with SR-5001.
    pub(super) fn retry_until_locked(
        &mut self,
        mut work: impl FnMut(&mut StatementClient) -> Result<(), AttemptError>,
    ) -> Result<(), Error> {
        let (mut locked, mut unnamed) = (0, 0);
        while locked < TRIES {
            match self.attempt(&mut work)? {
                Ok(()) => return Ok(()),
                Err(error) if is_unnamed(&error) => {
                    unnamed += 1;
                    if unnamed == UNNAMED_TRIES {
                        return Err(server_error(&error));
                    }
                    self.note("the proxy does not know yet what an earlier change of the table has come to: trying again");
                }
                Err(_) => {
                    locked += 1;
                    self.note("another session holds a lock on the table: trying again");
                }
            }
            std::thread::sleep(self.pause);
        }
        Err(refusal(
            "other sessions hold locks on the table all the time: run the command again when they do not",
        ))
    }
}

/// Makes the error of a command: SR-8122 for what the server refuses, SR-5001 for a failure of the
/// connection.
#[must_use]
pub fn server_error(error: &ServerError) -> Error {
    let code = if is_from_server(error) {
        &code::COLUMN_SERVER
    } else {
        &code::IO
    };
    Error::new(code, describe(error))
}

/// Why a transaction did not come to its end.
pub(super) enum AttemptError {
    Server(ServerError),
    Refused(Error),
}

impl From<ServerError> for AttemptError {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

/// Returns whether another attempt may not meet the error: lock not available, deadlock,
/// serialization failure.
pub(super) fn is_transient(error: &ServerError) -> bool {
    matches!(error.sqlstate(), Some("55P03" | "40P01" | "40001"))
}

/// Returns whether the zone has refused a value because it names no column (SR-8031): the proxy
/// names none while it does not know what the table is.
fn is_unnamed(error: &ServerError) -> bool {
    matches!(error, ServerError::Server(error) if error.message.contains("(SR-8031)"))
}

/// Makes the error SR-8121, a column that cannot be converted, with its reason.
pub(super) fn refusal(why: impl Into<String>) -> Error {
    Error::new(&code::COLUMN_CONVERT, why)
}
