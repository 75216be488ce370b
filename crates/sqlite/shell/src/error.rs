//! What ends a statement, a script or the shell.
//!
//! Must not: quote a statement that may hold a key; `history::mentions_key` is asked before.

use std::{fmt, io};

use strongroom_format::code::Code;

/// A failure of the shell.
#[derive(Debug)]
pub enum Error {
    /// A statement, a dot-command or a file failed.
    Failed(strongroom_keyring::Error),
    /// Results could not be written to the caller's output.
    Output {
        /// Which input was being run: empty, or ends with a colon and a blank.
        prefix: String,
        /// The system's error; `BrokenPipe` when the reader has gone.
        error: io::Error,
    },
}

impl Error {
    /// Makes an error of a statement, a dot-command or a file.
    pub(crate) fn new(code: &'static Code, detail: impl Into<String>) -> Self {
        Self::Failed(strongroom_keyring::Error::new(code, detail))
    }

    /// Returns whether the error has this code. False for an error of the output.
    pub(crate) fn has_code(&self, code: &'static Code) -> bool {
        matches!(self, Self::Failed(error) if error.code() == code)
    }

    /// Returns whether the reader of the output has gone, so that it is useless to continue.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Puts `before` directly before the detail.
    pub(crate) fn with_prefix(self, before: &str) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.with_prefix(before)),
            Self::Output { prefix, error } => Self::Output {
                prefix: format!("{before}{prefix}"),
                error,
            },
        }
    }
}

impl From<strongroom_keyring::Error> for Error {
    fn from(error: strongroom_keyring::Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Error {
    /// Writes the error with its code; for a failed output the system's error, after the place in
    /// the script if it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Output { prefix, error } => write!(f, "{prefix}output: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Returns the VFS's error that caused one of SQLite's, which the VFS then forgets, or else
/// SQLite's own: SR-6010 for busy or locked, SR-5001 for I/O, SR-3001 for a file that is no
/// database, SR-4011 for a malformed one, SR-1005 for any other. Its detail may quote a part of the
/// statement.
pub(crate) fn sql_failure(error: rusqlite::Error) -> Error {
    strongroom_sqlite::explain(error).into()
}
