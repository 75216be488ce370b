//! The certificates of key servers, and the way back in without an administrator: the real command
//! beside real servers, with real etcd.
//!
//! Method: servers are processes of the same binary on ports of the kernel's choice, etcd is
//! Debian's, clocks are libfaketime's.

#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;
use std::fs::File;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::keyserver::Server;
use common::{Place, Run};
use strongroom_testing_support::etcd::Cluster;

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs a server whose log goes to `name/log`.
fn run(place: &Place, name: &str) -> Process {
    let mut command = place.command();
    command.args([
        "keyserver",
        "run",
        "--config",
        &format!("{name}/server.toml"),
    ]);
    let log = File::create(place.path(&format!("{name}/log"))).unwrap();
    Process(command.stderr(log).stdout(Stdio::null()).spawn().unwrap())
}

fn log(place: &Place, name: &str) -> String {
    String::from_utf8(place.read(&format!("{name}/log"))).unwrap()
}

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
    let ports = [free_port(), free_port()];
    let listen = ports.map(|port| format!("127.0.0.1:{port}"));
    for name in ["a", "b"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let init = [
        "keyserver",
        "init",
        "--store",
        &store,
        "--config",
        "a/server.toml",
        "--name",
        "127.0.0.1",
        "--address",
        &listen[0],
        "--root-provider",
        "env:ROOT",
    ];
    place.run(&init).succeeded();
    let first = run(&place, "a");
    let at = |n: usize, host: &str| keys_at(&place, "a", &format!("https://{host}:{}", ports[n]));
    until("the first one serves", || at(0, "127.0.0.1").code == 0);

    // By the guide: server.toml with other names and another address, root.keyring, and its own
    // certificate.
    let config = String::from_utf8(place.read("a/server.toml")).unwrap();
    let config = config
        .replace("names = [\"127.0.0.1\"]", "names = [\"localhost\"]")
        .replace(&listen[0], &listen[1]);
    assert!(config.contains("localhost") && config.contains(&listen[1]));
    place.write("b/server.toml", config);
    std::fs::copy(place.path("a/root.keyring"), place.path("b/root.keyring")).unwrap();
    let made = server_cert(&place, "issue", "b", &[]).succeeded();
    assert!(
        made.contains("b/server.key") && made.contains("certificate until 2"),
        "{made}"
    );
    assert_eq!(place.read("a/authority.pem"), place.read("b/authority.pem"));
    server_cert(&place, "issue", "b", &[]).failed(6, "SR-1002");
    let _second = run(&place, "b");
    until("the second one serves", || at(1, "localhost").code == 0);
    drop(first);
    at(1, "localhost").succeeded();
    let create = ["keyserver", "create", "k", "--node", "a/at.toml"];
    place.run(&create).succeeded();
    let audit = ["keyserver", "audit", "--verify", "--node", "a/at.toml"];
    place.run(&audit).succeeded();
}

#[test]
fn a_server_gets_another_key_and_another_name_while_it_runs() {
    let place = Place::new();
    let server = Server::start(&place, "a");
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    let at = |host: &str| keys_at(&place, "a", &format!("https://{host}:{port}"));
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
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
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
    let _server = run(&place, "a");
    until("it is renewed", || {
        log(&place, "a").contains("certificate renewed")
    });
    let now = [place.read("a/server.pem"), place.read("a/server.key")];
    assert!(former[0] != now[0] && former[1] != now[1]);
    let url = format!("https://127.0.0.1:{port}");
    keys_at(&place, "a", &url).succeeded();
}

/// A server that custodians have opened, with a node, and the files of another one whose shares are
/// others.
fn custodians(place: &Place) -> Process {
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
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
    let server = run(place, "a");
    let node = ["--node", "a/admin.toml"];
    until("it listens", || TcpStream::connect(&listen).is_ok());
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
        &format!("https://{listen}"),
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
    let _server = custodians(&place);
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
    assert!(!log(&place, "a").contains("break-glass"));

    // The administrator whose key was lost: another certificate, and the former one ends.
    let made = glass("admin", &[two, one]);
    assert!(made.err.contains("SR-8472"), "{}", made.err);
    made.succeeded();
    until("the server that runs says so", || {
        log(&place, "a").contains("\"event\":\"break-glass\"")
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
