//! Known texts in every kind of file that holds users' data, and a search of every byte of both
//! data directories.
//!
//! Must not: believe a search of the sealed instance that finds nothing, unless the same search of
//! the plain one finds everything.

use std::collections::BTreeMap;
use std::path::Path;

use strongroom_benches::Failure;
use strongroom_benches::bytes::entropy;
use strongroom_benches::postgres::Cluster;
use strongroom_benches::report::mebibytes;

use super::instances::Instances;
use strongroom_tour::checks::{Checks, found};

/// What every canary begins with.
const CALL: &[u8] = b"canary-";
/// The canaries: what each is found in, and the directory where.
const CANARIES: [(&str, &str, &str); 7] = [
    ("canary-row-5e1d", "a row of a table", "base/"),
    ("canary-index-5e1d", "an entry of an index", "base/"),
    ("canary-toast-5e1d", "a long value, out of line", "base/"),
    ("canary-row-5e1d", "the write-ahead log", "pg_wal/"),
    (
        "canary-spill-5e1d",
        "a sort that spilled",
        "base/pgsql_tmp/",
    ),
    (
        "canary-prepared-5e1d",
        "a prepared transaction",
        "pg_twophase/",
    ),
    (
        "canary-query-5e1d",
        "texts of pg_stat_statements",
        "pg_stat_tmp/",
    ),
];
/// Rows of the table, enough for a sort to spill.
const ROWS: u32 = 20_000;
/// Entropy of a table's file, in bits per byte: plain below the first, sealed above the second.
const ENTROPY: (f64, f64) = (7.0, 7.99);

/// Puts the canaries into an instance, but for that of a sort that spills.
pub(super) fn plant(cluster: &Cluster<'_>) -> Result<(), Failure> {
    let sql = format!(
        "CREATE EXTENSION pg_stat_statements;
         CREATE TABLE notes (id int, note text);
         INSERT INTO notes SELECT i, 'canary-row-5e1d ' || md5(i::text) FROM generate_series(1, {ROWS}) AS i;
         CREATE INDEX by_word ON notes ((note || ' canary-index-5e1d'));
         CREATE TABLE long (word text);
         ALTER TABLE long ALTER word SET STORAGE EXTERNAL;
         INSERT INTO long VALUES (repeat('canary-toast-5e1d ', 1000));
         SELECT 1 AS \"canary-query-5e1d\";
         CREATE TABLE kept (id int);
         BEGIN;
         INSERT INTO kept VALUES (1);
         PREPARE TRANSACTION 'canary-prepared-5e1d';
         CHECKPOINT;"
    );
    cluster.psql("postgres", &sql)?;
    Ok(())
}

/// A sort that spills and stays open as long as its session does.
pub(super) const SPILL: &str = "BEGIN;
    DECLARE sorted CURSOR FOR SELECT md5(note), note || ' canary-spill-5e1d' FROM notes ORDER BY 1;
    FETCH 1 FROM sorted;\n";

/// Whether the sort's file is there. Its name is not hidden, only its content.
pub(super) fn has_spilled(cluster: &Cluster<'_>) -> bool {
    let entries = std::fs::read_dir(cluster.data().join("base/pgsql_tmp"));
    let mut files = entries.into_iter().flatten().flatten();
    files.any(|file| file.metadata().is_ok_and(|about| about.len() > 1 << 20))
}

/// Searches both instances, after the power cut.
pub(super) fn compare(instances: &Instances<'_>, checks: &mut Checks) -> Result<(), Failure> {
    checks.heading("What lies on the disk after the power cut")?;
    let (plain, sealed) = match (search(&instances.plain), search(&instances.sealed)) {
        (Ok(plain), Ok(sealed)) => (plain, sealed),
        (Err(error), _) | (_, Err(error)) => {
            return checks.check("a search of the data directories", || Err(error));
        }
    };
    for (word, place, directory) in CANARIES {
        checks.check(place, || {
            let [plain, sealed] = [&plain, &sealed].map(|seen| seen.count(word, directory));
            let text = format!("found {plain} times plain, {sealed} times sealed");
            found(plain > 0 && sealed == 0, text)
        })?;
    }
    checks.check("anywhere in the sealed data directory", || {
        let [all, in_plain] = [&sealed, &plain].map(|seen| seen.words.values().sum::<u64>());
        let size = mebibytes(sealed.bytes);
        let text = format!("{all} in {} files, {size}; plain {in_plain}", sealed.files);
        found(all == 0 && in_plain > 0 && sealed.bytes > 1 << 24, text)
    })?;
    checks.check("entropy of a table's file", || {
        let [plain, sealed] = [&instances.plain, &instances.sealed].map(table_entropy);
        let (plain, sealed) = (plain?, sealed?);
        let text = format!("{plain:.3} bits per byte plain, {sealed:.3} sealed");
        found(plain < ENTROPY.0 && sealed > ENTROPY.1, text)
    })
}

/// What a search saw.
#[derive(Default)]
struct Seen {
    files: u64,
    bytes: u64,
    /// How often each canary was found, by the directory in which: "row 5e1d in base/1/2".
    words: BTreeMap<(&'static str, String), u64>,
}

impl Seen {
    fn count(&self, word: &str, directory: &str) -> u64 {
        let counts = self.words.iter();
        counts
            .filter(|((found, path), _)| *found == word && path.starts_with(directory))
            .map(|(_, count)| count)
            .sum()
    }
}

/// Every byte of every file of the data directory.
fn search(cluster: &Cluster<'_>) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    look_into(cluster.data(), cluster.data(), &mut seen)?;
    Ok(seen)
}

/// How often the canary of `word` is found anywhere in the data directory.
pub(super) fn anywhere(cluster: &Cluster<'_>) -> Result<u64, Failure> {
    Ok(search(cluster)?.words.values().sum())
}

fn look_into(root: &Path, directory: &Path, seen: &mut Seen) -> Result<(), Failure> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            look_into(root, &path, seen)?;
            continue;
        }
        let bytes = std::fs::read(&path)?;
        seen.files += 1;
        seen.bytes += bytes.len() as u64;
        let relative = path.strip_prefix(root)?.display().to_string();
        for (at, _) in bytes
            .windows(CALL.len())
            .enumerate()
            .filter(|(_, part)| *part == CALL)
        {
            let rest = bytes.get(at..).unwrap_or_default();
            let known = CANARIES.iter().map(|(word, ..)| *word);
            let word = known
                .into_iter()
                .find(|word| rest.starts_with(word.as_bytes()));
            if let Some(word) = word {
                *seen.words.entry((word, relative.clone())).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// Bits per byte of the largest file of the database.
fn table_entropy(cluster: &Cluster<'_>) -> Result<f64, Failure> {
    let mut largest = (0, None);
    for database in std::fs::read_dir(cluster.data().join("base"))? {
        for file in std::fs::read_dir(database?.path())? {
            let file = file?;
            let (size, name) = (file.metadata()?.len(), file.file_name());
            let is_table = name
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            if is_table && size > largest.0 {
                largest = (size, Some(file.path()));
            }
        }
    }
    let path = largest.1.ok_or("no table")?;
    Ok(entropy(&std::fs::read(path)?))
}
