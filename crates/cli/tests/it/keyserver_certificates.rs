//! The certificates of key servers, and the way back in without an administrator: the real command
//! beside real servers, with real etcd.
//!
//! Method: servers are processes of the same binary, etcd is Debian's, clocks are libfaketime's.

#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use common::{Place, Run, keyserver};
use strongroom_testing_support::etcd::Cluster;
use strongroom_testing_support::keyserver::KeyServer;
use strongroom_testing_support::port::free_port;
use strongroom_testing_support::process::{PATIENCE, until};

fn server_cert(place: &Place, verb: &str, name: &str, more: &[&str]) -> Run {
    let config = format!("{name}/server.toml");
    let fixed = ["keyserver", "server-cert", verb, "--config", &config];
    place.run(&[&fixed[..], more].concat())
}

/// What is asked of a server by an address of one's choice, with the certificate of
/// `name/admin.toml`.
fn keys_at(place: &Place, name: &str, url: &str) -> Run {
    let config = String::from_utf8(place.read(&format!("{name}/admin.toml"))).unwrap();
    let rest = config.split_once('\n').unwrap().1;
    let text = format!("servers = [\"{url}\"]\ntotal_timeout_seconds = 2\n{rest}");
    place.write(&format!("{name}/at.toml"), text);
    place.run(&["keyserver", "keys", "--node", &format!("{name}/at.toml")])
}

/// The guide's "A second server" (docs/guides/keyserver-etcd.md), on two directories.
#[test]
fn a_second_server_over_etcd_by_the_guide() {
    let place = Place::new();
    let etcd = Cluster::start(1);
    let store = etcd.store();
    let made = ["--store", &store, "--config", "a/server.toml"];
    let known = ["--name", "127.0.0.1", "--root-provider", "env:ROOT"];
    let options = [&made[..], &known].concat();
    let mut first = KeyServer::init(&place.path("a"), &options, place.command());
    let mut second = KeyServer::at(&place.path("b"), free_port());
    std::fs::create_dir(place.path("b")).unwrap();
    let (of_first, of_second) = (first.port(), second.port());
    let at = |host: &str, port: u16| keys_at(&place, "a", &format!("https://{host}:{port}"));
    first.start_until(place.command(), PATIENCE, || {
        at("127.0.0.1", of_first).code == 0
    });

    // By the guide: server.toml with other names and another address, root.keyring, and its own
    // certificate.
    let config = String::from_utf8(place.read("a/server.toml")).unwrap();
    let config = config
        .replace("names = [\"127.0.0.1\"]", "names = [\"localhost\"]")
        .replace(&first.address(), &second.address());
    assert!(config.contains("localhost") && config.contains(&second.address()));
    place.write("b/server.toml", config);
    std::fs::copy(place.path("a/root.keyring"), place.path("b/root.keyring")).unwrap();
    let made = server_cert(&place, "issue", "b", &[]).succeeded();
    assert!(
        made.contains("b/server.key") && made.contains("certificate until 2"),
        "{made}"
    );
    assert_eq!(place.read("a/authority.pem"), place.read("b/authority.pem"));
    server_cert(&place, "issue", "b", &[]).failed(6, "SR-1002");
    second.start_until(place.command(), PATIENCE, || {
        at("localhost", of_second).code == 0
    });
    drop(first);
    at("localhost", of_second).succeeded();
    let create = ["keyserver", "create", "k", "--node", "a/at.toml"];
    place.run(&create).succeeded();
    let audit = ["keyserver", "audit", "--verify", "--node", "a/at.toml"];
    place.run(&audit).succeeded();
}

#[test]
fn a_server_gets_another_key_and_another_name_while_it_runs() {
    let place = Place::new();
    let server = keyserver::started(&place, "a");
    let at = |host: &str| keys_at(&place, "a", &format!("https://{host}:{}", server.port()));
    at("localhost").failed(3, "SR-8403");
    let config = String::from_utf8(place.read("a/server.toml")).unwrap();
    place.write("a/server.toml", format!("# Ours.\n{config}"));
    let key = place.read("a/server.key");
    let mut held = File::open(place.path("a/server.key")).unwrap();

    let mut other_root = place.command();
    let words = [
        "keyserver",
        "server-cert",
        "renew",
        "--config",
        "a/server.toml",
    ];
    other_root.args(words).env("ROOT", "1".repeat(64));
    assert!(
        !other_root.output().unwrap().status.success(),
        "another root key"
    );
    assert_eq!(place.read("a/server.key"), key);

    server_cert(&place, "renew", "a", &["--name", "localhost"]).succeeded();
    until("it is taken", || at("localhost").code == 0);
    at("127.0.0.1").succeeded();
    let text = String::from_utf8(place.read("a/server.toml")).unwrap();
    assert!(
        text.starts_with("# Ours.\n") && text.contains("\"127.0.0.1\", \"localhost\""),
        "{text}"
    );
    assert_ne!(place.read("a/server.key"), key);
    let mut seen = Vec::new();
    held.read_to_end(&mut seen).unwrap();
    assert!(
        seen.iter().all(|byte| *byte == 0),
        "the former key is overwritten"
    );

    // Leaked: another one, and until when the certificate to the former one is believed.
    let before = place.read("a/server.key");
    let replaced = server_cert(&place, "replace", "a", &[]);
    assert!(
        replaced.err.contains("can impersonate this server"),
        "{}",
        replaced.err
    );
    replaced.succeeded();
    assert_ne!(place.read("a/server.key"), before);
    assert!(!Path::exists(&place.path("a/server.key.next")));
    at("localhost").succeeded();
    let audit = ["keyserver", "audit", "--node", "a/admin.toml"];
    let rows = place.run(&audit).succeeded();
    assert_eq!(rows.matches("server-certificate").count(), 2, "{rows}");
}

