//! Keys and their errors through the Rust library; keyrings named in SQL.

use strongroom_keyring::provider::Provider;
use strongroom_keyring::{KeySource, Keyring};
use strongroom_sqlite::{Cipher, OpenOptions, explain, open};

use crate::support::{OTHER, RAW, bytes, connect, given, make, number, options, put, run};

fn with(key: Option<KeySource>) -> OpenOptions {
    OpenOptions {
        key,
        page_size: 0,
        ..OpenOptions::default()
    }
}

#[test]
fn every_key_error_has_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let before = bytes(&path);
    let missing = directory.path().join("missing");
    put(&directory.path().join("short"), b"encryptionkey=zz");
    let cases = [
        (None, 2001),
        (Some(given(OTHER)), 2002),
        (Some(given("a passphrase")), 2002),
        (Some(given("")), 2011),
        (
            Some(KeySource::Env("STRONGROOM_TEST_NOT_SET".to_owned())),
            2008,
        ),
        (Some(KeySource::File(missing.clone())), 2007),
        (Some(KeySource::File(directory.path().to_owned())), 2007),
        (Some(KeySource::File(directory.path().join("short"))), 2011),
        (Some(KeySource::Command("exit 1".to_owned())), 2009),
        (Some(KeySource::Command("printf ''".to_owned())), 2011),
        (
            Some(KeySource::KeyId {
                id: "absent".to_owned(),
            }),
            2004,
        ),
    ];
    for (source, expected) in cases {
        let name = source
            .as_ref()
            .map_or_else(|| "none".to_owned(), KeySource::describe);
        let options = OpenOptions {
            keyring: Some(missing.clone()),
            ..with(source)
        };
        assert_eq!(number(&open(&path, &options)), expected, "{name}");
    }
    assert_eq!(bytes(&path), before);
    assert_eq!(number(&open(&missing, &with(Some(given(RAW))))), 1006);
    let plain = directory.path().join("plain.db");
    run(
        &open(
            &plain,
            &OpenOptions {
                create: true,
                ..with(None)
            },
        )
        .unwrap(),
        "CREATE TABLE t(x)",
    );
    assert_eq!(number(&open(&plain, &with(Some(given(RAW))))), 3008);
}

#[test]
fn keyring_errors_have_their_codes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, ring) = (directory.path().join("k.db"), directory.path().join("ring"));
    let root = directory.path().join("root");
    put(&root, RAW.as_bytes());
    let provider = Provider::parse(&format!("file:{}", root.display())).unwrap();
    let mut keyring = Keyring::init(&ring, &provider).unwrap();
    keyring.create_key("app").unwrap();
    let by_id = |id: &str| OpenOptions {
        keyring: Some(ring.clone()),
        create: true,
        ..with(Some(KeySource::KeyId { id: id.to_owned() }))
    };
    run(&open(&path, &by_id("app")).unwrap(), "CREATE TABLE t(x)");
    assert_eq!(number(&open(&path, &by_id("other"))), 2003);
    assert_eq!(number(&open(&path, &by_id("app"))), 0);
    let good = bytes(&ring);
    let mut damaged = good.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    put(&ring, &damaged);
    assert_eq!(number(&open(&path, &by_id("app"))), 2005);
    put(&ring, &good);
    put(&root, OTHER.as_bytes());
    assert_eq!(number(&open(&path, &by_id("app"))), 2006);
    std::fs::remove_file(&root).unwrap();
    assert_eq!(number(&open(&path, &by_id("app"))), 2007);
    // A keyring is sealed, but it is no database; and a database is no keyring.
    assert_eq!(number(&open(&ring, &with(Some(given(RAW))))), 3007);
    let swapped = OpenOptions {
        keyring: Some(path.clone()),
        ..by_id("app")
    };
    assert_eq!(number(&open(&path, &swapped)), 3007);
}

/// A keyring names the command that delivers its root key. Whoever can make an application run
/// ATTACH could name a keyring file of his own, and so a command: found in review, refused since.
#[test]
fn a_keyring_named_in_sql_cannot_run_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let (ring, ran) = (directory.path().join("ring"), directory.path().join("ran"));
    let line = format!("command:touch {}; echo {RAW}", ran.display());
    Keyring::init(&ring, &Provider::parse(&line).unwrap())
        .unwrap()
        .create_key("app")
        .unwrap();
    std::fs::remove_file(&ran).unwrap();
    let connection = connect(&directory.path().join("k.db"));
    run(&connection, "CREATE TABLE z(y)");
    for statement in ["ATTACH ?1 AS x", "VACUUM INTO ?1", ";ATTACH ?1 AS x"] {
        let target = format!(
            "file:{}/new.db?key_id=app&keyring={}",
            directory.path().display(),
            ring.display()
        );
        let outcome = connection.execute(statement, [&target]).map_err(explain);
        assert_eq!(number(&outcome), 2018, "{statement}");
        assert!(!ran.exists(), "{statement}: the command was run");
    }
    // The application's own options may.
    let by_id = OpenOptions {
        keyring: Some(ring),
        create: true,
        ..with(Some(KeySource::KeyId {
            id: "app".to_owned(),
        }))
    };
    assert!(open(&directory.path().join("own.db"), &by_id).is_ok());
    assert!(ran.exists());
}

/// An error that SQLite reports by itself is not explained with one of the sealing VFS's that came
/// before.
#[test]
fn an_old_error_does_not_explain_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let connection = connect(&path);
    // The sealing VFS refuses this, and nobody asks it why.
    assert!(
        connection
            .execute(
                "ATTACH ?1 AS x KEY 'k'",
                [directory.path().join("x.db").to_str().unwrap()]
            )
            .is_err()
    );
    let error = explain(
        connection
            .execute("INSERT INTO t(a) VALUES(1)", [])
            .unwrap_err(),
    );
    assert_eq!(error.code().number, 1005, "{error}");
    // The database's own inconsistency is not "no sealed object" either.
    let options = OpenOptions {
        create: false,
        ..options(RAW)
    };
    assert!(open(&path, &options).is_ok());
}
