//! The store and what rests in it: commits as a whole, guards, an audit log that cannot be changed, records that cannot be moved.
//!
//! Method: the store itself, and a store that is tampered with behind the server's back by somebody who has its key.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

mod common;

use common::{Place, Running};
use rusqlite::params;
use serde_json::json;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_keyring::{KeySource, Keyring};
use strongroom_keyserver::config::Config;
use strongroom_keyserver::keys::{Keys, secret_hex};
use strongroom_keyserver::server::ROOT_NAME;
use strongroom_keyserver::store::{Append, Change, Guard, Outcome, SqliteStore, Store};
use strongroom_sqlite::OpenOptions;

fn put(path: &str, value: &[u8]) -> Change {
    Change::Put {
        path: path.to_owned(),
        value: value.to_vec(),
    }
}

fn guard(path: &str, revision: u64) -> Guard {
    Guard {
        path: path.to_owned(),
        revision,
    }
}

#[test]
fn a_commit_happens_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let key = SecretKey::generate().unwrap();
    assert_eq!(
        SqliteStore::open(&path, &key, false)
            .err()
            .unwrap()
            .code()
            .number,
        1006
    );
    let store = SqliteStore::open(&path, &key, true).unwrap();
    let none = Append::default();
    let rows = |first, count: u8| Append {
        first,
        rows: (0..count).map(|n| vec![n]).collect(),
    };
    assert_eq!(
        store
            .commit(
                &[guard("a", 0)],
                &[put("a", b"1"), put("b", b"1")],
                &rows(1, 2)
            )
            .unwrap(),
        Outcome::Done
    );
    let seen = store.read("a").unwrap().unwrap();
    // Not there any more; not as it was; a row in between: nothing of it happens.
    let refused = [
        (vec![guard("a", 0)], rows(3, 1)),
        (vec![guard("a", seen.revision + 1)], rows(3, 1)),
        (vec![guard("b", seen.revision), guard("c", 1)], rows(3, 1)),
        (vec![], rows(2, 1)),
        (vec![], rows(4, 1)),
    ];
    for (guards, append) in refused {
        let outcome = store
            .commit(&guards, &[put("a", b"2"), put("c", b"2")], &append)
            .unwrap();
        assert_eq!(outcome, Outcome::Conflict);
    }
    assert_eq!(store.read("a").unwrap().unwrap(), seen);
    assert!(store.read("c").unwrap().is_none());
    assert_eq!(store.last_row().unwrap(), Some((2, vec![1])));
    // Removed and made again, it has another revision: what was seen before does not count.
    let gone = Change::Delete {
        path: "a".to_owned(),
    };
    assert_eq!(store.commit(&[], &[gone], &none).unwrap(), Outcome::Done);
    assert_eq!(
        store
            .commit(&[guard("a", 0)], &[put("a", b"1")], &none)
            .unwrap(),
        Outcome::Done
    );
    assert_eq!(
        store
            .commit(&[guard("a", seen.revision)], &[], &rows(3, 1))
            .unwrap(),
        Outcome::Conflict
    );
    // Lists are in order, end where the prefix ends, and go on after a path.
    store
        .commit(
            &[],
            &[
                put("x/1", b""),
                put("x/2", b""),
                put("x/3", b""),
                put("x0", b""),
                put("x", b""),
            ],
            &none,
        )
        .unwrap();
    let list = |after: &str, limit| -> Vec<String> {
        store
            .list("x/", after, limit)
            .unwrap()
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    };
    assert_eq!(list("", 9), ["x/1", "x/2", "x/3"]);
    assert_eq!(list("x/1", 1), ["x/2"]);
    drop(store);
    let other = SecretKey::generate().unwrap();
    assert_eq!(
        SqliteStore::open(&path, &other, false)
            .err()
            .unwrap()
            .code()
            .number,
        2002
    );
    assert_eq!(
        SqliteStore::open(&path, &key, false)
            .unwrap()
            .rows(0, 9)
            .unwrap()
            .len(),
        2
    );
}

