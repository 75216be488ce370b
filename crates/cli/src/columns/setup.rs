//! `strongroom columns setup`: what the server's machine needs for confidential columns, in one
//! command. What it does is in strongroom-columns-setup.
//!
//! Must not: decide anything; print a key.

use std::path::PathBuf;

use clap::Args;
use strongroom_columns_setup::{Report, Setup, Step};
use strongroom_format::text::printable;

use super::connect::password;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Set confidential columns up on the machine of a PostgreSQL server, as root.
///
/// Makes the zone's user, state directory, key and systemd unit, and starts the zone where systemd
/// manages services; writes the server's settings; once the server was restarted, makes the
/// extension in a database. Asks the running server where its files are. What is there stays as it
/// is: the same command again does what is left. It never restarts the server.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns setup --database shop"))]
pub(super) struct SetupArgs {
    /// The server's socket
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/postgresql/.s.PGSQL.5432"
    )]
    server: PathBuf,
    /// A superuser of the server, whom the server lets in as the user who runs it
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    user: String,
    /// File whose first line is that user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The database that gets the extension; it has to exist
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Make an example table of this name in the database, for its owner
    #[arg(long, value_name = "NAME", requires = "database")]
    example_table: Option<String>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl SetupArgs {
    /// Makes what is missing, or only looks with `--dry-run`, and prints what was there, what was
    /// made, and what is left to do. Prints what was made also when a later step fails. Errors:
    /// those of [`Setup::run`]; SR-1006 or SR-1001 for the password's file; SR-5001 if standard
    /// output cannot be written.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let dry_run = self.dry_run;
        let setup = Setup {
            socket: self.server,
            user: self.user,
            password: self.password_file.as_deref().map(password).transpose()?,
            database: self.database,
            example_table: self.example_table,
            dry_run,
        };
        let mut report = Report::default();
        let done = setup.run(&mut report);
        context.output.text(&text(&report, dry_run, done.is_ok()))?;
        done.map_err(Failure::from)
    }
}

/// Returns the report as text: one line for each step, then what is left, with the commands. The
/// report of a run that failed does not end with what is left. Names that the server's user has
/// chosen are in it, and are shown in printable form.
fn text(report: &Report, dry_run: bool, is_done: bool) -> String {
    let mut out = String::new();
    let made = if dry_run { "would make" } else { "made" };
    for step in &report.steps {
        let (what, of) = match step {
            Step::There(of) => ("there", of),
            Step::Made(of) => (made, of),
        };
        out.push_str(&format!("{what:<10}  {}\n", printable(of)));
    }
    if !is_done {
        return out;
    }
    if report.is_unchanged() {
        out.push_str("Nothing was changed: all of this was there.\n");
    }
    for (at, left) in report.left.iter().enumerate() {
        let begin = if at == 0 { "\nLeft to do:\n" } else { "" };
        out.push_str(&format!("{begin}  {}. {}:\n", at + 1, left.what));
        for command in &left.commands {
            out.push_str(&format!("       {}\n", printable(command)));
        }
    }
    out
}
