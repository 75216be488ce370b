//! The store in etcd: the invariants of every store, and those that only several servers need.
//!
//! Method: real members as processes, killed with SIGKILL while two servers write.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Installation, Running};
use serde_json::json;
use strongroom_keyring::Provider;
use strongroom_keys_server::config::{Config, Etcd, Root};
use strongroom_keys_server::init::{NewServer, RootSource, init};
use strongroom_keys_server::store::{
    Append, Change, EtcdStore, Guard, Outcome, SqliteStore, Store,
};
use strongroom_testing_support::etcd::Cluster;

const ID: [u8; 16] = [7; 16];

fn config(store: &str, timeout_seconds: u64) -> Config {
    let root = Root {
        check: String::new(),
        keyring: None,
        threshold: None,
        share_hashes: Vec::new(),
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let mut config = Config::new(&ID, Vec::new(), address, store.to_owned(), root);
    config.etcd = Some(Etcd {
        timeout_seconds,
        ..Etcd::default()
    });
    config
}

fn etcd(cluster: &Cluster, timeout_seconds: u64) -> EtcdStore {
    let store = cluster.store();
    let urls = store.strip_prefix("etcd:").unwrap();
    EtcdStore::open(&config(&store, timeout_seconds), urls).unwrap()
}

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

fn rows(first: u64, rows: &[&[u8]]) -> Append {
    Append {
        first,
        rows: rows.iter().map(|row| row.to_vec()).collect(),
    }
}

/// What every store promises.
#[expect(
    clippy::too_many_lines,
    reason = "one promise after the other, on one store"
)]
fn keeps_its_promises(store: &dyn Store) {
    let none = Append::default();
    assert_eq!(store.read("k/a").unwrap(), None);
    assert_eq!(store.last_row().unwrap(), None);
    assert_eq!(store.rows(0, 10).unwrap(), []);
    let made = store.commit(
        &[guard("k/a", 0)],
        &[put("k/a", b"1"), put("k/b", b"2")],
        &rows(1, &[b"r1", b"r2"]),
    );
    assert_eq!(made.unwrap(), Outcome::Done);
    let first = store.read("k/a").unwrap().unwrap();
    assert_eq!(first.value, b"1");
    assert_ne!(first.revision, 0);
    // What it was based upon has changed, or was never so: nothing of it happens.
    for (guards, append) in [
        (vec![guard("k/a", 0)], rows(3, &[b"no"])),
        (vec![guard("k/a", first.revision + 1)], rows(3, &[b"no"])),
        (
            vec![guard("k/a", first.revision), guard("k/c", 1)],
            rows(3, &[b"no"]),
        ),
        (vec![guard("k/a", first.revision)], rows(2, &[b"no"])),
        (vec![guard("k/a", first.revision)], rows(4, &[b"no"])),
        (vec![guard("k/a", first.revision)], rows(1, &[b"no"])),
        (vec![guard("k/a", 0)], none.clone()),
    ] {
        let refused = store.commit(&guards, &[put("k/a", b"no"), put("k/n", b"no")], &append);
        assert_eq!(refused.unwrap(), Outcome::Conflict, "{guards:?} {append:?}");
    }
    assert_eq!(store.read("k/a").unwrap(), Some(first.clone()));
    assert_eq!(store.read("k/n").unwrap(), None);
    // Written again, and removed and made again, it has other revisions than before.
    let change = |change: Change, revision| {
        assert_eq!(
            store
                .commit(&[guard("k/a", revision)], &[change], &none)
                .unwrap(),
            Outcome::Done
        );
    };
    change(put("k/a", b"1"), first.revision);
    let second = store.read("k/a").unwrap().unwrap();
    change(
        Change::Delete {
            path: "k/a".to_owned(),
        },
        second.revision,
    );
    assert_eq!(store.read("k/a").unwrap(), None);
    change(put("k/a", b"1"), 0);
    let third = store.read("k/a").unwrap().unwrap();
    assert!(first.revision < second.revision && second.revision < third.revision);

    let many: Vec<Change> = (0..90)
        .map(|n| put(&format!("m/{n:03}"), &[n; 5000]))
        .collect();
    assert_eq!(
        store.commit(&[], &many, &rows(3, &[b"r3"])).unwrap(),
        Outcome::Done
    );
    let all = store.list("m/", "", 1000).unwrap();
    assert_eq!(all.len(), 90);
    assert!(all.is_sorted_by(|a, b| a.0 < b.0) && all[89].1.value == [89; 5000]);
    let part = store.list("m/", "m/009", 50).unwrap();
    assert_eq!(
        (part.len(), part[0].0.as_str(), part[49].0.as_str()),
        (50, "m/010", "m/059")
    );
    assert_eq!(store.list("m/", "m/089", 50).unwrap(), []);
    assert_eq!(store.list("k/", "", 50).unwrap().len(), 2);
    assert_eq!(store.list("nothing/", "", 50).unwrap(), []);
    assert_eq!(store.last_row().unwrap(), Some((3, b"r3".to_vec())));
    let some = vec![(2, b"r2".to_vec()), (3, b"r3".to_vec())];
    assert_eq!(store.rows(1, 10).unwrap(), some);
    assert_eq!(store.rows(1, 1).unwrap(), some[..1]);
    store.scrub().unwrap();
    store.scrub().unwrap();
    assert_eq!(store.read("k/a").unwrap(), Some(third));
    let large = vec![9; strongroom_keys_server::store::VALUE_MAX];
    assert_eq!(
        store
            .commit(&[], &[put("large", &large)], &rows(4, &[b"r4"]))
            .unwrap(),
        Outcome::Done
    );
    assert_eq!(store.read("large").unwrap().unwrap().value, large);
}

