//! Goal: applications reach the proxy through TLS, and the proxy the server, as PostgreSQL's own
//! programs do it; what was not asked for in clear does not go in clear. Method: psql and a real
//! server with certificates of the test's own authority.
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    reason = "a test that panics has failed"
)]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use strongroom_columns_proxy::proxy::{Address, Config, PlaintextConstants, Proxy, Tls};
use strongroom_columns_proxy::server::{Login, LoginTls, describe};
use strongroom_crypto::SecretBytes;
use strongroom_testing_support::account::give_all;
use strongroom_testing_support::port::free_port;
use strongroom_testing_support::process::checked;
use support::{Server, client, config};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// An authority and certificates of its own, readable for the server.
struct Authority(PathBuf);

impl Authority {
    fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("strongroom-tls-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let authority = Self(directory);
        authority.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority");
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn openssl(&self, args: &str) {
        let mut openssl = Command::new("openssl");
        checked(openssl.args(args.split(' ')).current_dir(&self.0));
    }

    /// A key and a certificate for `localhost` and 127.0.0.1.
    fn certify(&self, name: &str) {
        self.openssl(&format!("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"));
        self.openssl(&format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -copy_extensions copyall"));
    }

    /// Towards applications.
    fn accepting(&self) -> Tls {
        self.certify("proxy");
        Tls::default()
            .accept(&self.path("proxy.pem"), &self.path("proxy.key"))
            .unwrap()
    }

    /// A server with `ssl` on; where it listens.
    fn server(&self, authentication: &str) -> (Server, String) {
        self.certify("server");
        give_all(&self.0);
        let port = free_port();
        let more = format!(
            "-c ssl=on -c ssl_cert_file={0}/server.pem -c ssl_key_file={0}/server.key -c listen_addresses=127.0.0.1 -c port={port}",
            self.0.display()
        );
        let server = Server::start_with(authentication, &more);
        (server, format!("127.0.0.1:{port}"))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A proxy at a TCP port.
fn proxy(server: Address, tls: Tls) -> u16 {
    let config = Config {
        listen: vec![Address::Tcp("127.0.0.1:0".to_owned())],
        tls,
        ..config(server, PlaintextConstants::Refuse)
    };
    let proxy = Proxy::bind(config).unwrap();
    let Some(Address::Tcp(address)) = proxy.addresses().unwrap().pop() else {
        panic!("a TCP address");
    };
    std::thread::spawn(move || proxy.run());
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// psql over TCP with these parameters: what it prints, or what it complains about.
fn psql(port: u16, parameters: &str, sql: &str) -> Result<String, String> {
    let mut command = client("psql", Path::new("127.0.0.1"), port);
    let parameters = format!("host=localhost hostaddr=127.0.0.1 {parameters}");
    command.args([
        "-X",
        "-A",
        "-t",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        &parameters,
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let sql = sql.to_owned();
    let writer = std::thread::spawn(move || drop(input.write_all(sql.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn psql_reaches_the_proxy_through_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Server::start("scram-sha-256");
    let port = proxy(Address::Unix(server.socket()), authority.accepting());
    for mode in ["disable", "prefer", "require"] {
        let answer = psql(port, &format!("sslmode={mode}"), "SELECT 40 + 2");
        assert_eq!(answer.as_deref(), Ok("42"), "{mode}");
    }
    let verified = |of: &Authority| {
        let root = of.path("ca.pem");
        let parameters = format!("sslmode=verify-full sslrootcert={}", root.display());
        psql(port, &parameters, "SELECT 1")
    };
    assert_eq!(verified(&authority).as_deref(), Ok("1"));
    assert!(
        verified(&other)
            .unwrap_err()
            .contains("certificate verify failed")
    );
    // Without a certificate of its own the proxy declines.
    let plain = proxy(Address::Unix(server.socket()), Tls::default());
    assert!(psql(plain, "sslmode=require", "SELECT 1").is_err());
    assert_eq!(
        psql(plain, "sslmode=prefer", "SELECT 1").as_deref(),
        Ok("1")
    );
}

/// Both directions full at once: neither thread may wait for the other one's socket.
#[test]
fn much_goes_both_ways_at_once() {
    let authority = Authority::new();
    let server = Server::start("trust");
    let port = proxy(Address::Unix(server.socket()), authority.accepting());
    let answer = psql(
        port,
        "sslmode=require",
        "SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
    );
    let answer = answer.unwrap();
    assert_eq!(answer.len(), 20_000 * 1001 - 1);
    assert!(answer.bytes().all(|byte| byte == b'x' || byte == b'\n'));
    let mut script = String::from(
        "SET client_min_messages TO notice;
         CREATE TABLE t (a text);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', repeat('y', 2000); RETURN NEW; END $$;
         CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
         COPY t FROM STDIN;\n",
    );
    for _ in 0..10_000 {
        script.push_str(&"z".repeat(2000));
        script.push('\n');
    }
    script.push_str("\\.\nSELECT count(*), sum(length(a)) FROM t;\n");
    let answer = psql(port, "sslmode=require", &script).unwrap();
    assert_eq!(answer, "10000|20000000");
}

#[test]
fn the_proxy_reaches_the_server_through_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (_server, address) = authority.server("scram-sha-256");
    let server = Address::Tcp(address);
    let ask = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let through = |tls: Tls| psql(proxy(server.clone(), tls), "sslmode=disable", ask);
    let ca = authority.path("ca.pem");
    assert_eq!(through(Tls::default()).as_deref(), Ok("f"));
    for (host, ca) in [
        ("localhost", None),
        ("elsewhere", None),
        ("localhost", Some(&ca)),
        ("127.0.0.1", Some(&ca)),
    ] {
        let tls = Tls::default()
            .require(host, ca.map(PathBuf::as_path))
            .unwrap();
        // The server offers SCRAM-SHA-256-PLUS; an application without TLS would not take it for
        // what it is.
        assert_eq!(through(tls).as_deref(), Ok("t"), "{host}");
    }
    for (host, ca) in [("elsewhere", &ca), ("localhost", &other.path("ca.pem"))] {
        let tls = Tls::default().require(host, Some(ca)).unwrap();
        let refused = through(tls).unwrap_err();
        assert!(
            refused.contains("cannot connect to the server"),
            "{host}: {refused}"
        );
    }
    // TLS on both sides: the application has to leave channel binding, which is of one connection.
    let port = proxy(
        server.clone(),
        authority
            .accepting()
            .require("localhost", Some(&ca))
            .unwrap(),
    );
    let parameters = "sslmode=require channel_binding=disable";
    assert_eq!(psql(port, parameters, ask).as_deref(), Ok("t"));
    for parameters in ["sslmode=require", "sslmode=require channel_binding=require"] {
        let refused = psql(port, parameters, ask).unwrap_err();
        assert!(refused.contains("channel binding"), "{refused}");
    }
}

/// The commands that are clients themselves: of a server that takes nothing without TLS, and of a
/// proxy that speaks TLS on both sides.
#[test]
fn commands_log_in_through_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (server, address) = authority.server("scram-sha-256");
    server.only_with_tls();
    let ca = |of: &Authority| LoginTls::Verified(of.path("ca.pem"));
    let asked = |address: &str, tls: LoginTls, is_proxy: bool| {
        let login = Login {
            address: Address::Tcp(address.to_owned()),
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            password: Some(SecretBytes::take(&mut b"secret".to_vec()).unwrap()),
            tls,
        };
        let connected = login.connect(is_proxy).map_err(|error| describe(&error));
        let ask = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        connected.map(|mut client| client.run(ask).unwrap().rows[0][0].clone().unwrap())
    };
    let refused = asked(&address, LoginTls::Off, false).unwrap_err();
    assert!(refused.contains("(SQLSTATE 28000)"), "{refused}");
    let by_name = address.replace("127.0.0.1", "localhost");
    for (address, tls) in [
        (&address, LoginTls::AnyCertificate),
        (&address, ca(&authority)),
        (&by_name, ca(&authority)),
    ] {
        assert_eq!(asked(address, tls, false).as_deref(), Ok("t"), "{address}");
    }
    let refused = asked(&address, ca(&other), false).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    let refused = asked(&address, LoginTls::Verified(other.path("none.pem")), false);
    assert!(refused.unwrap_err().contains("none.pem"));
    let tls = authority.accepting();
    let tls = tls
        .require("localhost", Some(&authority.path("ca.pem")))
        .unwrap();
    let proxy = format!("localhost:{}", proxy(Address::Tcp(address), tls));
    assert_eq!(asked(&proxy, ca(&authority), true).as_deref(), Ok("t"));
    let socket = Login {
        address: Address::Unix(server.socket()),
        user: "postgres".to_owned(),
        database: "postgres".to_owned(),
        password: None,
        tls: ca(&authority),
    };
    let refused = describe(&socket.connect(false).unwrap_err());
    assert!(refused.contains("no TLS over a UNIX socket"), "{refused}");
}

#[test]
fn a_server_without_tls_gets_nothing_in_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"N").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        (request, rest)
    });
    let tls = Tls::default().require("localhost", None).unwrap();
    let port = proxy(Address::Tcp(address), tls);
    let refused = psql(port, "sslmode=disable", "SELECT 1").unwrap_err();
    assert!(refused.contains("does not speak TLS"), "{refused}");
    let (request, rest) = server.join().unwrap();
    assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47]);
    assert_eq!(rest.len(), 0, "nothing more");
}

/// Whoever stands between could put a message of his own behind the request, and have it taken for
/// what came through TLS (CVE-2021-23214).
#[test]
fn bytes_behind_the_request_for_tls_are_refused() {
    let authority = Authority::new();
    let server = Server::start("trust");
    let port = proxy(Address::Unix(server.socket()), authority.accepting());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(&[0, 0, 0, 8, 4, 210, 22, 47, 0, 0, 0, 8])
        .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    assert_eq!(answer.len(), 0, "no TLS begins");
}

#[test]
fn a_statement_is_cancelled_through_both() {
    let authority = Authority::new();
    let (_server, address) = authority.server("trust");
    let tls = authority.accepting().require("localhost", None).unwrap();
    let port = proxy(Address::Tcp(address), tls);
    let began = Instant::now();
    let child = client("psql", Path::new("127.0.0.1"), port)
        .args(["-X", "-c", "SELECT pg_sleep(60)", "-d", "sslmode=require"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("canceling statement"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30));
}
