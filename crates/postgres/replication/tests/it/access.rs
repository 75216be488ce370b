//! Goal: only the right server is spoken to, only the right client is let in, and no password goes
//! where it can be heard.
//! Method: a real server with TLS and every method of authentication; certificates by openssl(1),
//! good and wrong ones.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use strongroom_postgres_replication::{BackupOptions, Connection, Error};
use strongroom_testing_support::postgres as support;
use strongroom_testing_support::postgres::{
    Room, Server, checked, config, give, installed, take, verify,
};

/// What a certificate is like.
struct Made<'a> {
    name: &'a str,
    /// `DNS:localhost`, say.
    names: &'a str,
    /// The name of the authority; `None`: itself, and calls itself one, as `openssl req -x509`
    /// does.
    authority: Option<&'a str>,
    key: &'a str,
    hash: &'a str,
}

/// A key and a certificate in the room.
fn make(room: &Room, made: &Made<'_>) {
    let path = |kind: &str| room.at(&format!("{}.{kind}", made.name));
    let mut request = Command::new("openssl");
    request.args(["req", "-new", "-nodes", "-newkey"]);
    match made.key {
        "rsa" => request.arg("rsa:2048"),
        "ed25519" => request.arg("ed25519"),
        _ => request.args(["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]),
    };
    request
        .args(["-subj", &format!("/CN={}", made.name), "-keyout"])
        .arg(path("key"));
    if !made.hash.is_empty() {
        request.arg(format!("-{}", made.hash));
    }
    if !made.names.is_empty() {
        request.args(["-addext", &format!("subjectAltName={}", made.names)]);
    }
    match made.authority {
        None => {
            request
                .args(["-x509", "-days", "30", "-out"])
                .arg(path("crt"));
            checked(&mut request);
        }
        Some(authority) => {
            checked(request.arg("-out").arg(path("csr")));
            let mut sign = Command::new("openssl");
            sign.args([
                "x509",
                "-req",
                "-copy_extensions",
                "copy",
                "-CAcreateserial",
                "-in",
            ]);
            sign.arg(path("csr"))
                .arg("-CA")
                .arg(room.at(&format!("{authority}.crt")));
            sign.arg("-CAkey").arg(room.at(&format!("{authority}.key")));
            sign.args(["-days", "30", &format!("-{}", made.hash), "-out"]);
            checked(sign.arg(path("crt")));
        }
    }
    give(&path("key"), 0o600);
    give(&path("crt"), 0o644);
}

const AUTHORITY: Made<'_> = Made {
    name: "authority",
    names: "",
    authority: None,
    key: "rsa",
    hash: "sha256",
};

/// A self-signed certificate of the year 2020, with its key.
fn make_expired(room: &Room, name: &str) {
    let path = |kind: &str| room.at(&format!("{name}.{kind}"));
    let settings = format!(
        "[ca]\ndefault_ca = own\n[own]\ndatabase = {0}\nrand_serial = yes\ndefault_md = sha256\n\
         policy = any\nnew_certs_dir = {1}\nx509_extensions = names\n[any]\ncommonName = supplied\n\
         [names]\nsubjectAltName = DNS:localhost\n",
        path("list").display(),
        room.at("").display(),
    );
    support::put(&path("cnf"), settings.as_bytes());
    support::put(&path("list"), b"");
    let mut request = Command::new("openssl");
    request.args([
        "req", "-new", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=old", "-keyout",
    ]);
    checked(request.arg(path("key")).arg("-out").arg(path("csr")));
    let mut sign = Command::new("openssl");
    sign.args([
        "ca",
        "-batch",
        "-notext",
        "-selfsign",
        "-startdate",
        "20200101000000Z",
    ]);
    sign.args(["-enddate", "20210101000000Z", "-config"])
        .arg(path("cnf"));
    sign.arg("-keyfile")
        .arg(path("key"))
        .arg("-in")
        .arg(path("csr"));
    checked(sign.arg("-out").arg(path("crt")));
    give(&path("key"), 0o600);
    give(&path("crt"), 0o644);
}

/// A server with a role for each method, whose certificate is the one of this name.
fn served<'a>(room: &'a Room, certificate: &str) -> Server<'a> {
    let server = Server::make(
        room,
        &installed(),
        "password_encryption = 'scram-sha-256'\n",
    );
    let file = |name: &str| room.at(name).display().to_string();
    server.configure(&format!(
        "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\nssl_ca_file = '{}'\n",
        file(&format!("{certificate}.crt")),
        file(&format!("{certificate}.key")),
        file("authority.crt"),
    ));
    let rules = "local all postgres trust\nlocal replication postgres trust\n\
         local replication clear password\nlocal replication old md5\n\
         hostssl replication tls_only 127.0.0.1/32 scram-sha-256\n\
         host replication scram 127.0.0.1/32 scram-sha-256\n\
         host replication clear 127.0.0.1/32 password\nhost replication old 127.0.0.1/32 md5\n\
         hostssl replication certified 127.0.0.1/32 cert\n";
    support::put(&server.data.join("pg_hba.conf"), rules.as_bytes());
    server.start();
    server.sql(
        "CREATE ROLE tls_only LOGIN REPLICATION PASSWORD 'geh eim'; \
         CREATE ROLE scram LOGIN REPLICATION PASSWORD 'geh eim'; \
         CREATE ROLE clear LOGIN REPLICATION PASSWORD 'geh eim'; \
         CREATE ROLE certified LOGIN REPLICATION; SET password_encryption = 'md5'; \
         CREATE ROLE old LOGIN REPLICATION PASSWORD 'geh eim'",
    );
    server
}

