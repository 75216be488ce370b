//! Open latency: open a database, read from its schema, close it.
//!
//! Measured in a process of its own per peer and round: a process that has loaded the guard registers it with every
//! connection, also with a stock one, and what the guard shares between connections would be there already.
//! Must not: count the first open, which loads what the process needs once.

use std::process::Command;
use std::time::{Duration, Instant};

use std::io::Write as _;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::report::Line;
use strongroom_benches::stats::Samples;
use strongroom_benches::variant::{Variant, sealed, stock};
use strongroom_sqlite::{Cipher, KeySource};

use crate::order;
use crate::setup::Databases;

/// Opens per process.
const OPENS: u32 = 200;

/// The two ways to give the key that take no deliberate time. (A passphrase does: Argon2id.)
const KEYS: [(&str, &str); 2] =
    [("open, key from a file", "file"), ("open, key from a keyring", "keyring")];

/// The lines, without rounds.
pub(crate) fn lines() -> impl Iterator<Item = Line> {
    KEYS.into_iter().map(|(name, _)| Line::new("Opening", name, 1, ""))
}

/// All rounds of one line.
pub(crate) fn run(line: &mut Line, databases: &Databases, rounds: u32) -> Result<(), Failure> {
    let by_keyring = KEYS.iter().any(|(name, key)| *name == line.name && *key == "keyring");
    for round in 0..rounds {
        for variant in order(round) {
            let duration = if by_keyring {
                in_child(variant, &keyring_database(databases, variant)?, &databases.keyring())?
            } else {
                in_child(variant, &databases.database(variant), &databases.key_file())?
            };
            line.push(variant, duration);
        }
    }
    Ok(())
}

/// A small database sealed for a key of the keyring; for stock, a plain one.
fn keyring_database(databases: &Databases, variant: Variant) -> Result<std::path::PathBuf, Failure> {
    let path = databases.path(&format!("small-{}.db", variant.name()));
    if path.exists() {
        return Ok(path);
    }
    let keyring = databases.keyring();
    let key = KeySource::KeyId { id: "bench".to_owned() };
    let connection = match variant {
        Variant::Stock => stock(&path)?,
        Variant::Gcm => sealed(&path, key, Some(&keyring), Cipher::Aes256Gcm)?,
        Variant::Ctr => sealed(&path, key, Some(&keyring), Cipher::Aes256Ctr)?,
    };
    connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")?;
    Ok(path)
}

fn in_child(
    variant: Variant,
    database: &std::path::Path,
    key: &std::path::Path,
) -> Result<Duration, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--open-latency")
        .arg(variant.name())
        .arg(database)
        .arg(key)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(Duration::from_secs_f64(String::from_utf8(output.stdout)?.trim().parse()?))
}

/// In the process of one peer: the median of many opens, in seconds, on standard output.
pub(crate) fn measure_here(arguments: &[String]) -> Result<(), Failure> {
    let [peer, database, key] = arguments else { return Err("three arguments".into()) };
    let mut samples = Samples::default();
    for count in 0..=OPENS {
        let begin = Instant::now();
        let connection = open(peer, database.as_ref(), key.as_ref())?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        connection.close().map_err(|(_, error)| error)?;
        let spent = begin.elapsed();
        if tables == 0 {
            return Err("the database is empty".into());
        }
        if count > 0 {
            samples.push(spent);
        }
    }
    writeln!(std::io::stdout(), "{}", samples.median())?;
    Ok(())
}

fn open(peer: &str, database: &std::path::Path, key: &std::path::Path) -> Result<Connection, Failure> {
    if peer == "stock" {
        return stock(database);
    }
    // The cipher of a database that exists stands in its header.
    if key.file_name().is_some_and(|name| name == "keyring") {
        let id = KeySource::KeyId { id: "bench".to_owned() };
        return sealed(database, id, Some(key), Cipher::Aes256Gcm);
    }
    sealed(database, KeySource::File(key.to_path_buf()), None, Cipher::Aes256Gcm)
}
