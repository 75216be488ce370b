//! A node's configuration: what is taken, what is refused, and that a node can be enrolled.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed"
)]

use crate::common;

use std::path::Path;

use common::{Authority, COUNTED, Server, answer, material, node, node_with, put};
use strongroom_crypto::SecretBytes;
use strongroom_keys_client::{Enrolment, Error, Join, Kind, Node, Version, enrol};

fn kind(path: &Path) -> Kind {
    match Node::load(path) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.kind(),
    }
}

#[test]
fn configurations_are_strict() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("keys");
    let at = directory.path();
    let good = node(at, &["https://a:8443", "https://[::1]:1"], &authority, "");
    let loaded = Node::load(&good).unwrap();
    assert_eq!(
        loaded.servers().collect::<Vec<_>>(),
        ["https://a:8443", "https://[::1]:1"]
    );
    assert_eq!(loaded.total_timeout().as_secs(), 60);
    for more in [
        "total_timeout_seconds = 0",
        "request_timeout_seconds = 0",
        "total_timeout_seconds = 86401",
        "total_timeout_seconds = -1",
        "total_timeout_seconds = \"60\"",
        "timeout = 5",
        "insecure = true",
        "servers = []",
        "[tls]\nverify = false",
    ] {
        assert_eq!(
            kind(&node(at, &["https://a"], &authority, more)),
            Kind::Config,
            "{more}"
        );
    }
    for server in ["http://a", "https://u:p@a", "https://a/x", "a:8443", ""] {
        assert_eq!(
            kind(&node(at, &[server], &authority, "")),
            Kind::Config,
            "{server}"
        );
    }
    assert_eq!(kind(&node(at, &[], &authority, "")), Kind::Config);
    assert_eq!(
        kind(&node(at, &["https://a"; 17], &authority, "")),
        Kind::Config
    );
    assert_eq!(kind(&at.join("nothing.toml")), Kind::Config);
    assert_eq!(kind(at), Kind::Config);
}

