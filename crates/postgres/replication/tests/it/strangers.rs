//! Goal: a server that is not the right one, or not one that can be spoken to, is found out before
//! anything is asked of it.
//! Method: scripts of a server's bytes while the connection is set up.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::script;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

use script::*;
use strongroom_postgres_replication::{BackupOptions, Config, Connection, Error};

#[test]
fn scram_ends_with_the_servers_proof_or_not_at_all() {
    let sasl = message(b'R', &[&[0, 0, 0, 10][..], b"SCRAM-SHA-256\0\0"].concat());
    let accepted = message(b'R', &[0, 0, 0, 0]);
    let ready = startup()[accepted.len()..].to_vec();
    let mut first = vec![0, 0, 0, 11];
    first.extend(b"r=notours,s=QSXCR+Q6sek8bf92,i=4096");
    let first = message(b'R', &first);
    let last = message(b'R', &[&[0, 0, 0, 12][..], b"v=AAAA"].concat());
    let cases = [
        [sasl.clone(), accepted.clone(), ready.clone()].concat(),
        [sasl.clone(), first, accepted, ready.clone()].concat(),
        [message(b'R', &[&[0, 0, 0, 10][..], b"OTHER\0\0"].concat())].concat(),
        [message(
            b'R',
            &[&[0, 0, 0, 10][..], b"SCRAM-SHA-256-PLUS\0\0"].concat(),
        )]
        .concat(),
        [message(b'R', &[0, 0, 0, 7])].concat(),
    ];
    for (at, bytes) in cases.into_iter().enumerate() {
        let result = Connection::on_socket(server(bytes), &config());
        assert!(
            matches!(result, Err(Error::Authentication(_))),
            "{at}: {result:?}"
        );
    }
    let result = Connection::on_socket(server([sasl, last].concat()), &config());
    assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
    // "Ready" without a welcome.
    let result = Connection::on_socket(server(ready), &config());
    assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
    // Trust is not good enough for whoever requires a binding.
    let strict = Config::parse("user=u host=/x password=p channel_binding=require", &|_| {
        None
    });
    let strict = strict.unwrap();
    for bytes in [startup(), message(b'R', &[0, 0, 0, 3])] {
        let result = Connection::on_socket(server(bytes), &strict);
        assert!(
            matches!(result, Err(Error::Authentication(_))),
            "{result:?}"
        );
    }
}

/// A server that has gone through SCRAM up to its own proof, and then says this.
fn after_our_proof(says: Vec<u8>) -> Error {
    let (client, mut peer) = UnixStream::pair().unwrap();
    let other = thread::spawn(move || {
        peer.write_all(&message(
            b'R',
            &[&[0, 0, 0, 10][..], b"SCRAM-SHA-256\0\0"].concat(),
        ))
        .unwrap();
        let mut heard = Vec::new();
        let nonce = loop {
            let mut bytes = [0; 1024];
            let got = peer.read(&mut bytes).unwrap();
            heard.extend(&bytes[..got]);
            let text = String::from_utf8_lossy(&heard).into_owned();
            if let Some((_, nonce)) = text.split_once("n=,r=") {
                break String::from(nonce);
            }
        };
        let first = format!("r={nonce}more,s=QSXCR+Q6sek8bf92,i=4096");
        peer.write_all(&message(
            b'R',
            &[&[0, 0, 0, 11][..], first.as_bytes()].concat(),
        ))
        .unwrap();
        peer.write_all(&says).unwrap();
        while matches!(peer.read(&mut [0; 1024]), Ok(1..)) {}
    });
    let error = Connection::on_socket(client, &config()).unwrap_err();
    other.join().unwrap();
    error
}

#[test]
fn a_server_that_does_not_know_the_password_is_found_out() {
    let proof = message(b'R', &[&[0, 0, 0, 12][..], b"v=AAAA"].concat());
    for says in [startup(), [proof, startup()].concat()] {
        let error = after_our_proof(says);
        assert!(matches!(error, Error::Authentication(_)), "{error}");
        assert!(error.to_string().contains("pro"), "{error}");
    }
}

#[test]
fn an_old_server_is_not_spoken_to() {
    let old = [
        message(b'R', &[0, 0, 0, 0]),
        message(b'S', b"server_version\x0014.9\0"),
        ready(),
    ];
    let result = Connection::on_socket(server(old.concat()), &config());
    assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?}");
    // And a 15 or 16 is not asked for what only 17 has.
    let bytes = [
        message(b'R', &[0, 0, 0, 0]),
        message(b'S', b"server_version\x0016.2\0"),
        ready(),
    ];
    let mut connection = Connection::on_socket(server(bytes.concat()), &config()).unwrap();
    let sent = connection.upload_manifest(&mut &b"{}"[..]);
    assert!(matches!(sent, Err(Error::Unsupported(_))));
    let options = BackupOptions {
        incremental: true,
        ..BackupOptions::default()
    };
    let asked = connection.base_backup(&options).map(drop);
    assert!(matches!(asked, Err(Error::Unsupported(_))));
    assert!(connection.is_ready());
}
