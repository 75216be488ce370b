//! `strongroom keyserver status`: whether the server is sealed, and whether its store has room.
//!
//! Must not: change anything.

use clap::Args;
use serde_json::Value;
use strongroom_format::code;
use strongroom_keys_client::Method;

use super::admin::{AnybodyOptions, plain};
use crate::context::Context;
use crate::failure::{Failure, warn};
use crate::help::tail;

/// Say whether the server is sealed, and how many shares it waits for; to viewers and
/// administrators how much room its store has.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver status --node admin.toml"))]
pub(super) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: AnybodyOptions,
}

impl StatusArgs {
    /// Requests the server's status, without a certificate if the configuration names none, and
    /// prints it as text or JSON. Warns with SR-8474 for each alarm about room. A sealed server is
    /// no error; these are: SR-8400 or SR-8401 if the node's configuration or one of its files
    /// cannot be used; SR-8402 if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let status = self
            .server
            .client()?
            .call(&Method::GET, "/v1/status", None, true)?;
        match self.json {
            true => context.output.json(&status),
            false => {
                context.output.line(&in_words(&status))?;
                match &status["room"] {
                    Value::Null => Ok(()),
                    room => print_room(context, room),
                }
            }
        }
    }
}

/// Prints how much room the store takes and has, and the number of rows of the audit log. Warns
/// with SR-8474 for each alarm.
fn print_room(context: &mut Context, room: &Value) -> Result<(), Failure> {
    let mib = |name: &str| room[name].as_u64().map(|bytes| bytes >> 20);
    let limit = mib("store_limit_bytes").map(|mib| format!(" of {mib}"));
    let free = mib("free_bytes").map(|mib| format!(", {mib} MiB free"));
    let line = format!(
        "store: {}{} MiB{}; audit log: {} rows",
        mib("store_bytes").unwrap_or(0),
        limit.unwrap_or_default(),
        free.unwrap_or_default(),
        plain(&room["audit_rows"]),
    );
    let archived = match room["audit_archived_through"].as_u64() {
        None | Some(0) => String::new(),
        Some(rows) => format!(", {rows} more in archives"),
    };
    context.output.line(&format!("{line}{archived}"))?;
    for alarm in room["alarms"].as_array().into_iter().flatten() {
        warn(&code::SERVER_ROOM, &plain(alarm));
    }
    Ok(())
}

/// Returns one line that says whether the server is open or sealed, and what it waits for.
pub(super) fn in_words(status: &Value) -> String {
    match (status["sealed"].as_bool(), status["threshold"].as_u64()) {
        (Some(false), _) => "open".to_owned(),
        _ if status["waits_for"] == "store" => {
            "sealed: the root key was there, but the store did not answer or has no room; see the \
             server's log"
                .to_owned()
        }
        (_, Some(0)) => {
            "sealed: the provider of its root key has not answered, or it was sealed by order"
                .to_owned()
        }
        _ => {
            let (given, threshold) = (plain(&status["shares_given"]), plain(&status["threshold"]));
            format!("sealed: {given} of {threshold} shares were given")
        }
    }
}
