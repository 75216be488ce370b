//! The provider `kmip` against a `PyKMIP` server.

use crate::support::relay::{Fault, Relay, client_side, server_side};
use crate::support::{Authority, Home, Script, created};

struct Room {
    home: Home,
    server: Script,
    other: Authority,
}

impl Room {
    fn new() -> Self {
        let home = Home::new();
        let authority = Authority::new(&home.path("ca.pem"));
        let directory = home.path("");
        for name in ["server", "client", "stranger"] {
            authority.issue(&directory, name);
        }
        let other = Authority::new(&home.path("other-ca.pem"));
        other.issue(&directory, "foreign");
        let place = home.text("");
        let server = Script::started("kmip_server.py", &[&place], "PyKMIP");
        Self {
            home,
            server,
            other,
        }
    }

    fn provider(&self, port: u16, key: &str) -> String {
        let text = |name: &str| self.home.text(name);
        format!(
            "kmip:127.0.0.1:{port}?{key}&ca={}&certificate={}&private-key={}&timeout=60",
            text("ca.pem"),
            text("client.pem"),
            text("client.key")
        )
    }

    /// A key that is active: its id.
    fn key(&mut self, name: &str) -> String {
        let id = self.server.command(&format!("create {name}"));
        self.server.command(&format!("activate {id}"));
        id
    }
}

#[test]
fn a_key_of_the_server_seals_in_every_way() {
    let mut room = Room::new();
    let port = room.server.port;
    let id = room.key("root");
    for (at, key) in [
        String::from("name=root"),
        format!("id={id}"),
        String::from("name=root&method=gcm"),
        String::from("name=root&method=cbc"),
        String::from("name=root&method=get"),
    ]
    .iter()
    .enumerate()
    {
        let provider = room.provider(port, key);
        room.home.init(&format!("keyring-{at}"), &provider);
        room.home.rotate(None);
        assert_eq!(room.home.with_another_id().0, 2105, "{key}");
    }
    // A key that is not active yet, none of that name, and two of one.
    room.server.command("create idle");
    let refused = |room: &Room, key: &str| created(&room.provider(port, key)).0;
    assert_eq!(refused(&room, "name=idle"), 2104);
    assert_eq!(refused(&room, "name=idle&method=get"), 2104);
    assert_eq!(refused(&room, "name=none"), 2103);
    assert_eq!(refused(&room, "id=99"), 2103);
    // A newer key of the same name: the older one's blob opens, and a new one is made under the
    // newer key.
    let newer = room.key("root");
    room.home.opens();
    assert_eq!(refused(&room, "name=root"), 2103);
    room.server.command(&format!("revoke {id}"));
    assert_eq!(room.home.refused().0, 2104);
    let provider = room.provider(port, "name=root");
    room.home.init("newer", &provider);
    room.server.command(&format!("compromise {newer}"));
    let (code, words) = room.home.refused();
    assert_eq!(code, 2104, "{words}");
    assert!(words.contains("compromised"), "{words}");
    // PyKMIP forgets what it has destroyed.
    room.server.command(&format!("destroy {newer}"));
    assert_eq!(room.home.refused().0, 2103);
}

#[test]
fn who_is_not_known_is_refused_on_either_side() {
    let mut room = Room::new();
    let port = room.server.port;
    room.key("root");
    let provider = room.provider(port, "name=root");
    room.home.init("keyring", &provider);
    for name in ["stranger", "foreign"] {
        let (code, words) = {
            let provider = provider.replace("client.", &format!("{name}."));
            created(&provider)
        };
        assert!([2101, 2102, 2103].contains(&code), "{name}: {words}");
    }
    let (code, words) = room.home.with("client.pem", "stranger.pem");
    assert_eq!(code, 2123, "not the key of the certificate: {words}");
    assert_eq!(room.home.with("ca.pem", "other-ca.pem").0, 2120);
    assert_eq!(room.home.with("client.key", "gone.key").0, 2123);
    room.other.issue(&room.home.path(""), "client");
    let (code, words) = room.home.refused();
    assert!([2101, 2102].contains(&code), "{words}");
    drop(room.server);
    assert_eq!(room.home.refused().0, 2101);
}

