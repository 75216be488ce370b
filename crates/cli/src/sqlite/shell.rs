//! `strongroom sqlite shell`: SQL on a sealed or plain database, typed, piped in, or given with
//! `-c`. The shell itself is strongroom-sqlite-shell.
//!
//! Must not: open a database itself.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use strongroom_sqlite_shell::{Console, Error, Mode, Shell, Target, database_file, open};

use crate::context::Context;
use crate::failure::{Failure, note, to_stderr};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;
use crate::progress::Progress;

/// Run SQL on a database, sealed or plain.
///
/// Statements are typed, read from standard input, or given with -c. A script stops at its first
/// error. Dot-commands (.help lists them) work in all three. With a key option, a database that
/// does not exist is created, sealed.
///
/// .dump, .output and redirected results hold plaintext.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite shell sealed.db --key-id app -c 'SELECT count(*) FROM t' --mode csv"))]
pub(crate) struct ShellArgs {
    /// A database file, or a file: URI with the VFS's parameters
    #[arg(value_name = "DB_OR_URI")]
    database: String,
    #[command(flatten)]
    key: KeyOptions,
    /// Run this SQL or dot-command and exit; may be given several times
    #[arg(short = 'c', value_name = "SQL")]
    commands: Vec<String>,
    /// How results are written
    #[arg(long, value_enum, default_value_t = ModeOption::Table)]
    mode: ModeOption,
    /// Open for reading only
    #[arg(long)]
    read_only: bool,
}

/// How results are written.
#[derive(Clone, Copy, ValueEnum)]
enum ModeOption {
    /// Aligned columns
    Table,
    /// RFC 4180
    Csv,
    /// One array of objects per statement
    Json,
}

impl ShellArgs {
    /// Returns the database's file; `None` for a database in memory or without a name.
    pub(crate) fn subject(&self) -> Option<PathBuf> {
        database_file(&self.database)
    }

    /// Opens the database and runs the commands of `-c`, otherwise the lines typed at a terminal,
    /// otherwise standard input as a script. Results go to standard output. SR-2019 for a key
    /// option with a URI; the errors of opening the database; that of the first statement that
    /// fails, except at a terminal.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let connection = open(Target {
            database: &self.database,
            key: keys::source(self.key),
            keyring: context.keyring.clone(),
            is_keyring_of_environment: context.keyring == keys::keyring_of_environment(),
            read_only: self.read_only,
        })?;
        let mode = match self.mode {
            ModeOption::Table => Mode::Table,
            ModeOption::Csv => Mode::Csv,
            ModeOption::Json => Mode::Json,
        };
        let mut shell = Shell::new(connection, &mut context.output, &Terminal, mode);
        if !self.commands.is_empty() {
            shell.run_commands(&self.commands, "-c")?;
        } else if std::io::stdin().is_terminal() {
            shell.run_interactive(history_file())?;
        } else {
            shell.run_script(std::io::stdin().lock(), "standard input")?;
        }
        Ok(shell.finish()?)
    }
}

/// Standard error.
struct Terminal;

impl Console for Terminal {
    /// Writes a line that begins with `note: ` to standard error.
    fn note(&self, text: &str) {
        note(text);
    }

    /// Writes a line to standard error.
    fn line(&self, text: &str) {
        to_stderr(&format!("{text}\n"));
    }

    /// Prints the error to standard error, as of a command that failed. The shell continues.
    fn failed(&self, error: Error) {
        Failure::from(error).print();
    }

    /// Returns a function that shows how far some work has come on a progress bar with this label.
    fn progress(&self, label: &'static str) -> Box<dyn FnMut(u64, u64)> {
        let mut bar = Progress::new(label);
        Box::new(move |done, total| bar.update(done, total))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Failed(error) => error.into(),
            Error::Output { prefix, error } => Self::output(&error).with_prefix(&prefix),
        }
    }
}

/// Returns `$XDG_STATE_HOME/strongroom/history`, by default below `~/.local/state`. `None` if
/// neither `XDG_STATE_HOME` nor `HOME` is set. The file need not exist.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match set("XDG_STATE_HOME") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(set("HOME")?).join(".local/state"),
    };
    Some(state.join("strongroom/history"))
}
