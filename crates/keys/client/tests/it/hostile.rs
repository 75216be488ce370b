//! The client against servers that are dead, slow, foreign, or lie: it ends in time, and hands on
//! nothing false.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed"
)]

use crate::common;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Authority, COUNTED, LONG, Server, answer, material, node, node_with};
use rcgen::ExtendedKeyUsagePurpose;
use strongroom_keys_client::{Client, Kind, Node, Version};
use strongroom_testing_support::port::free_port;

/// Limits of a request and of a call, so short that a test which waits for them is quick.
const SHORT: &str = "request_timeout_seconds = 1\ntotal_timeout_seconds = 1";

/// Limits that a test which ends otherwise never reaches.
const AMPLE: &str = "request_timeout_seconds = 60\ntotal_timeout_seconds = 120";

struct Place {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            authority: Authority::new("keys"),
        }
    }

    fn server(&self, serve: impl Fn(&str, &mut common::Tls) + Send + Sync + 'static) -> Server {
        let certificate = self.authority.server("127.0.0.1");
        Server::start(&self.authority, &certificate, serve)
    }

    fn good(&self) -> Server {
        self.server(|_, tls| answer(tls, 200, &material("vol", 3, COUNTED)))
    }

    fn client(&self, servers: &[&Server], more: &str) -> Client {
        let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
        self.client_of(&urls, more)
    }

    fn client_of(&self, urls: &[String], more: &str) -> Client {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let path = node(self.directory.path(), &urls, &self.authority, more);
        Node::load(&path).unwrap().client()
    }
}

fn fails(client: &Client) -> Kind {
    match client.material("vol", Version::Latest) {
        Ok(_) => panic!("material was handed on"),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(COUNTED) && !text.contains('\n'), "{text}");
            error.kind()
        }
    }
}

#[test]
fn a_good_server_gives_the_material() {
    let place = Place::new();
    let server = place.good();
    let client = place.client(&[&server], AMPLE);
    let fetched = client.material("vol", Version::Number(3)).unwrap();
    let counted: Vec<u8> = (0..32).collect();
    assert_eq!(
        (fetched.version, fetched.material.expose().as_slice()),
        (3, counted.as_slice())
    );
    assert!(server.seen()[0].starts_with("GET /v1/keys/vol/versions/3/material HTTP/1.1\r\n"));
}

#[test]
fn answers_that_lie_are_refused() {
    let place = Place::new();
    for (body, what) in [
        (material("other", 3, COUNTED), "another name"),
        (material("vol", 2, COUNTED), "another version"),
        (material("vol", 3, &COUNTED[4..]), "too short"),
        (material("vol", 3, &format!("AAAA{COUNTED}")), "too long"),
        (
            material("vol", 3, &COUNTED.replace('A', "\\u0041")),
            "escapes",
        ),
        (
            material("vol", 3, COUNTED)[..60].to_owned(),
            "half of the JSON",
        ),
        (material("vol", 3, COUNTED) + "x", "more than the JSON"),
        (
            String::from("<html>welcome to the hotel</html>"),
            "another sort of server",
        ),
        (String::new(), "nothing"),
        (
            format!("{}{}", " ".repeat(5000), material("vol", 3, COUNTED)),
            "oversized",
        ),
    ] {
        let server = place.server(move |_, tls| answer(tls, 200, &body));
        let client = place.client(&[&server], AMPLE);
        match client.material("vol", Version::Number(3)) {
            Ok(_) => panic!("{what}: handed on"),
            Err(error) => assert_eq!(error.kind(), Kind::Malformed, "{what}: {error}"),
        }
        assert_eq!(server.connections(), 1, "{what}: asked again");
    }
}

