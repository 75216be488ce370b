//! The conversation that `strongroom_testing::driver` describes.
//!
//! Must not: hold standard input locked while a statement runs: the handlers read from it.

use std::io::BufRead;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use strongroom_sqlite::{KeySource, OpenOptions};
use strongroom_testing::intercept;

use crate::{Failure, say};

/// Answers requests until `quit`.
pub(crate) fn run() -> Result<(), Failure> {
    intercept::install().map_err(|rc| format!("system calls: {rc}"))?;
    let mut connection = None;
    // Kept as long as the process, so that a search for it can be seen to work.
    let mut held = Vec::new();
    loop {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let answer = match command {
            "quit" => return Ok(()),
            "abort" => std::process::abort(),
            "hold" => {
                held = std::fs::read(rest)?;
                Ok(held.len().to_string())
            }
            "removals" => {
                let look: fn() = stop;
                intercept::before_removal((rest != "0").then_some(look));
                Ok(String::new())
            }
            "open" => open(&mut connection, || uri(rest)),
            "library" => open(&mut connection, || library(rest)),
            "every" => every(connection.as_mut(), rest),
            "sql" => sql(connection.as_ref(), rest),
            _ => Err(format!("0 unknown request {command}")),
        };
        match answer {
            Ok(text) => say(&format!("ok {text}"))?,
            Err(text) => say(&format!("error {}", text.replace('\n', " ")))?,
        }
        std::hint::black_box(&held);
    }
}

/// Stands still until the parent has looked.
fn stop() {
    let mut line = String::new();
    let told = say("stopped").and_then(|()| std::io::stdin().lock().read_line(&mut line));
    assert!(told.is_ok(), "the parent is gone");
}

fn open(
    connection: &mut Option<Connection>,
    opened: impl FnOnce() -> Result<Connection, String>,
) -> Result<String, String> {
    *connection = None;
    *connection = Some(opened()?);
    Ok(String::new())
}

fn uri(uri: &str) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).map_err(described)?;
    // What is wrong with the key or the header shows at the first read.
    connection
        .query_row("PRAGMA schema_version", [], |_| Ok(()))
        .map_err(described)?;
    Ok(connection)
}

/// Path of the database, a space, path of the key's file.
fn library(rest: &str) -> Result<Connection, String> {
    let (path, key) = rest.split_once(' ').ok_or("0 two paths")?;
    let key = Some(KeySource::File(key.into()));
    let options = OpenOptions {
        key,
        create: true,
        ..OpenOptions::default()
    };
    strongroom_sqlite::open(Path::new(path), &options).map_err(|error| format!("0 {error}"))
}

fn every(connection: Option<&mut Connection>, steps: &str) -> Result<String, String> {
    let steps = steps.parse().map_err(|_| "0 number")?;
    let handler = (steps > 0).then_some(|| {
        stop();
        false
    });
    connection
        .ok_or("0 nothing is open")?
        .progress_handler(steps, handler)
        .map_err(described)?;
    Ok(String::new())
}

/// Executes one statement to its end; the first column of the first row is the answer.
fn sql(connection: Option<&Connection>, text: &str) -> Result<String, String> {
    let connection = connection.ok_or("0 nothing is open")?;
    let mut statement = connection.prepare(text).map_err(described)?;
    let mut rows = statement.query([]).map_err(described)?;
    let mut first = None;
    while let Some(row) = rows.next().map_err(described)? {
        if first.is_none() {
            // A row may have no columns, and a column no text.
            let text = row
                .get_ref(0)
                .ok()
                .and_then(|value| value.as_str().ok().map(str::to_owned));
            first = Some(text.unwrap_or_default());
        }
    }
    Ok(first.unwrap_or_default())
}

fn described(error: rusqlite::Error) -> String {
    let code = match &error {
        rusqlite::Error::SqliteFailure(failure, _) => failure.extended_code,
        _ => 0,
    };
    // The VFS's own words where it has some.
    format!("{code} {}", strongroom_sqlite::explain(error))
}
