//! The records in the store: nobody can change the audit log or move a record. `etcd.rs` tests what
//! every store has to do.
//!
//! Method: somebody with the store's key changes the store.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use common::{Installation, Running};
use rusqlite::params;
use serde_json::json;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_keyring::{KeySource, Keyring, secret_hex};
use strongroom_keys_server::config::Config;
use strongroom_keys_server::keys::{Keys, ROOT_KEY_NAME};
use strongroom_keys_server::server::WaitsFor;
use strongroom_keys_server::store::SqliteStore;
use strongroom_sqlite::OpenOptions;

#[test]
fn another_key_opens_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let (key, other) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let open = |key, create| SqliteStore::open(&path, key, create);
    assert_eq!(open(&key, false).err().unwrap().code().number, 1006);
    drop(open(&key, true).unwrap());
    assert_eq!(open(&other, false).err().unwrap().code().number, 2002);
    assert!(open(&key, false).is_ok());
}

/// What a server says of its store: the number of the error of opening it, and what it waits for.
fn opened(installation: &Installation) -> (u16, Option<WaitsFor>) {
    let running = Running::sealed(installation);
    let error = running.server.unseal_by_provider().unwrap_err();
    (error.code().number, running.server.status().waits_for)
}

#[test]
fn a_store_that_fails_is_not_taken_for_another_root_key() {
    let installation = Installation::with_provider();
    let (_, connection) = inside(&installation);
    // The authority's record is there, and is another one.
    let authority = |value: &str| {
        let sql = format!("UPDATE record SET value = {value} WHERE path = 'authority'");
        assert_eq!(connection.execute(&sql, []).unwrap(), 1);
    };
    let kept: Vec<u8> = connection
        .query_row(
            "SELECT value FROM record WHERE path = 'authority'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    authority("zeroblob(600)");
    assert_eq!(opened(&installation), (8437, Some(WaitsFor::Provider)));
    authority(&format!("x'{}'", strongroom_format::hex::hex(&kept)));
    // It cannot be read.
    let rename = "ALTER TABLE record RENAME COLUMN value TO other";
    connection.execute_batch(rename).unwrap();
    assert_eq!(opened(&installation), (8435, Some(WaitsFor::Store)));
    let back = "ALTER TABLE record RENAME COLUMN other TO value";
    connection.execute_batch(back).unwrap();
    drop(connection);
    // The file is not there.
    let (store, away) = (installation.path("keys.db"), installation.path("away"));
    std::fs::hard_link(&store, &away).unwrap();
    std::fs::remove_file(&store).unwrap();
    assert_eq!(opened(&installation), (1006, Some(WaitsFor::Store)));
    std::fs::hard_link(&away, &store).unwrap();
    std::fs::remove_file(&away).unwrap();
    drop(Running::open(&installation));
}

/// The server's own keys and a connection to its store, as somebody has them who has the root key.
fn inside(installation: &Installation) -> (Keys, rusqlite::Connection) {
    let config = Config::read(&installation.path("server.toml")).unwrap();
    let id = config.server_id().unwrap();
    let root = Keyring::open(&installation.path("root.keyring"))
        .unwrap()
        .key(ROOT_KEY_NAME, None)
        .unwrap();
    let key: SecretBytes =
        secret_hex(Keys::derive_store_key(&root, &id).unwrap().expose()).unwrap();
    let options = OpenOptions {
        key: Some(KeySource::Given(key)),
        ..OpenOptions::default()
    };
    let connection = strongroom_sqlite::open(&installation.path("keys.db"), &options).unwrap();
    (Keys::derive(&root, id).unwrap(), connection)
}

#[test]
fn the_audit_log_refuses_changes_and_shows_those_that_were_forced() {
    let installation = Installation::with_provider();
    {
        let running = Running::open(&installation);
        let node = running.node(&installation, "a");
        let mut node = running.client(Some(&node));
        node.post("/v1/keys", &json!({"name": "k"}));
        node.material("k", "1");
    }
    let (_, connection) = inside(&installation);
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
    let running = Running::open(&installation);
    let answer = running.admin(&installation).get("/v1/audit");
    answer.refused(500, "SR-8436");
}

#[test]
fn a_record_at_another_place_is_refused() {
    let installation = Installation::with_provider();
    let (a, b) = {
        let running = Running::open(&installation);
        let (a, b) = (
            running.node(&installation, "a"),
            running.node(&installation, "b"),
        );
        running
            .client(Some(&a))
            .post("/v1/keys", &json!({"name": "mine"}));
        running
            .client(Some(&b))
            .post("/v1/keys", &json!({"name": "theirs"}));
        (a, b)
    };
    let (keys, connection) = inside(&installation);
    // Whoever can write to the store, but not seal: the key of one node under the name of
    // another's.
    let copied = connection.execute(
        "UPDATE record SET value = (SELECT value FROM record WHERE path = 'keys/theirs') WHERE path = 'keys/mine'",
        [],
    );
    assert_eq!(copied.unwrap(), 1);
    // Whoever can seal records, but does not have the wrapping key: the wrapped key under another
    // name.
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
    let running = Running::open(&installation);
    let mut a = running.client(Some(&a));
    a.get("/v1/keys/mine/versions/1/material")
        .refused(503, "SR-8435");
    a.get("/v1/keys/forged/versions/1/material")
        .refused(503, "SR-8435");
    assert_eq!(running.client(Some(&b)).material("theirs", "1").len(), 44);
}
