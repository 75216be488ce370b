//! The bytes of a server, message by message, and a pair of sockets to say them through.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses a part of it"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

use strongroom_postgres_replication::{Config, Connection};

/// A message of the server.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    let mut bytes = vec![tag];
    for shift in [24, 16, 8, 0] {
        bytes.push((length >> shift & 0xFF) as u8);
    }
    bytes.extend_from_slice(body);
    bytes
}

pub(crate) fn big(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().rev().collect()
}

pub(crate) fn row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = vec![0, u8::try_from(values.len()).unwrap()];
    for value in values {
        match value {
            None => body.extend([0xFF; 4]),
            Some(text) => {
                body.extend([0, 0, 0, u8::try_from(text.len()).unwrap()]);
                body.extend(text.as_bytes());
            }
        }
    }
    message(b'D', &body)
}

pub(crate) fn columns() -> Vec<u8> {
    message(b'T', &[0, 0])
}

pub(crate) fn complete() -> Vec<u8> {
    message(b'C', b"SELECT\0")
}

pub(crate) fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

pub(crate) fn copy(kind: u8, bytes: &[u8]) -> Vec<u8> {
    message(b'd', &[&[kind], bytes].concat())
}

pub(crate) fn startup() -> Vec<u8> {
    [
        message(b'R', &[0, 0, 0, 0]),
        message(b'S', b"server_version\0\x31\x37.1\0"),
        message(b'K', &[0; 8]),
        ready(),
    ]
    .concat()
}

pub(crate) fn begin_of_backup() -> Vec<u8> {
    [
        columns(),
        row(&[Some("0/2000028"), Some("1")]),
        complete(),
        columns(),
        row(&[Some("16384"), Some("/elsewhere"), Some("1")]),
        row(&[None, None, Some("2")]),
        complete(),
        message(b'H', &[0, 0, 0]),
    ]
    .concat()
}

pub(crate) fn archives() -> Vec<Vec<u8>> {
    vec![
        copy(b'n', b"16384.tar\0/elsewhere\0"),
        copy(b'd', b"first archive"),
        message(b'N', b"SWARNING\0C01000\0Mcareful\0\0"),
        copy(b'p', &big(13)),
        copy(b'n', b"base.tar\0\0"),
        copy(b'd', b"second archive"),
        copy(b'd', b""),
    ]
}

pub(crate) fn manifest() -> Vec<u8> {
    [copy(b'm', b""), copy(b'd', b"{}")].concat()
}

pub(crate) fn end_of_backup() -> Vec<u8> {
    [
        message(b'c', b""),
        columns(),
        row(&[Some("0/2000100"), Some("1")]),
        complete(),
        complete(),
        ready(),
    ]
    .concat()
}

pub(crate) fn backup() -> Vec<u8> {
    [
        begin_of_backup(),
        archives().concat(),
        manifest(),
        end_of_backup(),
    ]
    .concat()
}

pub(crate) fn config() -> Config {
    Config::parse("user=u host=/nowhere password=pw", &|_| None).unwrap()
}

/// A client's end, whose server says these bytes, whatever it is told, and hangs up.
pub(crate) fn server(bytes: Vec<u8>) -> UnixStream {
    let (client, mut server) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut reader = server.try_clone().unwrap();
        thread::spawn(move || while matches!(reader.read(&mut [0; 4096]), Ok(1..)) {});
        // The client may have had enough.
        drop(server.write_all(&bytes));
        drop(server.shutdown(std::net::Shutdown::Write));
    });
    client
}

pub(crate) fn open(after_startup: &[u8]) -> Connection {
    let bytes = [&startup(), after_startup].concat();
    Connection::on_socket(server(bytes), &config()).unwrap()
}

pub(crate) fn log(start: u64, bytes: &[u8]) -> Vec<u8> {
    copy(
        b'w',
        &[big(start), big(0x300), big(1), bytes.to_vec()].concat(),
    )
}

pub(crate) fn keepalive(answer: u8) -> Vec<u8> {
    copy(b'k', &[big(0x300), big(1), vec![answer]].concat())
}

pub(crate) fn stream_of_log() -> Vec<u8> {
    [
        message(b'W', &[0, 0, 0]),
        log(0x100, b"abc"),
        keepalive(1),
        log(0x103, b"de"),
        message(b'c', b""),
        columns(),
        row(&[Some("2"), Some("0/105")]),
        complete(),
        complete(),
        ready(),
    ]
    .concat()
}
