//! Entry points for fuzzing: what must hold for any bytes that a client or a server sends.
//!
//! Each must come to an end without a panic; COPY's data must come out as it went in, wherever it
//! is cut. Must not: be called outside tests.

use std::collections::BTreeMap;
use std::io::{BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use strongroom_columns_envelope::SealedBy;
use strongroom_crypto::SecretKey;
use strongroom_format::columns::Kind;

use super::copy::{Incoming, Outgoing, Transform};
use super::session::Session;
use super::settings::Settings;
use super::startup::{self, Connection};
use super::stream::{Address, Stream};
use super::{PlaintextConstants, Shared, Tls};
use crate::envelope;
use crate::keys::ColumnKeys;
use crate::relations::KnownRelations;
use crate::results::Results;
use crate::sql::catalog::Catalog;
use crate::sql::{self, Copy, CopyColumn, CopyFormat, CopyOptions, ExpectedColumns};
use strongroom_postgres_wire::client::Socket;

/// More would not fit into a socket that is not read.
const SCRIPT_MAX: usize = 16_384;
/// Kinds of the columns of `p`, after the plain column `id`.
const KINDS: [Kind; 5] = [
    Kind::Text,
    Kind::Int4,
    Kind::Numeric,
    Kind::Date,
    Kind::Bytea,
];

/// Makes fixed keys, and lets this thread seal envelopes that count as the zone's results. `None`
/// without locked memory.
fn keys() -> Option<Arc<ColumnKeys>> {
    envelope::SEALS_AS.set(SealedBy::Zone);
    let key = SecretKey::take(&mut [7; 32]).ok()?;
    ColumnKeys::from_keys(&[key]).ok().map(Arc::new)
}

/// Makes a catalog with a table `p`: `id` plain, and a column for each of [`KINDS`], named as its
/// type.
fn catalog() -> Catalog {
    let mut rows = Vec::new();
    let mut add =
        |fields: [&str; 6]| rows.push(fields.map(|field| Some(field.to_owned())).to_vec());
    add(["r", "public", "p", "00000", "id", "23"]);
    for (at, kind) in (1_u32..).zip(KINDS) {
        let oid = (90_000_u32.wrapping_add(at)).to_string();
        let array = (91_000_u32.wrapping_add(at)).to_string();
        let name = format!("enc_{}", kind.base());
        add(["t", "s", &name, &oid, &array, ""]);
        add(["r", "public", "p", &format!("{at:05}"), kind.base(), &oid]);
    }
    Catalog::from_rows(&rows)
}

/// Makes the state that connections share, with a server that does not exist.
fn shared(keys: Arc<ColumnKeys>) -> Arc<Shared> {
    Arc::new(Shared {
        server: Address::Unix(PathBuf::from("/nonexistent")),
        tls: Tls::default(),
        keys,
        terms: None,
        plaintext_constants: PlaintextConstants::Refuse,
        pinned: Vec::new(),
        adopted: BTreeMap::new(),
        adopted_databases: BTreeMap::new(),
        relations: Arc::new(KnownRelations::in_memory()),
        epoch: AtomicU64::new(0),
        connections: AtomicUsize::new(0),
        surplus: AtomicUsize::new(0),
        connections_max: 1,
    })
}

/// Returns a connection and its other end, which has sent `script` and sends nothing more. `None`
/// if the system refuses.
fn peer(script: &[u8]) -> Option<(Stream, UnixStream)> {
    let (ours, mut theirs) = UnixStream::pair().ok()?;
    theirs.write_all(script).ok()?;
    theirs.shutdown(Shutdown::Write).ok()?;
    Some((Stream::Plain(Socket::Local(ours)), theirs))
}

/// Accepts a client that sends these bytes, 16 KiB at most, and nothing more. Panics if it is
/// connected to a server, because there is none. Does nothing without locked memory.
pub fn beginning(bytes: &[u8]) {
    let script = bytes.get(..bytes.len().min(SCRIPT_MAX)).unwrap_or_default();
    let (Some(keys), Some((client, _theirs))) = (keys(), peer(script)) else {
        return;
    };
    let shared = shared(keys);
    let begun = startup::accept_client(client, &shared.server, &shared);
    assert!(
        !matches!(begun, Ok(Some(_))),
        "there is no server to begin with"
    );
}

/// Relays messages of a client and of a server, in any order: the first two bytes say how many are
/// the client's.
pub fn messages(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let rest = rest.get(..rest.len().min(SCRIPT_MAX)).unwrap_or_default();
    let of_client = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (client, server) = rest.split_at(of_client);
    let (Some(keys), Some((client, _to_client)), Some((server, _to_server))) =
        (keys(), peer(client), peer(server))
    else {
        return;
    };
    let connection = Connection {
        client: BufReader::new(client),
        server: BufReader::new(server),
        session: Session::new(catalog(), Settings::default(), Results::of_anybody(), b'I'),
        names: Arc::default(),
        relations: Arc::new(KnownRelations::in_memory()).connection(String::new()),
        name: String::new(),
        zone_session: None,
    };
    drop(super::relay(connection, &shared(keys)));
}

/// Plans the bytes as a statement. Panics if a statement that was changed cannot be planned again,
/// or has a confidential constant left.
pub fn statement(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let catalog = catalog();
    let Ok(plans) = sql::plan(text, &catalog, 0) else {
        return;
    };
    // What is sent has to be something that can be planned again, and has nothing left to be taken
    // out.
    let sent = |plan: &&sql::Plan| plan.changed && plan.kept.is_empty();
    for plan in plans.iter().filter(sent) {
        let parameters = usize::try_from(plan.parameters).unwrap_or_default();
        let declared = parameters.saturating_add(plan.constants.len());
        let again = sql::plan(&plan.sql, &catalog, declared);
        assert!(again.is_ok(), "what was rewritten is refused");
        let left = again.iter().flatten().map(|plan| plan.constants.len());
        assert_eq!(left.sum::<usize>(), 0, "a constant was left");
    }
}

/// Converts COPY's data from a client: the first byte says which form, the second where it is cut.
/// Panics if the cut makes a difference, or if what was sealed does not open.
pub fn copied(bytes: &[u8]) {
    let Some(([form, cut], data)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let (Some(keys), Some(transform)) = (keys(), transform(*form)) else {
        return;
    };
    let data = normalised(*form, data);
    let incoming = |pieces: &[&[u8]]| {
        let settings = Settings::default();
        let mut stream = Incoming::new(Arc::clone(&transform), Arc::clone(&keys), settings);
        let mut out = Vec::new();
        for piece in pieces {
            stream.push(piece, &mut out).ok()?;
        }
        stream.finish(&mut out).ok()?;
        Some(out)
    };
    let (head, tail) = data.split_at(usize::from(*cut).min(data.len()));
    let whole = incoming(&[&data]);
    let in_two = incoming(&[head, tail]);
    assert_eq!(
        whole.as_ref().map(Vec::len),
        in_two.as_ref().map(Vec::len),
        "it matters where it is cut"
    );
    let mut shown = Vec::new();
    let settings = Settings::default();
    let mut back = Outgoing::new(
        transform,
        keys,
        settings,
        (Arc::new(Results::of_anybody()), Arc::default()),
    );
    match whole {
        Some(sealed) => assert!(
            back.push(&sealed, &mut shown).is_ok(),
            "what was sealed does not open"
        ),
        // What no client could have sealed: a server's.
        None => drop(back.push(&data, &mut shown)),
    }
}

/// Returns the data after a binary header, if the form is binary: without one the rest is not read.
fn normalised(form: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if form % 3 == 2 && form & 0x40 == 0 {
        out.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
    }
    out.extend_from_slice(data);
    out
}

/// Returns the transformation of a COPY in the form that the number says. It is never `None` for
/// these columns.
fn transform(form: u8) -> Option<Arc<Transform>> {
    let (format, delimiter, null) = match form % 3 {
        0 => (CopyFormat::Text, b'\t', b"\\N".to_vec()),
        1 => (CopyFormat::Csv, b',', Vec::new()),
        _ => (CopyFormat::Binary, b'\t', Vec::new()),
    };
    let column = |kind| CopyColumn {
        kind,
        comparable: None,
    };
    let columns = KINDS.map(column).map(Some);
    let columns = std::iter::once(None).chain(columns).collect();
    let copy = Copy {
        from: true,
        columns: Some(columns),
        unknown: false,
        expected: ExpectedColumns::default(),
        options: CopyOptions {
            format,
            delimiter,
            null,
            quote: b'"',
            escape: b'"',
            header: form & 0x80 != 0 && format != CopyFormat::Binary,
            other: None,
        },
    };
    Transform::of(&copy).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_whatever_it_is() {
        let row = b"1\tname\t5\t1.50\t1999-12-31\t\\\\x00\n2\t\\N\t\\N\t\\N\t\\N\t\\N\n\\.\n";
        for cut in 0..=row.len() {
            copied(&[&[0, u8::try_from(cut).unwrap()], &row[..]].concat());
            copied(&[&[0, 0], &row[..cut]].concat());
        }
        copied(&[&[1, 9], &b"1,\"a \"\"b\"\"\",5,1.5,1999-12-31,\\x00\n"[..]].concat());
        copied(&[&[2, 3], &[0, 6, 0, 0, 0, 1, 7][..]].concat());
        // What follows the end of binary data, whole and cut: found by fuzzing.
        for cut in [19, 21, 22, 30] {
            copied(&[&[2, cut], &[0xff, 0xff, 7, 7, 7, 7, 0, 1, 0, 0, 0, 0][..]].concat());
        }
        statement(b"SELECT id FROM p WHERE text = 'x' AND int4 > 5 -- y");
        statement(b"INSERT INTO p VALUES (1, 'x', 5, 1.5, date '1999-12-31', NULL)");
        // A parameter that cannot be: found by fuzzing, because it is written anew as a
        // placeholder.
        statement(b"SELECT id FROM p WHERE id = $0 AND text = 'x'");
        beginning(&[0, 0, 0, 9, 0, 3, 0, 0, 0]);
        let query = b"Q\0\0\0\x0eSELECT 1;\0";
        let answer = b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";
        let len = u16::try_from(query.len()).unwrap().to_le_bytes();
        messages(&[&len[..], query, answer].concat());
        for cut in 0..answer.len() {
            messages(&[&len[..], query, &answer[..cut]].concat());
        }
    }
}
