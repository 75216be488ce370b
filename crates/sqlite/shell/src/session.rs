//! The state of a shell while it runs: the connection, the settings, and where results go.
//!
//! Must not: print messages; it returns failures, and the caller prints them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Connection, Statement};
use strongroom_format::code;

use crate::console::Console;
use crate::error::{Error, sql_failure};
use crate::mode::Mode;
use crate::render::renderer::Style;
use crate::{history, render};

/// One shell.
pub(crate) struct Session<'a> {
    pub(crate) connection: Rc<Connection>,
    pub(crate) style: Style,
    /// Whether to say how long each statement took.
    pub(crate) timer: bool,
    /// How deep `.read` is nested.
    pub(crate) depth: u32,
    /// Receives what is not a result.
    pub(crate) console: &'a dyn Console,
    output: &'a mut dyn Write,
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl<'a> Session<'a> {
    /// Returns a session without a timer whose results go to `output`.
    pub(crate) fn new(
        connection: Connection,
        output: &'a mut dyn Write,
        console: &'a dyn Console,
        mode: Mode,
    ) -> Self {
        Self {
            connection: Rc::new(connection),
            style: Style::new(mode),
            timer: false,
            depth: 0,
            console,
            output,
            file: None,
        }
    }

    /// Runs every statement of `sql`, in order, up to the first that fails, and writes their rows;
    /// with the timer on, also the time of each to the console. The detail of an error does not
    /// quote a statement that may hold a key. Fails with the error of the statement, or of the
    /// output.
    pub(crate) fn run_sql(&mut self, sql: &str) -> Result<(), Error> {
        let connection = Rc::clone(&self.connection);
        let mut batch = Batch::new(&connection, sql);
        loop {
            let started = Instant::now();
            let statement = batch.next().map_err(|e| statement_failure(e, sql))?;
            let Some(mut statement) = statement else {
                return Ok(());
            };
            self.run_statement(&mut statement)
                .map_err(|e| hide_sql(e, sql))?;
            if self.timer {
                let time = format!("time: {:.3} s", started.elapsed().as_secs_f64());
                self.console.line(&time);
            }
        }
    }

    /// Runs one statement to its end and writes its rows, also those that came before an error.
    /// Fails with the VFS's error if it caused SQLite's, else SR-1005, SR-6010 (busy) or SR-5001 as
    /// SQLite reports it; the error of the output takes precedence.
    fn run_statement(&mut self, statement: &mut Statement<'_>) -> Result<(), Error> {
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.raw_query();
        if names.is_empty() {
            while rows.next().map_err(sql_failure)?.is_some() {}
            return Ok(());
        }
        let style = self.style.clone();
        let (writer, to_file) = self.writer();
        let mut renderer = render::renderer_of(&style, writer, &names);
        let told = |error: std::io::Error| write_failure(to_file.as_deref(), error);
        let outcome = loop {
            match rows.next() {
                Ok(Some(row)) => {
                    let cells = render::cells(row, names.len());
                    let cells = cells.map_err(sql_failure)?;
                    renderer.row(&cells).map_err(told)?;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(sql_failure(error)),
            }
        };
        // Rows that came before an error are shown, and a JSON array is closed.
        renderer.end().map_err(told)?;
        outcome
    }

    /// Returns where results go, and the path if that is a file.
    pub(crate) fn writer(&mut self) -> (&mut dyn Write, Option<PathBuf>) {
        match &mut self.file {
            Some((path, file)) => (file, Some(path.clone())),
            None => (&mut *self.output, None),
        }
    }

    /// Writes text to where results go. SR-5001 if a file cannot be written; [`Error::Output`] for
    /// the caller's output.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Error> {
        let (writer, path) = self.writer();
        let written = writer.write_all(text.as_bytes());
        written.map_err(|e| write_failure(path.as_deref(), e))
    }

    /// Flushes the results, then sends them to a new file with mode 0600, or back to the caller's
    /// output without a path. SR-1002 if the file exists; SR-1006 without its directory; SR-5001 if
    /// a file cannot be made or written.
    pub(crate) fn redirect(&mut self, path: Option<&Path>) -> Result<(), Error> {
        self.flush()?;
        self.file = None;
        let Some(path) = path else {
            return Ok(());
        };
        let mut options = File::options();
        let opened = options.write(true).create_new(true).mode(0o600).open(path);
        let file = opened.map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::new(&code::EXISTS, path.display().to_string())
            }
            _ => strongroom_keyring::Error::opening(path, e).into(),
        })?;
        self.file = Some((path.to_owned(), BufWriter::new(file)));
        Ok(())
    }

    /// Flushes where results go. Errors as [`Self::print`].
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let (writer, path) = self.writer();
        let flushed = writer.flush();
        flushed.map_err(|e| write_failure(path.as_deref(), e))
    }

    /// Closes the file that results were redirected to and flushes the output. A write that failed
    /// late is reported only here. Errors as [`Self::print`].
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.redirect(None)?;
        self.flush()
    }
}

/// Makes the error of a write of results: SR-5001 for the file `path`, otherwise [`Error::Output`].
pub(crate) fn write_failure(path: Option<&Path>, error: std::io::Error) -> Error {
    match path {
        Some(path) => strongroom_keyring::Error::on_path(path, error).into(),
        None => Error::Output {
            prefix: String::new(),
            error,
        },
    }
}

/// Makes the error of `sql`, which SQLite refused, as [`hide_sql`] leaves it.
fn statement_failure(error: rusqlite::Error, sql: &str) -> Error {
    hide_sql(sql_failure(error), sql)
}

/// Replaces the detail of an SR-1005 error if `sql` may hold a key, because SQLite quotes the
/// statement in its messages. Any other error is returned unchanged.
fn hide_sql(failure: Error, sql: &str) -> Error {
    if failure.has_code(&code::SQL) && history::mentions_key(sql) {
        let detail = "the statement names a key, so SQLite's message is not shown";
        return Error::new(&code::SQL, detail);
    }
    failure
}
