//! The failure of a command: one code, what happened, and what the user can do.
//!
//! Must not: carry a secret. Details name files, keys by id, and positions.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use strongroom_format::code::{self, Code};
use strongroom_format::text::printable;

/// A command's failure.
pub(crate) struct Failure {
    code: &'static Code,
    detail: String,
    told: Reported,
    /// Instead of the exit code of the code's class.
    exit: Option<u8>,
}

/// What has been reported already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reported {
    Nothing,
    /// The result object on standard output has an `error` member.
    Json,
    /// Standard output was closed by its reader.
    Everything,
}

/// The `error` member of a JSON result. A stable contract: docs/reference/exit-codes.md.
#[derive(Clone, Serialize)]
pub(crate) struct ErrorJson {
    code: String,
    what: &'static str,
    detail: String,
    todo: &'static str,
}

#[derive(Serialize)]
struct OnlyError {
    error: ErrorJson,
}

impl Failure {
    /// Makes a failure that nobody has reported yet. Its exit code is that of the code's class.
    pub(crate) fn new(code: &'static Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            told: Reported::Nothing,
            exit: None,
        }
    }

    /// Makes an SR-1001 failure with clap's text, or another, as its detail. Trailing white space
    /// is removed.
    pub(crate) fn usage(text: &str) -> Self {
        Self::new(&code::USAGE, text.trim_end())
    }

    /// Makes an SR-5001 failure for an operating system error on `path`.
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::new(&code::IO, format!("{}: {error}", path.display()))
    }

    /// As [`Failure::io`], but SR-1006 if the error is that the file does not exist.
    pub(crate) fn open(path: &Path, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::NotFound {
            Self::new(&code::NOT_FOUND, path.display().to_string())
        } else {
            Self::io(path, error)
        }
    }

    /// Makes an SR-5001 failure for a write to standard output that failed. If the reader has
    /// closed the pipe, the failure is never printed and only sets the exit code.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        let told = if error.kind() == std::io::ErrorKind::BrokenPipe {
            Reported::Everything
        } else {
            Reported::Nothing
        };
        Self {
            told,
            ..Self::new(&code::IO, format!("standard output: {error}"))
        }
    }

    /// Marks the failure as contained in a JSON result that was already printed, so that
    /// [`Failure::report`] writes no second JSON object. It is still printed to standard error.
    pub(crate) fn reported_in_json(self) -> Self {
        Self {
            told: Reported::Json,
            ..self
        }
    }

    /// Makes the command exit with `exit` instead of the exit code of the error's class, for
    /// callers that give exit codes a meaning of their own.
    pub(crate) fn with_exit_code(self, exit: u8) -> Self {
        Self {
            exit: Some(exit),
            ..self
        }
    }

    /// Makes a failure that is never printed, because a child process has printed it. The command
    /// exits with `exit`.
    pub(crate) fn already_reported(code: &'static Code, exit: u8) -> Self {
        Self {
            told: Reported::Everything,
            exit: Some(exit),
            ..Self::new(code, "")
        }
    }

    /// Puts `prefix` before the detail.
    pub(crate) fn with_prefix(self, prefix: &str) -> Self {
        let detail = format!("{prefix}{}", self.detail);
        Self { detail, ..self }
    }

    /// Returns the code. It decides the exit status too, unless [`Failure::with_exit_code`] or
    /// [`Failure::already_reported`] has set another.
    pub(crate) fn code(&self) -> &'static Code {
        self.code
    }

    /// Returns the detail: what the failure is about, such as a path. Empty if there is none.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns code, meaning and detail in one line, for use as the detail of a warning.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{}, {}: {}",
            code_text(self.code),
            self.code.what,
            self.detail
        )
    }

    /// Returns the failure as the `error` member of a JSON result. Prints nothing.
    pub(crate) fn json(&self) -> ErrorJson {
        ErrorJson {
            code: code_text(self.code),
            what: self.code.what,
            detail: self.detail.clone(),
            todo: self.code.todo,
        }
    }

    /// Writes the failure to standard error, unless it was printed by a child process or the reader
    /// of standard output has gone.
    pub(crate) fn print(&self) {
        if self.told != Reported::Everything {
            message("error", self.code, &self.detail);
        }
    }

    /// Writes the failure to standard error, and with `json` also as a JSON object to standard
    /// output; neither if it was reported before, as by a JSON result that contains it. Returns the
    /// exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        self.print();
        if json && self.told == Reported::Nothing {
            self.print_json();
        }
        self.exit_code()
    }

    /// Returns the exit code that was set, otherwise that of the code's class.
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit.unwrap_or_else(|| self.code.class.exit_code()))
    }

    /// Writes code and detail to standard error, with clap's line breaks kept and without the
    /// advice of the code; with `json` also a JSON object to standard output. Returns the exit
    /// code.
    pub(crate) fn report_usage(&self, json: bool) -> ExitCode {
        let text = format!("error[{}]: {}\n", code_text(self.code), self.detail);
        to_stderr(&text);
        if json {
            self.print_json();
        }
        self.exit_code()
    }

    /// Writes `{"error": ...}` as one line to standard output. An error of that write is ignored.
    fn print_json(&self) {
        let object = OnlyError { error: self.json() };
        if let Ok(text) = serde_json::to_string(&object) {
            // Standard output may be closed; the exit code still reports the failure.
            drop(writeln!(std::io::stdout(), "{text}"));
        }
    }
}

impl From<strongroom_keyring::Error> for Failure {
    fn from(error: strongroom_keyring::Error) -> Self {
        Self::new(error.code(), error.detail())
    }
}

impl From<strongroom_keys_client::Error> for Failure {
    fn from(error: strongroom_keys_client::Error) -> Self {
        strongroom_keyring::Error::from(error).into()
    }
}

/// Writes a warning to standard error: code, meaning, detail and advice. The command continues.
pub(crate) fn warn(code: &Code, detail: &str) {
    message("warning", code, detail);
}

/// Writes a line that begins with `note: ` to standard error.
pub(crate) fn note(text: &str) {
    to_stderr(&format!("note: {text}\n"));
}

/// Writes a note to standard error that the command waits for a key server: which, for how long at
/// most, and why. Otherwise a user could take the wait for a hang.
pub(crate) fn waiting(waiting: &strongroom_keys_client::Waiting) {
    let servers = waiting.servers.join(", ");
    let why = match waiting.why.as_str() {
        "" => String::new(),
        why => format!(" ({})", printable(why)),
    };
    let seconds = waiting.total.as_secs();
    note(&format!(
        "waiting for the key server at {servers}, for {seconds} s at most{why}"
    ));
}

/// Returns the code as `SR-nnnn`.
pub(crate) fn code_text(code: &Code) -> String {
    format!("SR-{:04}", code.number)
}

/// Writes an error or a warning to standard error: level, code, meaning, detail in printable form,
/// and advice.
fn message(level: &str, code: &Code, detail: &str) {
    let what = code.what;
    let detail = if detail.is_empty() {
        String::new()
    } else {
        format!(" ({})", printable(detail))
    };
    to_stderr(&format!(
        "{level}[{}]: {what}{detail}\n  to do: {}\n",
        code_text(code),
        code.todo
    ));
}

/// Writes to standard error. An error of that write is ignored; the exit code still reports a
/// failure.
pub(crate) fn to_stderr(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
