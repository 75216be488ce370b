//! The key server against hostile peers: certificates, old protocols, ambiguous requests, slow
//! clients, many clients; and killed servers.
//!
//! Method: a real server and real TLS, with bytes as an attacker sends them. After a request that
//! must have no effect, the test checks that it had none.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Client, Identity, Installation, PATIENCE, Running};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use serde_json::json;

/// An authority that the server believes beside its own, so that certificates can be made which its
/// own never would.
struct Other {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Other {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "other");
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let (key, params) = client(change);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let key = key.serialize_pem();
        Identity { certificate, key }
    }
}

fn client(change: impl FnOnce(&mut CertificateParams)) -> (KeyPair, CertificateParams) {
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.distinguished_name.push(DnType::CommonName, "admin");
    change(&mut params);
    (KeyPair::generate().unwrap(), params)
}

/// What a client with this certificate is answered; `None` when TLS ends it.
fn answered(
    running: &Running,
    installation: &Installation,
    identity: &Identity,
) -> Option<(u16, String)> {
    let authority = std::fs::read(installation.path("authority.pem")).unwrap();
    let mut client = Client::connect(running.address, &authority, Some(identity)).ok()?;
    let answer = client.try_ask("GET", "/v1/keys", None).ok()?;
    Some((answer.status, answer.code()))
}

#[test]
fn certificates_that_are_not_enrolled_open_nothing() {
    let installation = Installation::with_provider();
    let other = Other::new();
    let path = installation.path("authority.pem");
    let own = std::fs::read_to_string(&path).unwrap();
    std::fs::File::create(&path)
        .unwrap()
        .write_all(format!("{own}{}", other.pem).as_bytes())
        .unwrap();
    let running = Running::open(&installation);
    std::fs::File::create(&path)
        .unwrap()
        .write_all(own.as_bytes())
        .unwrap();
    let dates = |from: i32, until: i32| {
        other.issue(|params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
        })
    };
    let stranger = other.issue(|_| ());
    let not_enrolled = answered(&running, &installation, &stranger);
    assert_eq!(
        not_enrolled,
        Some((403, "SR-8421".to_owned())),
        "a name is not an identity"
    );
    for (identity, what) in [
        (dates(2001, 2002), "expired"),
        (dates(2190, 2191), "not valid yet"),
        (
            other.issue(|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
            "a server's",
        ),
        (
            Other::new().issue(|_| ()),
            "of an authority that calls itself the same",
        ),
    ] {
        assert_eq!(answered(&running, &installation, &identity), None, "{what}");
    }
    let (key, params) = client(|_| ());
    let self_signed = Identity {
        certificate: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    assert_eq!(
        answered(&running, &installation, &self_signed),
        None,
        "self-signed"
    );
    let admin = Identity::from_files(&installation, "admin");
    assert_eq!(answered(&running, &installation, &admin).unwrap().0, 200);

    let node = running.node(&installation, "a");
    let mut open = running.client(Some(&node));
    assert_eq!(open.get("/v1/keys").status, 200);
    assert_eq!(
        running.admin(&installation).delete("/v1/nodes/a").status,
        204
    );
    open.get("/v1/keys").refused(403, "SR-8421");
    assert_eq!(
        answered(&running, &installation, &node),
        Some((403, "SR-8421".to_owned()))
    );
}

/// Whether `openssl s_client` gets through a handshake with these options, and what it says.
fn handshake(address: SocketAddr, options: &[&str]) -> (bool, String) {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let done = text.contains("Cipher is ") && !text.contains("Cipher is (NONE)");
    (done, text)
}

#[test]
fn old_protocols_and_suites_without_authentication_are_refused() {
    let installation = Installation::with_provider();
    let running = Running::sealed(&installation);
    for options in [
        &["-tls1", "-cipher", "ALL:@SECLEVEL=0"][..],
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "NULL:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "aNULL:@SECLEVEL=0"],
        &[
            "-tls1_2",
            "-cipher",
            "ECDHE+AES128+SHA256:ECDHE+AES128+SHA1:!AESGCM:@SECLEVEL=0",
        ],
        &["-tls1_2", "-cipher", "kRSA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "3DES:RC4:@SECLEVEL=0"],
    ] {
        let (done, text) = handshake(running.address, options);
        assert!(!done, "{options:?}: {text}");
    }
    for options in [
        &["-tls1_3"][..],
        &[
            "-tls1_2",
            "-cipher",
            "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256",
        ],
    ] {
        let (done, text) = handshake(running.address, options);
        assert!(done, "{options:?}: {text}");
    }
}

/// Requests of which two readers could see two different things, and heads without an end.
fn dishonest() -> Vec<String> {
    let create = r#"{"name":"smuggled"}"#;
    let hidden = format!(
        "POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{create}",
        create.len()
    );
    let mut kinds = vec![
        // Two lengths: one of them hides a request.
        format!(
            "POST /v1/keys/k/rotate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}",
            hidden.len()
        ),
        format!(
            "POST /v1/keys/k/rotate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            hidden.len()
        ),
        format!(
            "POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked, identity\r\n\r\n{create}"
        ),
        format!(
            "POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding : chunked\r\n\r\n{create}"
        ),
        format!(
            "POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n{create}"
        ),
        format!(
            "POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: +{}\r\n\r\n{create}",
            create.len()
        ),
        format!(
            "POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999999999999\r\n\r\n{create}"
        ),
        // Line ends where there are none.
        "GET /v1/keys HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n".to_owned(),
        "GET /v1/keys HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n".to_owned(),
        "GET /v1/keys HTTP/1.1\r\nHost: x\r\n X: folded\r\n\r\n".to_owned(),
        "GET /v1/keys\r\nX: y HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET /v1/keys HTTP/9.9\r\nHost: x\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\r\n\r\n".to_owned(),
        // Heads without end.
        format!(
            "GET /v1/keys HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
            "a".repeat(64 * 1024)
        ),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(64 * 1024)),
    ];
    let many: String = (0..100).map(|n| format!("X-{n}: y\r\n")).collect();
    kinds.push(format!("GET /v1/keys HTTP/1.1\r\nHost: x\r\n{many}\r\n"));
    kinds
}

#[test]
fn requests_that_are_not_what_they_seem_are_refused() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node = running.node(&installation, "a");
    assert_eq!(
        running
            .client(Some(&node))
            .post("/v1/keys", &json!({"name": "k"}))
            .status,
        201
    );
    for bytes in &dishonest() {
        let mut client = running.client(Some(&node));
        let sent = client.send(bytes.as_bytes());
        let first = client.answer();
        let shown = &bytes[..bytes.len().min(200)];
        if let (Ok(()), Ok(first)) = (sent, first) {
            assert!(
                (400..500).contains(&first.status),
                "{shown:?}: {}",
                first.status
            );
        }
    }
    let keys = running.client(Some(&node)).get("/v1/keys").json();
    assert_eq!(
        keys["keys"].as_array().unwrap().len(),
        1,
        "a hidden request was carried out: {keys}"
    );
    assert_eq!(
        keys["keys"][0]["versions"].as_array().unwrap().len(),
        1,
        "{keys}"
    );
}

