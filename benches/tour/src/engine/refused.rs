//! What a connection without the right key gets, what is in the files, and what one changed bit
//! does.
//!
//! Must not: change the sealed database itself; a copy is damaged.

use rusqlite::Connection;
use strongroom_benches::bytes::occurrences;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::{Failure, variant};
use strongroom_sqlite::{OpenOptions, explain};

use super::databases::Databases;
use crate::checks::{Found, found};
use crate::damage;
use crate::place::KNOWN;

/// Reads every page of the largest table.
const WHOLE: &str = "SELECT sum(l_tax) FROM lineitem NOT INDEXED";

/// Other keys, no key, stock SQLite; a known text in both files; one bit flipped in a copy.
pub(super) fn run(databases: &mut Databases<'_>) -> Result<(), Failure> {
    databases.checks.heading("Without the key")?;
    let place = databases.place;
    let (sealed, key) = (place.sealed(), place.key_file());
    databases.checks.check("another key", || {
        let other = place.path("other.key");
        new_key_file(&other)?;
        let answer = place.open_sealed(&sealed, &other).and_then(|it| sum(&it));
        std::fs::remove_file(&other)?;
        refused(answer, "SR-2002")
    })?;
    databases.checks.check("no key", || {
        let opened = strongroom_sqlite::open(&sealed, &OpenOptions::default());
        refused(
            opened.map_err(Failure::from).and_then(|it| sum(&it)),
            "SR-2001",
        )
    })?;
    databases.checks.check("stock SQLite", || {
        let read = variant::stock(&sealed)?.query_row(WHOLE, [], |row| row.get::<_, f64>(0));
        let error = read.err().and_then(|error| error.sqlite_error_code());
        found(
            error == Some(rusqlite::ErrorCode::NotADatabase),
            "\"file is not a database\"",
        )
    })?;
    let (plain, text) = (place.plain(), KNOWN[0]);
    databases
        .checks
        .check(&format!("\"{text}\" in the files"), || {
            let plain = occurrences(&std::fs::read(&plain)?, text.as_bytes());
            let sealed = occurrences(&std::fs::read(&sealed)?, text.as_bytes());
            found(
                plain > 1000 && sealed == 0,
                format!("{plain} times plain, {sealed} times sealed"),
            )
        })?;
    databases
        .checks
        .check("one bit of a copy flipped: a query", || {
            let copy = place.path("flipped.db");
            std::fs::copy(&sealed, &copy)?;
            let [page, _] = damage::two_leaves(&place.open_sealed(&sealed, &key)?)?;
            damage::flip(&copy, page)?;
            let answer = place.open_sealed(&copy, &key).and_then(|it| sum(&it));
            std::fs::remove_file(&copy)?;
            refused(answer, "SR-4001")
        })
}

/// A sum over the largest table. The error is the VFS's where it has one, else SQLite's.
fn sum(connection: &Connection) -> Result<f64, Failure> {
    let answer = connection.query_row(WHOLE, [], |row| row.get(0));
    answer.map_err(|error| explain(error).into())
}

/// Holds when there is no answer, and the error has the code.
fn refused(answer: Result<f64, Failure>, code: &str) -> Result<Found, Failure> {
    let text = match answer {
        Ok(_) => "answered".to_owned(),
        Err(error) => error.to_string(),
    };
    let line = text.lines().next().unwrap_or_default();
    let holds = text.contains(code);
    found(
        holds,
        if holds {
            format!("refused: {code}")
        } else {
            line.to_owned()
        },
    )
}
