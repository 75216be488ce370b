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
    pub(crate) fn new(code: &'static Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            told: Reported::Nothing,
            exit: None,
        }
    }

    /// A usage error in clap's words.
    pub(crate) fn usage(text: &str) -> Self {
        Self::new(&code::USAGE, text.trim_end())
    }

    /// SR-5001 for an operating system error on `path`.
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::new(&code::IO, format!("{}: {error}", path.display()))
    }

    /// As [`Failure::io`], but a file that is not there is SR-1006.
    pub(crate) fn open(path: &Path, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::NotFound {
            Self::new(&code::NOT_FOUND, path.display().to_string())
        } else {
            Self::io(path, error)
        }
    }

    /// Failure to write results.
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

    /// Marks the failure as part of a JSON result that is already on standard output.
    pub(crate) fn reported_in_json(self) -> Self {
        Self {
            told: Reported::Json,
            ..self
        }
    }

    /// Ends the command with this exit code, where another program has its own meaning for exit
    /// codes.
    pub(crate) fn with_exit_code(self, exit: u8) -> Self {
        Self {
            exit: Some(exit),
            ..self
        }
    }

    /// The failure of a child process that has already printed it.
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

    pub(crate) fn code(&self) -> &'static Code {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Code, what happened and detail, to be the detail of a warning.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{}, {}: {}",
            code_text(self.code),
            self.code.what,
            self.detail
        )
    }

    /// The `error` member for a JSON result.
    pub(crate) fn json(&self) -> ErrorJson {
        ErrorJson {
            code: code_text(self.code),
            what: self.code.what,
            detail: self.detail.clone(),
            todo: self.code.todo,
        }
    }

    /// Writes the failure to standard error.
    pub(crate) fn print(&self) {
        if self.told != Reported::Everything {
            message("error", self.code, &self.detail);
        }
    }

    /// Reports the failure; returns the exit code of its class.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        self.print();
        if json && self.told == Reported::Nothing {
            self.print_json();
        }
        self.exit_code()
    }

    fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit.unwrap_or_else(|| self.code.class.exit_code()))
    }

    /// As [`Failure::report`], with clap's text of several lines left as it is.
    pub(crate) fn report_usage(&self, json: bool) -> ExitCode {
        let text = format!("error[{}]: {}\n", code_text(self.code), self.detail);
        to_stderr(&text);
        if json {
            self.print_json();
        }
        self.exit_code()
    }

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

/// Writes a warning to standard error. The command goes on.
pub(crate) fn warn(code: &Code, detail: &str) {
    message("warning", code, detail);
}

/// Writes a remark to standard error.
pub(crate) fn note(text: &str) {
    to_stderr(&format!("note: {text}\n"));
}

/// Prints what a call to a key server waits for, so that the user does not take it for a hang.
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

/// `SR-nnnn`.
pub(crate) fn code_text(code: &Code) -> String {
    format!("SR-{:04}", code.number)
}

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

/// Writes to standard error, which may be closed; the exit code still reports a failure.
pub(crate) fn to_stderr(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
