//! `strongroom columns status`: which partitions the zone holds, for which sessions, and how much
//! its answers have disclosed.
//!
//! Must not: show anything but counts and the names of tables.

use clap::Args;
use serde_json::Value;
use strongroom_columns_proxy::zone_status::zone_status;

use super::connect::{LoginOptions, Peer, checked};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// The bits of a ticket's rights, in order.
const RIGHTS: &[&str] = &[
    "compare",
    "compute",
    "aggregate",
    "tokens",
    "ranks",
    "constants",
    "output",
    "declassify",
    "derive",
];

/// Counts of a ledger: their names in the zone's status, and what they are called in a table.
const COUNTS: &[(&str, &str)] = &[
    ("truths", "TRUTHS"),
    ("positive", "POSITIVE"),
    ("tokens", "TOKENS"),
    ("ranks", "RANKS"),
    ("outputs", "OUTPUTS"),
    ("output_bytes", "BYTES"),
    ("computed", "COMPUTED"),
    ("checks", "CHECKS"),
    ("declassified", "DECLASSIFIED"),
    ("classified", "CLASSIFIED"),
    ("refusals", "REFUSALS"),
];

/// Show partitions, values, memory, garbage, sessions and what sessions have learnt: counts, never
/// values.
///
/// Asks the zone through the server, as a user who may monitor it. Tables are named as far as they
/// are of the database that is asked.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns status --server /run/postgresql/.s.PGSQL.5432"))]
pub(super) struct StatusArgs {
    /// The server: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS", value_parser = checked)]
    server: String,
    #[command(flatten)]
    login: LoginOptions,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl StatusArgs {
    /// Requests the zone's status through the server, adds the names of tables, and prints it as
    /// text or JSON. SR-8122 if the server refuses; SR-5001 when the system reports an error; the
    /// errors of [`LoginOptions::connect`].
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut connection = self.login.connect(&self.server, Peer::Server)?;
        let status = zone_status(&mut connection)?;
        if self.json {
            return context.output.json(&status);
        }
        context.output.text(&status_text(&status))
    }
}

/// Returns the member `name` as a number; 0 if it is missing or no such number.
fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the member `name`; null if it is missing.
fn part<'a>(of: &'a Value, name: &str) -> &'a Value {
    of.get(name).unwrap_or(&Value::Null)
}

/// Returns the member `name` as a list; empty if it is missing or no list.
fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    part(of, name).as_array().map_or(&[], Vec::as_slice)
}

/// Returns a number of bytes as text in MiB with one decimal, rounded down.
fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// Returns as text how many values an object of the status has and, if there are such, in how many
/// blocks on disk there are more.
fn values(of: &Value) -> String {
    match number(of, "unread") {
        0 => number(of, "values").to_string(),
        unread => format!(
            "{} and those of {unread} blocks on disk",
            number(of, "values")
        ),
    }
}

/// Returns the status as text for people: the zone, its partitions, and the counts of its sessions.
fn status_text(status: &Value) -> String {
    let (store, ephemerals) = (part(status, "store"), part(status, "ephemerals"));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let recovering = part(store, "recovering").as_bool().unwrap_or(false);
    let locked = part(store, "locked").as_bool().unwrap_or(false);
    let mut out = columns(&[
        row(
            "zone",
            if recovering {
                "is reading the log"
            } else {
                "serves"
            }
            .to_owned(),
        ),
        row("partitions", number(store, "partitions").to_string()),
        row("values", values(store)),
        row(
            "memory",
            format!(
                "at most {} for blocks of values{}",
                mib(number(store, "limit")),
                if locked {
                    ", values and keys locked"
                } else {
                    ", values and keys not all locked (SR-8026)"
                }
            ),
        ),
        row(
            "quarantine",
            format!("{} values", number(store, "quarantine")),
        ),
        row(
            "ephemerals",
            format!(
                "{} values and {} literals",
                number(ephemerals, "values"),
                number(ephemerals, "literals"),
            ),
        ),
        row("connections", number(status, "rings").to_string()),
        row("sessions", number(status, "sessions").to_string()),
        row("column keys", number(status, "keys").to_string()),
    ]);
    out.push('\n');
    out.push_str(&partitions(list(status, "partitions")));
    out.push('\n');
    out.push_str(&ledgers_text(status));
    out
}

