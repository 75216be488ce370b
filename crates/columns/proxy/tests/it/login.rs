//! Goal: the connection of commands that run statements logs in where it may, and nowhere else.
//! Method: real servers with each method of authentication; a listener that asks for a password in
//! clear over TCP.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use strongroom_columns_proxy::proxy::{Address, Config, PlaintextConstants};
use strongroom_columns_proxy::server::{
    Error, Login, LoginTls, StatementClient, describe, is_from_server,
};
use strongroom_crypto::SecretBytes;

use support::{Server, config, started};

fn login(address: Address, password: Option<&str>) -> Result<StatementClient, Error> {
    let password = password.map(|text| {
        let mut bytes = text.as_bytes().to_vec();
        SecretBytes::take(&mut bytes).unwrap()
    });
    let login = Login {
        address,
        user: "postgres".to_owned(),
        database: "postgres".to_owned(),
        password,
        tls: LoginTls::Off,
    };
    login.connect(false)
}

#[test]
fn statements_run_after_a_login() {
    for auth in ["trust", "password", "scram-sha-256"] {
        let server = Server::start(auth);
        let mut client = login(Address::Unix(server.socket()), Some("secret")).unwrap();
        let answer = client.run("SELECT 1, NULL; SELECT 'two'").unwrap();
        let one = vec![Some("1".to_owned()), None];
        assert_eq!(answer.rows, [one, vec![Some("two".to_owned())]]);
        assert_eq!(answer.types, [25]);
        let error = client.run("SELECT 1/0").unwrap_err();
        assert!(is_from_server(&error));
        assert_eq!(describe(&error), "division by zero (SQLSTATE 22012)");
        client.run("CREATE TABLE t (a int, b text)").unwrap();
        let insert = "INSERT INTO t VALUES ($1::int, $2)";
        client.prepare("insert", insert).unwrap();
        let row = |number: &str| vec![Some(number.to_owned()), None];
        let written = client
            .execute_each("insert", &[row("1"), row("2")])
            .unwrap();
        assert_eq!(written.written, 2);
        let answer = client.ask("SELECT a, b FROM t WHERE a > $1::int", &[Some("1")]);
        assert_eq!(answer.unwrap().rows, [row("2")]);
        assert!(matches!(client.run("\0"), Err(Error::Misuse(_))));
        let data = client.run("COPY t TO STDOUT").unwrap_err();
        assert!(matches!(data, Error::Protocol(_)), "{data}");
    }
}

#[test]
fn a_login_without_the_password_fails() {
    let server = Server::start("scram-sha-256");
    let error = login(Address::Unix(server.socket()), None).unwrap_err();
    assert!(describe(&error).contains("name a file with it"), "{error}");
    let error = login(Address::Unix(server.socket()), Some("wrong")).unwrap_err();
    assert!(is_from_server(&error), "{error}");
    assert!(describe(&error).contains("(SQLSTATE 28P01)"), "{error}");
}

#[test]
fn a_hash_by_md5_is_not_sent() {
    let server = Server::start("md5");
    let error = login(Address::Unix(server.socket()), Some("secret")).unwrap_err();
    assert!(describe(&error).contains("use scram-sha-256"), "{error}");
}

#[test]
fn a_password_is_not_sent_in_clear_over_a_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3]).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    let error = login(address, Some("secret")).unwrap_err();
    assert!(describe(&error).contains("over a network"), "{error}");
    let heard = server.join().unwrap();
    assert!(heard.starts_with(&[0, 0, 0]), "a startup packet came");
    assert!(!heard.windows(6).any(|window| window == b"secret"));
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = Server::start("trust");
    let config = Config {
        connections_max: 1,
        ..config(Address::Unix(server.socket()), PlaintextConstants::Refuse)
    };
    let port = started(config, server.directory());
    let socket = || Address::Unix(server.directory().join(format!(".s.PGSQL.{port}")));
    let mut first = login(socket(), None).unwrap();
    let refused = login(socket(), None).unwrap_err();
    assert!(describe(&refused).contains("(SQLSTATE 53300)"), "{refused}");
    assert_eq!(first.run("SELECT 1").unwrap().rows.len(), 1);
    drop(first);
    // There is room again once the proxy has seen the first one leave.
    let begun = std::time::Instant::now();
    while login(socket(), None).is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    }
}
