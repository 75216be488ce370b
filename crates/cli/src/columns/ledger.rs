//! `strongroom columns ledger`: what the zone has told under the owner's keys, to whom, and how
//! much it may tell.
//!
//! Must not: show anything but counts and names of clients.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use strongroom_columns_proxy::keys::{ColumnKeys, derive};
use strongroom_columns_proxy::owner::Owner;
use strongroom_columns_proxy::proxy::TicketTerms;
use strongroom_format::code;
use strongroom_format::columns::channel::{LIMITLESS, Limit};
use strongroom_format::hex::hex;
use strongroom_format::text::printable;
use strongroom_keyring::Keyring;

use super::connect::{LoginOptions, Peer, checked};
use super::trust::ZoneTrust;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::output::columns;

/// How long the ticket of this command's session is good.
const TICKET_LIFETIME: Duration = Duration::from_secs(120);

/// Show what the server was told under your column keys, by whose sessions; set how much it may be
/// told.
///
/// Connects to the server, not to the proxy, and opens a session with the zone as the proxy does.
/// The counts are those of all sessions and of all starts of the zone; those of the last minutes
/// before the zone was killed are missing. A limit is of all sessions under the key together, and
/// not lost with them. With --require-left the command fails, for monitoring, while there is still
/// something left.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns ledger --server /run/postgresql/.s.PGSQL.5432 --database shop --key-id columns --accept-process-attestation\n  strongroom columns ledger --server /run/postgresql/.s.PGSQL.5432 --database shop --key-id columns --accept-process-attestation --answers 10000000 --period 86400"))]
pub(super) struct LedgerArgs {
    /// The server: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS", value_parser = checked)]
    server: String,
    #[command(flatten)]
    login: LoginOptions,
    #[command(flatten)]
    trust: ZoneTrust,
    /// Limit the answers that sessions get under the key: comparisons, tests, tokens, ranks, and
    /// whether a computation has failed
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..LIMITLESS))]
    answers: Option<u64>,
    /// Limit the values that leave the zone for sessions under the key, sealed or in clear
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..LIMITLESS))]
    outputs: Option<u64>,
    /// Seconds after which a limit begins anew; once and for all unless given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Take the limit away
    #[arg(long, conflicts_with_all = ["answers", "outputs", "period"])]
    no_limit: bool,
    /// Fail (SR-8130) when less than so many per cent of a limit of the key are left
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100))]
    require_left: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl LedgerArgs {
    /// Opens a session of the owner with the zone, sets the limit of every version of the key if
    /// the options name one, and prints the ledgers as text or JSON. SR-1001 for a period without a
    /// limit; SR-2003 if there is no such key, and the other errors of the keyring; SR-8122 if the
    /// server or the zone refuses; SR-8130, after the ledgers, if less of a limit is left than is
    /// required; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let sets = self.no_limit || self.answers.is_some() || self.outputs.is_some();
        if self.period.is_some() && !sets {
            return Err(Failure::usage("--period needs --answers or --outputs"));
        }
        let path = context.keyring_path();
        let keyring = Keyring::open(&path)?;
        let key_name = self.trust.key_id.clone();
        let versions = versions(&keyring, &key_name)?;
        let keys = ColumnKeys::from_keyring(&keyring, &key_name)?;
        let (accepted, zones) = self.trust.policy(&path)?;
        let terms = TicketTerms {
            accepted,
            zones,
            lifetime: TICKET_LIFETIME,
            truths: Some(0),
            rights: 0,
        };
        let mut connection = self.login.connect(&self.server, Peer::Server)?;
        let mut owner = Owner::open(&mut connection, &keys, &terms, self.login.names())?;
        if sets {
            for (_, id) in &versions {
                owner.set_limit(&Limit {
                    key_id: *id,
                    period: self.period.unwrap_or(0),
                    truths: self.answers.unwrap_or(LIMITLESS),
                    outputs: self.outputs.unwrap_or(LIMITLESS),
                })?;
            }
            note(match self.no_limit {
                true => "the limit is taken away",
                false => "the limit is set, and counts from now on",
            });
        }
        let ledgers = owner.ledgers()?;
        let named = named(&key_name, &versions, &ledgers);
        if let Some(text) = unlimited_versions(&named) {
            note(&text);
        }
        let near = self
            .require_left
            .and_then(|least| near_limit(&named, least));
        if self.json {
            let mut result = json!({ "keys": named });
            if let Some(failure) = &near {
                result["error"] = json!(failure.json());
            }
            context.output.json(&result)?;
            return near.map_or(Ok(()), |failure| Err(failure.reported_in_json()));
        }
        context.output.text(&ledgers_text(&named))?;
        near.map_or(Ok(()), Err)
    }
}

