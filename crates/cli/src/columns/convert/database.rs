//! The connection of a conversion to the proxy, and which of its errors another attempt may not meet.
//!
//! Must not: print a value.

use strongroom_columns_proxy::server::{Answer, Connection, Error};
use strongroom_format::code;

use super::super::connect::refused;
use crate::failure::Failure;

/// The connection, for statements whose errors are this command's.
pub(super) struct Database(pub(super) Connection);

impl Database {
    pub(super) fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        self.0.run(sql).map_err(|error| refused(&error))
    }

    pub(super) fn ask(&mut self, sql: &str, parameters: &[&str]) -> Result<Answer, Failure> {
        let parameters: Vec<Option<&str>> = parameters.iter().copied().map(Some).collect();
        let answer = self.0.ask(sql, &parameters);
        answer.map_err(|error| refused(&error))
    }

    /// In one transaction. An error that another try may not meet - a lock, a deadlock - is `None`, and nothing was done.
    pub(super) fn attempt(
        &mut self,
        work: impl FnOnce(&mut Connection) -> Result<(), Tried>,
    ) -> Result<Option<()>, Failure> {
        self.run("BEGIN")?;
        let done = work(&mut self.0).and_then(|()| Ok(self.0.run("COMMIT").map(drop)?));
        let failed = match done {
            Ok(()) => return Ok(Some(())),
            Err(failed) => failed,
        };
        // The first error is the one to be told.
        drop(self.0.run("ROLLBACK"));
        match failed {
            Tried::Server(error) if is_passing(&error) => Ok(None),
            Tried::Server(error) => Err(refused(&error)),
            Tried::Refused(failure) => Err(failure),
        }
    }
}

/// Why a transaction did not come to its end.
pub(super) enum Tried {
    Server(Error),
    Refused(Failure),
}

impl From<Error> for Tried {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

/// Lock not available, deadlock, serialization failure, query cancelled by a timeout.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(error.state(), Some("55P03" | "40P01" | "40001"))
}

/// A refusal with its reason.
pub(super) fn cannot(why: impl Into<String>) -> Failure {
    Failure::new(&code::COLUMN_CONVERT, why)
}
