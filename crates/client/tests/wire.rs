//! Messages in the orders that drivers avoid: the test is the client and the server of one proxy, and says each message itself.
//!
//! Method: bytes that come to the server are kept; values of confidential columns must not be among them, wherever an error, a refusal or
//! the next statement falls.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

mod support;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use strongroom_client::channel::Accepted;
use strongroom_client::proxy::{Address, PlaintextConstants, Terms};
use strongroom_zone::session::ColumnKeys;
use strongroom_zone::session::attest::ProcessAttester;
use strongroom_zone::session::channel::Channel;
use support::{config, started};

const ENC_TEXT: u32 = 90_001;
const ENC_INT4: u32 = 90_002;
/// OID of the table `p`.
const P: u32 = 70_000;
const FAILED: &[u8] = b"SERROR\0VERROR\0C22P02\0Mno\0\0";
const FORGOTTEN: &[u8] = b"SERROR\0VERROR\0C42501\0Mno ticket (SR-8006)\0\0";

/// One end of a connection.
struct End {
    stream: UnixStream,
    /// Everything that came.
    came: Vec<u8>,
}

impl End {
    fn new(stream: UnixStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            stream,
            came: Vec::new(),
        }
    }

    fn send(&mut self, tag: u8, body: &[u8]) {
        let mut message = vec![tag];
        message.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        message.extend_from_slice(body);
        self.stream.write_all(&message).unwrap();
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        self.came.extend_from_slice(&bytes);
        bytes
    }

    fn message(&mut self) -> (u8, Vec<u8>) {
        let tag = self.read(1)[0];
        let len = u32::from_be_bytes(self.read(4).try_into().unwrap());
        (tag, self.read(usize::try_from(len).unwrap() - 4))
    }

    /// The next message, which has to be of this type.
    #[track_caller]
    fn expect(&mut self, tag: u8) -> Vec<u8> {
        let (came, body) = self.message();
        let shown = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(char::from(came), char::from(tag), "{shown}");
        body
    }

    #[track_caller]
    fn never_saw(&self, canary: &[u8]) {
        let found = self
            .came
            .windows(canary.len())
            .any(|window| window == canary);
        assert!(!found, "{} came", String::from_utf8_lossy(canary));
    }
}