#[test]
fn both_stores_keep_the_same_promises() {
    let cluster = Cluster::start(1);
    keeps_its_promises(&etcd(&cluster, 60));
    let directory = tempfile::tempdir().unwrap();
    let key = strongroom_crypto::SecretKey::generate().unwrap();
    let file = directory.path().join("keys.db");
    keeps_its_promises(&SqliteStore::open(&file, &key, true).unwrap());
}

/// Adds to a counter and writes a row for it, until told to end; the rows that were acknowledged.
fn work(store: &dyn Store, name: &str, stop: &AtomicBool) -> Vec<(u64, Vec<u8>)> {
    let mut acknowledged = Vec::new();
    let mut unknown = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        let step = || {
            let found = store.read("counter")?;
            let revision = found.as_ref().map_or(0, |found| found.revision);
            let text =
                found.map_or_else(String::new, |found| String::from_utf8(found.value).unwrap());
            let next = text.parse::<u64>().unwrap_or(0) + 1;
            let first = store.last_row()?.map_or(0, |(n, _)| n) + 1;
            let row = format!("{name} {} {unknown}", acknowledged.len()).into_bytes();
            let change = put("counter", next.to_string().as_bytes());
            let outcome = store.commit(
                &[guard("counter", revision)],
                &[change],
                &rows(first, &[&row]),
            )?;
            Ok::<_, strongroom_keyring::Error>((outcome, first, row))
        };
        match step() {
            Ok((Outcome::Done, n, row)) => acknowledged.push((n, row)),
            Ok((Outcome::Conflict, ..)) => {}
            Err(error) => {
                assert_eq!(error.code().number, 8435, "{error}");
                unknown += 1;
            }
        }
    }
    acknowledged
}