#[test]
fn whatever_a_server_does_ends_in_time_and_in_an_error() {
    let mut room = Room::new();
    let directory = room.home.path("");
    let sides = (
        server_side(&directory, "server"),
        client_side(&directory, "client"),
    );
    let relay = Relay::started(room.server.port, sides.0, sides.1);
    room.key("root");
    let provider = room.provider(relay.port, "name=root");
    room.home.init("keyring", &provider);
    for fault in [Fault::Hang, Fault::Slow] {
        relay.set(fault.clone());
        assert_eq!(
            room.home.with("timeout=60", "timeout=1").0,
            2101,
            "{fault:?}"
        );
    }
    for after in [0, 1, 7, 8, 40, 100] {
        relay.set(Fault::Cut(after));
        assert_eq!(room.home.refused().0, 2101, "{after}");
    }
    for at in (0..200).step_by(5) {
        relay.set(Fault::Flip(at));
        // Not every byte of an answer matters: its time, for one.
        if let Err((code, words)) = room.home.tried() {
            assert!(
                [2101, 2102, 2103, 2105, 2122].contains(&code),
                "{at}: {words}"
            );
        }
    }
    let endless = b"\x42\0\x7b\x01\xff\xff\xff\xf0".to_vec();
    let long = b"\x42\0\x7b\x01\0\0\x70\0".to_vec();
    for fault in [
        Fault::Endless(endless),
        Fault::Endless(long),
        Fault::Instead(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        Fault::Instead(b"\x42\0\x7b\x01\0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
        Fault::Instead(b"\x42\0\x7b\x01\0\0\0\0".to_vec()),
    ] {
        relay.set(fault.clone());
        assert_eq!(room.home.refused().0, 2105, "{fault:?}");
    }
    relay.set(Fault::None);
    room.home.opens();
}

/// `PyKMIP` has ciphers that authenticate for ECDSA certificates only. The message has to say that,
/// and nothing of trust.
#[test]
fn with_an_rsa_certificate_the_message_is_about_ciphers() {
    let home = Home::new();
    let openssl = |words: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        let done = command.args(words).current_dir(home.path("")).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{words:?}");
    };
    let make = ["req", "-newkey", "rsa:2048", "-nodes", "-days", "2"];
    let ca = [
        "-x509", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem",
    ];
    openssl(&[&make[..], &ca].concat());
    for name in ["server", "client"] {
        let (subject, key) = (format!("/CN={name}"), format!("{name}.key"));
        let out = [
            "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", &subject,
        ];
        let uses = ["-addext", "extendedKeyUsage=serverAuth,clientAuth"];
        let names = ["-addext", "subjectAltName=IP:127.0.0.1"];
        let is_no_ca = ["-addext", "basicConstraints=critical,CA:FALSE"];
        let pem = format!("{name}.pem");
        let files = ["-keyout", &key, "-out", &pem];
        openssl(&[&make[..], &out, &uses, &names, &is_no_ca, &files].concat());
    }
    let place = home.text("");
    let server = Script::started("kmip_server.py", &[&place], "PyKMIP");
    let text = |name: &str| home.text(name);
    let provider = format!(
        "kmip:127.0.0.1:{}?name=root&ca={}&certificate={}&private-key={}&timeout=60",
        server.port,
        text("ca.pem"),
        text("client.pem"),
        text("client.key")
    );
    let (code, words) = created(&provider);
    assert_eq!(code, 2124, "{words}");
    assert!(
        words.contains("ECDSA") && words.contains("HandshakeFailure"),
        "{words}"
    );
    assert!(!words.contains("trusted"), "{words}");
}
