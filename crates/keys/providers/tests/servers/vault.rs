//! The provider `vault` against a transit engine: one in this process that answers as `OpenBao`
//! does, and a real one where the command `bao` or `vault` is installed.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use strongroom_testing_support::port::free_port;

use crate::support::http::{Asked, answer, request, served};
use crate::support::relay::{Fault, Relay, Side, server_side};
use crate::support::{Authority, Home, created, fetched, put};

/// What must be in no error.
const TOKEN: &str = "hvs.CANARY-token";
const ROLE: &str = r#"{"role_id": "CANARY-role", "secret_id": "CANARY-secret"}"#;

/// A transit engine with one key, `root`. It keeps what it was given instead of encrypting it.
struct Engine {
    version: usize,
    oldest: usize,
    derived: bool,
    exists: bool,
    unsealed: bool,
    namespace: Option<&'static str>,
    /// Member, context, plaintext.
    kept: Vec<(&'static str, String, String)>,
}

type Shared = Arc<Mutex<Engine>>;

fn engine() -> (Shared, u16) {
    let engine = Arc::new(Mutex::new(Engine {
        version: 1,
        oldest: 1,
        derived: false,
        exists: true,
        unsealed: true,
        namespace: None,
        kept: Vec::new(),
    }));
    let shared = Arc::clone(&engine);
    let port = served(move |asked| shared.lock().unwrap().answer(asked));
    (engine, port)
}

fn errors(status: u16, words: &[&str]) -> (u16, String) {
    (status, json!({"errors": words}).to_string())
}

/// A success as the server wraps it.
fn told(data: &serde_json::Value) -> (u16, String) {
    let told = json!({
        "request_id": "00000000-0000-0000-0000-000000000000", "lease_id": "", "renewable": false,
        "lease_duration": 0, "data": data, "wrap_info": null, "warnings": null, "auth": null
    });
    (200, told.to_string())
}

impl Engine {
    fn answer(&mut self, asked: &Asked) -> (u16, String) {
        if !self.unsealed {
            return errors(503, &["Vault is sealed"]);
        }
        if asked.header("x-vault-namespace") != self.namespace {
            return errors(404, &["no handler for route"]);
        }
        if asked.path == "/v1/auth/approle/login" {
            let role = asked.json();
            let good = role["role_id"] == "CANARY-role" && role["secret_id"] == "CANARY-secret";
            return match good {
                true => (
                    200,
                    json!({"auth": {"client_token": TOKEN}, "data": null}).to_string(),
                ),
                false => errors(400, &["invalid role or secret ID: CANARY"]),
            };
        }
        if asked.header("x-vault-token") != Some(TOKEN) {
            return errors(403, &["permission denied: CANARY"]);
        }
        match (asked.method.as_str(), asked.path.as_str(), self.exists) {
            ("GET", "/v1/transit/keys/root", true) => {
                let latest = self.version;
                told(
                    &json!({"type": "aes256-gcm96", "derived": self.derived, "latest_version": latest}),
                )
            }
            ("GET", _, _) => errors(404, &[]),
            ("POST", "/v1/transit/encrypt/root", _) => self.encrypt(asked),
            ("POST", "/v1/transit/decrypt/root", true) => self.decrypt(asked),
            ("POST", "/v1/transit/decrypt/root", false) => {
                errors(400, &["encryption key not found"])
            }
            _ => errors(404, &["unsupported path"]),
        }
    }

    fn member(&self) -> &'static str {
        if self.derived {
            "context"
        } else {
            "associated_data"
        }
    }

    fn encrypt(&mut self, asked: &Asked) -> (u16, String) {
        let (body, member) = (asked.json(), self.member());
        let Some(bound) = body[member].as_str() else {
            return errors(400, &["missing 'context' for key derivation"]);
        };
        let plaintext = body["plaintext"].as_str().unwrap();
        self.kept
            .push((member, bound.to_owned(), plaintext.to_owned()));
        let ciphertext = format!("vault:v{}:{:08}", self.version, self.kept.len() - 1);
        told(&json!({"ciphertext": ciphertext, "key_version": self.version}))
    }

