//! `strongroom sqlite shell`: SQL on a sealed or plain database, typed, piped in, or given with
//! `-c`.
//!
//! Invariants:
//! 1. A script (`-c`, or standard input that is not a terminal) stops at its first error and exits
//!    non-zero.
//! 2. Ctrl-C stops the running statement, not an interactive shell.
//! 3. A statement that names a key never reaches the history file or an error message.
//!
//! Must not: open a sealed database but through the SQLite extension.

mod complete;
mod dot;
mod dump;
mod editor;
mod feed;
mod ffi;
mod history;
mod import;
mod mode;
mod render;
mod schema;
mod session;
mod target;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;

use self::mode::Mode;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

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
    #[arg(long, value_enum, default_value_t = Mode::Table)]
    mode: Mode,
    /// Open for reading only
    #[arg(long)]
    read_only: bool,
}

impl ShellArgs {
    /// The database's file; none in memory.
    pub(crate) fn subject(&self) -> Option<PathBuf> {
        target::path(&self.database)
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let key = keys::source(self.key);
        let connection =
            target::open(&self.database, key, context.keyring.clone(), self.read_only)?;
        let mut session = session::Session::new(connection, &mut context.output, self.mode);
        if !self.commands.is_empty() {
            for command in &self.commands {
                let flow = feed::run_script(&mut session, command.as_bytes(), "-c")?;
                if flow == feed::Flow::Quit {
                    break;
                }
            }
            return session.finish();
        }
        if std::io::stdin().is_terminal() {
            editor::run(&mut session)?;
        } else {
            feed::run_script(&mut session, std::io::stdin().lock(), "standard input")?;
        }
        session.finish()
    }
}