#[test]
fn a_member_killed_under_load_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(3);
    let stores: Vec<Arc<EtcdStore>> = (0..2).map(|_| Arc::new(etcd(&cluster, 60))).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = ["a", "b"]
        .into_iter()
        .zip(stores.iter().cloned())
        .map(|(name, store)| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || work(&*store, name, &stop))
        })
        .collect();
    let rows_now = || stores[0].last_row().unwrap().map_or(0, |(n, _)| n);
    let until = |rows: u64| {
        let deadline = std::time::Instant::now() + common::PATIENCE;
        while rows_now() < rows {
            assert!(
                std::time::Instant::now() < deadline,
                "the work stands still"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(10);
    let leader = cluster.leader();
    cluster.kill(leader);
    until(rows_now() + 10);
    // Back, so that another one can be spared.
    cluster.revive(leader);
    until(rows_now() + 10);
    let next = cluster.leader();
    cluster.kill(next);
    until(rows_now() + 10);
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged: Vec<_> = workers
        .into_iter()
        .flat_map(|one| one.join().unwrap())
        .collect();
    acknowledged.sort();
    let all = stores[1].rows(0, 100_000).unwrap();
    assert!(
        all.iter().zip(1..).all(|((n, _), expected)| *n == expected),
        "a gap in the rows"
    );
    assert!(acknowledged.len() >= 20);
    for (n, row) in &acknowledged {
        assert_eq!(
            &all[usize::try_from(*n).unwrap() - 1].1,
            row,
            "row {n} was acknowledged"
        );
    }
    // Each row is one addition, done once.
    let counter = String::from_utf8(stores[0].read("counter").unwrap().unwrap().value).unwrap();
    assert_eq!(counter.parse::<usize>().unwrap(), all.len());
}

#[test]
fn a_member_that_is_alone_answers_nothing() {
    let mut cluster = Cluster::start(3);
    let store = etcd(&cluster, 60);
    store
        .commit(&[], &[put("granted", b"yes")], &rows(1, &[b"r1"]))
        .unwrap();
    drop(store);
    let store = etcd(&cluster, 2);
    cluster.kill(0);
    cluster.kill(1);
    // It still has the record on its disk; whether it was taken back meanwhile it cannot know.
    assert_eq!(store.read("granted").unwrap_err().code().number, 8435);
    let refused = store.commit(&[], &[put("granted", b"no")], &rows(2, &[b"r2"]));
    assert_eq!(refused.unwrap_err().code().number, 8435);
}

/// A certificate with the uses of both sides, as etcd's gateway needs it of its member.
fn issued(issuer: &rcgen::Issuer<'_, rcgen::KeyPair>) -> (String, String) {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    (
        params.signed_by(&key, issuer).unwrap().pem(),
        key.serialize_pem(),
    )
}

#[test]
fn members_that_want_certificates_get_them_and_foreign_members_nothing() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let authority = || {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (
            params.self_signed(&key).unwrap().pem(),
            Issuer::new(params, key),
        )
    };
    let ((own, issuer), (foreign, _)) = (authority(), authority());
    let directory = tempfile::tempdir().unwrap();
    let (member, client) = (issued(&issuer), issued(&issuer));
    for (name, text) in [
        ("own.pem", &own),
        ("foreign.pem", &foreign),
        ("member.pem", &member.0),
        ("member.key", &member.1),
        ("client.pem", &client.0),
        ("client.key", &client.1),
    ] {
        strongroom_keyring::durable::create_new(
            &directory.path().join(name),
            text.as_bytes(),
            0o600,
        )
        .unwrap();
    }
    let path = |name: &str| directory.path().join(name).display().to_string();
    let tls = [
        "--client-cert-auth".to_owned(),
        "--trusted-ca-file".to_owned(),
        path("own.pem"),
        "--cert-file".to_owned(),
        path("member.pem"),
        "--key-file".to_owned(),
        path("member.key"),
    ];
    let cluster = Cluster::start_with("https", 1, &tls);
    let store = cluster.store();
    let urls = store.strip_prefix("etcd:").unwrap();
    let open = |authority: &str, with_certificate: bool, timeout_seconds: u64| {
        let mut config = config(&store, timeout_seconds);
        config.directory = directory.path().to_path_buf();
        config.etcd = Some(Etcd {
            timeout_seconds,
            authority: Some(authority.into()),
            certificate: with_certificate.then(|| "client.pem".into()),
            key: with_certificate.then(|| "client.key".into()),
        });
        EtcdStore::open(&config, urls)
    };
    let store = open("own.pem", true, 60).unwrap();
    assert_eq!(
        store
            .commit(&[guard("k", 0)], &[put("k", b"v")], &rows(1, &[b"r"]))
            .unwrap(),
        Outcome::Done
    );
    assert_eq!(store.read("k").unwrap().unwrap().value, b"v");
    for (authority, with_certificate) in [("own.pem", false), ("foreign.pem", true)] {
        let refused = open(authority, with_certificate, 1).err().unwrap();
        assert_eq!(refused.code().number, 8435, "{refused}");
    }
}

