//! Goal: encrypt, decrypt, rekey and verify do what they say on real files. Method: the bundled
//! SQLite, small databases.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_sqlite::{Cipher, KeySource, OpenOptions, explain, open, ops};

fn given(text: &str) -> KeySource {
    KeySource::Given(SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap())
}

fn options(text: &str) -> OpenOptions {
    OpenOptions {
        key: Some(given(text)),
        create: true,
        ..OpenOptions::default()
    }
}

const RAW: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const OTHER: &str = "2222222222222222222222222222222222222222222222222222222222222222";

fn plain(path: &Path) {
    let connection = open(
        path,
        &OpenOptions {
            create: true,
            ..OpenOptions::default()
        },
    )
    .unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<3000)
             INSERT INTO t SELECT x, printf('CANARY-%d-%s', x, hex(randomblob(40))) FROM n;",
        )
        .unwrap();
}

fn sum(connection: &rusqlite::Connection) -> (i64, i64) {
    connection
        .query_row("SELECT count(*), sum(length(b)) FROM t", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap()
}

/// One test at a time: while another thread has a connection without a mutex, the sealing VFS
/// cannot tell whether a statement of that connection is what opens a file, and gives a new
/// database its fixed layout.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn a_plain_database_whose_last_page_is_cut_is_not_sealed() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    plain(&at("plain.db"));
    let file = std::fs::File::options()
        .write(true)
        .open(at("plain.db"))
        .unwrap();
    let whole = file.metadata().unwrap().len();
    for len in [whole - 1, whole - 4095, whole + 7] {
        file.set_len(len).unwrap();
        let refused = ops::encrypt(
            &at("plain.db"),
            &at("sealed.db"),
            &options(RAW),
            &mut |_, _| {},
        );
        assert_eq!(refused.unwrap_err().code().number, 4011, "{len} of {whole}");
        assert!(!at("sealed.db").exists());
    }
}

/// A crash while the file grew: the journal makes it shorter again before it is looked at.
#[test]
fn a_plain_database_that_a_journal_makes_whole_is_sealed() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    plain(&at("plain.db"));
    let before = sum(&open(&at("plain.db"), &OpenOptions::default()).unwrap());
    let connection = open(&at("plain.db"), &OpenOptions::default()).unwrap();
    connection
        .execute_batch(
            "PRAGMA cache_size=1; BEGIN; INSERT INTO t(b) SELECT b || 'new' FROM t;
             INSERT INTO t(b) SELECT b FROM t",
        )
        .unwrap();
    for name in ["db", "db-journal"] {
        std::fs::copy(at(&format!("plain.{name}")), at(&format!("crash.{name}"))).unwrap();
    }
    drop(connection);
    let file = std::fs::File::options()
        .write(true)
        .open(at("crash.db"))
        .unwrap();
    let len = file.metadata().unwrap().len();
    assert!(len > std::fs::metadata(at("plain.db")).unwrap().len());
    file.set_len(len - 7).unwrap();
    let sealed = at("sealed.db");
    ops::encrypt(&at("crash.db"), &sealed, &options(RAW), &mut |_, _| {}).unwrap();
    assert_eq!(sum(&open(&sealed, &options(RAW)).unwrap()), before);
}

#[test]
fn encrypt_rekey_decrypt_round_trip() {
    let _alone = alone();
    for (cipher, page_size) in [
        (Cipher::Aes256Gcm, 0),
        (Cipher::Aes256Ctr, 8192),
        (Cipher::Aes256Gcm, 512),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        plain(&at("plain.db"));
        let encrypt = OpenOptions {
            cipher,
            page_size,
            ..options(RAW)
        };
        ops::encrypt(&at("plain.db"), &at("sealed.db"), &encrypt, &mut |_, _| {}).unwrap();
        let bytes = std::fs::read(at("sealed.db")).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"CANARY-"));
        let report = ops::verify(&at("sealed.db"), &options(RAW), &mut |_, _| {}).unwrap();
        assert!(report.bad.is_empty(), "{:?}", report.bad);
        let before = sum(&open(&at("sealed.db"), &options(RAW)).unwrap());
        let done = ops::rekey(
            &at("sealed.db"),
            &options(RAW),
            Some(&given(OTHER)),
            false,
            &mut |_, _| {},
        )
        .unwrap();
        assert_eq!((done.epoch, done.resumed), (2, false));
        assert!(done.pages > 1);
        assert_eq!(
            open(&at("sealed.db"), &options(RAW))
                .unwrap_err()
                .code()
                .number,
            2002
        );
        assert_eq!(
            sum(&open(&at("sealed.db"), &options(OTHER)).unwrap()),
            before
        );
        let report = ops::verify(&at("sealed.db"), &options(OTHER), &mut |_, _| {}).unwrap();
        assert!(report.bad.is_empty() && !report.rekey_under_way);
        ops::rekey(
            &at("sealed.db"),
            &options(OTHER),
            Some(&given("a passphrase")),
            true,
            &mut |_, _| {},
        )
        .unwrap();
        ops::decrypt(
            &at("sealed.db"),
            &at("back.db"),
            &options("a passphrase"),
            &mut |_, _| {},
        )
        .unwrap();
        let back = rusqlite::Connection::open(at("back.db")).unwrap();
        assert_eq!(sum(&back), before);
        let ok: String = back
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(ok, "ok");
        let left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
}

