//! Loading the tables twice, and asking both the same questions.
//!
//! Must not: print a time for an answer that was not compared.

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::report::{duration, mebibytes};
use strongroom_benches::stats::{Samples, timed};
use strongroom_benches::tpch::{self, Answer, QUERIES, Query, TABLES, answer};

use super::databases::Databases;
use crate::checks::found;
use crate::place::SCALE;

/// Rounds of each query; the line shows medians.
const ROUNDS: u32 = 3;
/// The VFS may take this much longer for all queries together; more would be a defect, also on a
/// busy machine.
const RATIO_MAX: f64 = 2.0;

/// Loads a plain and a sealed database, batch by batch in turn.
pub(super) fn load(databases: &mut Databases<'_>) -> Result<(), Failure> {
    databases
        .checks
        .heading("The same rows, plain and sealed")?;
    let (plain, place) = (&databases.plain, databases.place);
    let sealed_path = place.sealed();
    let sealed = place.open_sealed(&sealed_path, &place.key_file())?;
    databases.checks.check("load into both, with indexes", || {
        let spent = tpch::load(&[plain, &sealed], SCALE)?;
        let seconds: Vec<f64> = spent.iter().map(std::time::Duration::as_secs_f64).collect();
        let [plain, sealed] = seconds[..] else {
            return Err("two connections".into());
        };
        found(plain > 0.0, compared(plain, sealed))
    })?;
    databases.checks.check("rows", || {
        let (plain, sealed) = (count(plain)?, count(&sealed)?);
        found(
            plain == sealed && plain > 800_000,
            format!("{plain} plain, {sealed} sealed, 8 tables"),
        )
    })?;
    drop(sealed);
    let plain_path = place.plain();
    databases.checks.check("sizes", || {
        let (plain, sealed) = (
            std::fs::metadata(&plain_path)?.len(),
            std::fs::metadata(&sealed_path)?.len(),
        );
        let larger = sealed as f64 / plain as f64 - 1.0;
        let text = format!(
            "{} plain, {} sealed, {:+.1} %",
            mebibytes(plain),
            mebibytes(sealed),
            larger * 100.0
        );
        found((0.0..0.05).contains(&larger), text)
    })
}

fn count(connection: &Connection) -> Result<i64, Failure> {
    let count = |table: &tpch::Table| {
        connection.query_row(&format!("SELECT count(*) FROM {}", table.name), [], |row| {
            row.get::<_, i64>(0)
        })
    };
    Ok(TABLES.iter().map(count).sum::<Result<i64, _>>()?)
}

/// The queries, in turn on both databases.
pub(super) fn queries(databases: &mut Databases<'_>) -> Result<(), Failure> {
    databases
        .checks
        .heading("The same TPC-H queries: median of 3, page cache 2000 KiB, same rows or FAILED")?;
    let (plain, place) = (&databases.plain, databases.place);
    let sealed = place.open_sealed(&place.sealed(), &place.key_file())?;
    for connection in [plain, &sealed] {
        connection.pragma_update(None, "cache_size", -2000)?;
    }
    let (mut all_plain, mut all_sealed) = (0.0, 0.0);
    for query in QUERIES {
        let name = format!("{:<4}{}", query.name, query.title);
        databases.checks.check(&name, || {
            let both = compare(plain, &sealed, query)?;
            all_plain += both.plain.median();
            all_sealed += both.sealed.median();
            found(
                both.same && both.rows > 0,
                compared(both.plain.median(), both.sealed.median()),
            )
        })?;
    }
    databases.checks.check("all of them", || {
        let text = compared(all_plain, all_sealed);
        found(all_plain > 0.0 && all_sealed / all_plain < RATIO_MAX, text)
    })
}

/// Both sides of one query.
struct Both {
    plain: Samples,
    sealed: Samples,
    rows: usize,
    same: bool,
}

fn compare(plain: &Connection, sealed: &Connection, query: &Query) -> Result<Both, Failure> {
    let mut both = Both {
        plain: Samples::default(),
        sealed: Samples::default(),
        rows: 0,
        same: true,
    };
    for round in 0..ROUNDS {
        let one = |connection| timed(|| answer(connection, query.sql));
        // Who begins alternates.
        let ((plain_time, plain_rows), (sealed_time, sealed_rows)): ((_, Answer), (_, Answer)) =
            if round % 2 == 0 {
                let first = one(plain)?;
                (first, one(sealed)?)
            } else {
                let first = one(sealed)?;
                (one(plain)?, first)
            };
        both.plain.push(plain_time);
        both.sealed.push(sealed_time);
        both.rows = plain_rows.rows();
        both.same &= plain_rows == sealed_rows;
    }
    Ok(both)
}

fn compared(plain: f64, sealed: f64) -> String {
    format!(
        "{:>8} plain {:>8} sealed   ratio {:.2}",
        duration(plain),
        duration(sealed),
        sealed / plain
    )
}
