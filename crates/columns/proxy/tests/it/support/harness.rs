//! The two ends of a proxy, in the hands of one test. Of `wire.rs`.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use strongroom_columns_proxy::proxy::{Address, PlaintextConstants, TicketTerms};
use strongroom_columns_proxy::sql::pins::PinnedColumn;
use strongroom_columns_zone::key_ledger::KeyLedgers;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::session::attest::ProcessAttester;
use strongroom_columns_zone::session::channel::{Channel, Prover};
use strongroom_postgres_wire::append;

use super::{config, started};

pub(crate) const ENC_TEXT: u32 = 90_001;
pub(crate) const ENC_INT4: u32 = 90_002;
/// OID of the table `p`.
pub(crate) const P: u32 = 70_000;
pub(crate) const FAILED: &[u8] = b"SERROR\0VERROR\0C22P02\0Mno\0\0";
pub(crate) const FORGOTTEN: &[u8] = b"SERROR\0VERROR\0C42501\0Mno ticket (SR-8006)\0\0";

/// One end of a connection.
pub(crate) struct End {
    pub(crate) stream: UnixStream,
    /// Everything that came.
    pub(crate) came: Vec<u8>,
}

impl End {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            stream,
            came: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, tag: u8, body: &[u8]) {
        let mut message = Vec::new();
        append(&mut message, tag, body);
        // The other side may have hung up already: what it said before is still there to be read.
        match self.stream.write_all(&message) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            sent => sent.unwrap(),
        }
    }

    pub(crate) fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        self.came.extend_from_slice(&bytes);
        bytes
    }

    pub(crate) fn message(&mut self) -> (u8, Vec<u8>) {
        let tag = self.read(1)[0];
        let len = u32::from_be_bytes(self.read(4).try_into().unwrap());
        (tag, self.read(usize::try_from(len).unwrap() - 4))
    }

    /// The next message, which has to be of this type.
    #[track_caller]
    pub(crate) fn expect(&mut self, tag: u8) -> Vec<u8> {
        let (came, body) = self.message();
        let shown = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(char::from(came), char::from(tag), "{shown}");
        body
    }

    /// The text of a query of the proxy's own: a simple one before the client is let in, one of the
    /// extended protocol afterwards.
    #[track_caller]
    pub(crate) fn own_query(&mut self) -> String {
        let (mut tag, mut body) = self.message();
        let mut text = body.clone();
        while !matches!(tag, b'Q' | b'S') {
            (tag, body) = self.message();
            if tag == b'P' {
                let name = body.iter().position(|byte| *byte == 0).unwrap();
                text = body[name + 1..].to_vec();
            }
        }
        String::from_utf8(text).unwrap()
    }

    #[track_caller]
    pub(crate) fn never_saw(&self, canary: &[u8]) {
        let found = self
            .came
            .windows(canary.len())
            .any(|window| window == canary);
        assert!(!found, "{} came", String::from_utf8_lossy(canary));
    }
}

