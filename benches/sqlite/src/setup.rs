//! The same rows in one database for each engine, their keys, and the proof that what should be
//! sealed is.
//!
//! Must not: be inside a measurement, or let an engine into the table whose file shows what it
//! holds.

use std::fmt::Write as _;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use strongroom_benches::Failure;
use strongroom_benches::bytes::{entropy, occurrences};
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::tpch;
use strongroom_benches::variant::stock;
use strongroom_keyring::{Keyring, Provider};
use tempfile::TempDir;

use crate::driver;
use crate::engine::{Engine, Key, settings};

/// Shannon entropy in bits a byte below which a MiB of a file is not noise. Sealed pages have
/// 7.9998.
const NOISE: f64 = 7.99;
/// How much of the end of a file must be noise.
const SAMPLE: u64 = 1 << 20;
/// How much of its beginning is searched: all, but for those of gigabytes.
const SEARCHED: u64 = 256 << 20;
/// What stands in every plain database of ours.
const KNOWN: [&str; 3] = ["SQLite format 3", "CREATE TABLE", "carefully"];

/// Where everything is.
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) drivers: PathBuf,
    pub(crate) extension: PathBuf,
    _gone_when_dropped: TempDir,
}

impl Place {
    /// Makes the directory, keys and keyring.
    pub(crate) fn make(below: &Path, drivers: &Path, extension: &Path) -> Result<Self, Failure> {
        let made = tempfile::Builder::new()
            .prefix("strongroom-bench-")
            .tempdir_in(below)?;
        let place = Self {
            directory: made.path().canonicalize()?,
            drivers: drivers.canonicalize()?,
            extension: extension.canonicalize()?,
            _gone_when_dropped: made,
        };
        new_key_file(&place.key_file(Key::Raw))?;
        let passphrase = place.key_file(Key::Passphrase);
        strongroom_keyring::durable::replace(&passphrase, b"correct horse battery", 0o600)?;
        let root = place.path("root.key");
        new_key_file(&root)?;
        let provider = Provider::parse(&format!("file:{}", root.display()))?;
        Keyring::init(&place.keyring(), &provider)?;
        Keyring::open(&place.keyring())?.create_key("bench")?;
        Ok(place)
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The plain database from which all are copied.
    pub(crate) fn source(&self) -> PathBuf {
        self.path("source.db")
    }

    /// The loaded database of `engine`.
    pub(crate) fn database(&self, engine: Engine) -> PathBuf {
        self.path(&format!("{}.db", engine.name()))
    }

    /// The file with the raw key or with the passphrase.
    pub(crate) fn key_file(&self, key: Key) -> PathBuf {
        self.path(if key == Key::Passphrase {
            "passphrase"
        } else {
            "raw.key"
        })
    }

    /// What is in it.
    pub(crate) fn key_text(&self, key: Key) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(self.key_file(key))?
            .trim()
            .to_owned())
    }

    /// The VFS's keyring, with the key "bench".
    pub(crate) fn keyring(&self) -> PathBuf {
        self.path("keyring")
    }

    /// The program of `engine`.
    pub(crate) fn program(&self, engine: Engine) -> PathBuf {
        self.drivers.join(engine.driver())
    }

    /// Lines that open the loaded database of `engine` with the common settings.
    pub(crate) fn opened(&self, engine: Engine) -> Result<String, Failure> {
        self.opened_at(engine, &self.database(engine))
    }

    /// As [`Self::opened`], of another file.
    pub(crate) fn opened_at(&self, engine: Engine, path: &Path) -> Result<String, Failure> {
        let prelude = engine.prelude(self, path, Key::Raw)?;
        Ok(format!("{prelude}open\n{}", settings()))
    }

    /// The line that attaches the source.
    pub(crate) fn attach(&self) -> String {
        // An empty key: without one, SQLCipher would take the connection's.
        format!(
            "sql ATTACH '{}' AS src KEY ''\n",
            self.source().display().to_string().replace('\'', "''")
        )
    }
}