#[test]
fn rekey_with_wal_and_second_connection() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sealed.db");
    let connection = open(&path, &options(RAW)).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode=wal; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<5000)
             INSERT INTO t SELECT x, hex(randomblob(100)) FROM n;",
        )
        .unwrap();
    let before = sum(&connection);
    ops::rekey(&path, &options(RAW), None, false, &mut |_, _| {}).unwrap();
    assert_eq!(sum(&connection), before);
    connection
        .execute("UPDATE t SET b=b||'x' WHERE a<10", [])
        .unwrap();
    drop(connection);
    let connection = open(&path, &options(RAW)).unwrap();
    assert_eq!(sum(&connection).1, before.1 + 9);
}

/// A database of 5000 rows under the key `RAW`, whose rekey for `OTHER` has begun and could not
/// finish, because the log cannot be emptied while somebody reads. Its rows and their lengths.
fn with_interrupted_rekey(path: &Path) -> (i64, i64) {
    let reader = open(path, &options(RAW)).unwrap();
    reader
        .execute_batch(
            "PRAGMA journal_mode=wal; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<5000)
             INSERT INTO t SELECT x, hex(randomblob(100)) FROM n;",
        )
        .unwrap();
    let rows = sum(&reader);
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM t;")
        .unwrap();
    let writer = open(path, &options(RAW)).unwrap();
    writer.busy_timeout(std::time::Duration::ZERO).unwrap();
    let refused = pragma_rekey(&writer, OTHER).unwrap_err();
    assert_eq!(explain(refused).code().number, 6010);
    reader.execute_batch("COMMIT").unwrap();
    rows
}

fn pragma_rekey(connection: &rusqlite::Connection, key: &str) -> rusqlite::Result<String> {
    let pragma = format!("PRAGMA rekey = \"x'{key}'\"");
    connection.query_row(&pragma, [], |row| row.get(0))
}

/// Once, the interrupted rekey was finished for its own key, and success was reported although the
/// named key did not open the database.
#[test]
fn a_rekey_after_an_interrupted_one_is_for_the_key_that_is_named() {
    const THIRD: &str = "3333333333333333333333333333333333333333333333333333333333333333";
    let _alone = alone();
    for by_pragma in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sealed.db");
        let before = with_interrupted_rekey(&path);
        if by_pragma {
            let connection = open(&path, &options(OTHER)).unwrap();
            let said = pragma_rekey(&connection, THIRD).unwrap();
            assert!(said.starts_with("ok: "), "{said}");
        } else {
            let new = given(THIRD);
            let done = ops::rekey(&path, &options(OTHER), Some(&new), false, &mut |_, _| {});
            let done = done.unwrap();
            assert_eq!((done.epoch, done.resumed), (3, true));
        }
        assert_eq!(sum(&open(&path, &options(THIRD)).unwrap()), before);
        for old in [RAW, OTHER] {
            let refused = open(&path, &options(old)).unwrap_err();
            assert_eq!(refused.code().number, 2002);
        }
        let report = ops::verify(&path, &options(THIRD), &mut |_, _| {}).unwrap();
        assert!(report.bad.is_empty() && !report.rekey_under_way);
    }
}

/// The same key again only finishes what was interrupted, also when the old key is named.
#[test]
fn a_rekey_for_the_same_key_again_finishes_it() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sealed.db");
    let before = with_interrupted_rekey(&path);
    let new = given(OTHER);
    let done = ops::rekey(&path, &options(RAW), Some(&new), false, &mut |_, _| {}).unwrap();
    assert_eq!((done.epoch, done.resumed), (2, true));
    assert_eq!(sum(&open(&path, &options(OTHER)).unwrap()), before);
}

/// A header that fixed the layout of a new database once made SQLite ignore both pragmas without a
/// word.
#[test]
fn a_new_database_is_laid_out_as_asked() {
    let _alone = alone();
    for (by_option, by_pragma, vacuum) in [
        (0, None, 1),
        (8192, None, 2),
        (8192, Some(1024), 1),
        (0, Some(65536), 2),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new.db");
        let wanted = OpenOptions {
            page_size: by_option,
            ..options(RAW)
        };
        let connection = open(&path, &wanted).unwrap();
        if let Some(size) = by_pragma {
            connection.pragma_update(None, "page_size", size).unwrap();
        }
        connection
            .pragma_update(None, "auto_vacuum", vacuum)
            .unwrap();
        connection
            .execute_batch("CREATE TABLE t(a, b); INSERT INTO t VALUES(1, 2)")
            .unwrap();
        drop(connection);
        let connection = open(&path, &options(RAW)).unwrap();
        let number = |name: &str| -> i64 {
            connection
                .pragma_query_value(None, name, |row| row.get(0))
                .unwrap()
        };
        let default = i64::from(if by_option == 0 { 4096 } else { by_option });
        let expected = by_pragma.unwrap_or(default);
        assert_eq!(
            (number("page_size"), number("auto_vacuum")),
            (expected, vacuum)
        );
        drop(connection);
        assert!(
            ops::verify(&path, &options(RAW), &mut |_, _| {})
                .unwrap()
                .bad
                .is_empty()
        );
    }
}