#[test]
fn files_that_others_may_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("keys");
    let at = directory.path();
    let path = node(at, &["https://a"], &authority, "");
    let set = |name: &str, mode| {
        let text = std::fs::read_to_string(at.join(name)).unwrap();
        put(&at.join(name), &text, mode);
    };
    for (name, bad, fine, expected) in [
        ("node.key", 0o640, 0o600, Kind::NodeFile),
        ("node.key", 0o604, 0o600, Kind::NodeFile),
        ("authority.pem", 0o664, 0o644, Kind::NodeFile),
        ("node.pem", 0o646, 0o644, Kind::NodeFile),
        ("node.toml", 0o666, 0o644, Kind::Config),
    ] {
        set(name, bad);
        assert_eq!(kind(&path), expected, "{name}");
        set(name, fine);
        assert!(Node::load(&path).is_ok(), "{name}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("keys");
    let at = directory.path();
    let path = node(at, &["https://a"], &authority, "");
    let other = authority.client("node-2");
    let key = std::fs::read_to_string(at.join("node.key")).unwrap();
    for (name, text) in [
        ("node.key", other.key.as_str()),
        (
            "node.key",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ),
        ("node.key", ""),
        ("node.pem", "no certificate"),
        ("node.pem", key.as_str()),
        ("authority.pem", ""),
        (
            "authority.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ),
    ] {
        let path = node(at, &["https://a"], &authority, "");
        put(&at.join(name), text, 0o600);
        let error = Node::load(&path).err().unwrap();
        assert_eq!(error.kind(), Kind::NodeFile, "{name}");
        assert!(
            error.detail().contains(&format!("/{name}")) || name != "authority.pem",
            "{error}"
        );
        assert!(!error.to_string().contains("AAAA"), "{error}");
    }
    std::fs::remove_file(at.join("node.key")).unwrap();
    assert_eq!(kind(&path), Kind::NodeFile);
}

/// A server that enrols: it signs what it is sent for the token `good-token`.
fn enrolling(authority: &'static Authority, node: &'static str) -> Server {
    let certificate = authority.server("127.0.0.1");
    Server::start(authority, &certificate, move |request, tls| {
        if request.starts_with("GET /v1/keys/vol/") {
            assert!(tls.conn.peer_certificates().is_some());
            return answer(tls, 200, &material("vol", 1, COUNTED));
        }
        assert!(
            request.starts_with("POST /v1/enroll HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(tls.conn.peer_certificates().is_none());
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        if body["token"] != "good-token" {
            let words = r#"{"error":{"code":"SR-8431","what":"no such token","todo":"ask"}}"#;
            return answer(tls, 403, words);
        }
        let certificate = authority.sign(body["csr"].as_str().unwrap());
        let issued = serde_json::json!({
            "node": node, "role": "node", "certificate": certificate, "authority": "somebody else's",
        });
        answer(tls, 200, &issued.to_string());
    })
}

fn authority() -> &'static Authority {
    Box::leak(Box::new(Authority::new("keys")))
}

#[test]
fn an_enrolled_node_gets_keys() {
    let authority = authority();
    let server = enrolling(authority, "db-7");
    let token = SecretBytes::take(&mut b"good-token\n".to_vec()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut kept = None;
    let enrolment = Enrolment {
        server: &server.url(),
        authority: authority.pem.as_bytes(),
        node: "db-7",
        token: &token,
    };
    let enrolled = enrol::<Error>(&enrolment, |key| {
        assert_eq!(
            server.connections(),
            0,
            "the token was sent before the key was kept"
        );
        kept = Some(key.as_slice().to_vec());
        Ok(())
    })
    .unwrap();
    assert_eq!(enrolled.role, "node");
    assert_eq!(kept.as_deref(), Some(enrolled.key.as_slice()));
    let issued = common::Issued {
        certificate: enrolled.certificate,
        key: String::from_utf8(enrolled.key.as_slice().to_vec()).unwrap(),
    };
    let path = node_with(
        directory.path(),
        &[&enrolled.server],
        &authority.pem,
        &issued,
        "",
    );
    let fetched = Node::load(&path)
        .unwrap()
        .client()
        .material("vol", Version::Latest)
        .unwrap();
    assert_eq!(fetched.version, 1);
}

#[test]
fn enrolments_that_cannot_be_right_fail() {
    let authority = authority();
    let other = Authority::new("keys");
    let server = enrolling(authority, "db-7");
    let url = server.url();
    let token = |text: &str| SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap();
    let (good, wrong) = (token("good-token"), token("wrong-token"));
    let (odd, none) = (token("a\"b"), token("\n"));
    let kind = |server: &str, authority: &str, node: &str, token: &SecretBytes| {
        let enrolment = Enrolment {
            server,
            authority: authority.as_bytes(),
            node,
            token,
        };
        let error = enrol::<Error>(&enrolment, |_| Ok(())).err().unwrap();
        assert!(!error.to_string().contains("-token"), "{error}");
        error.kind()
    };
    assert_eq!(kind(&url, &authority.pem, "db-7", &wrong), Kind::Token);
    assert_eq!(kind(&url, &authority.pem, "db-8", &good), Kind::Malformed);
    assert_eq!(server.connections(), 2);
    assert_eq!(kind(&url, &authority.pem, "db-7", &odd), Kind::Token);
    assert_eq!(kind(&url, &authority.pem, "db-7", &none), Kind::Token);
    assert_eq!(kind(&url, &authority.pem, "db 7", &good), Kind::Refused);
    assert_eq!(kind(&url, "nothing", "db-7", &good), Kind::NodeFile);
    assert_eq!(
        kind("https://a/b", &authority.pem, "db-7", &good),
        Kind::Address
    );
    assert_eq!(server.connections(), 2);
    let seen = server.seen().len();
    assert_eq!(kind(&url, &other.pem, "db-7", &good), Kind::NotTrusted);
    assert_eq!(
        server.seen().len(),
        seen,
        "the token was sent to a server that is not trusted"
    );
    let failed = enrol::<Error>(
        &Enrolment {
            server: &url,
            authority: authority.pem.as_bytes(),
            node: "db-7",
            token: &good,
        },
        |_| Err(Node::load(Path::new("/nonexistent")).err().unwrap()),
    );
    assert_eq!(failed.err().unwrap().kind(), Kind::Config);
    assert_eq!(
        server.seen().len(),
        seen,
        "the token was sent although the key was not kept"
    );
}

/// The private key of a join stays where the server may have made a certificate for it.
#[test]
fn a_join_keeps_the_key_of_a_certificate_that_may_exist() {
    let authority = authority();
    let token = |text: &str| SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap();
    let server = enrolling(authority, "db-7");
    let failing = Server::start(authority, &authority.server("127.0.0.1"), |_, tls| {
        let words = r#"{"error":{"code":"SR-8435","what":"the store","todo":"look"}}"#;
        answer(tls, 503, words);
    });
    let silent = Server::start(authority, &authority.server("127.0.0.1"), |_, tls| {
        answer(tls, 200, "{}");
    });
    for (server, node, text, code, stays) in [
        // The token was used, and the certificate is another node's.
        (&server, "db-8", "good-token", 8404, true),
        (&silent, "db-7", "good-token", 8404, true),
        (&failing, "db-7", "good-token", 8405, true),
        (&server, "db-7", "wrong-token", 8431, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let anchor = directory.path().join("anchor.pem");
        put(&anchor, &authority.pem, 0o644);
        let config = directory.path().join("node.toml");
        let join = Join::prepare(&config, vec![server.url()], &anchor, node.to_owned(), false);
        let error = join.unwrap().enrol(&token(text)).err().unwrap();
        assert_eq!(error.code().number, code, "{error}");
        assert_eq!(
            directory.path().join("node.key").exists(),
            stays,
            "{node}: {error}"
        );
        assert!(!config.exists());
    }
}
