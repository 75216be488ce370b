//! Backups: sealed for a certificate, damaged, restored; and a PostgreSQL server brought to a point
//! of its log.
//!
//! Must not: work on anything but databases and servers of its own.

mod recovery;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::{Failure, bytes, variant};

use crate::tour::Tour;
use strongroom_tour::checks::found;

/// Rows of the database that is backed up.
const ROWS: u32 = 50_000;
/// Stands in every row.
const KNOWN: &str = "furiously regular accounts";
const CERTIFICATE: &str = "vault";

/// The whole part.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks
        .heading("Backups: a SQLite database, sealed for a certificate")?;
    if !tour.path("keyring").exists() {
        let root = tour.path("root.key");
        new_key_file(&root)?;
        let provider = format!("file:{}", root.display());
        tour.strongroom
            .succeed(&["keyring", "init", "--provider", &provider])?;
    }
    let (source, medium) = (tour.path("orders.db"), tour.path("medium"));
    let before = fill(&variant::stock(&source)?)?;
    make(tour, &source, &medium)?;
    damage(tour, &medium)?;
    restore(tour, &medium, before)?;
    recovery::run(tour)
}

fn fill(connection: &Connection) -> Result<i64, Failure> {
    connection.execute_batch(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, comment TEXT, amount INTEGER)",
    )?;
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO orders SELECT i, ?2 || ' ' || i, i * 7 FROM n",
        (ROWS, KNOWN),
    )?;
    sum(connection)
}

fn sum(connection: &Connection) -> Result<i64, Failure> {
    let sql = "SELECT sum(amount + length(comment)) FROM orders";
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

/// A certificate, a set, and what can be seen of it without a key.
fn make(tour: &mut Tour, source: &Path, medium: &Path) -> Result<(), Failure> {
    let strongroom = &tour.strongroom;
    let (source, medium_text) = (source.display().to_string(), medium.display().to_string());
    tour.checks.check("cert create", || {
        strongroom.succeed(&["cert", "create", CERTIFICATE])?;
        let listed = strongroom.succeed(&["cert", "list"])?;
        found(
            listed.stdout.contains(CERTIFICATE),
            "RSA 3072; its private key is in the keyring",
        )
    })?;
    tour.checks.check("backup create --certificate", || {
        let made = strongroom.succeed(&[
            "backup",
            "create",
            &source,
            "--to",
            &medium_text,
            "--certificate",
            CERTIFICATE,
        ])?;
        found(
            made.stderr.contains("SR-2033"),
            "done; warns: the private key was never exported",
        )
    })?;
    tour.checks.check("backup header, without a key", || {
        let ran = strongroom.succeed(&["backup", "header", &medium_text, "--json"])?;
        let json: serde_json::Value = serde_json::from_str(&ran.stdout)?;
        let sets = json["sets"].as_array().map_or(0, Vec::len);
        let encryptor = json["sets"][0]["encryptors"][0]["encryptor_type"]
            .as_str()
            .unwrap_or_default();
        found(
            sets == 1 && !encryptor.is_empty(),
            format!("{sets} set, encryptor: {encryptor}"),
        )
    })?;
    let plain = Path::new(&source);
    tour.checks.check("known texts on the medium", || {
        let clear = bytes::occurrences(&std::fs::read(plain)?, KNOWN.as_bytes());
        let mut left = 0;
        let mut size = 0;
        for file in files(medium)? {
            let content = std::fs::read(file)?;
            left += bytes::occurrences(&content, KNOWN.as_bytes());
            size += content.len();
        }
        let text = format!("{left} in {size} bytes; {clear} in the database");
        found(left == 0 && clear > 0, text)
    })
}

/// One bit of the medium is flipped, and flipped back.
fn damage(tour: &mut Tour, medium: &Path) -> Result<(), Failure> {
    let strongroom = &tour.strongroom;
    let text = medium.display().to_string();
    let target = tour.path("damaged-restore");
    let mut largest = files(medium)?;
    largest.sort_by_key(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
    let victim = largest.pop().ok_or("the medium is empty")?;
    tour.checks.check("backup verify", || {
        let ran = strongroom.run(&["backup", "verify", &text])?;
        found(ran.code == Some(0), "every segment is authentic")
    })?;
    tour.checks.check("one bit flipped: verify", || {
        flip(&victim)?;
        let ran = strongroom.run(&["backup", "verify", &text])?;
        found(ran.code == Some(4), ran.shown())
    })?;
    tour.checks.check("one bit flipped: restore", || {
        let to = target.display().to_string();
        let ran = strongroom.run(&["backup", "restore", &text, "--to", &to])?;
        let nothing = !target.exists();
        let left = if nothing {
            "nothing left"
        } else {
            "a directory left"
        };
        found(
            ran.code == Some(4) && nothing,
            format!("{}, {left}", ran.shown()),
        )
    })?;
    tour.checks.check("the bit flipped back", || {
        flip(&victim)?;
        let ran = strongroom.run(&["backup", "verify", &text])?;
        found(ran.code == Some(0), "every segment is authentic")
    })
}

fn restore(tour: &mut Tour, medium: &Path, before: i64) -> Result<(), Failure> {
    let strongroom = &tour.strongroom;
    let target = tour.path("restored");
    tour.checks.check("backup restore; every row", || {
        let (from, to) = (medium.display().to_string(), target.display().to_string());
        strongroom.succeed(&["backup", "restore", &from, "--to", &to])?;
        let file = target.join("orders.db");
        let after = sum(&variant::stock(&file)?)?;
        found(after == before, format!("{ROWS} rows, the same"))
    })
}

fn flip(path: &Path) -> Result<(), Failure> {
    let file = File::options().read(true).write(true).open(path)?;
    let at = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1;
    Ok(file.write_all_at(&byte, at)?)
}

/// Every file below a directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
