//! `strongroom keyserver audit`: the audit log, whether its chain is whole, and its archives.
//!
//! Must not: believe a row that was not checked.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use strongroom_format::text::printable;
use strongroom_inspect::time::rfc3339;
use strongroom_keys_client::{Files, Method, Node};
use strongroom_keys_server::archive::{self, VerifiedRange};
use strongroom_keys_server::audit::Row;
use strongroom_keys_server::audit_check::{check_live_rows, read_live_rows};

use super::admin::{ServerOptions, malformed, plain};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Show the audit log, check it, archive it.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = tail!("  strongroom keyserver audit --node admin.toml --verify"))]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Check the whole chain of the rows that the server has; show only where it has come to
    #[arg(long)]
    verify: bool,
    /// Show rows after this number
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "verify")]
    after: u64,
    /// Print JSON: with --verify one object, else one row a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Subcommand)]
enum Verb {
    Archive(ArchiveArgs),
    Verify(VerifyArgs),
}

/// Have the server put the rows that are older than it keeps into an archive now.
///
/// The directory, and how many rows and days stay, are in the server's configuration, section
/// `[audit]`. The server does the same by itself once a day.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver audit archive --node admin.toml"))]
struct ArchiveArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// Check archives of the audit log without the server: signatures, chains, and that no row between
/// them is missing.
///
/// With --node the server is asked too: its rows have to go on where the archives end.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver audit verify --authority authority.pem /var/lib/strongroom/archive/audit-*.jsonl"))]
struct VerifyArgs {
    /// The archives, in any order
    #[arg(value_name = "ARCHIVE", required = true)]
    archives: Vec<PathBuf>,
    /// The certificate of the server's authority; of the configuration unless given
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl AuditArgs {
    /// Returns whether `--json` was given to the verb, or to `audit` itself.
    pub(super) fn wants_json(&self) -> bool {
        match &self.verb {
            None => self.json,
            Some(Verb::Archive(args)) => args.json,
            Some(Verb::Verify(args)) => args.json,
        }
    }

    /// Runs the verb that was named, or shows or checks the server's audit log.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Some(Verb::Archive(args)) => args.run(context),
            Some(Verb::Verify(args)) => args.run(context),
            None => self.show(context),
        }
    }

    /// Requests all rows that the server has and checks their chain. Prints the rows after
    /// `--after`, as text or one JSON object each; with `--verify` prints only that the chain is
    /// whole and where it ends. SR-8436 if it is not; SR-8400 or SR-8401 if the node's
    /// configuration or one of its files cannot be used; SR-8402 if no server answers; what the
    /// server refuses.
    fn show(&self, context: &mut Context) -> Result<(), Failure> {
        let live = read_live_rows(self.server.asking()?, |row| match () {
            () if self.verify || row.n <= self.after => Ok(()),
            () if self.json => {
                let text = serde_json::to_string(row).unwrap_or_default();
                context.output.line(&text)
            }
            () => context.output.line(&row_text(row)),
        })?;
        if !self.verify {
            return Ok(());
        }
        let (rows, head) = (live.last, &live.head);
        if self.json {
            let told = json!({"rows": rows, "head": head, "archived": live.archived});
            return context.output.json(&told);
        }
        let whole = match live.archived {
            0 => format!("whole: {rows} rows, head {head}"),
            n => format!(
                "whole: rows {} to {rows}, head {head}; rows 1 to {n} are in archives, of which the last is {}",
                n.saturating_add(1),
                live.archive
            ),
        };
        context.output.line(&whole)
    }
}

impl ArchiveArgs {
    /// Has the server move rows that are older than it keeps into archives, and prints the
    /// archives. Errors: SR-8400 or SR-8401 if the node's configuration or one of its files cannot
    /// be used; SR-8402 if no server answers; what the server refuses, SR-8404 for a response
    /// without archives.
    fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = "/v1/audit/archive";
        let answer = self.server.change(&Method::POST, path, Some(&json!({})))?;
        if self.json {
            return context.output.json(&answer);
        }
        let archives = answer["archives"]
            .as_array()
            .ok_or_else(|| malformed("archives"))?;
        if archives.is_empty() {
            return context.output.line("no row is older than the server keeps");
        }
        for archive in archives {
            let [first, last, file] = ["first", "last", "file"].map(|name| plain(&archive[name]));
            context
                .output
                .line(&format!("archived rows {first} to {last}: {file}"))?;
        }
        Ok(())
    }
}

impl VerifyArgs {
    /// Verifies archive files without the server and prints which rows they hold; with `--node`,
    /// also that the server's rows continue where the archives end. Errors: SR-1006 for a missing
    /// file, SR-1001 for a directory, SR-8436 if a row is missing, changed or out of order,
    /// SR-8440 if the certificate of the key server's authority cannot be used; with `--node` also
    /// SR-8400 if the node's configuration cannot be used, SR-8401 if a file that it names cannot,
    /// SR-8402 if no server answers, and the errors that the server answers with.
    fn run(self, context: &mut Context) -> Result<(), Failure> {
        for archive in &self.archives {
            // Before anything else is looked for, which may be missing for the same reason.
            let about = archive.metadata().map_err(|e| Failure::open(archive, &e))?;
            if about.is_dir() {
                let archive = archive.display();
                let detail = format!(
                    "{archive} is a directory: name the archives in it, as {archive}/audit-*.jsonl"
                );
                return Err(Failure::usage(&detail));
            }
        }
        let node = Node::path(self.server.node.as_deref());
        let authority = match &self.authority {
            Some(path) => path.clone(),
            None => {
                let files = Files::load(&node).map_err(|error| {
                    let instead = "give --authority FILE, or --node FILE: ";
                    Failure::from(error).with_prefix(instead)
                })?;
                files.authority
            }
        };
        let authority =
            std::fs::read(&authority).map_err(|error| Failure::open(&authority, &error))?;
        let whole = archive::verify_files(&self.archives, &authority)?;
        // Only when it is asked for by name: archives are checked where there is no server.
        let live = match self.server.node {
            Some(_) => Some(check_live_rows(self.server.asking()?, &whole)?),
            None => None,
        };
        if self.json {
            return context.output.json(&json!({
                "server_id": whole.server_id,
                "files": whole.files,
                "first": whole.first,
                "last": whole.last,
                "head": whole.head,
                "server_last": live.as_ref().map(|live| live.last),
                "server_head": live.as_ref().map(|live| live.head.clone()),
            }));
        }
        let VerifiedRange {
            first, last, head, ..
        } = &whole;
        context
            .output
            .line(&format!("whole: rows {first} to {last}, head {head}"))?;
        if let Some(live) = live {
            let line = format!(
                "whole: the server's rows go on from there to {}, head {}",
                live.last, live.head
            );
            context.output.line(&line)?;
        }
        if *first > 1 {
            let line = format!("rows 1 to {} are not in these archives", first - 1);
            context.output.line(&line)?;
        }
        Ok(())
    }
}

/// Returns a row of the audit log as one line without a line end: number, time, address, actor,
/// action, subject, the version if there is one, and detail. Control characters are escaped.
fn row_text(row: &Row) -> String {
    let version = match row.version {
        0 => String::new(),
        version => format!(" version {version}"),
    };
    let text = format!(
        "{} {} {} {} {} {}{version} {}",
        row.n,
        rfc3339(row.time),
        row.address,
        row.actor,
        row.action,
        row.subject,
        row.detail
    );
    printable(text.trim_end())
}