fn place_on(cluster: &Cluster) -> Installation {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root.key");
    strongroom_keyring::durable::create_new(&root, &[b'5'; 64], 0o600).unwrap();
    init(&NewServer {
        config: directory.path().join("server.toml"),
        store: cluster.store(),
        names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        address: "127.0.0.1:0".parse().unwrap(),
        page: None,
        root: RootSource::Provider(Provider::parse(&format!("file:{}", root.display())).unwrap()),
    })
    .unwrap();
    Installation {
        directory,
        shares: Vec::new(),
    }
}

#[test]
fn two_servers_on_one_etcd_are_one_service() {
    let mut cluster = Cluster::start(3);
    let installation = place_on(&cluster);
    let (one, two) = (Running::open(&installation), Running::open(&installation));
    let identity = one.node(&installation, "a");
    let (mut at_one, mut at_two) = (one.client(Some(&identity)), two.client(Some(&identity)));
    assert_eq!(
        at_one.post("/v1/keys", &json!({"name": "db-7"})).status,
        201
    );
    let key = at_one.material("db-7", "latest");
    assert_eq!(at_two.material("db-7", "1"), key);
    cluster.kill(0);
    assert_eq!(at_two.post("/v1/keys/db-7/rotate", &json!({})).status, 200);
    let second = at_one.material("db-7", "latest");
    assert_ne!(second, key);
    // What one server takes back, the other does not serve, on connections that are open.
    let mut admin = two.admin(&installation);
    assert_eq!(admin.post("/v1/keys/db-7/disable", &json!({})).status, 200);
    at_one
        .get("/v1/keys/db-7/versions/1/material")
        .refused(423, "SR-8426");
    assert_eq!(admin.post("/v1/keys/db-7/enable", &json!({})).status, 200);
    assert_eq!(at_one.material("db-7", "1"), key);
    assert_eq!(admin.delete("/v1/nodes/a").status, 204);
    at_one
        .get("/v1/keys/db-7/versions/1/material")
        .refused(403, "SR-8421");
    at_two
        .get("/v1/keys/db-7/versions/1/material")
        .refused(403, "SR-8421");
    // Keys and what records say are not in etcd's files; paths are (docs/guides/keyserver-etcd.md).
    let mut files = Vec::new();
    for member in ["m1", "m2"] {
        for part in ["member/wal", "member/snap"] {
            files.extend(common::all_bytes(
                &cluster.directory().join(member).join(part),
            ));
        }
    }
    assert!(files.len() > 1000);
    let is_in = |needle: &[u8]| files.windows(needle.len()).any(|window| window == needle);
    assert!(is_in(b"keys/db-7"), "nothing was looked through");
    for secret in [
        key.as_bytes(),
        second.as_bytes(),
        b"\"created_by\"",
        b"\"deliver\"",
    ] {
        assert!(!is_in(secret), "{}", String::from_utf8_lossy(secret));
    }
}

#[test]
fn addresses_and_files_of_etcd_are_checked() {
    for urls in [
        "",
        "http://10.0.0.1:2379",
        "http://etcd.example:2379",
        "http://127.0.0.1.example:2379",
        "ftp://127.0.0.1:2379",
        "127.0.0.1:2379",
        "https://127.0.0.1:2379",
        "http://127.0.0.1:2379/v3",
        "http://user@127.0.0.1:2379",
        "http://127.0.0.1:2379,,",
    ] {
        let store = format!("etcd:{urls}");
        let refused = EtcdStore::open(&config(&store, 1), urls).err();
        let refused = refused.unwrap_or_else(|| panic!("{urls}: taken"));
        assert_eq!(refused.code().number, 8434, "{urls}: {refused}");
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = config("etcd:https://127.0.0.1:1", 1);
    config.directory = directory.path().to_path_buf();
    for (etcd, number) in [
        (
            Etcd {
                authority: Some("nothing.pem".into()),
                ..Etcd::default()
            },
            8440,
        ),
        (
            Etcd {
                certificate: Some("a.pem".into()),
                ..Etcd::default()
            },
            8434,
        ),
        (
            Etcd {
                timeout_seconds: 0,
                ..Etcd::default()
            },
            8434,
        ),
    ] {
        config.etcd = Some(etcd);
        let refused = EtcdStore::open(&config, "https://127.0.0.1:1")
            .err()
            .unwrap();
        assert_eq!(refused.code().number, number, "{refused}");
    }
}