/// Connects over TCP with the password unless the settings have one.
fn open(server: &Server<'_>, settings: &str) -> Result<Connection, Error> {
    let text = format!(
        "host=localhost hostaddr=127.0.0.1 port={} password='geh eim' {settings}",
        server.port
    );
    Connection::open(&config(&text)?)
}

fn root(room: &Room, name: &str) -> String {
    format!("sslrootcert={}", room.at(&format!("{name}.crt")).display())
}

#[track_caller]
fn is_tls(result: Result<Connection, Error>) -> String {
    match result {
        Err(Error::Tls(text)) => text,
        other => unreachable!("{other:?}"),
    }
}

#[track_caller]
fn is_authentication(result: Result<Connection, Error>) -> String {
    match result {
        Err(Error::Authentication(error)) => {
            let text = error.to_string();
            assert!(!text.contains("geh eim") && !text.contains("wrong pw"));
            text
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn certificates_are_checked_as_far_as_was_asked_for() {
    let room = Room::new();
    make(&room, &AUTHORITY);
    make(
        &room,
        &Made {
            name: "stranger",
            ..AUTHORITY
        },
    );
    let signed = Made {
        name: "server",
        names: "DNS:localhost,IP:127.0.0.1",
        authority: Some("authority"),
        ..AUTHORITY
    };
    make(&room, &signed);
    let server = served(&room, "server");
    let (good, bad) = (root(&room, "authority"), root(&room, "stranger"));
    let user = "user=tls_only";
    for settings in [
        String::from("sslmode=prefer"),
        String::from("sslmode=require"),
        format!("sslmode=require {good}"),
        format!("sslmode=verify-ca {good}"),
        format!("sslmode=verify-full {good}"),
        format!("sslmode=verify-full {good} ssl_min_protocol_version=TLSv1.3"),
        format!("sslmode=verify-full {good} channel_binding=require"),
        format!("sslmode=verify-full host=127.0.0.1 {good}"),
        format!("sslmode=verify-ca host=elsewhere.example {good}"),
        String::from("sslmode=require host=elsewhere.example channel_binding=disable"),
    ] {
        let mut connection = open(&server, &format!("{user} {settings}")).unwrap();
        assert!(connection.is_tls(), "{settings}");
        connection.identify_system().unwrap();
    }
    let full = is_tls(open(
        &server,
        &format!("{user} sslmode=verify-full host=elsewhere.example {good}"),
    ));
    assert!(full.contains("elsewhere.example"), "{full}");
    is_tls(open(&server, &format!("{user} sslmode=verify-full {bad}")));
    is_tls(open(&server, &format!("{user} sslmode=verify-ca {bad}")));
    is_tls(open(&server, &format!("{user} sslmode=require {bad}")));
    let nothing = open(
        &server,
        &format!("{user} sslmode=verify-full sslrootcert=/nowhere"),
    );
    assert!(matches!(nothing, Err(Error::Config(_))), "{nothing:?}");
    // Without TLS there is no rule that lets this user in.
    let plain = is_authentication(open(&server, &format!("{user} sslmode=disable")));
    assert!(plain.contains("28000"), "{plain}");

    // A whole backup through TLS.
    let mut connection = open(&server, &format!("{user} sslmode=verify-full {good}")).unwrap();
    let options = BackupOptions {
        wal: true,
        ..BackupOptions::default()
    };
    let into = room.directory("archives");
    let taken = take(&mut connection, &options, &into).unwrap();
    let data = room.at("restored");
    support::unpack(&room, &into, &taken, &data);
    verify(&server, &data);
}

/// A server and a client with certificates of one authority, and the settings to trust it.
fn signed_server(room: &Room) -> (Server<'_>, String) {
    make(room, &AUTHORITY);
    let signed = |name| Made {
        name,
        names: "DNS:localhost",
        authority: Some("authority"),
        key: "ec",
        ..AUTHORITY
    };
    make(room, &signed("server"));
    make(room, &signed("certified"));
    let secured = format!("sslmode=verify-full {}", root(room, "authority"));
    (served(room, "server"), secured)
}

#[test]
fn the_client_is_who_it_says_it_is() {
    let room = Room::new();
    let (server, secured) = signed_server(&room);
    let wrong = is_authentication(open(
        &server,
        &format!("user=scram {secured} password='wrong pw'"),
    ));
    assert!(wrong.contains("28P01"), "{wrong}");
    is_authentication(open(
        &server,
        "user=scram sslmode=disable password='wrong pw'",
    ));
    let none = is_authentication(open(&server, "user=scram sslmode=disable password=''"));
    assert!(none.contains("none is given"), "{none}");
    is_authentication(open(&server, "user=nobody sslmode=disable"));

    // SCRAM is safe in the open, and cannot be bound there.
    assert!(
        !open(&server, "user=scram sslmode=disable")
            .unwrap()
            .is_tls()
    );
    is_authentication(open(
        &server,
        "user=scram sslmode=disable channel_binding=require",
    ));

    // The others are not.
    for user in ["clear", "old"] {
        let open_text = is_authentication(open(&server, &format!("user={user} sslmode=disable")));
        assert!(open_text.contains("TLS"), "{open_text}");
        open(&server, &format!("user={user} {secured}")).unwrap();
        is_authentication(open(
            &server,
            &format!("user={user} {secured} password='wrong pw'"),
        ));
        is_authentication(open(
            &server,
            &format!("user={user} {secured} channel_binding=require"),
        ));
        let local = format!(
            "host={} port={} user={user} password='geh eim'",
            room.at("").display(),
            server.port
        );
        Connection::open(&config(&local).unwrap()).unwrap();
    }
}

#[test]
fn certificates_and_password_files_let_clients_in() {
    let room = Room::new();
    let (server, secured) = signed_server(&room);
    // By certificate, and not with a key that others can read.
    let identity = |key: &Path| {
        format!(
            "user=certified {secured} sslcert={} sslkey={}",
            room.at("certified.crt").display(),
            key.display()
        )
    };
    open(&server, &identity(&room.at("certified.key"))).unwrap();
    is_authentication(open(&server, &format!("user=certified {secured}")));
    let readable = room.at("readable.key");
    std::fs::copy(room.at("certified.key"), &readable).unwrap();
    give(&readable, 0o644);
    let refused = open(&server, &identity(&readable));
    assert!(matches!(refused, Err(Error::Config(_))), "{refused:?}");

    // By a password file.
    let passes = room.at("passes");
    support::put(
        &passes,
        b"*:*:*:scram:wrong\\:pw\nlocalhost:*:replication:tls_only:geh eim\n",
    );
    let by_file = |user: &str| {
        open(
            &server,
            &format!(
                "user={user} password='' passfile={} {secured}",
                passes.display()
            ),
        )
    };
    by_file("tls_only").unwrap();
    is_authentication(by_file("scram"));
    give(&passes, 0o644);
    let ignored = is_authentication(by_file("tls_only"));
    assert!(ignored.contains("0600"), "{ignored}");
}

#[test]
fn every_usual_kind_of_certificate_can_be_bound_to() {
    let room = Room::new();
    make(&room, &AUTHORITY);
    for (key, hash, binds) in [
        ("rsa", "sha384", true),
        ("rsa", "sha512", true),
        ("ec", "sha256", true),
        ("ec", "sha384", true),
        ("ed25519", "", false),
    ] {
        let name = format!("server-{key}-{hash}");
        // Its own authority, as `openssl req -x509` makes it and manuals tell: trusted because it
        // stands in the file.
        let own = Made {
            name: &name,
            names: "DNS:localhost",
            authority: None,
            key,
            hash,
        };
        let inner = Room::new();
        for file in ["authority.key", "authority.crt"] {
            std::fs::copy(room.at(file), inner.at(file)).unwrap();
            give(&inner.at(file), 0o600);
        }
        make(&inner, &own);
        let server = served(&inner, &name);
        let secured = format!("user=tls_only sslmode=verify-full {}", root(&inner, &name));
        let bound = open(&server, &format!("{secured} channel_binding=require"));
        assert_eq!(bound.is_ok(), binds, "{name}: {bound:?}");
        open(&server, &secured).unwrap();
        is_tls(open(&server, &format!("{secured} host=elsewhere.example")));
    }
}

#[test]
fn a_pinned_certificate_expires() {
    let room = Room::new();
    make(&room, &AUTHORITY);
    make_expired(&room, "old");
    let server = served(&room, "old");
    let pinned = root(&room, "old");
    let text = is_tls(open(
        &server,
        &format!("user=tls_only sslmode=verify-full {pinned}"),
    ));
    assert!(text.to_lowercase().contains("expired"), "{text}");
}

#[test]
fn a_server_without_tls_is_refused_where_it_is_needed() {
    let room = Room::new();
    let server = Server::make(&room, &installed(), "");
    support::put(
        &server.data.join("pg_hba.conf"),
        b"local all all trust\nhost replication all 127.0.0.1/32 trust\n",
    );
    server.start();
    for mode in ["require", "verify-full sslrootcert=/etc/hostname"] {
        is_tls(open(&server, &format!("user=postgres sslmode={mode}")));
    }
    assert!(
        !open(&server, "user=postgres sslmode=prefer")
            .unwrap()
            .is_tls()
    );
    // Trust, where proof was required.
    is_authentication(open(&server, "user=postgres channel_binding=require"));
    let nobody = open(
        &server,
        &format!("user=postgres port={}", support::free_port()),
    );
    assert!(matches!(nobody, Err(Error::Connect { .. })), "{nobody:?}");
    let gone = config("host=/nowhere user=postgres").unwrap();
    assert!(matches!(
        Connection::open(&gone),
        Err(Error::Connect { .. })
    ));
}

/// Everything that passes through it in the direction of the server.
fn listened(port: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ours = Arc::clone(&heard);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to).map(drop));
            let (mut client, mut server, heard) = (client, server, Arc::clone(&ours));
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(got @ 1..) = client.read(&mut bytes) {
                    let part = bytes.get(..got).unwrap();
                    heard.lock().unwrap().extend(part);
                    if server.write_all(part).is_err() {
                        break;
                    }
                }
                drop(server.shutdown(std::net::Shutdown::Both));
            });
        }
    });
    (here, heard)
}

#[test]
fn no_password_can_be_heard() {
    let room = Room::new();
    make(&room, &AUTHORITY);
    make(
        &room,
        &Made {
            name: "server",
            names: "DNS:localhost",
            authority: Some("authority"),
            ..AUTHORITY
        },
    );
    let server = served(&room, "server");
    let (port, heard) = listened(server.port);
    let roots: PathBuf = room.at("authority.crt");
    let opened = |user: &str, more: &str| {
        let text = format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user={user} password='geh eim' \
             sslrootcert={} {more}",
            roots.display()
        );
        Connection::open(&config(&text).unwrap())
    };
    for user in ["clear", "old"] {
        opened(user, "sslmode=disable").unwrap_err();
    }
    opened("scram", "sslmode=disable").unwrap();
    let digest = server.sql("SELECT substr(passwd, 4) FROM pg_shadow WHERE usename = 'old'");
    let hears = |text: &str| {
        let heard = heard.lock().unwrap();
        heard
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(
        hears("clear") && hears("scram"),
        "users are heard in the open"
    );
    for user in ["clear", "old"] {
        opened(user, "sslmode=verify-full").unwrap();
    }
    assert!(!hears("geh eim") && !hears(&digest));
}