    fn decrypt(&mut self, asked: &Asked) -> (u16, String) {
        let body = asked.json();
        let mut parts = body["ciphertext"].as_str().unwrap().split(':').skip(1);
        let version: usize = parts.next().unwrap()[1..].parse().unwrap();
        let kept = self
            .kept
            .get(parts.next().unwrap().parse::<usize>().unwrap());
        let kept = kept.filter(|(member, bound, _)| body[*member] == **bound);
        match kept {
            _ if version < self.oldest => errors(
                400,
                &["ciphertext or signature version is disallowed by policy (too old)"],
            ),
            Some((_, _, plaintext)) => told(&json!({"plaintext": plaintext})),
            None => errors(400, &["cipher: message authentication failed"]),
        }
    }
}

fn provider(home: &Home, port: u16, more: &str) -> String {
    put(&home.path("token"), format!("{TOKEN}\n").as_bytes());
    let token = home.text("token");
    format!("vault:http://127.0.0.1:{port}?key=root&token-file={token}&timeout=60{more}")
}

#[test]
fn a_key_of_the_engine_seals_and_each_of_its_states_is_told() {
    let mut home = Home::new();
    let (engine, port) = engine();
    home.init("keyring", &provider(&home, port, ""));
    assert_eq!(home.with_another_id().0, 2105);
    let code = |home: &Home| {
        let (code, words) = home.refused();
        assert!(!words.contains("CANARY"), "{words}");
        code
    };
    // A newer version of the key: the older one opens, until the engine says otherwise.
    engine.lock().unwrap().version = 2;
    home.opens();
    engine.lock().unwrap().oldest = 2;
    assert_eq!(code(&home), 2104);
    engine.lock().unwrap().oldest = 1;
    home.rotate(None);
    engine.lock().unwrap().oldest = 2;
    home.opens();
    // Sealed, gone, not permitted.
    engine.lock().unwrap().unsealed = false;
    assert_eq!(code(&home), 2122);
    engine.lock().unwrap().unsealed = true;
    engine.lock().unwrap().exists = false;
    assert_eq!(code(&home), 2103);
    assert_eq!(created(&provider(&home, port, "")).0, 2103);
    engine.lock().unwrap().exists = true;
    put(&home.path("token"), b"hvs.CANARY-other");
    assert_eq!(code(&home), 2102);
    put(&home.path("token"), b"two words of CANARY");
    assert_eq!(code(&home), 2123);
    drop(provider(&home, port, ""));
    home.opens();
    // What came back is not what was sealed.
    for kept in &mut engine.lock().unwrap().kept {
        kept.2 = format!("{}=", "A".repeat(43));
    }
    assert_eq!(code(&home), 2105);
    // What is kept was moved: the engine and the check value both see it.
    for kept in &mut engine.lock().unwrap().kept {
        kept.1 = String::from("AAAA");
    }
    assert_eq!(code(&home), 2105);
}

#[test]
fn derived_keys_namespaces_and_roles_are_known() {
    let mut home = Home::new();
    let (engine, port) = engine();
    engine.lock().unwrap().derived = true;
    home.init("derived", &provider(&home, port, ""));
    engine.lock().unwrap().namespace = Some("team/a");
    assert_eq!(created(&provider(&home, port, "")).0, 2103);
    home.init("namespace", &provider(&home, port, "&namespace=team/a"));
    put(&home.path("role"), ROLE.as_bytes());
    let (token, role) = (home.text("token"), home.text("role"));
    let by_role = provider(&home, port, "&namespace=team/a");
    let by_role = by_role.replace(
        &format!("token-file={token}"),
        &format!("approle-file={role}"),
    );
    home.init("by-role", &by_role);
    put(
        &home.path("role"),
        ROLE.replace("CANARY-secret", "CANARY-wrong").as_bytes(),
    );
    let (code, words) = home.refused();
    assert!(code == 2102 && !words.contains("CANARY"), "{words}");
    put(&home.path("role"), b"CANARY is no JSON");
    let (code, words) = home.refused();
    assert!(code == 2123 && !words.contains("CANARY"), "{words}");
    let unset = by_role.replace(
        &format!("approle-file={role}"),
        "token-env=STRONGROOM_TEST_NOT_SET",
    );
    assert_eq!(created(&unset).0, 2123);
    assert!(fetched(&unset).is_err(), "nothing was wrapped");
}