/// Returns the versions of a key of the keyring with the ids of their column keys. The errors of
/// the keyring; SR-5001 without locked memory.
fn versions(keyring: &Keyring, name: &str) -> Result<Vec<(u32, [u8; 16])>, Failure> {
    let mut found = Vec::new();
    for info in keyring.list().into_iter().filter(|info| info.name == name) {
        let key = keyring.key(name, Some(info.version))?;
        let (id, _) = derive(&key).map_err(strongroom_keyring::Error::from)?;
        found.push((info.version, id));
    }
    Ok(found)
}

/// Returns the ledgers in the order of the keys' versions, each with the name and version of its
/// key.
fn named(name: &str, versions: &[(u32, [u8; 16])], ledgers: &Value) -> Vec<Value> {
    let ledgers = ledgers.as_array().map_or(&[][..], Vec::as_slice);
    let of = |id: &[u8; 16]| {
        let id = hex(id);
        let is = |ledger: &&Value| ledger.get("key").and_then(Value::as_str) == Some(&id);
        ledgers.iter().find(is).cloned()
    };
    let mut out = Vec::new();
    for (version, id) in versions {
        if let Some(mut ledger) = of(id) {
            if let Some(members) = ledger.as_object_mut() {
                members.insert("name".to_owned(), json!(name));
                members.insert("version".to_owned(), json!(version));
            }
            tell_times(&mut ledger);
            out.push(ledger);
        }
    }
    out
}

/// Returns a remark if some versions of the key have a limit and others have none, as a new one
/// after a rotation; otherwise `None`.
fn unlimited_versions(ledgers: &[Value]) -> Option<String> {
    let is_limited = |ledger: &&Value| {
        let limit = &ledger["limit"];
        !limit["answers"].is_null() || !limit["outputs"].is_null()
    };
    let (limited, free): (Vec<&Value>, Vec<&Value>) = ledgers.iter().partition(is_limited);
    if limited.is_empty() || free.is_empty() {
        return None;
    }
    let versions: Vec<String> = free.iter().map(|one| one["version"].to_string()).collect();
    Some(format!(
        "other versions of the key have a limit, and version {} has none: set it again",
        versions.join(", ")
    ))
}

/// Returns SR-8130 if less than `least` per cent of a limit are left, of answers or of values, for
/// any version of the key; otherwise `None`. A limit of nothing has nothing left.
fn near_limit(ledgers: &[Value], least: u64) -> Option<Failure> {
    let mut near = Vec::new();
    for ledger in ledgers {
        for (name, what) in [("answers", "answers"), ("outputs", "values")] {
            let limit = &ledger["limit"];
            let Some(most) = limit[name].as_u64() else {
                continue;
            };
            let left = most.saturating_sub(limit["spent"][name].as_u64().unwrap_or(0));
            let is_enough = u128::from(left) * 100 >= u128::from(most) * u128::from(least);
            if left == 0 || !is_enough {
                let key = printable(ledger["name"].as_str().unwrap_or_default());
                let version = &ledger["version"];
                near.push(format!(
                    "key {key}, version {version}: {left} of {most} {what} are left"
                ));
            }
        }
    }
    (!near.is_empty()).then(|| Failure::new(&code::COLUMN_LIMIT_NEAR, near.join("; ")))
}

/// Gives each time of a ledger twice, as every JSON of the command does: `..._unix_s` and as text
/// in UTC. Null stays null, and a client that was never seen has null.
fn tell_times(ledger: &mut Value) {
    let tell = |object: &mut Value, name: &str| {
        let seconds = object[name].as_u64().filter(|seconds| *seconds != 0);
        object[format!("{name}_unix_s")] = json!(seconds);
        object[name] = json!(seconds.map(strongroom_inspect::time::rfc3339));
    };
    tell(&mut ledger["limit"], "begun");
    for line in ledger["lines"].as_array_mut().into_iter().flatten() {
        tell(line, "seen");
    }
}