#[test]
fn paths_do_not_lead_elsewhere() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node = running.node(&installation, "a");
    let mut admin = running.admin(&installation);
    assert_eq!(admin.post("/v1/keys", &json!({"name": "k"})).status, 201);
    for path in [
        "/v1/keys/../keys/k/versions/1/material",
        "/v1/keys/a/../k/versions/1/material",
        "/v1/keys/%2e%2e/k/versions/1/material",
        "/v1/keys/..%2fk/versions/1/material",
        "/v1/keys/k%00/versions/1/material",
        "/v1/keys/k%0d%0aX:%20y/versions/1/material",
        "/v1/keys//k/versions/1/material",
        "/v1/keys/k/versions/1/material/",
        "/v1/keys/k;x/versions/1/material",
        "//v1/keys/k/versions/1/material",
        "/V1/keys/k/versions/1/material",
        "/v1/escrow/../../server.key",
        "/v1/escrow/..%2f..%2fserver.key",
        "/%2e%2e/%2e%2e/etc/passwd",
        "http://localhost/v1/keys/k/versions/1/material",
        "*",
    ] {
        let mut client = running.client(Some(&node));
        let answer = client.get(path);
        assert!(
            (400..500).contains(&answer.status),
            "{path}: {}",
            answer.status
        );
        let text = answer.text();
        assert!(
            !text.contains("BEGIN") && !text.contains("root:") && !text.contains("material\""),
            "{path}: {text}"
        );
        assert!(answer.headers.keys().all(|name| name != "x"), "{path}");
    }
    // A name that is an attack is a bad name, whoever sends it.
    for name in [
        "..",
        ".",
        "a/b",
        "a\r\nX: y",
        "a\0",
        "",
        "\u{202e}k",
        "' OR 1=1 --",
    ] {
        let answer = admin.post("/v1/keys", &json!({"name": name}));
        assert_eq!(answer.status, 400, "{name:?}: {}", answer.text());
    }
    assert_eq!(
        admin.get("/v1/keys").json()["keys"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn slow_peers_are_let_go_and_hold_nobody_up() {
    let installation = Installation::with_provider();
    installation.edit(|text| {
        text.replace("head_seconds = 10", "head_seconds = 1")
            .replace("body_seconds = 60", "body_seconds = 1")
    });
    let text = std::fs::read_to_string(installation.path("server.toml")).unwrap();
    assert!(text.contains("head_seconds = 1\n") && text.contains("body_seconds = 1\n"));
    let running = Running::open(&installation);
    let node = running.node(&installation, "a");
    // Connected and silent; in the middle of a handshake; in the middle of a head; a byte of the
    // head at a time.
    let mut silent = TcpStream::connect(running.address).unwrap();
    let mut begun = TcpStream::connect(running.address).unwrap();
    begun.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).unwrap();
    let mut half = running.client(Some(&node));
    half.send(b"GET /v1/keys HTTP/1.1\r\nHost:").unwrap();
    let mut dripping = running.client(Some(&node));
    let mut body = running.client(Some(&node));
    body.send(b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{\"name\":").unwrap();
    // Meanwhile others are served.
    let mut honest = running.client(Some(&node));
    assert_eq!(honest.get("/v1/keys").status, 200);
    let deadline = Instant::now() + PATIENCE;
    while dripping.send(b"X: y\r\n").is_ok() {
        assert!(
            Instant::now() < deadline,
            "a head without end is waited for"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    for socket in [&mut silent, &mut begun] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // Closed or reset; a time-out of ours would be an error of that kind.
        if let Err(error) = socket.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    }
    for client in [&mut half, &mut body] {
        match client.answer() {
            Ok(answer) => assert!([400, 408].contains(&answer.status), "{}", answer.status),
            Err(error) => assert_ne!(
                error.kind(),
                std::io::ErrorKind::WouldBlock,
                "it was waited for"
            ),
        }
    }
    let mut after = running.client(Some(&node));
    assert_eq!(after.get("/v1/keys").json()["keys"], json!([]));
}

#[test]
fn two_hundred_clients_get_their_keys_and_nobody_elses() {
    let installation = Installation::with_provider();
    installation.edit(|text| {
        text.replace("client_per_second = 100", "client_per_second = 100000")
            .replace("client_burst = 200", "client_burst = 100000")
    });
    let running = Running::open(&installation);
    let nodes: Vec<Identity> = (0..4)
        .map(|n| running.node(&installation, &format!("n{n}")))
        .collect();
    let keys: Vec<String> = nodes
        .iter()
        .zip(0..)
        .map(|(node, n)| {
            let mut client = running.client(Some(node));
            assert_eq!(
                client
                    .post("/v1/keys", &json!({"name": format!("k{n}")}))
                    .status,
                201
            );
            client.material(&format!("k{n}"), "latest")
        })
        .collect();
    std::thread::scope(|scope| {
        for at in 0..200 {
            let (running, nodes, keys) = (&running, &nodes, &keys);
            scope.spawn(move || {
                let mine = at % nodes.len();
                let mut client = running.client(Some(&nodes[mine]));
                for _ in 0..3 {
                    assert_eq!(client.material(&format!("k{mine}"), "latest"), keys[mine]);
                }
                let theirs = format!("/v1/keys/k{}/versions/1/material", (mine + 1) % nodes.len());
                client.get(&theirs).refused(404, "SR-8423");
            });
        }
    });
}

/// Names the directory of the server that this process is to be.
const BE: &str = "STRONGROOM_TEST_SERVER";

#[test]
#[ignore = "is the server of the test below, which starts it"]
fn be_a_server_until_killed() {
    let Some(directory) = std::env::var_os(BE) else {
        return;
    };
    let path = Path::new(&directory).join("server.toml");
    strongroom_keys_server::run::run(&path, |address| println!("\nport {}", address.port()))
        .unwrap();
}

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(installation: &Installation) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "hostile::be_a_server_until_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(BE, installation.directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let port = output
            .lines()
            .find_map(|line| line.ok()?.strip_prefix("port ")?.parse::<u16>().ok());
        let address = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let authority = std::fs::read(installation.path("authority.pem")).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while Client::connect(address, &authority, None)
            .unwrap()
            .get("/healthz")
            .status
            != 200
        {
            assert!(Instant::now() < deadline, "its provider does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a server acknowledged over its lives.
#[derive(Default)]
struct Acknowledged {
    keys: Vec<String>,
    rotations: usize,
}

impl Acknowledged {
    /// Asserts that all of it is there.
    fn is_there(&self, client: &mut Client) {
        let found = client.get("/v1/keys?limit=5000").json();
        let keys = found["keys"].as_array().unwrap();
        let names: Vec<&str> = keys
            .iter()
            .map(|key| key["name"].as_str().unwrap())
            .collect();
        for name in &self.keys {
            assert!(names.contains(&name.as_str()), "{name} was acknowledged");
        }
        let turned = client.get("/v1/keys/turned").json();
        let versions = turned["versions"].as_array().unwrap().len();
        assert!(versions > self.rotations, "a rotation was acknowledged");
    }

    /// Writes until the server, of this process id, is gone: it is killed when `target` writes were
    /// acknowledged, while more are under way.
    fn write(&mut self, client: &mut Client, round: usize, id: u32, target: usize) {
        let mut done = 0;
        let mut killer = None;
        for at in 0..400 {
            if done >= target && killer.is_none() {
                killer = Some(std::thread::spawn(move || {
                    let killed = Command::new("kill").args(["-9", &id.to_string()]).status();
                    assert!(killed.unwrap().success());
                }));
            }
            let name = format!("r{round}-{at}");
            let body = json!({"name": name}).to_string();
            match client.try_ask("POST", "/v1/keys", Some(body.as_bytes())) {
                Ok(answer) if answer.status == 201 => self.keys.push(name),
                Ok(answer) => panic!("{}", answer.text()),
                Err(_) => break,
            }
            match client.try_ask("POST", "/v1/keys/turned/rotate", Some(b"{}")) {
                Ok(answer) if answer.status == 200 => self.rotations += 1,
                Ok(answer) => panic!("{}", answer.text()),
                Err(_) => break,
            }
            done += 2;
        }
        killer.unwrap().join().unwrap();
    }
}

#[test]
fn killed_while_it_writes_it_has_everything_that_it_acknowledged() {
    let installation = Installation::with_provider();
    installation.edit(|text| {
        text.replace("client_per_second = 100", "client_per_second = 100000")
            .replace("client_burst = 200", "client_burst = 100000")
    });
    let authority = std::fs::read(installation.path("authority.pem")).unwrap();
    let admin = Identity::from_files(&installation, "admin");
    let mut acknowledged = Acknowledged::default();
    for round in 0..6 {
        let mut server = Process::start(&installation);
        let mut client = Client::connect(server.address, &authority, Some(&admin)).unwrap();
        if round == 0 {
            let made = client.post("/v1/keys", &json!({"name": "turned"}));
            assert_eq!(made.status, 201);
        }
        acknowledged.is_there(&mut client);
        acknowledged.write(&mut client, round, server.child.id(), 20 + round * 7);
        server.child.wait().unwrap();
    }
    // The audit log has a row for each of them, and no gap.
    let server = Process::start(&installation);
    let mut client = Client::connect(server.address, &authority, Some(&admin)).unwrap();
    acknowledged.is_there(&mut client);
    let (mut after, mut created) = (0, 0);
    loop {
        let page = client
            .get(&format!("/v1/audit?after={after}&limit=1000"))
            .json();
        for row in page["rows"].as_array().unwrap() {
            after += 1;
            assert_eq!(row["n"], after, "a gap in the audit log");
            created += usize::from(row["action"] == "create");
        }
        if page["more"] != true {
            break;
        }
    }
    assert!(created > acknowledged.keys.len());
}