/// Returns the table of partitions as text.
fn partitions(all: &[Value]) -> String {
    let head = ["PARTITION", "TABLE", "COLUMNS", "VALUES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in all {
        let elsewhere = format!("of database {}", number(one, "database"));
        let table = match one.get("table") {
            Some(Value::String(name)) => name.clone(),
            Some(_) => "none".to_owned(),
            None => elsewhere,
        };
        let columns = number(one, "columns").to_string();
        rows.push(vec![
            number(one, "number").to_string(),
            table,
            columns,
            values(one),
        ]);
    }
    columns(&rows)
}

/// Returns the table of counts as text: one row for each ticket, and one for all that have ended.
fn ledgers_text(status: &Value) -> String {
    let mut head = vec!["TICKET".to_owned()];
    head.extend(COUNTS.iter().map(|(_, name)| (*name).to_owned()));
    head.push("RIGHTS".to_owned());
    let mut rows = vec![head];
    let counted = |name: String, counts: &Value, rights: String| {
        let mut row = vec![name];
        row.extend(
            COUNTS
                .iter()
                .map(|(key, _)| number(counts, key).to_string()),
        );
        row.push(rights);
        row
    };
    for one in list(status, "ledgers") {
        let ticket = part(one, "ticket").as_str().unwrap_or_default();
        let name: String = ticket.chars().take(8).collect();
        rows.push(counted(
            name,
            part(one, "counts"),
            rights_text(number(one, "rights")),
        ));
    }
    rows.push(counted(
        "ended".to_owned(),
        part(status, "ended"),
        String::new(),
    ));
    columns(&rows)
}

/// Returns the names of the rights whose bits are set, separated by commas.
fn rights_text(bits: u64) -> String {
    let named = RIGHTS.iter().enumerate();
    let given = named.filter(|(at, _)| bits >> at & 1 == 1);
    given.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_figure() {
        let status = r#"{"rings":3,"sessions":1,"keys":2,"ephemerals":{"values":7,"literals":1},
            "store":{"partitions":2,"values":11,"unread":4,"limit":10485760,
            "quarantine":6,"position":1,"counter":1,"locked":false,"recovering":false},
            "partitions":[{"number":1,"database":5,"columns":2,"values":11,"unread":0,"table":"staff"},
                {"number":2,"database":9,"columns":1,"values":0,"unread":4}],
            "ledgers":[{"ticket":"aabbccddeeff00112233445566778899","rights":129,"counts":{"truths":21,"refusals":5}}],
            "ended":{"truths":99}}"#;
        let text = status_text(&serde_json::from_str(status).unwrap());
        for line in [
            "values       11 and those of 4 blocks on disk",
            "memory       at most 10.0 MiB for blocks of values, values and keys not all locked (SR-8026)",
            "quarantine   6 values",
            "1          staff          2        11",
            "2          of database 9  1        0 and those of 4 blocks on disk",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let locked = status.replace("\"locked\":false", "\"locked\":true");
        let locked = status_text(&serde_json::from_str(&locked).unwrap());
        assert!(
            locked.contains("10.0 MiB for blocks of values, values and keys locked\n")
                && !locked.contains("8026"),
            "{locked}"
        );
        let ledger = text
            .lines()
            .find(|line| line.starts_with("aabbccdd"))
            .unwrap();
        assert!(ledger.contains(" 21 ") && ledger.ends_with("compare,declassify"));
        assert!(text.lines().last().unwrap().contains("99"));
    }
}
