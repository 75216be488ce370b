//! Confidential columns: the owner's query and the operator's, what the server has of a value, a
//! crash of server and zone.
//!
//! The server is a copy of PostgreSQL 15 with the extension in it: the system's stays as it is.
//! Must not: leave a process running.

mod search;
mod stack;

use strongroom_benches::Failure;
use strongroom_benches::report::{duration, mebibytes};
use strongroom_benches::stats::timed;

use crate::tour::Tour;
use stack::{Stack, Workplace};
use strongroom_tour::checks::{Checks, Found, found};

/// What a confidential string and a plain one begin with: the second is what a search has to find.
const CONFIDENTIAL: &str = "canary-confidential";
const PLAIN: &str = "canary-in-clear";
/// Rows of the tables.
const ROWS: u32 = 2000;
/// The query of both. It has no constant, computes nothing and sorts by an ordered column, so an
/// operator may ask it too.
const BEST_PAID: &str = "SELECT id, name, salary FROM staff ORDER BY salary DESC LIMIT 3";
/// Only who has the keys may ask this.
const PAYROLL: &str =
    "SELECT count(*), sum(salary) FROM staff WHERE salary > 1999 AND born < date '1901-01-01'";

/// The whole part.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading(
        "Confidential columns, PostgreSQL 15: the server has identifiers, the zone has values",
    )?;
    let workplace = match Workplace::prepare(tour) {
        Ok(workplace) => workplace,
        Err(error) => {
            return tour
                .checks
                .check("PostgreSQL 15 with the extension", || Err(error));
        }
    };
    let mut stack = None;
    let checks = &mut tour.checks;
    checks.check("columns zone; CREATE EXTENSION; columns proxy", || {
        let (taken, made) = timed(|| Stack::start(&workplace))?;
        stack = Some(made);
        found(
            true,
            format!("serving after {}", duration(taken.as_secs_f64())),
        )
    })?;
    let Some(mut stack) = stack else {
        return Ok(());
    };
    fill(&stack, checks)?;
    ask(&stack, checks)?;
    look(&stack, checks)?;
    crash(&mut stack, checks)
}

fn fill(stack: &Stack<'_>, checks: &mut Checks) -> Result<(), Failure> {
    checks.check("rows, through the proxy", || {
        let mut script = String::from(
            "CREATE TABLE staff (id int PRIMARY KEY, name enc_text, salary enc_numeric(9,2,ordered), born enc_date) USING strongroom;
             CREATE TABLE clear (id int PRIMARY KEY, name text);
             COPY staff FROM STDIN;\n",
        );
        for id in 1..=ROWS {
            let (year, month) = (1900 + id % 100, 1 + id % 12);
            script.push_str(&format!("{id}\t{CONFIDENTIAL}-{id}\t{id}.25\t{year}-{month:02}-07\n"));
        }
        script.push_str("\\.\n");
        script.push_str(&format!(
            "INSERT INTO clear SELECT id, '{PLAIN}-' || id FROM generate_series(1, {ROWS}) id;
             CREATE INDEX ON staff (salary); ANALYZE staff; SELECT count(*) FROM staff"
        ));
        let (taken, said) = timed(|| stack.owner(&script))?;
        let text = format!("{said} in {}", duration(taken.as_secs_f64()));
        found(said == ROWS.to_string(), text)
    })
}