#[test]
fn an_answer_that_never_ends_is_given_up() {
    let place = Place::new();
    let server = place.server(|_, tls| {
        let piece = [b' '; 65_536];
        drop(tls.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"));
        while tls.write_all(b"10000\r\n").is_ok() && tls.write_all(&piece).is_ok() {
            if tls.write_all(b"\r\n").is_err() {
                return;
            }
        }
    });
    assert_eq!(fails(&place.client(&[&server], AMPLE)), Kind::Malformed);
    let server = place.server(|_, tls| {
        drop(tls.write_all(b"HTTP/1.1 200 OK\r\n"));
        while tls
            .write_all(b"x-filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
            .is_ok()
        {}
    });
    assert_eq!(fails(&place.client(&[&server], AMPLE)), Kind::Malformed);
}

#[test]
fn redirects_are_not_followed() {
    let place = Place::new();
    let elsewhere = place.good();
    let target = elsewhere.url();
    let server = place.server(move |_, tls| {
        let text = format!(
            "HTTP/1.1 307 x\r\nlocation: {target}/v1/keys/vol\r\ncontent-length: 0\r\n\r\n"
        );
        drop(tls.write_all(text.as_bytes()));
    });
    assert_eq!(fails(&place.client(&[&server], AMPLE)), Kind::Malformed);
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn foreign_servers_are_not_believed() {
    let place = Place::new();
    let foreign = Authority::new("keys");
    let server_auth = ExtendedKeyUsagePurpose::ServerAuth;
    for (certificate, what) in [
        (
            foreign.server("127.0.0.1"),
            "another authority of the same name",
        ),
        (place.authority.server("other.example"), "another host's"),
        (place.authority.client("127.0.0.1"), "a node's certificate"),
        (place.authority.expired("127.0.0.1", server_auth), "expired"),
    ] {
        let server = Server::start(&place.authority, &certificate, |_, tls| {
            answer(tls, 200, &material("vol", 3, COUNTED));
        });
        assert_eq!(
            fails(&place.client(&[&server], AMPLE)),
            Kind::NotTrusted,
            "{what}"
        );
        assert!(server.seen().is_empty(), "{what}: a request was sent to it");
    }
    let plain = Server::raw(|mut socket, _| {
        drop(socket.read(&mut [0; 1024]));
        drop(socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    });
    assert_eq!(fails(&place.client(&[&plain], AMPLE)), Kind::NotTrusted);
}

#[test]
fn a_certificate_that_is_not_accepted_is_told_so() {
    let place = Place::new();
    let server = place.good();
    let (foreign, client_auth) = (Authority::new("other"), ExtendedKeyUsagePurpose::ClientAuth);
    for issued in [
        foreign.client("node-1"),
        place.authority.expired("node-1", client_auth),
    ] {
        let path = node_with(
            place.directory.path(),
            &[&server.url()],
            &place.authority.pem,
            &issued,
            AMPLE,
        );
        let client = Node::load(&path).unwrap().client();
        assert_eq!(fails(&client), Kind::NotAccepted);
    }
    assert!(server.seen().is_empty());
}

#[test]
fn silence_and_dripping_end_in_time() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let started = Instant::now();
    assert_eq!(fails(&place.client_of(&[url], SHORT)), Kind::Unreachable);
    // A byte at a time: each read gets something, the whole never comes.
    let dripping = place.server(|_, tls| {
        drop(tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"));
        while tls.write_all(b" ").is_ok() && tls.flush().is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(fails(&place.client(&[&dripping], SHORT)), Kind::Unreachable);
    let dripping = Server::raw(|mut socket, _| {
        while socket.write_all(&[22]).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let kind = fails(&place.client(&[&dripping], SHORT));
    assert!(
        matches!(kind, Kind::Unreachable | Kind::NotTrusted),
        "{kind:?}"
    );
    assert!(started.elapsed() < LONG);
}

/// Somebody who waits for the answer is told at once that nobody listens; a unit waits, since a
/// server may start later than its nodes. One server of several that may yet answer is waited for.
#[test]
fn where_nobody_listens_a_person_is_told_and_a_unit_waits() {
    let place = Place::new();
    // The first port, at which nothing listens, and a name that no name server is asked for: a part
    // of it is too long.
    let dead = [
        String::from("https://127.0.0.1:1"),
        format!("https://{}:8443", "a".repeat(64)),
    ];
    let started = Instant::now();
    let person = place.client_of(&dead, "").not_waiting();
    assert_eq!(fails(&person), Kind::Absent);
    assert!(started.elapsed() < Duration::from_secs(40));
    assert_eq!(
        fails(&place.client_of(&dead[..1], SHORT)),
        Kind::Unreachable
    );
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}", silent.local_addr().unwrap());
    let mixed = [dead[0].clone(), silent];
    let person = place.client_of(&mixed, SHORT).not_waiting();
    assert_eq!(fails(&person), Kind::Unreachable);
}

#[test]
fn a_connection_that_breaks_is_tried_again() {
    let place = Place::new();
    let count = AtomicUsize::new(0);
    let server = place.server(move |_, tls| {
        let whole = material("vol", 3, COUNTED);
        if count.fetch_add(1, Ordering::SeqCst) < 2 {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", whole.len());
            drop(tls.write_all(text.as_bytes()));
            drop(tls.write_all(&whole.as_bytes()[..whole.len() / 2]));
            drop(tls.flush());
            drop(tls.sock.shutdown(std::net::Shutdown::Both));
            return;
        }
        answer(tls, 200, &whole);
    });
    let fetched = place
        .client(&[&server], AMPLE)
        .material("vol", Version::Latest)
        .unwrap();
    assert_eq!(fetched.version, 3);
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn the_next_server_is_asked_when_one_is_dead_foreign_or_sealed() {
    let place = Place::new();
    let dead = format!("https://127.0.0.1:{}", free_port());
    let sealed = place.server(|_, tls| {
        answer(
            tls,
            503,
            r#"{"error":{"code":"SR-8428","what":"sealed","todo":"wait"}}"#,
        );
    });
    let foreign = Server::start(
        &place.authority,
        &Authority::new("x").server("127.0.0.1"),
        |_, _| (),
    );
    let good = place.good();
    let urls = [dead.clone(), sealed.url(), foreign.url(), good.url()];
    let fetched = place
        .client_of(&urls, AMPLE)
        .material("vol", Version::Latest)
        .unwrap();
    assert_eq!(fetched.version, 3);
    assert_eq!(
        (
            sealed.connections(),
            foreign.connections(),
            good.connections()
        ),
        (1, 1, 1)
    );

    let client = place.client_of(&[dead, sealed.url()], SHORT);
    let error = client.material("vol", Version::Latest).err().unwrap();
    assert_eq!(error.kind(), Kind::Sealed, "{error}");
}

#[test]
fn what_a_trusted_server_decides_is_final() {
    let place = Place::new();
    let other = place.good();
    for (status, kind) in [
        (400, Kind::Refused),
        (401, Kind::Denied),
        (403, Kind::Denied),
        (404, Kind::NotFound),
        (409, Kind::Refused),
        (410, Kind::Destroyed),
        (423, Kind::Disabled),
    ] {
        let server = place.server(move |_, tls| {
            let words = r#"{"error":{"code":"SR-8499","what":"be\u001b[2Jgone","todo":"go"}}"#;
            answer(tls, status, words);
        });
        let client = place.client(&[&server, &other], AMPLE);
        assert_eq!(fails(&client), kind);
        assert_eq!(server.connections(), 1);
        let error = client.material("vol", Version::Latest).err().unwrap();
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
    // Conflicts have one status, and only one of them is about a name that is taken.
    for (code, kind) in [
        ("SR-8424", Kind::Exists),
        ("SR-8439", Kind::Refused),
        ("SR-8441", Kind::Refused),
        ("SR-8456", Kind::Refused),
        ("SR-8458", Kind::Refused),
    ] {
        let server = place.server(move |_, tls| {
            let words = format!(r#"{{"error":{{"code":"{code}","what":"no","todo":"go"}}}}"#);
            answer(tls, 409, &words);
        });
        let client = place.client(&[&server, &other], AMPLE);
        let error = client.create("vol").unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(format!("SR-{}", error.code().number), code);
    }
    assert_eq!(other.connections(), 0);
    // The same status from something that is no key server decides nothing.
    let proxy = place.server(|_, tls| answer(tls, 404, "<h1>no such page</h1>"));
    let fetched = place
        .client(&[&proxy, &other], AMPLE)
        .material("vol", Version::Latest)
        .unwrap();
    assert_eq!(fetched.version, 3);
}

#[test]
fn a_busy_server_is_waited_for() {
    let place = Place::new();
    let count = AtomicUsize::new(0);
    let server = place.server(move |_, tls| match count.fetch_add(1, Ordering::SeqCst) {
        0 => drop(tls.write_all(b"HTTP/1.1 429 x\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")),
        1 => drop(tls.write_all(b"HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n")),
        _ => answer(tls, 200, &material("vol", 3, COUNTED)),
    });
    let started = Instant::now();
    let fetched = place
        .client(&[&server], AMPLE)
        .material("vol", Version::Latest)
        .unwrap();
    assert_eq!((fetched.version, server.connections()), (3, 3));
    assert!(
        started.elapsed() >= Duration::from_secs(1),
        "it did not wait as it was told"
    );
}

#[test]
fn a_change_that_may_have_been_made_is_not_asked_for_again() {
    let place = Place::new();
    let server = place.server(|_, tls| drop(tls.sock.shutdown(std::net::Shutdown::Both)));
    let other = place.server(|_, tls| answer(tls, 201, r#"{"name":"vol","version":1}"#));
    let client = place.client(&[&server, &other], AMPLE);
    assert_eq!(client.create("vol").unwrap_err().kind(), Kind::Uncertain);
    assert_eq!(client.rotate("vol").unwrap_err().kind(), Kind::Uncertain);
    assert_eq!((server.seen().len(), other.connections()), (2, 0));
    // Where nothing was sent, the next server is asked.
    let dead = format!("https://127.0.0.1:{}", free_port());
    assert_eq!(
        place
            .client_of(&[dead, other.url()], AMPLE)
            .create("vol")
            .unwrap(),
        1
    );
    // A server that fails may have made the change; one that is sealed or busy, or whose record
    // others changed first, has not.
    for (status, code, asked_again) in [
        (500, "SR-9001", false),
        (503, "SR-8435", false),
        (408, "SR-8438", false),
        (503, "SR-8428", true),
        (429, "SR-8427", true),
        (503, "SR-8442", true),
    ] {
        let failing = place.server(move |_, tls| {
            let words = format!(r#"{{"error":{{"code":"{code}","what":"no","todo":"go"}}}}"#);
            answer(tls, status, &words);
        });
        let other = place.server(|_, tls| answer(tls, 201, r#"{"name":"vol","version":1}"#));
        match place.client(&[&failing, &other], AMPLE).create("vol") {
            Ok(version) => assert!(asked_again && version == 1, "{code}"),
            Err(error) => {
                assert!(!asked_again, "{code}: {error}");
                assert_eq!(error.kind(), Kind::Uncertain, "{error}");
                assert!(error.detail().contains(code), "{error}");
            }
        }
        assert_eq!(other.connections(), usize::from(asked_again), "{code}");
    }
    // What may be asked twice is.
    let client = place.client(&[&server, &other], AMPLE);
    client.put_escrow(&[7; 16], b"sealed").unwrap();
    let request = &other.seen()[1];
    assert!(request.starts_with("PUT /v1/escrow/07070707070707070707070707070707 HTTP/1.1\r\n"));
    assert!(request.ends_with("\r\n\r\nsealed"), "{request}");
}

#[test]
fn names_never_reach_the_path_unchecked() {
    let place = Place::new();
    let server = place.good();
    let client = place.client(&[&server], AMPLE);
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "../vol",
        "vol?x",
        "vol\r\nhost: x",
        "v%6fl",
    ] {
        let error = client.material(name, Version::Latest).err().unwrap();
        assert_eq!(error.kind(), Kind::Refused, "{name}");
    }
    for path in [
        "/v2/x",
        "/v1/../x",
        "/v1/x y",
        "/v1/x\r\n",
        "//h/v1/",
        "/v1/x#y",
    ] {
        let called = client.call(&ureq::http::Method::GET, path, None, true);
        assert_eq!(called.unwrap_err().kind(), Kind::Refused, "{path}");
    }
    assert_eq!(server.connections(), 0);
}
