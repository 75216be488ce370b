//! Splits input lines into statements and dot-commands and runs them. One path for -c, scripts,
//! .read and the prompt.
//!
//! Must not: read ahead of the line it runs, so that an error's line number is right.

use std::io::BufRead;

use strongroom_format::code;

use crate::error::Error;
use crate::session::Session;
use crate::{dot, ffi};

/// Whether to go on after a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Quit,
}

/// Collects lines until they make a statement.
#[derive(Default)]
pub(crate) struct Feed {
    text: String,
}

/// What a line completed.
pub(crate) enum Unit {
    /// Nothing yet.
    Partial,
    /// A dot-command.
    Dot(String),
    /// One or more statements.
    Sql(String),
}

impl Feed {
    /// Returns whether a statement was begun and is not complete.
    pub(crate) fn is_partial(&self) -> bool {
        !self.text.is_empty()
    }

    /// Discards the statement that was begun.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
    }

    /// Adds one line, without its line end, and returns what it completes: nothing yet, a
    /// dot-command, or statements, which are then removed from the buffer. A dot begins a command
    /// only where no statement was begun.
    pub(crate) fn line(&mut self, line: &str) -> Unit {
        if self.text.is_empty() {
            if line.trim().is_empty() {
                return Unit::Partial;
            }
            if line.starts_with('.') {
                return Unit::Dot(line.to_owned());
            }
        } else {
            self.text.push('\n');
        }
        self.text.push_str(line);
        // sqlite3_complete reads the whole text: ask it only when this line can have ended a
        // statement.
        if line.contains(';') && ffi::is_complete(&self.text) {
            Unit::Sql(std::mem::take(&mut self.text))
        } else {
            Unit::Partial
        }
    }

    /// Returns what is left at the end of input, since a last statement may lack its semicolon, and
    /// empties the buffer.
    pub(crate) fn end(&mut self) -> Unit {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            Unit::Partial
        } else {
            Unit::Sql(text)
        }
    }
}

/// Runs all of `input` line by line, up to `.quit` or the first error. The error has `origin` and
/// the line where the statement begins in its detail. SR-1005 for text that is not UTF-8, SR-5001
/// if the input cannot be read; the errors of the statements.
pub(crate) fn run_script(
    session: &mut Session<'_>,
    mut input: impl BufRead,
    origin: &str,
) -> Result<Flow, Error> {
    let mut feed = Feed::default();
    let (mut number, mut begun) = (0_u64, 1_u64);
    let at = |line: u64, failure: Error| failure.with_prefix(&format!("{origin}, line {line}: "));
    loop {
        let mut bytes = Vec::new();
        let read = input.read_until(b'\n', &mut bytes);
        let length = read.map_err(|e| Error::new(&code::IO, format!("{origin}: {e}")))?;
        if length == 0 {
            break;
        }
        number += 1;
        if !feed.is_partial() {
            begun = number;
        }
        let line = String::from_utf8(bytes).map_err(|_| {
            let detail = format!("{origin}, line {number}: the text is not UTF-8");
            Error::new(&code::SQL, detail)
        })?;
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let unit = feed.line(line.strip_suffix('\r').unwrap_or(line));
        if run_unit(session, &unit).map_err(|e| at(begun, e))? == Flow::Quit {
            return Ok(Flow::Quit);
        }
    }
    run_unit(session, &feed.end()).map_err(|e| at(begun, e))
}

/// Runs the dot-command or the statements that a line has completed; does nothing if there are
/// none. Returns whether the shell continues. Errors are those of the command or statement.
pub(crate) fn run_unit(session: &mut Session<'_>, unit: &Unit) -> Result<Flow, Error> {
    match unit {
        Unit::Partial => Ok(Flow::Continue),
        Unit::Dot(line) => dot::run(session, line),
        Unit::Sql(sql) => session.run_sql(sql).map(|()| Flow::Continue),
    }
}

#[cfg(test)]
mod tests {
    use super::{Feed, Unit};

    fn statements(lines: &[&str]) -> Vec<String> {
        let mut feed = Feed::default();
        let mut found = Vec::new();
        for line in lines {
            match feed.line(line) {
                Unit::Partial => {}
                Unit::Dot(text) | Unit::Sql(text) => found.push(text),
            }
        }
        if let Unit::Sql(text) = feed.end() {
            found.push(text);
        }
        found
    }

    #[test]
    fn a_statement_ends_where_sqlite_says() {
        assert_eq!(
            statements(&["select ';", "';", ".tables", "select 2"]),
            ["select ';\n';", ".tables", "select 2"]
        );
        let trigger = [
            "create trigger t after insert on a begin",
            "delete from b;",
            "end;",
        ];
        assert_eq!(statements(&trigger), [trigger.join("\n")]);
        // Within a statement a leading dot is part of it.
        assert_eq!(
            statements(&["select '", ".quit", "';"]),
            ["select '\n.quit\n';"]
        );
        assert_eq!(statements(&["", "  ", "\t"]), Vec::<String>::new());
    }
}