/// Returns the ledgers as text for people: each key with its limit, and a table of who was told how
/// much.
fn ledgers_text(ledgers: &[Value]) -> String {
    let mut out = String::new();
    for ledger in ledgers {
        if !out.is_empty() {
            out.push('\n');
        }
        let limit = limit_text(&ledger["limit"]);
        out.push_str(&format!(
            "key {}, version {} ({}): {limit}\n",
            printable(ledger["name"].as_str().unwrap_or_default()),
            ledger["version"],
            ledger["key"].as_str().unwrap_or_default(),
        ));
        let lines = ledger["lines"].as_array().map_or(&[][..], Vec::as_slice);
        if lines.is_empty() {
            out.push_str("nothing was told\n");
            continue;
        }
        let heads = ["TO", "LAST SESSION", "ANSWERS", "VALUES", "IN CLEAR"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(lines.iter().map(line_row));
        out.push_str(&columns(&rows));
    }
    out
}

/// Returns a line of a ledger as a row of the table.
fn line_row(line: &Value) -> Vec<String> {
    let count = |name: &str| line[name].as_u64().unwrap_or(0);
    let to = match &line["name"] {
        Value::String(name) => printable(name),
        Value::Null => "(without a session)".to_owned(),
        _ => "(all others)".to_owned(),
    };
    let seen = line["seen"].as_str().unwrap_or("-").to_owned();
    let answers = count("truths").saturating_add(count("checks"));
    vec![
        to,
        seen,
        answers.to_string(),
        count("outputs").to_string(),
        count("declassified").to_string(),
    ]
}

/// Returns what a key's limit says, and how much of it is spent.
fn limit_text(limit: &Value) -> String {
    let part = |name: &str, what: &str| {
        let most = limit[name].as_u64()?;
        let spent = limit["spent"][name].as_u64().unwrap_or(0);
        Some(format!("{spent} of {most} {what}"))
    };
    let parts: Vec<String> = [part("answers", "answers"), part("outputs", "values")]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() {
        return "no limit".to_owned();
    }
    let since = limit["begun"].as_str().unwrap_or("-");
    match limit["period"].as_u64() {
        Some(period) => format!("{} in {period} s from {since}", parts.join(", ")),
        None => format!("{} since {since}", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_limit_is_compared_with_what_is_required() {
        let of = |answers: Value, outputs: Value, spent: [u64; 2]| {
            let spent = json!({"answers": spent[0], "outputs": spent[1]});
            let limit = json!({"answers": answers, "outputs": outputs, "spent": spent});
            vec![json!({"name": "columns", "version": 2, "limit": limit})]
        };
        let told = |ledgers: &[Value], least| near_limit(ledgers, least).map(|it| it.summary());
        let none = Value::Null;
        assert_eq!(told(&of(none.clone(), none.clone(), [9, 9]), 100), None);
        assert_eq!(told(&of(json!(1000), none.clone(), [800, 9]), 20), None);
        let near = told(&of(json!(1000), none.clone(), [801, 9]), 20).unwrap();
        assert!(near.starts_with("SR-8130") && near.contains("version 2: 199 of 1000 answers"));
        let near = told(&of(none.clone(), json!(7), [0, 8]), 1).unwrap();
        assert!(near.contains("0 of 7 values"), "{near}");
        assert!(told(&of(json!(0), none.clone(), [0, 0]), 1).is_some());
        // As many as there can be.
        let most = json!(u64::MAX - 1);
        assert_eq!(told(&of(most, none, [0, 0]), 100), None);
    }

    #[test]
    fn a_ledger_is_shown_with_its_limit_and_whom_was_told() {
        let ledgers: Value = serde_json::from_str(
            r#"[{"key":"22222222222222222222222222222222","limit":{"period":null,"answers":null,"outputs":null,
                "begun":null,"spent":{"answers":0,"outputs":0}},"lines":[]},
               {"key":"11111111111111111111111111111111","limit":{"period":86400,"answers":1000,"outputs":null,
                "begun":1700000000,"spent":{"answers":40,"outputs":9}},
                "lines":[{"name":"payroll@shop","seen":1700000100,"truths":30,"checks":9,"outputs":7,"declassified":2},
                         {"name":null,"seen":0,"truths":5,"checks":0,"outputs":0,"declassified":0},
                         {"name":false,"seen":1,"truths":1,"checks":0,"outputs":0,"declassified":0}]}]"#,
        )
        .unwrap();
        let named = named(
            "columns",
            &[(1, [0x11; 16]), (2, [0x22; 16]), (3, [9; 16])],
            &ledgers,
        );
        let text = ledgers_text(&named);
        let expected = "key columns, version 1 (11111111111111111111111111111111): 40 of 1000 answers in 86400 s from 2023-11-14T22:13:20Z\n\
             TO                   LAST SESSION          ANSWERS  VALUES  IN CLEAR\n\
             payroll@shop         2023-11-14T22:15:00Z  39       7       2\n\
             (without a session)  -                     5        0       0\n\
             (all others)         1970-01-01T00:00:01Z  1        0       0\n\
             \n\
             key columns, version 2 (22222222222222222222222222222222): no limit\n\
             nothing was told\n";
        assert_eq!(text, expected);
        let told = unlimited_versions(&named).unwrap();
        assert!(told.contains("version 2 has none"), "{told}");
        assert_eq!(unlimited_versions(&named[..1]), None);
        assert_eq!(unlimited_versions(&named[1..]), None);
    }
}