#[test]
fn whatever_a_server_does_ends_in_time_and_in_an_error() {
    let mut home = Home::new();
    let authority = Authority::new(&home.path("ca.pem"));
    authority.issue(&home.path(""), "server");
    let (_engine, port) = engine();
    let relay = Relay::started(port, server_side(&home.path(""), "server"), Side::Plain);
    let ca = format!("&ca={}", home.text("ca.pem"));
    let text = provider(&home, relay.port, &ca).replace("http://", "https://");
    home.init("keyring", &text);
    for fault in [Fault::Hang, Fault::Slow] {
        relay.set(fault.clone());
        assert_eq!(home.with("timeout=60", "timeout=1").0, 2101, "{fault:?}");
    }
    for after in [0, 1, 20, 100, 200] {
        relay.set(Fault::Cut(after));
        let (code, words) = home.refused();
        assert!([2101, 2105].contains(&code), "{after}: {words}");
    }
    for at in (0..400).step_by(7) {
        relay.set(Fault::Flip(at));
        // Not every byte of an answer matters.
        if let Err((code, words)) = home.tried() {
            assert!(
                [2101, 2102, 2103, 2105, 2122].contains(&code),
                "{at}: {words}"
            );
            assert!(!words.contains("CANARY"), "{words}");
        }
    }
    let wrong = [
        Fault::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        Fault::Endless(b"HTTP/1.1 200 OK\r\nX: ".to_vec()),
        Fault::Instead(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()),
        Fault::Instead(answer(200, "{}")),
        Fault::Instead(answer(200, "[CANARY")),
        Fault::Instead(answer(200, r#"{"data":{"plaintext":"CANARY"}}"#)),
        Fault::Instead(answer(418, "CANARY")),
        Fault::Instead(
            b"HTTP/1.1 307 Elsewhere\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
    ];
    for fault in wrong {
        relay.set(fault.clone());
        let (code, words) = home.refused();
        assert_eq!(code, 2105, "{fault:?}: {words}");
        assert!(!words.contains("CANARY"), "{words}");
    }
    relay.set(Fault::None);
    home.opens();
    // Another authority, no TLS, nobody.
    drop(Authority::new(&home.path("other.pem")));
    assert_eq!(home.with("ca.pem", "other.pem").0, 2120);
    // A server without TLS waits for the end of what it takes for a question.
    let here = format!("127.0.0.1:{}", relay.port);
    let (code, words) = home.changed(|argument| {
        let argument = argument.replacen(&here, &format!("127.0.0.1:{port}"), 1);
        argument.replacen("timeout=60", "timeout=1", 1)
    });
    assert_eq!(code, 2101, "{words}");
    assert_eq!(home.with(&here, "127.0.0.1:1").0, 2101);
    assert_eq!(home.with("127.0.0.1", "name.invalid").0, 2101);
}

/// A real server in its memory; ends with the test.
struct Real(Child);

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_real_engine_where_one_is_installed() {
    let found = ["bao", "vault"].into_iter().find(|name| {
        let version = Command::new(name)
            .arg("version")
            .stdout(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    });
    let Some(program) = found else {
        eprintln!("not tested: neither `bao` nor `vault` is installed");
        return;
    };
    let port = free_port();
    let mut home = Home::new();
    let server = Command::new(program)
        .args([
            "server",
            "-dev",
            "-dev-no-store-token",
            "-dev-root-token-id",
            TOKEN,
        ])
        .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
        .env("HOME", home.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Real(server);
    let begin = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(50));
    }
    let token = [("X-Vault-Token", TOKEN)];
    let ask = |path: &str, body: &str| request(port, path, &token, body);
    while ask("/v1/sys/mounts/transit", r#"{"type":"transit"}"#).0 != 204 {
        assert!(begin.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(50));
    }
    ask("/v1/transit/keys/root", "{}");
    home.init("keyring", &provider(&home, port, ""));
    ask("/v1/transit/keys/root/rotate", "{}");
    home.opens();
    home.rotate(None);
    ask(
        "/v1/transit/keys/root/config",
        r#"{"min_decryption_version":2}"#,
    );
    home.opens();
    put(&home.path("token"), b"hvs.CANARY-other");
    assert_eq!(home.refused().0, 2102);
}
