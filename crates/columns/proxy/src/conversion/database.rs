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
/// The pause before it is tried again.
const PAUSE: Duration = Duration::from_millis(500);

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

    /// Runs `work` in a transaction of its own and commits it. `None` after an error that another
    /// attempt may not meet, such as a lock or a deadlock; every other error is returned: SR-8122
    /// or SR-5001 for one of the server or connection, or as `work` gave it. After either the
    /// transaction is rolled back.
    fn attempt(
        &mut self,
        work: impl FnOnce(&mut StatementClient) -> Result<(), AttemptError>,
    ) -> Result<Option<()>, Error> {
        self.run("BEGIN")?;
        let done = work(&mut self.connection)
            .and_then(|()| Ok(self.connection.run("COMMIT").map(drop)?));
        let failed = match done {
            Ok(()) => return Ok(Some(())),
            Err(failed) => failed,
        };
        // The first error is the one to report.
        drop(self.connection.run("ROLLBACK"));
        match failed {
            AttemptError::Server(error) if is_transient(&error) => Ok(None),
            AttemptError::Server(error) => Err(server_error(&error)),
            AttemptError::Refused(failure) => Err(failure),
        }
    }

    /// Runs `work` in a transaction, again every half second while other sessions hold locks on the
    /// table. Fails with SR-8121 after [`TRIES`] attempts, with SR-8122 for another error of the
    /// server, or with SR-5001.
    pub(super) fn retry_until_locked(
        &mut self,
        mut work: impl FnMut(&mut StatementClient) -> Result<(), AttemptError>,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            if self.attempt(&mut work)?.is_some() {
                return Ok(());
            }
            self.note("another session holds a lock on the table: trying again");
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

/// Makes the error SR-8121, a column that cannot be converted, with its reason.
pub(super) fn refusal(why: impl Into<String>) -> Error {
    Error::new(&code::COLUMN_CONVERT, why)
}