/// The same query by both, and one that is the owner's alone.
fn ask(stack: &Stack<'_>, checks: &mut Checks) -> Result<(), Failure> {
    let ids = |rows: &str| {
        let fields = rows.lines().filter_map(|row| row.split('|').next());
        fields.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut owner = String::new();
    checks.check("the best paid three, as the owner", || {
        owner = stack.owner(BEST_PAID)?;
        let first = owner.lines().next().unwrap_or_default();
        let expected = format!("{ROWS}|{CONFIDENTIAL}-{ROWS}|{ROWS}.25");
        found(first == expected && owner.lines().count() == 3, first)
    })?;
    checks.check("the same query, as the operator", || {
        let rows = stack.operator(BEST_PAID)?;
        let sealed = rows.lines().all(|row| {
            let fields: Vec<&str> = row.split('|').collect();
            fields.len() == 3 && fields.iter().skip(1).all(|field| field.starts_with("sr1:"))
        });
        let none = !rows.contains("canary");
        let first: String = rows.chars().take(24).collect();
        found(
            sealed && none && ids(&rows) == ids(&owner),
            format!("{first}...: envelopes, same order"),
        )
    })?;
    checks.check("a sum with conditions, as the owner", || {
        let said = stack.owner(PAYROLL)?;
        let expected = "1|2000.25";
        found(said == expected, said)
    })?;
    checks.check("a sum, as the operator", || {
        let said = stack.operator("SELECT sum(salary) FROM staff");
        let refused = said
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        let holds = refused.contains("SR-8006");
        found(holds, "SR-8006: the session has no ticket for it")
    })
}

/// What memory and files have of a value.
fn look(stack: &Stack<'_>, checks: &mut Checks) -> Result<(), Failure> {
    checks.check("memory of every backend, a session open", || {
        let query = format!(
            "SELECT max(name), max(salary) FROM staff; SELECT max(name) FROM clear; {PAYROLL}"
        );
        let seen = stack.with_session(&query, |postmaster| {
            search::memory(postmaster, &[CONFIDENTIAL, PLAIN])
        })?;
        let [confidential, plain] = seen.counts[..] else {
            return Err("two words were looked for".into());
        };
        let text = format!(
            "{confidential} in {} processes, {}; plain {plain}",
            seen.places,
            mebibytes(seen.bytes)
        );
        found(confidential == 0 && plain > 0 && seen.places > 5, text)
    })?;
    checks.check("files of the server, its log included", || {
        drop(stack.operator("CHECKPOINT")?);
        let seen = search::files(&stack.server_files(), &[CONFIDENTIAL, PLAIN])?;
        shown(&seen)
    })?;
    checks.check("files of the zone", || {
        let seen = search::files(&stack.zone_files(), &[CONFIDENTIAL, PLAIN])?;
        let [confidential, _] = seen.counts[..] else {
            return Err("two words were looked for".into());
        };
        let text = format!(
            "{confidential} in {} files, {}",
            seen.places,
            mebibytes(seen.bytes)
        );
        found(confidential == 0 && seen.places > 1, text)
    })
}

fn shown(seen: &search::Seen) -> Result<Found, Failure> {
    let [confidential, plain] = seen.counts[..] else {
        return Err("two words were looked for".into());
    };
    let text = format!(
        "{confidential} in {} files, {}; plain {plain}",
        seen.places,
        mebibytes(seen.bytes)
    );
    found(confidential == 0 && plain >= u64::from(ROWS), text)
}

/// Server and zone end as in a power cut.
fn crash(stack: &mut Stack<'_>, checks: &mut Checks) -> Result<(), Failure> {
    const ALL: &str = "SELECT id, name, salary, born FROM staff ORDER BY id";
    let mut before = String::new();
    checks.check("kill -9 of the server and of the zone", || {
        let more =
            format!("INSERT INTO staff VALUES (0, '{CONFIDENTIAL}-last', 0.01, '1999-12-31')");
        drop(stack.owner(&more)?);
        before = stack.owner(ALL)?;
        let processes = stack.kill()?;
        found(
            processes > 5,
            format!("{processes} processes, a row just committed"),
        )
    })?;
    checks.check("both started again; the owner's rows", || {
        let (taken, after) = timed(|| {
            stack.restart()?;
            stack.until_ready(ALL)
        })?;
        let count = after.lines().count();
        let seconds = duration(taken.as_secs_f64());
        found(
            after == before && count == usize::try_from(ROWS)? + 1,
            format!("{count} rows, all as before, after {seconds}"),
        )
    })?;
    checks.check("columns status", || {
        let text = stack.status()?;
        let values = text.lines().find_map(|line| line.strip_prefix("values"));
        let values = values.unwrap_or_default().trim().to_owned();
        let named = text.lines().any(|line| line.contains("staff"));
        found(
            named && !text.contains("canary"),
            format!("values: {values}"),
        )
    })
}
