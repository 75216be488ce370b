//! What somebody without a key can see, and that everything comes back.
//!
//! Must not: leave a second plaintext copy behind.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;
use strongroom_benches::bytes::holds_any;
use strongroom_benches::stats::timed;
use strongroom_benches::tpch::{TABLES, Table};
use strongroom_benches::{Failure, variant};

use strongroom_tour::checks::found;
use strongroom_tour::place::KNOWN;

use crate::tour::{NEXT_KEY, Tour};

/// Entropy of a sealed body, in bits per byte, is at least this.
const SEALED_MIN: f64 = 7.999;
/// A plain database is at most this.
const PLAIN_MAX: f64 = 7.0;

/// Entropies and pictures.
pub(crate) fn pictures(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("Seen without a key")?;
    let strongroom = &tour.strongroom;
    for (name, database) in [
        ("plain", tour.place.plain()),
        ("sealed", tour.place.sealed()),
    ] {
        let picture = tour.path(&format!("{name}.png"));
        tour.checks
            .check(&format!("inspect --png of the {name} one"), || {
                let paths = [
                    database.display().to_string(),
                    picture.display().to_string(),
                ];
                let ran =
                    strongroom.succeed(&["inspect", &paths[0], "--json", "--png", &paths[1]])?;
                let json: serde_json::Value = serde_json::from_str(&ran.stdout)?;
                let bits = json["body_entropy_bits_per_byte"]
                    .as_f64()
                    .ok_or("no entropy")?;
                let as_expected = if name == "plain" {
                    bits < PLAIN_MAX
                } else {
                    bits > SEALED_MIN
                };
                let drawn = std::fs::read(&picture)?.starts_with(b"\x89PNG\r\n\x1a\n");
                let sealed = json["sealed"].as_bool() == Some(name == "sealed");
                found(
                    as_expected && drawn && sealed,
                    format!("{bits:.5} bits per byte, {}", paths[1]),
                )
            })?;
    }
    Ok(())
}

/// Decrypts and compares every value with the plain database's.
pub(crate) fn back(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("And back")?;
    let (sealed, copy, strongroom) = (tour.place.sealed(), tour.path("back.db"), &tour.strongroom);
    tour.checks.check("sqlite decrypt", || {
        let paths = [sealed.display().to_string(), copy.display().to_string()];
        let arguments = [
            "sqlite", "decrypt", &paths[0], &paths[1], "--key-id", NEXT_KEY,
        ];
        let (duration, _) = timed(|| strongroom.succeed(&arguments))?;
        let plain = std::fs::read(&copy)?.starts_with(b"SQLite format 3\0");
        found(plain, format!("{:.1} s", duration.as_secs_f64()))
    })?;
    let original = tour.place.open_plain()?;
    tour.checks.check("every row, value by value", || {
        let back = variant::stock(&copy)?;
        let mut rows = 0;
        for table in TABLES {
            rows += same_rows(&original, &back, table)?;
        }
        found(
            rows > 800_000,
            format!("{rows} rows in {} tables are the same", TABLES.len()),
        )
    })?;
    tour.checks.check("its integrity_check", || {
        let back = variant::stock(&copy)?;
        let said: String = back.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        found(said == "ok", said.lines().next().unwrap_or_default())
    })?;
    std::fs::remove_file(&copy)?;
    Ok(())
}

/// Steps through both tables at once. The number of rows; an error at the first difference.
fn same_rows(one: &Connection, other: &Connection, table: &Table) -> Result<u64, Failure> {
    let sql = format!("SELECT * FROM {} ORDER BY {}", table.name, table.order);
    let (mut one, mut other) = (one.prepare(&sql)?, other.prepare(&sql)?);
    let columns = one.column_count();
    let (mut one, mut other) = (one.query([])?, other.query([])?);
    let mut count = 0;
    loop {
        match (one.next()?, other.next()?) {
            (None, None) => return Ok(count),
            (Some(one), Some(other)) => {
                for column in 0..columns {
                    if one.get::<_, Value>(column)? != other.get::<_, Value>(column)? {
                        return Err(format!(
                            "{}: row {count} differs in column {column}",
                            table.name
                        )
                        .into());
                    }
                }
                count += 1;
            }
            _ => return Err(format!("{}: one table ends after {count} rows", table.name).into()),
        }
    }
}

/// Every file that the tour leaves, but for the plain database, is searched for the tables' texts.
pub(crate) fn leaks(tour: &mut Tour) -> Result<(), Failure> {
    let out = tour.place.directory();
    tour.checks
        .check("row text in what is left in ./demo-out", || {
            let (mut files, mut clear) = (0, Vec::new());
            for entry in std::fs::read_dir(out)? {
                let path = entry?.path();
                files += 1;
                if holds_any(&std::fs::read(&path)?, &KNOWN) {
                    clear.push(name(&path));
                }
            }
            found(
                clear == ["plain.db"],
                format!("{files} files, in clear in: {}", clear.join(", ")),
            )
        })
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
