//! Open latency: open a database, read from its schema, close it.
//!
//! Must not: count the first open, which loads what the process needs once.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::stats::Samples;
use strongroom_benches::tpch::{Answer, answer};
use strongroom_benches::variant::{Variant, sealed, stock};
use strongroom_sqlite::{Cipher, KeySource};

use crate::setup::Place;

/// Opens per round; the round is their median.
const OPENS: u32 = 200;

/// The two ways to give the key that take no deliberate time. (A passphrase does: Argon2id.)
pub(crate) fn measure(
    place: &Place,
    variant: Variant,
    by_keyring: bool,
) -> Result<(Duration, Answer), Failure> {
    let path = if by_keyring {
        keyring_database(place, variant)?
    } else {
        place.database(variant)
    };
    let mut samples = Samples::default();
    for count in 0..=OPENS {
        let begin = Instant::now();
        let connection = open(place, variant, &path, by_keyring)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
            row.get::<_, i64>(0)
        })?;
        connection.close().map_err(|(_, error)| error)?;
        if count > 0 {
            samples.push(begin.elapsed());
        }
    }
    let connection = open(place, variant, &path, by_keyring)?;
    let names = answer(
        &connection,
        "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
    )?;
    Ok((Duration::from_secs_f64(samples.median()), names))
}

fn open(
    place: &Place,
    variant: Variant,
    path: &std::path::Path,
    by_keyring: bool,
) -> Result<Connection, Failure> {
    let cipher = match variant {
        Variant::Stock => return stock(path),
        Variant::Gcm => Cipher::Aes256Gcm,
        Variant::Ctr => Cipher::Aes256Ctr,
    };
    if by_keyring {
        let key = KeySource::KeyId {
            id: "bench".to_owned(),
        };
        return sealed(path, key, Some(&place.keyring()), cipher);
    }
    sealed(path, KeySource::File(place.key_file()), None, cipher)
}

/// A database with the schema of the large one and no rows, sealed for a key of the keyring; for
/// stock, a plain one.
fn keyring_database(place: &Place, variant: Variant) -> Result<PathBuf, Failure> {
    let path = place.path(&format!("empty-{}.db", variant.name()));
    if !path.exists() {
        strongroom_benches::tpch::create(&open(place, variant, &path, true)?)?;
    }
    Ok(path)
}
