//! The SQL shell: statements and dot-commands on a sealed or plain SQLite database. The library of
//! `strongroom sqlite shell`.
//!
//! Invariants:
//! 1. A script stops at its first error, which names its line.
//! 2. Ctrl-C stops the running statement, not an interactive shell.
//! 3. A statement that names a key never reaches the history file or an error message.
//!
//! Must not: open a sealed database but through the SQLite extension; print but through the
//! caller's writer and [`Console`]; read the environment.

mod complete;
mod console;
mod dot;
mod dump;
mod editor;
mod error;
mod feed;
mod ffi;
mod history;
mod import;
mod mode;
mod render;
mod schema;
mod session;
mod target;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use rusqlite::Connection;

pub use self::console::Console;
pub use self::error::Error;
pub use self::mode::Mode;
use self::session::Session;
pub use self::target::{Target, database_file, open};

/// A shell on one connection.
pub struct Shell<'a> {
    session: Session<'a>,
}

impl<'a> Shell<'a> {
    /// Returns a shell that writes results to `output` in this mode, and everything else to
    /// `console`.
    pub fn new(
        connection: Connection,
        output: &'a mut dyn Write,
        console: &'a dyn Console,
        mode: Mode,
    ) -> Self {
        Self {
            session: Session::new(connection, output, console, mode),
        }
    }

    /// Runs each of the commands as a script of its own, up to one that is `.quit`.
    ///
    /// # Errors
    /// The error of the first command that fails, with `origin` and its line in the detail. The
    /// commands after it are not run.
    pub fn run_commands(&mut self, commands: &[String], origin: &str) -> Result<(), Error> {
        for command in commands {
            let flow = feed::run_script(&mut self.session, command.as_bytes(), origin)?;
            if flow == feed::Flow::Quit {
                break;
            }
        }
        Ok(())
    }

    /// Runs all of `input`, up to `.quit`.
    ///
    /// # Errors
    /// The error of the first statement that fails, with `origin` and its line in the detail;
    /// SR-1005 for text that is not UTF-8; SR-5001 if the input cannot be read.
    pub fn run_script(&mut self, input: impl BufRead, origin: &str) -> Result<(), Error> {
        feed::run_script(&mut self.session, input, origin).map(|_| ())
    }

    /// Reads statements from the terminal and runs them, until the input ends or `.quit`. `history`
    /// names the file of former statements, which is extended. Errors of statements are given to
    /// the console, and the shell continues. Replaces the process's handler of SIGINT.
    ///
    /// # Errors
    /// SR-5001 if the terminal cannot be read; the error of the output, once its reader has gone.
    pub fn run_interactive(&mut self, history: Option<PathBuf>) -> Result<(), Error> {
        editor::run(&mut self.session, history)
    }

    /// Flushes the results and closes the file that they were redirected to. A write that failed
    /// late is reported only here.
    ///
    /// # Errors
    /// SR-5001 if the file cannot be written; the error of the output.
    pub fn finish(mut self) -> Result<(), Error> {
        self.session.finish()
    }
}