/// A client, the server, and the proxy between them.
pub(crate) struct Wire {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) directory: PathBuf,
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the server says of itself at the beginning of a connection.
pub(crate) type Rows<'r> = &'r [[&'r str; 7]];

pub(crate) fn begin(
    name: &str,
    pinned: &[&str],
    terms: Option<TicketTerms>,
) -> (Wire, UnixListener) {
    let directory =
        std::env::temp_dir().join(format!("strongroom-wire-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("server");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut config = config(Address::Unix(socket), PlaintextConstants::Refuse);
    config.pinned = pinned
        .iter()
        .map(|text| PinnedColumn::parse(text).unwrap())
        .collect();
    config.terms = terms;
    let port = started(config, &directory);
    let mut client = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).unwrap();
    client.write_all(&[0, 0, 0, 16, 0, 3, 0, 0]).unwrap();
    client.write_all(b"user\0u\0\0").unwrap();
    let server = End::new(listener.accept().unwrap().0);
    let wire = Wire {
        client: End::new(client),
        server,
        directory,
    };
    (wire, listener)
}

impl Wire {
    pub(crate) fn greet(&mut self, rows: Rows<'_>) {
        self.server.read(16);
        for (tag, body) in [(b'R', &[0; 4][..]), (b'K', &[0; 8]), (b'Z', b"I")] {
            self.server.send(tag, body);
        }
        self.client.expect(b'R');
        self.client.expect(b'K');
        self.server.expect(b'Q');
        self.answer(rows);
    }

    /// Rows of text, and the end of the query.
    pub(crate) fn answer(&mut self, rows: &[[&str; 7]]) {
        self.answer_in(rows, b"I");
    }

    /// The same with this status of the transaction.
    pub(crate) fn answer_in(&mut self, rows: &[[&str; 7]], status: &[u8]) {
        for row in rows {
            self.row(row);
        }
        self.server.send(b'C', b"SELECT 1\0");
        self.server.send(b'Z', status);
    }

    pub(crate) fn row(&mut self, row: &[&str]) {
        let mut body = u16::try_from(row.len()).unwrap().to_be_bytes().to_vec();
        for field in row {
            body.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            body.extend_from_slice(field.as_bytes());
        }
        self.server.send(b'D', &body);
    }

    /// Another connection of the same proxy, which has been let in.
    pub(crate) fn another(&self, listener: &UnixListener) -> Self {
        let mut sockets = std::fs::read_dir(&self.directory).unwrap();
        let is_proxy_s = |path: &PathBuf| path.to_string_lossy().contains(".s.PGSQL.");
        let socket = sockets.find_map(|entry| Some(entry.unwrap().path()).filter(is_proxy_s));
        let mut client = UnixStream::connect(socket.unwrap()).unwrap();
        client.write_all(&[0, 0, 0, 16, 0, 3, 0, 0]).unwrap();
        client.write_all(b"user\0u\0\0").unwrap();
        let mut wire = Self {
            client: End::new(client),
            server: End::new(listener.accept().unwrap().0),
            directory: self.directory.clone(),
        };
        wire.greet(&catalog());
        wire.client.expect(b'Z');
        wire
    }

    pub(crate) fn start(name: &str) -> Self {
        let (mut wire, _listener) = begin(name, &[], None);
        wire.greet(&catalog());
        wire.client.expect(b'Z');
        wire
    }

    /// A query of the client's, as it comes to the server.
    #[track_caller]
    pub(crate) fn query(&mut self, sql: &str) {
        self.client.send(b'Q', format!("{sql}\0").as_bytes());
        self.server.expect(b'Q');
    }

    /// The server begins to copy from the client.
    #[track_caller]
    pub(crate) fn copies(&mut self) {
        self.server.send(b'G', &[0, 0, 0]);
        self.client.expect(b'G');
    }

    /// The server completes the query, without rows, and the client is told.
    #[track_caller]
    pub(crate) fn completes(&mut self) {
        self.completes_as(b"SELECT 1\0", b"I");
    }

    /// The same with this tag of the command, and this status of the transaction afterwards.
    #[track_caller]
    pub(crate) fn completes_as(&mut self, command: &[u8], status: &[u8]) {
        self.server.send(b'C', command);
        self.server.send(b'Z', status);
        self.client.expect(b'C');
        self.client.expect(b'Z');
    }

    /// The server describes a plain column `age` and sends a row of it; the client gets none.
    #[track_caller]
    pub(crate) fn hides_plain_age(&mut self) {
        self.server.send(b'T', &described(&[("age", 23)]));
        self.row(&["4711"]);
        ends_without(self, b"4711");
    }

    /// The server tells the proxy, which waits for it, that the statement has one parameter of the
    /// type with this OID, and no rows.
    pub(crate) fn describes(&mut self, oid: u32) {
        let mut types = vec![0, 1];
        types.extend_from_slice(&oid.to_be_bytes());
        self.server.send(b't', &types);
        self.server.send(b'n', b"");
    }

    /// The server gets, in the place of a refused message, what fails, and the client the refusal,
    /// which has this text.
    #[track_caller]
    pub(crate) fn refuses_with(&mut self, text: &str) {
        self.server.expect(b'P');
        self.server.expect(b'S');
        self.fails_with(text);
    }

    /// Messages of these types come to the server.
    #[track_caller]
    pub(crate) fn sends(&mut self, tags: &[u8]) {
        for tag in tags {
            self.server.expect(*tag);
        }
    }

    /// Messages of these types come to the client.
    #[track_caller]
    pub(crate) fn hears(&mut self, tags: &[u8]) {
        for tag in tags {
            self.client.expect(*tag);
        }
    }

    /// The client binds the unnamed statement without values, executes it, and ends the pipeline.
    pub(crate) fn executes(&mut self) {
        self.client.send(b'B', &bind(0, &[]));
        self.client.send(b'E', &[0; 5]);
        self.client.send(b'S', b"");
    }

    /// The server makes a statement, and tells the proxy that it has no parameters and no rows.
    pub(crate) fn makes_statement(&mut self) {
        self.server.send(b'1', b"");
        self.server.send(b't', &[0, 0]);
        self.server.send(b'n', b"");
    }

    /// The server makes a statement, and tells the proxy that it has no parameters and rows that
    /// are described so.
    pub(crate) fn makes_query(&mut self, description: &[u8]) {
        self.server.send(b'1', b"");
        self.server.send(b't', &[0, 0]);
        self.server.send(b'T', description);
    }

    #[track_caller]
    pub(crate) fn fails(&mut self) {
        self.fails_with("");
    }

    /// The server prepares a statement with one parameter of type `text` and no rows, as the client
    /// asked with `Parse` and `Sync`, and the client is told.
    #[track_caller]
    pub(crate) fn prepares(&mut self) {
        self.prepares_with(25);
    }

    /// The same with a parameter of the type with this OID.
    #[track_caller]
    pub(crate) fn prepares_with(&mut self, oid: u32) {
        self.sends(b"PDS");
        self.server.send(b'1', b"");
        self.describes(oid);
        self.server.send(b'Z', b"I");
        self.hears(b"1Z");
    }

    /// The server fails, and the client gets an error that has this text.
    #[track_caller]
    pub(crate) fn fails_with(&mut self, text: &str) {
        self.server.send(b'E', FAILED);
        self.server.send(b'Z', b"I");
        let error = self.client.expect(b'E');
        let error = String::from_utf8_lossy(&error);
        assert!(error.contains(text), "{error}");
        self.client.expect(b'Z');
    }
}

pub(crate) fn catalog() -> Vec<[&'static str; 7]> {
    vec![
        ["t", "s", "enc_text", "90001", "90101", "", ""],
        ["t", "s", "enc_int4", "90002", "90102", "", ""],
        ["r", "public", "p", "00001", "id", "23", "70000"],
        ["r", "public", "p", "00002", "name", "90001", "70000"],
        ["r", "public", "p", "00003", "age", "90002", "70000"],
        ["r", "public", "plain", "00001", "id", "23", "70001"],
        ["r", "public", "plain", "00002", "note", "25", "70001"],
        ["r", "pg_catalog", "pg_class", "", "", "", "1259"],
    ]
}

/// A `RowDescription` of columns of the names with the types.
pub(crate) fn described(columns: &[(&str, u32)]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for (name, oid) in columns {
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[0; 7]);
        body.extend_from_slice(&oid.to_be_bytes());
        body.extend_from_slice(&[0, 4, 255, 255, 255, 255, 0, 0]);
    }
    body
}

/// The client is told that the connection ends, before it has seen this.
#[track_caller]
pub(crate) fn ends_without(wire: &mut Wire, canary: &[u8]) {
    loop {
        let (tag, body) = wire.client.message();
        if tag == b'E' {
            let text = String::from_utf8_lossy(&body).into_owned();
            assert!(text.contains("FATAL"), "{text}");
            break;
        }
    }
    wire.client.never_saw(canary);
}

/// Parse with declared types.
pub(crate) fn parse(sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = format!("\0{sql}\0").into_bytes();
    body.extend_from_slice(&u16::try_from(types.len()).unwrap().to_be_bytes());
    for oid in types {
        body.extend_from_slice(&oid.to_be_bytes());
    }
    body
}

/// Parse or Bind, as [`parse`] and [`bind`] make it, of a statement of this name.
pub(crate) fn of_name(name: &str, mut body: Vec<u8>) -> Vec<u8> {
    // Bind has the portal's name first.
    let at = usize::from(body.starts_with(&[0, 0]));
    body.splice(at..at, name.bytes());
    body
}

/// Bind of the unnamed statement, with values in one format.
pub(crate) fn bind(format: u16, values: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1];
    body.extend_from_slice(&format.to_be_bytes());
    body.extend_from_slice(&u16::try_from(values.len()).unwrap().to_be_bytes());
    for value in values {
        body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(value);
    }
    body.extend_from_slice(&[0, 0]);
    body
}

/// The zone's end of the channel, as the server would ask it.
#[derive(Default)]
pub(crate) struct Zone {
    pub(crate) channel: Channel,
    pub(crate) keys: ColumnKeys,
    pub(crate) ledgers: KeyLedgers,
    pub(crate) sessions: u32,
    /// The session of the ring.
    pub(crate) current: Option<[u8; 16]>,
}

impl Zone {
    /// Answers the two calls with which a session opens.
    pub(crate) fn serve(&mut self, wire: &mut Wire, attester: &ProcessAttester) {
        for _ in 0..2 {
            self.answer(wire, attester);
        }
    }

    /// Answers one call.
    pub(crate) fn answer(&mut self, wire: &mut Wire, attester: &ProcessAttester) {
        let text = wire.server.own_query();
        assert!(!text.contains('\\'), "an escape where strings have them");
        let digits = text
            .split("decode('")
            .nth(1)
            .unwrap()
            .split('\'')
            .next()
            .unwrap();
        let bytes = strongroom_format::hex::from_hex(digits).unwrap();
        let answer = if text.contains(".attest(") {
            let nonce = bytes.try_into().unwrap();
            let proofs: (&[_], Prover<'_>) = (&[], &|_, _| None);
            let identity = ([5; 16], [6; 16]);
            super::attest(&mut self.channel, attester, proofs, identity, nonce)
        } else {
            let (keys, ledgers) = (&mut self.keys, &mut self.ledgers);
            let reply = self.channel.message(keys, ledgers, self.current, &bytes);
            let reply = reply.unwrap();
            self.sessions += u32::from(reply.session.is_some() && reply.session != self.current);
            self.current = reply.session;
            reply.message
        };
        let text = strongroom_format::hex::hex(&answer);
        wire.row(&[&text]);
        wire.answer(&[]);
    }
}
