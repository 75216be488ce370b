//! `strongroom keyserver destroy`: schedules the erasure of a key, until which the key can be
//! restored.
//!
//! Must not: decide who may, which the server does; send the request before the user has seen what
//! would be lost and has repeated the key's name.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use serde_json::{Value, json};
use strongroom_format::code;
use strongroom_keys_client::{Method, Needs};

use super::admin::{ServerOptions, named, plain, time};
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;

/// Have a key destroyed. Until its time comes, `restore` brings it back.
///
/// What needs the key is shown first, as far as nodes have reported it, and the key's name is asked
/// for once more. Where two administrators have to agree, the first one's request waits for the
/// second one's, and the command fails with SR-8411; the request is shown to the second one, who
/// agrees with the time that was asked for.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver destroy --node admin.toml db-7 --confirm db-7 --after-days 30\n  strongroom keyserver destroy --node admin.toml db-7 --withdraw"))]
pub(super) struct DestroyArgs {
    /// The key's name
    name: String,
    /// The key's name once more; asked for on the terminal unless given
    #[arg(long, value_name = "NAME")]
    confirm: Option<String>,
    /// After so many days, not fewer than the server allows [default: as another administrator
    /// asked for, else as the server's policy says]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(..=366))]
    after_days: Option<u64>,
    /// Take back a request that waits for a second administrator; the key stays as it is
    #[arg(long, conflicts_with_all = ["confirm", "after_days"])]
    withdraw: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl DestroyArgs {
    /// Shows what would be lost, has the key's name confirmed, and has the server schedule its
    /// destruction; prints the state and the time. With `--withdraw`, takes back a request that
    /// waits for a second administrator instead. Errors: SR-8453 if the name is not confirmed;
    /// SR-8411 if the request was recorded and a second administrator must agree; SR-8400 or
    /// SR-8401 if the node's configuration or one of its files cannot be used; SR-8402 if no server
    /// answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = format!("/v1/keys/{}", named(&self.name)?);
        let address = format!("{path}/destroy");
        let name = &self.name;
        if self.withdraw {
            let answer = self.server.change(&Method::DELETE, &address, None)?;
            let state = plain(&answer["state"]);
            return context
                .output
                .line(&format!("{name} {state}: the request was taken back"));
        }
        for line in lost_objects(&self.server.client()?.needs(name)?) {
            note(&line);
        }
        let key = self.server.get(&path)?;
        if let Some(asked) = request(&key) {
            note(&format!("{asked}; without --after-days you agree with it"));
        }
        self.check_confirmation()?;
        // The time that was shown, and not one that was asked for in its place meanwhile.
        let shown = key["destroy_asked_after_seconds"].as_u64();
        let after = self.after_days.map(|days| days * 86_400).or(shown);
        let body = json!({"after_seconds": after});
        let answer = self.server.change(&Method::POST, &address, Some(&body))?;
        let (state, at) = (plain(&answer["state"]), time(&answer["destroy_at"]));
        let name = &self.name;
        if let Some(asked) = request(&answer) {
            let detail = format!("{name} is {state}; {asked}");
            return Err(Failure::new(&code::KEYSERVER_SECOND, detail));
        }
        context.output.line(&format!("{name} {state} {at}"))
    }

    /// Checks that `--confirm`, or what the user types at the terminal, is the key's name. SR-8453
    /// if it is not, also without a terminal to ask at; SR-5001 when the system reports an error.
    fn check_confirmation(&self) -> Result<(), Failure> {
        let given = match &self.confirm {
            Some(given) => given.clone(),
            None => ask_for_name(&self.name)?,
        };
        match given == self.name {
            true => Ok(()),
            false => Err(Failure::new(&code::KEYSERVER_NOT_CONFIRMED, &self.name)),
        }
    }
}

/// Returns, as text, who asked for the key's destruction, if a request in its record waits for a
/// second administrator; otherwise `None`.
pub(super) fn request(key: &Value) -> Option<String> {
    let by = plain(key.get("destroy_asked_by")?);
    let after = key["destroy_asked_after_seconds"].as_u64()?;
    let [at, until] = ["at", "until"].map(|end| time(&key[format!("destroy_asked_{end}")]));
    let after = match after % 86_400 {
        0 => format!("{} days", after / 86_400),
        _ => format!("{after} seconds"),
    };
    Some(format!(
        "asked for by {by} at {at}, \
         to be destroyed {after} after the second one agrees, until {until}"
    ))
}

/// Asks on standard error for the key's name and returns the line that is typed, trimmed. Returns
/// an empty text, without asking, if standard input is no terminal. SR-5001 when the system reports
/// an error.
fn ask_for_name(name: &str) -> Result<String, Failure> {
    let mut line = String::new();
    if std::io::stdin().is_terminal() {
        let mut out = std::io::stderr().lock();
        let asked = write!(out, "Type {name} to have it destroyed: ").and_then(|()| out.flush());
        let read = asked.and_then(|()| std::io::stdin().lock().read_line(&mut line));
        read.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
    }
    Ok(line.trim().to_owned())
}

/// Returns lines about what would be lost with the key: how many objects need it, how many nodes
/// are granted it, and the objects that are known by name.
fn lost_objects(needs: &Needs) -> Vec<String> {
    let at_least = match needs.complete {
        true => "",
        false => "at least ",
    };
    let mut lines = vec![format!(
        "{at_least}{} objects need it, and {} nodes are granted it",
        needs.objects,
        needs.nodes.len()
    )];
    lines.extend(needs.named.iter().map(|object| format!("  {object}")));
    lines
}