/// The server's own keys and a connection to its store, as somebody has them who has the root key.
fn inside(place: &Place) -> (Keys, rusqlite::Connection) {
    let config = Config::read(&place.path("server.toml")).unwrap();
    let id = config.server_id().unwrap();
    let root = Keyring::open(&place.path("root.keyring"))
        .unwrap()
        .key(ROOT_NAME, None)
        .unwrap();
    let key: SecretBytes = secret_hex(Keys::of_store(&root, &id).unwrap().expose()).unwrap();
    let options = OpenOptions {
        key: Some(KeySource::Given(key)),
        ..OpenOptions::default()
    };
    let connection = strongroom_sqlite::open(&place.path("keys.db"), &options).unwrap();
    (Keys::of(&root, id).unwrap(), connection)
}

#[test]
fn the_audit_log_refuses_changes_and_shows_those_that_were_forced() {
    let place = Place::with_provider();
    {
        let running = Running::open(&place);
        let node = running.node(&place, "a");
        let mut node = running.client(Some(&node));
        node.post("/v1/keys", &json!({"name": "k"}));
        node.material("k", "1");
    }
    let (_, connection) = inside(&place);
    for refused in [
        "UPDATE audit SET row = x'00' WHERE n = 3",
        "DELETE FROM audit WHERE n = 3",
        "INSERT INTO audit VALUES (1000, x'00')",
        "INSERT OR REPLACE INTO audit VALUES (3, x'00')",
    ] {
        let error = connection.execute(refused, []).err().unwrap().to_string();
        assert!(error.contains("only grows"), "{refused}: {error}");
    }
    // Without the triggers it works, and is found.
    connection.execute_batch("DROP TRIGGER audit_stays; UPDATE audit SET row = (SELECT row FROM audit WHERE n = 4) WHERE n = 3;").unwrap();
    drop(connection);
    let running = Running::open(&place);
    let answer = running.admin(&place).get("/v1/audit");
    answer.refused(500, "SR-8436");
}

#[test]
fn a_record_at_another_place_is_refused() {
    let place = Place::with_provider();
    let (a, b) = {
        let running = Running::open(&place);
        let (a, b) = (running.node(&place, "a"), running.node(&place, "b"));
        running
            .client(Some(&a))
            .post("/v1/keys", &json!({"name": "mine"}));
        running
            .client(Some(&b))
            .post("/v1/keys", &json!({"name": "theirs"}));
        (a, b)
    };
    let (keys, connection) = inside(&place);
    // Whoever can write to the store, but not seal: the key of one node under the name of another's.
    let copied = connection.execute(
        "UPDATE record SET value = (SELECT value FROM record WHERE path = 'keys/theirs') WHERE path = 'keys/mine'",
        [],
    );
    assert_eq!(copied.unwrap(), 1);
    // Whoever can seal records, but does not have the wrapping key: the wrapped key under another name.
    let sealed: Vec<u8> = connection
        .query_row(
            "SELECT value FROM record WHERE path = 'keys/theirs'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let record = keys.open("keys/theirs", &sealed).unwrap();
    let forged = keys.seal("keys/forged", &record).unwrap();
    let grant = keys
        .seal("grants/a/forged", br#"{"granted":1,"may_destroy":false}"#)
        .unwrap();
    for (path, value) in [("keys/forged", forged), ("grants/a/forged", grant)] {
        connection
            .execute(
                "INSERT INTO record VALUES (?1, 1, ?2)",
                params![path, value],
            )
            .unwrap();
    }
    drop(connection);
    let running = Running::open(&place);
    let mut a = running.client(Some(&a));
    a.get("/v1/keys/mine/versions/1/material")
        .refused(503, "SR-8435");
    a.get("/v1/keys/forged/versions/1/material")
        .refused(503, "SR-8435");
    assert_eq!(running.client(Some(&b)).material("theirs", "1").len(), 44);
}