#[test]
fn a_server_renews_its_own_certificate() {
    let place = Place::new();
    let mut server = KeyServer::at(&place.path("a"), free_port());
    let address = server.address();
    let init = [
        "keyserver",
        "init",
        "--store",
        "a/keys.db",
        "--name",
        "127.0.0.1",
        "--address",
        &address,
        "--root-provider",
        "env:ROOT",
    ];
    std::fs::create_dir(place.path("a")).unwrap();
    place.run_at("-70d", &init).succeeded();
    let former = [place.read("a/server.pem"), place.read("a/server.key")];
    server.start_until(place.command(), PATIENCE, || true);
    until("it is renewed", || {
        server.log().contains("certificate renewed")
    });
    let now = [place.read("a/server.pem"), place.read("a/server.key")];
    assert!(former[0] != now[0] && former[1] != now[1]);
    keys_at(&place, "a", &server.url()).succeeded();
}

/// A server that custodians have opened, with a node, and the files of another one whose shares are
/// others.
fn custodians(place: &Place) -> KeyServer {
    let mut server = KeyServer::at(&place.path("a"), free_port());
    let listen = server.address();
    for name in ["a", "b"] {
        std::fs::create_dir(place.path(name)).unwrap();
        let (store, shares) = (format!("{name}/keys.db"), format!("{name}/shares"));
        let init = [
            "keyserver",
            "init",
            "--store",
            &store,
            "--name",
            "127.0.0.1",
            "--address",
            &listen,
            "--shares",
            "3",
            "--threshold",
            "2",
            "--shares-out",
            &shares,
        ];
        place.run(&init).succeeded();
    }
    // It listens, and stays sealed.
    server.start_until(place.command(), PATIENCE, || true);
    let node = ["--node", "a/admin.toml"];
    for n in [1, 2] {
        let share = format!("a/shares/share-{n}.txt");
        let unseal = ["keyserver", "unseal", "--share-file", &share];
        place.run(&[&unseal[..], &node].concat()).succeeded();
    }
    let token = ["keyserver", "token", "host", "--out", "token"];
    place.run(&[&token[..], &node].concat()).succeeded();
    let join = [
        "keyserver",
        "join",
        &server.url(),
        "--authority",
        "a/authority.pem",
        "--node",
        "host",
        "--token-file",
        "token",
        "--config",
        "host/node.toml",
    ];
    place.run(&join).succeeded();
    server
}

#[test]
fn who_has_the_shares_gets_back_in_and_everybody_hears_of_it() {
    let place = Place::new();
    let server = custodians(&place);
    let node = ["--node", "a/admin.toml"];
    let glass = |name: &str, shares: &[&str]| {
        let fixed = [
            "keyserver",
            "break-glass",
            name,
            "--config",
            "a/server.toml",
            "--out",
            "new",
        ];
        let shares: Vec<&str> = shares
            .iter()
            .flat_map(|file| ["--share-file", *file])
            .collect();
        place.run(&[&fixed[..], &shares].concat())
    };
    let [one, two, other] = [
        "a/shares/share-1.txt",
        "a/shares/share-3.txt",
        "b/shares/share-1.txt",
    ];
    glass("admin", &[one]).failed(3, "SR-8410");
    glass("admin", &[one, other]).failed(3, "SR-8432");
    glass("admin", &[one, one]).failed(6, "SR-8441");
    glass("host", &[one, two]).failed(6, "SR-8424");
    assert!(!server.log().contains("break-glass"));

    // The administrator whose key was lost: another certificate, and the former one ends.
    let made = glass("admin", &[two, one]);
    assert!(made.err.contains("SR-8472"), "{}", made.err);
    made.succeeded();
    until("the server that runs says so", || {
        server.log().contains("\"event\":\"break-glass\"")
    });
    place
        .run(&[&["keyserver", "nodes"][..], &node].concat())
        .failed(3, "SR-8421");
    let new = ["--node", "new/admin.toml"];
    let nodes = place
        .run(&[&["keyserver", "nodes"][..], &new].concat())
        .succeeded();
    assert!(
        nodes.contains("admin  admin") && nodes.contains("host   node"),
        "{nodes}"
    );
    let rows = place.run(&[&["keyserver", "audit", "--verify"][..], &new].concat());
    rows.succeeded();
    let rows = place
        .run(&[&["keyserver", "audit"][..], &new].concat())
        .succeeded();
    assert!(rows.contains("break-glass admin"), "{rows}");
    glass("admin", &[one, two]).failed(6, "SR-1002");
}
