//! `strongroom keyserver audit`: the audit log, and whether its chain is whole.
//!
//! Must not: believe a hash that the server sends: each is computed anew.

use clap::Args;
use serde_json::json;
use strongroom_keyserver::audit::{Chain, Row};

use super::admin::{ServerOptions, malformed};
use crate::Context;
use crate::failure::{Failure, printable};
use crate::help::tail;
use crate::time::rfc3339;

/// Show the audit log.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver audit --node admin.toml --verify"))]
pub(super) struct AuditArgs {
    /// Check the whole chain; show only where it has come to
    #[arg(long)]
    verify: bool,
    /// Show rows after this number
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "verify")]
    after: u64,
    /// Print JSON: with --verify one object, else one row a line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl AuditArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut chain = Chain::default();
        self.server.all("/v1/audit", "rows", "n", |value| {
            let row: Row = serde_json::from_value(value).map_err(|_| malformed("row"))?;
            // Every hash depends on those before it: there is no checking without the beginning.
            chain.take(&row)?;
            match () {
                () if self.verify || row.n <= self.after => Ok(()),
                () if self.json => {
                    let text = serde_json::to_string(&row).unwrap_or_default();
                    context.output.line(&text)
                }
                () => context.output.line(&in_words(&row)),
            }
        })?;
        if !self.verify {
            return Ok(());
        }
        let (n, hash) = chain.head();
        match self.json {
            true => context.output.json(&json!({"rows": n, "head": hash})),
            false => context
                .output
                .line(&format!("whole: {n} rows, head {hash}")),
        }
    }
}

fn in_words(row: &Row) -> String {
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