/// A client, the server, and the proxy between them.
struct Wire {
    client: End,
    server: End,
    directory: PathBuf,
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the server says of itself at the beginning of a connection.
type Rows<'r> = &'r [[&'r str; 7]];

fn begin(name: &str, pinned: &[&str], terms: Option<Terms>) -> (Wire, UnixListener) {
    let directory =
        std::env::temp_dir().join(format!("strongroom-wire-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("server");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut config = config(Address::Unix(socket), PlaintextConstants::Refuse);
    config.pinned = pinned
        .iter()
        .map(|text| strongroom_client::sql::catalog::PinnedColumn::parse(text).unwrap())
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
    fn greet(&mut self, rows: Rows<'_>) {
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
    fn answer(&mut self, rows: &[[&str; 7]]) {
        for row in rows {
            self.row(row);
        }
        self.server.send(b'C', b"SELECT 1\0");
        self.server.send(b'Z', b"I");
    }

    fn row(&mut self, row: &[&str]) {
        let mut body = u16::try_from(row.len()).unwrap().to_be_bytes().to_vec();
        for field in row {
            body.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            body.extend_from_slice(field.as_bytes());
        }
        self.server.send(b'D', &body);
    }

    fn start(name: &str) -> Self {
        let (mut wire, _listener) = begin(name, &[], None);
        wire.greet(&catalog());
        wire.client.expect(b'Z');
        wire
    }

    /// A query of the client's, as it comes to the server.
    #[track_caller]
    fn query(&mut self, sql: &str) {
        self.client.send(b'Q', format!("{sql}\0").as_bytes());
        self.server.expect(b'Q');
    }

    /// The server begins to copy from the client.
    #[track_caller]
    fn copies(&mut self) {
        self.server.send(b'G', &[0, 0, 0]);
        self.client.expect(b'G');
    }

    #[track_caller]
    fn fails(&mut self) {
        self.server.send(b'E', FAILED);
        self.server.send(b'Z', b"I");
        self.client.expect(b'E');
        self.client.expect(b'Z');
    }
}

fn catalog() -> Vec<[&'static str; 7]> {
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

/// Parse with declared types.
fn parse(sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = format!("\0{sql}\0").into_bytes();
    body.extend_from_slice(&u16::try_from(types.len()).unwrap().to_be_bytes());
    for oid in types {
        body.extend_from_slice(&oid.to_be_bytes());
    }
    body
}

/// Bind of the unnamed statement, with values in one format.
fn bind(format: u16, values: &[&[u8]]) -> Vec<u8> {
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

#[test]
fn data_does_not_go_by_the_rules_of_a_copy_that_failed() {
    let mut wire = Wire::start("after");
    wire.query("COPY plain FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tin clear\n");
    assert_eq!(wire.server.expect(b'd'), b"1\tin clear\n");
    // The client stops sending without CopyDone, as the protocol allows.
    wire.fails();
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.client.send(b'c', b"");
    let row = wire.server.expect(b'd');
    assert!(row.starts_with(b"1\t") && row.len() > 40);
    wire.server.expect(b'c');
    wire.server.never_saw(b"Alice");
}

#[test]
fn data_belongs_to_the_last_request() {
    let mut wire = Wire::start("last");
    // The client does not wait: the second COPY is on its way when the server begins the first.
    wire.query("COPY plain FROM STDIN");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.client.send(b'd', b"1\tAlice\n");
    wire.copies();
    wire.fails();
    wire.copies();
    assert!(wire.server.expect(b'd').starts_with(b"1\t"));
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_sync_behind_a_failed_copy_is_answered() {
    let mut wire = Wire::start("sync");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.server.expect(b'd');
    wire.fails();
    wire.client.send(b'S', b"");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_copy_whose_data_is_refused_does_not_swallow_the_next() {
    let mut wire = Wire::start("refused");
    wire.query("COPY p (id, age) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.server.expect(b'f');
    wire.client.send(b'd', b"2\tAlice\n");
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("SR-8104"));
    wire.client.expect(b'Z');
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"3\tAlice\n");
    wire.client.send(b'c', b"");
    assert!(wire.server.expect(b'd').starts_with(b"3\t"));
    wire.server.expect(b'c');
    wire.server.never_saw(b"Alice");
}

#[test]
fn rows_behind_the_end_marker_are_not_sent() {
    let mut wire = Wire::start("marker");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tBob\n\\.\n2\tAlice\n");
    wire.client.send(b'd', b"3\tAlice\n");
    wire.client.send(b'c', b"");
    let rows = wire.server.expect(b'd');
    assert!(rows.starts_with(b"1\t") && rows.ends_with(b"\n\\.\n"));
    wire.server.expect(b'c');
    wire.server.never_saw(b"Alice");
}

#[test]
fn copy_in_the_extended_protocol_is_encrypted() {
    let mut wire = Wire::start("extended");
    wire.client
        .send(b'P', &parse("COPY p (id, name) FROM STDIN", &[]));
    wire.client.send(b'B', &bind(0, &[]));
    wire.client.send(b'E', &[0, 0, 0, 0, 0]);
    wire.client.send(b'S', b"");
    for tag in [b'P', b'D', b'B', b'E', b'S'] {
        wire.server.expect(tag);
    }
    wire.server.send(b'1', b"");
    wire.server.send(b't', &[0, 0]);
    wire.server.send(b'n', b"");
    wire.server.send(b'2', b"");
    wire.server.send(b'G', &[0, 0, 0]);
    for tag in [b'1', b'2', b'G'] {
        wire.client.expect(tag);
    }
    wire.client.send(b'd', b"1\tAlice\n");
    wire.client.send(b'c', b"");
    wire.client.send(b'S', b"");
    assert!(wire.server.expect(b'd').starts_with(b"1\t"));
    wire.server.expect(b'c');
    wire.server.expect(b'S');
    wire.server.send(b'C', b"COPY 1\0");
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'C');
    wire.client.expect(b'Z');
    wire.server.never_saw(b"Alice");
}

/// A statement whose parameters the server gives these types, and values for them: the error that the client gets.
fn bound(
    name: &str,
    sql: &str,
    declared: &[u32],
    types: &[u32],
    format: u16,
    values: &[&[u8]],
) -> (Wire, String) {
    let mut wire = Wire::start(name);
    wire.client.send(b'P', &parse(sql, declared));
    wire.client.send(b'B', &bind(format, values));
    wire.client.send(b'S', b"");
    wire.server.expect(b'P');
    wire.server.expect(b'D');
    wire.server.expect(b'H');
    wire.server.send(b'1', b"");
    let mut described = u16::try_from(types.len()).unwrap().to_be_bytes().to_vec();
    for oid in types {
        described.extend_from_slice(&oid.to_be_bytes());
    }
    wire.server.send(b't', &described);
    wire.server.send(b'n', b"");
    wire.client.expect(b'1');
    // The values, or a statement that fails in their place.
    let (tag, _) = wire.server.message();
    wire.server.expect(b'S');
    wire.server.send(
        if tag == b'B' { b'2' } else { b'E' },
        if tag == b'B' { b"" } else { FAILED },
    );
    wire.server.send(b'Z', b"I");
    let (_, answer) = wire.client.message();
    (wire, String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn values_without_a_place_of_their_own_are_not_sent() {
    for (name, sql, declared, types, values, code) in [
        (
            "surplus",
            "SELECT id FROM p",
            &[][..],
            &[][..],
            &[&b"Alice"[..]][..],
            "08P01",
        ),
        (
            "more",
            "SELECT id FROM p WHERE name = $1",
            &[],
            &[ENC_TEXT],
            &[b"Bob", b"Alice"],
            "08P01",
        ),
        (
            "own",
            "SELECT id FROM p WHERE name = $1 AND age > 5",
            &[],
            &[ENC_TEXT, ENC_INT4],
            &[b"Bob", b"Alice"],
            "08P01",
        ),
        (
            "enc",
            "SELECT id FROM p WHERE name = $1",
            &[ENC_TEXT],
            &[ENC_TEXT],
            &[b"Alice"],
            "22P03",
        ),
        (
            "prefix",
            "SELECT id FROM p WHERE name = $1",
            &[ENC_TEXT],
            &[ENC_TEXT],
            &[b"srv1:Alice"],
            "22P03",
        ),
        (
            "left",
            "SELECT left(name, $1) FROM p",
            &[],
            &[25],
            &[b"Alice"],
            "SR102",
        ),
        (
            "liar",
            "SELECT left(name, $1) FROM p",
            &[],
            &[23],
            &[b"Alice"],
            "SR102",
        ),
        (
            "pattern",
            "SELECT substring(name FROM $1) FROM p",
            &[25],
            &[25],
            &[b"Alice"],
            "SR102",
        ),
        (
            "subquery",
            "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class WHERE name = $1)",
            &[],
            &[25],
            &[b"Alice"],
            "SR102",
        ),
        (
            "unnest",
            "INSERT INTO p (name) SELECT * FROM unnest($1)",
            &[],
            &[1009],
            &[b"{Alice}"],
            "SR102",
        ),
        (
            "bounds",
            "SELECT id FROM p WHERE name = ANY ($1)",
            &[],
            &[90_101],
            &[b"[Alice]={a}"],
            "SR-8104",
        ),
    ] {
        let (wire, answer) = bound(name, sql, declared, types, 0, values);
        assert!(answer.contains(code), "{name}: {answer}");
        wire.server.never_saw(b"Alice");
    }
    let (wire, answer) = bound(
        "binary",
        "SELECT left(name, $1) FROM p",
        &[25],
        &[25],
        1,
        &[b"Alice"],
    );
    assert!(answer.contains("SR102"), "{answer}");
    wire.server.never_saw(b"Alice");
    // What it is for goes through.
    let (wire, answer) = bound(
        "number",
        "SELECT left(name, $1) FROM p",
        &[],
        &[23],
        0,
        &[b"3"],
    );
    assert_eq!(answer, "");
    assert!(
        wire.server
            .came
            .windows(5)
            .any(|window| window == [0, 0, 0, 1, b'3'])
    );
}

#[test]
fn a_statement_prepared_before_its_column_became_confidential_gets_no_more_values() {
    let mut wire = Wire::start("prepared");
    wire.client.send(b'P', &parse("SELECT id FROM plain WHERE note = $1", &[25]));
    wire.client.send(b'S', b"");
    for tag in [b'P', b'D', b'S'] {
        wire.server.expect(tag);
    }
    wire.server.send(b'1', b"");
    wire.server.send(b't', &[0, 1, 0, 0, 0, 25]);
    wire.server.send(b'n', b"");
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'1');
    wire.client.expect(b'Z');
    // Whoever defines something has the catalog read again.
    wire.query("CREATE TABLE x (a int)");
    wire.answer(&[]);
    wire.client.expect(b'C');
    wire.client.expect(b'Z');
    wire.client.send(b'B', &bind(0, &[b"Alice"]));
    wire.client.send(b'S', b"");
    wire.server.expect(b'Q');
    let mut rows = catalog();
    rows[6][5] = "90001";
    wire.answer(&rows);
    // A statement that fails, in place of the values.
    wire.server.expect(b'P');
    wire.server.expect(b'S');
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("0A000"));
    wire.server.never_saw(b"Alice");
}

#[test]
fn what_a_pipeline_defines_is_known_in_the_same_pipeline() {
    let mut wire = Wire::start("pipeline");
    wire.client.send(b'P', &parse("ALTER TABLE plain ALTER note TYPE s.enc_text", &[]));
    wire.client.send(b'P', &parse("INSERT INTO plain (note) VALUES ('Alice')", &[]));
    wire.client.send(b'S', b"");
    for tag in [b'P', b'D', b'P', b'D', b'S'] {
        wire.server.expect(tag);
    }
    wire.server.never_saw(b"Alice");
}

#[test]
fn pinned_columns_are_in_every_catalog() {
    let plain: Vec<[&str; 7]> = catalog()
        .into_iter()
        .map(|mut row| {
            if row[4] == "name" {
                row[5] = "25";
            }
            row
        })
        .collect();
    let other = [
        ["t", "s", "enc_text", "90001", "90101", "", ""],
        ["r", "other", "p", "00001", "name", "25", "70002"],
    ];
    for (name, rows) in [("plain", &plain[..]), ("missing", &other), ("empty", &[])] {
        let (mut wire, _listener) = begin(name, &["public.p.name"], None);
        wire.greet(rows);
        let error = wire.client.expect(b'E');
        assert!(String::from_utf8_lossy(&error).contains("SR106"), "{name}");
    }
}

#[test]
fn a_pinned_column_does_not_come_back_plain() {
    let (mut wire, _listener) = begin("result", &["public.p.age"], None);
    wire.greet(&catalog());
    wire.client.expect(b'Z');
    wire.query("SELECT id, age FROM p");
    let mut columns = vec![0, 2];
    for (name, place, oid) in [(&b"id\0"[..], 1_u16, 23_u32), (b"age\0", 3, 23)] {
        columns.extend_from_slice(name);
        columns.extend_from_slice(&P.to_be_bytes());
        columns.extend_from_slice(&place.to_be_bytes());
        columns.extend_from_slice(&oid.to_be_bytes());
        columns.extend_from_slice(&[0, 4, 255, 255, 255, 255, 0, 0]);
    }
    wire.server.send(b'T', &columns);
    wire.row(&["1", "4711"]);
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("SR106"));
    wire.client.never_saw(b"4711");
}

/// The zone's end of the channel, as the server would ask it.
#[derive(Default)]
struct Zone {
    channel: Channel,
    keys: ColumnKeys,
    sessions: u32,
}

impl Zone {
    /// Answers the two calls with which a session opens.
    fn serve(&mut self, wire: &mut Wire, attester: &ProcessAttester) {
        for _ in 0..2 {
            let text = String::from_utf8(wire.server.expect(b'Q')).unwrap();
            let digits = text
                .split("\\x")
                .nth(1)
                .unwrap()
                .split('\'')
                .next()
                .unwrap();
            let bytes = strongroom_format::hex::from_hex(digits).unwrap();
            let answer = if text.contains(".attest(") {
                let nonce = bytes.try_into().unwrap();
                self.channel
                    .attest(attester, [5; 16], [6; 16], nonce)
                    .unwrap()
            } else {
                let reply = self.channel.message(&mut self.keys, None, &bytes).unwrap();
                self.sessions += u32::from(reply.session.is_some());
                reply.message
            };
            let text = strongroom_format::hex::hex(&answer);
            wire.row(&[&text]);
            wire.answer(&[]);
        }
    }
}

fn terms(truths: Option<u64>) -> Terms {
    Terms {
        accepted: Accepted {
            process: true,
            ..Accepted::default()
        },
        lifetime: None,
        truths,
        declassify: false,
    }
}

#[test]
fn a_session_that_the_zone_has_forgotten_is_opened_anew() {
    let attester = ProcessAttester::new().unwrap();
    let (mut wire, _listener) = begin("forgotten", &[], Some(terms(None)));
    wire.greet(&catalog());
    Zone::default().serve(&mut wire, &attester);
    wire.client.expect(b'Z');
    std::thread::sleep(Duration::from_millis(1_100));
    // Within a transaction nothing of the proxy's own is sent.
    wire.query("BEGIN");
    wire.server.send(b'C', b"BEGIN\0");
    wire.server.send(b'Z', b"T");
    wire.client.expect(b'C');
    wire.client.expect(b'Z');
    wire.query("SELECT id FROM p");
    wire.server.send(b'E', FORGOTTEN);
    wire.server.send(b'Z', b"E");
    wire.client.expect(b'E');
    wire.client.expect(b'Z');
    wire.query("ROLLBACK");
    wire.answer(&[]);
    wire.client.expect(b'C');
    wire.client.expect(b'Z');
    // The zone that was started anew gets the keys, before the statement.
    let mut zone = Zone::default();
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    zone.serve(&mut wire, &attester);
    assert_eq!(zone.sessions, 1);
    assert_eq!(wire.server.expect(b'Q'), b"SELECT id FROM p\0");
    wire.answer(&[]);
    wire.client.expect(b'C');
    wire.client.expect(b'Z');
}

#[test]
fn a_budget_is_not_renewed_by_a_server_that_says_that_the_session_is_lost() {
    let attester = ProcessAttester::new().unwrap();
    let (mut wire, _listener) = begin("budget", &[], Some(terms(Some(5))));
    wire.greet(&catalog());
    Zone::default().serve(&mut wire, &attester);
    wire.client.expect(b'Z');
    std::thread::sleep(Duration::from_millis(1_100));
    wire.query("SELECT id FROM p");
    wire.server.send(b'E', FORGOTTEN);
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'E');
    wire.client.expect(b'Z');
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    let mut rest = Vec::new();
    wire.client.stream.read_to_end(&mut rest).unwrap();
    let mut sent = Vec::new();
    wire.server.stream.read_to_end(&mut sent).unwrap();
    assert!(!String::from_utf8_lossy(&sent).contains("attest"));
}