/// Loads the TPC-H tables at `scale` into the source and copies them into a database of each
/// engine. Sizes in bytes.
pub(crate) fn load(
    place: &Place,
    engines: &[Engine],
    scale: f64,
) -> Result<Vec<(Engine, u64)>, Failure> {
    let source = stock(&place.source())?;
    tpch::load(&[&source], scale)?;
    let mut copy = place.attach();
    copy.push_str("sql BEGIN\n");
    for kind in ["table", "index"] {
        let mut objects = source.prepare(
            "SELECT name, sql FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY rowid",
        )?;
        let mut rows = objects.query([kind])?;
        while let Some(row) = rows.next()? {
            let (name, sql): (String, String) = (row.get(0)?, row.get(1)?);
            writeln!(copy, "sql {}", one_line(&sql))?;
            if kind == "table" {
                writeln!(
                    copy,
                    "sql INSERT INTO main.{name} SELECT * FROM src.{name} ORDER BY rowid"
                )?;
            }
        }
    }
    copy.push_str("sql COMMIT\nsql ANALYZE main\n");
    drop(source);
    let mut sizes = Vec::new();
    for engine in engines {
        let path = place.database(*engine);
        make(place, *engine, &path, &copy)?;
        sizes.push((*engine, std::fs::metadata(path)?.len()));
    }
    Ok(sizes)
}

/// Makes the database of `engine` at `path` by `lines`, and proves it. It gets there by a copy, so
/// that all are written in the same way: what the system's cache makes of each engine's writes,
/// larger and smaller pieces of memory, is worth a tenth of a scan's time.
pub(crate) fn make(place: &Place, engine: Engine, path: &Path, lines: &str) -> Result<(), Failure> {
    let fresh = place.path("fresh.db");
    let opened = place.opened_at(engine, &fresh)?;
    driver::prepare(&place.program(engine), &format!("{opened}{lines}"))?;
    prove(engine, &fresh)?;
    std::fs::copy(&fresh, path)?;
    std::fs::remove_file(&fresh)?;
    Ok(())
}

/// A statement in one line, as the driver reads it.
pub(crate) fn one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A sealed file shows nothing and is noise; a plain one shows what it holds, or the search would
/// prove nothing.
fn prove(engine: Engine, path: &Path) -> Result<(), Failure> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.by_ref().take(SEARCHED).read_to_end(&mut head)?;
    let mut sample = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(SAMPLE)))?;
    file.read_to_end(&mut sample)?;
    let shown: usize = KNOWN
        .iter()
        .map(|text| occurrences(&head, text.as_bytes()) + occurrences(&sample, text.as_bytes()))
        .sum();
    let bits = entropy(&sample);
    let noise = bits >= NOISE || length < 1 << 18;
    if engine.seals() && (shown > 0 || !noise) {
        return Err(format!(
            "{}: {shown} known texts, {bits:.4} bits a byte",
            path.display()
        )
        .into());
    }
    if !engine.seals() && shown == 0 {
        return Err(format!("{}: the known texts are not found", path.display()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{one_line, prove};
    use crate::engine::Engine;

    #[test]
    fn a_file_that_shows_something_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let put = |bytes: &[u8]| {
            std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), bytes).unwrap();
        };
        put(&[b"x".repeat(1 << 20), b"CREATE TABLE t".to_vec()].concat());
        prove(Engine::Gcm, &path).unwrap_err();
        prove(Engine::Stock, &path).unwrap();
        put(&b"y".repeat(1 << 20));
        prove(Engine::SqlCipher, &path).unwrap_err();
        prove(Engine::McPlain, &path).unwrap_err();
        // 0 to 255, evenly: 8 bits a byte.
        let even: Vec<u8> = (0..=255_u8).cycle().take(1 << 20).collect();
        put(&even);
        prove(Engine::McAegis, &path).unwrap();
    }

    #[test]
    fn statements_fit_a_line() {
        assert_eq!(one_line("SELECT 1,\n   2"), "SELECT 1, 2");
    }
}
