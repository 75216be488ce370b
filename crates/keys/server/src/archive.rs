//! Archives of the audit log: files with rows that were moved out of the store, and their
//! verification without a server. The form of a file is specified in docs/spec/keyserver.md,
//! "Archives".
//!
//! Invariants:
//! - AR1: A file is valid only if the authority's signature covers the hashes before its first row
//!   and of its last row, the rows between them form a hash chain, and each of them is byte for
//!   byte what `audit --json` prints.
//! - AR2: All files that hold the same row must agree on it.
//!
//! Must not: remove a row; trust the name of a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, Link, is_not_regular, open_regular};

use crate::audit::{Chain, Row};
use crate::authority;
use crate::keys::ServerId;
use crate::records::Authority;

/// The first bytes of the signed message.
const LABEL: &[u8] = b"strongroom/v1/audit-archive\0";
/// The version of a file's form.
const FORMAT: u32 = 1;
/// The longest line of a file, in bytes. Rows are far shorter.
const LINE_MAX: u64 = 1024 * 1024;

/// The first line of an archive: which rows it holds, and the authority's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveHeader {
    /// The version of the file's form: 1.
    pub strongroom_audit_archive: u32,
    /// The server's id, in hexadecimal digits.
    pub server_id: String,
    /// The number of the first row.
    pub first: u64,
    /// The number of the last row.
    pub last: u64,
    /// The hash of the row before the first one.
    pub before: String,
    /// The hash of the last row.
    pub head: String,
    /// When the archive was made, in seconds since the Unix epoch.
    pub made: u64,
    /// The authority's signature over the members above, in hexadecimal digits.
    pub signature: String,
}

impl ArchiveHeader {
    /// Returns the bytes that the authority signs: a label and all members but the format and the
    /// signature.
    fn signed_message(&self) -> Vec<u8> {
        let mut bytes = LABEL.to_vec();
        for number in [self.first, self.last, self.made] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for text in [&self.server_id, &self.before, &self.head] {
            let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }
}

/// Returns the name of the archive of these rows. Names sort in the order of the rows.
#[must_use]
pub fn file_name(first: u64, last: u64) -> String {
    format!("{}{last:020}.jsonl", file_name_prefix(first))
}

/// Returns the beginning of the name of an archive whose first row has the number `first`.
#[must_use]
pub fn file_name_prefix(first: u64) -> String {
    format!("audit-{first:020}-")
}

/// Encodes and signs an archive of these rows, at least one, which follow a row with the hash
/// `before`. Returns its bytes and the hash of its last row. Writes no file.
///
/// # Errors
/// SR-8440 when the authority cannot sign; SR-8435 when its record is malformed; SR-9001 without a
/// row.
pub fn encode(
    id: &ServerId,
    authority: &Authority,
    before: &str,
    rows: &[Row],
    made: u64,
) -> Result<(Vec<u8>, String), Error> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(Error::new(&code::BUG, "an archive without a row"));
    };
    let mut header = ArchiveHeader {
        strongroom_audit_archive: FORMAT,
        server_id: hex(id),
        first: first.n,
        last: last.n,
        before: before.to_owned(),
        head: last.hash.clone(),
        made,
        signature: String::new(),
    };
    header.signature = authority::sign_message(authority, &header.signed_message())?;
    let failed = |error: serde_json::Error| Error::new(&code::BUG, error.to_string());
    let mut bytes = serde_json::to_vec(&header).map_err(failed)?;
    bytes.push(b'\n');
    for row in rows {
        serde_json::to_writer(&mut bytes, row).map_err(failed)?;
        bytes.push(b'\n');
    }
    Ok((bytes, header.head))
}

/// An archive whose first line was verified and whose rows were not read yet.
struct Reader {
    path: PathBuf,
    lines: BufReader<File>,
    header: ArchiveHeader,
}

impl Reader {
    /// Opens an archive and verifies its first line: form, numbers, and the authority's signature.
    /// The rows are not read.
    ///
    /// # Errors
    /// SR-1006 when there is no file; SR-8436 when it is not a regular file, not an archive, or not
    /// signed by this authority; SR-8440 for the authority's certificate; SR-5001 when the system
    /// reports an error.
    fn open(path: &Path, authority: &[u8]) -> Result<Self, Error> {
        let shown = || path.display().to_string();
        let (file, _) = open_regular(path, Link::Followed).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(&code::NOT_FOUND, shown()),
            _ if is_not_regular(&error) => broken(path, "it is not a regular file"),
            _ => Error::io(shown(), error),
        })?;
        let mut lines = BufReader::new(file);
        let line = read_line(&mut lines, path)?.unwrap_or_default();
        let header: Option<ArchiveHeader> = serde_json::from_slice(&line).ok();
        let header =
            header.ok_or_else(|| broken(path, "its first line is not that of an archive"))?;
        if header.strongroom_audit_archive != FORMAT {
            return Err(broken(path, "its form is of a newer version"));
        }
        if header.first == 0 || header.last < header.first {
            return Err(broken(path, "it says that it holds no rows"));
        }
        if !authority::is_signature_valid(authority, &header.signed_message(), &header.signature)? {
            return Err(broken(path, "it was not signed by this authority"));
        }
        Ok(Self {
            path: path.to_owned(),
            lines,
            header,
        })
    }

    /// Reads the rows in order, verifies each against the hash chain, and calls `take` with it. At
    /// the end, checks that the last one is the one that the first line names.
    ///
    /// # Errors
    /// SR-8436 when a row is malformed or the chain is broken, after earlier rows were taken;
    /// SR-5001 when the system reports an error; what `take` reports.
    fn for_each(&mut self, mut take: impl FnMut(&Row) -> Result<(), Error>) -> Result<(), Error> {
        let header = &self.header;
        let mut chain = Chain::after(header.first.saturating_sub(1), &header.before);
        while let Some(line) = read_line(&mut self.lines, &self.path)? {
            let row: Option<Row> = serde_json::from_slice(&line).ok();
            let row = row.ok_or_else(|| broken(&self.path, "a line is not a row"))?;
            // The hash covers only the members of a row, so that additional members are refused
            // here.
            if serde_json::to_vec(&row).ok().as_deref() != Some(line.as_slice()) {
                let detail = format!("row {} is not in the form in which rows are written", row.n);
                return Err(broken(&self.path, &detail));
            }
            chain
                .verify(&row)
                .map_err(|error| broken(&self.path, error.detail()))?;
            take(&row)?;
        }
        match chain.last() == (header.last, header.head.as_str()) {
            true => Ok(()),
            false => Err(broken(&self.path, "it does not end where it says")),
        }
    }
}

/// Makes the error for an archive that is not valid (SR-8436).
fn broken(path: &Path, what: &str) -> Error {
    Error::new(&code::SERVER_AUDIT, format!("{}: {what}", path.display()))
}

/// Reads the next line, without its end. `None` at the end of the file. SR-8436 if it has no end or
/// is longer than 1 MiB; SR-5001 when the file cannot be read.
fn read_line(lines: &mut BufReader<File>, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let mut line = Vec::new();
    let failed = |error| Error::io(path.display().to_string(), error);
    let read = lines
        .by_ref()
        .take(LINE_MAX)
        .read_until(b'\n', &mut line)
        .map_err(failed)?;
    match (read, line.pop()) {
        (0, _) => Ok(None),
        (_, Some(b'\n')) => Ok(Some(line)),
        _ => Err(broken(path, "a line has no end, or is too long")),
    }
}

/// The part of the log that several archives hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRange {
    /// The server's id, in hexadecimal digits.
    pub server_id: String,
    /// The number of the first row.
    pub first: u64,
    /// The number of the last row.
    pub last: u64,
    /// The hash of the last row.
    pub head: String,
    /// How many files there were.
    pub files: usize,
}

/// Verifies one archive with all of its rows, and returns its first line. `authority`: the
/// certificate of the server's authority, in PEM.
///
/// # Errors
/// SR-1006 when there is no file; SR-8436 when it is not valid; SR-8440 for the authority's
/// certificate; SR-5001 when the system reports an error.
pub fn verify_file(path: &Path, authority: &[u8]) -> Result<ArchiveHeader, Error> {
    let mut reader = Reader::open(path, authority)?;
    reader.for_each(|_| Ok(()))?;
    Ok(reader.header)
}

/// Verifies archives in any order: each of them, and that together they are one part of the log of
/// one server, without gaps. Returns that part. `authority`: the certificate of the server's
/// authority, in PEM.
///
/// # Errors
/// SR-1006 when a file is missing or none was named; SR-8436 when one is not valid or another
/// server's, rows between two are missing, or two disagree about a row; SR-8440 for the authority's
/// certificate; SR-5001 when the system reports an error.
pub fn verify_files(paths: &[PathBuf], authority: &[u8]) -> Result<VerifiedRange, Error> {
    let mut readers = paths
        .iter()
        .map(|path| Reader::open(path, authority))
        .collect::<Result<Vec<_>, _>>()?;
    readers.sort_by_key(|reader| (reader.header.first, reader.header.last));
    let Some(first) = readers.first().map(|reader| reader.header.clone()) else {
        return Err(Error::new(&code::NOT_FOUND, "no archive was named"));
    };
    let mut range = VerifiedRange {
        server_id: first.server_id,
        first: first.first,
        last: first.first.saturating_sub(1),
        head: first.before,
        files: readers.len(),
    };
    // The hashes at the ends of all files, which files that meet or overlap must agree on.
    let mut ends: BTreeMap<u64, Option<String>> = BTreeMap::new();
    for ArchiveHeader { first, last, .. } in readers.iter().map(|reader| &reader.header) {
        ends.insert(first.saturating_sub(1), None);
        ends.insert(*last, None);
    }
    for reader in &mut readers {
        let (header, path) = (reader.header.clone(), reader.path.clone());
        if header.server_id != range.server_id {
            return Err(broken(&path, "it is another server's"));
        }
        let expected = range.last.saturating_add(1);
        if header.first > expected {
            let missing = format!("rows {expected} to {} are missing", header.first - 1);
            return Err(Error::new(&code::SERVER_AUDIT, missing));
        }
        let mut same = |n: u64, hash: &str| match ends.get_mut(&n) {
            Some(Some(known)) if known != hash => {
                let detail = format!("it and another file differ in row {n}");
                Err(broken(&path, &detail))
            }
            Some(known) => {
                *known = Some(hash.to_owned());
                Ok(())
            }
            None => Ok(()),
        };
        same(header.first - 1, &header.before)?;
        reader.for_each(|row| same(row.n, &row.hash))?;
        if header.last > range.last {
            (range.last, range.head) = (header.last, header.head);
        }
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    use crate::audit::{Event, GENESIS};

    fn rows(from: u64, to: u64, actor: &str) -> (String, Vec<Row>) {
        let (mut before, mut start, mut rows) = (GENESIS.to_owned(), GENESIS.to_owned(), vec![]);
        for n in 1..=to {
            let event = Event {
                actor: if n == 3 { actor } else { "a" }.to_owned(),
                action: "deliver".to_owned(),
                ..Event::default()
            };
            let row = Row::following(&before, n, 1000 + n, event);
            before.clone_from(&row.hash);
            match n >= from {
                true => rows.push(row),
                false => start.clone_from(&before),
            }
        }
        (start, rows)
    }

    struct Fixture {
        directory: tempfile::TempDir,
        authority: Authority,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
                authority: authority::create_authority("test").unwrap(),
            }
        }

        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.directory.path().join(name);
            File::create(&path).unwrap().write_all(bytes).unwrap();
            path
        }

        fn archive(&self, from: u64, to: u64, actor: &str) -> PathBuf {
            let (before, rows) = rows(from, to, actor);
            let (bytes, _) = encode(&[7; 16], &self.authority, &before, &rows, 5).unwrap();
            self.put(&format!("{from}-{to}-{actor}"), &bytes)
        }

        fn verify(&self, paths: &[PathBuf]) -> Result<VerifiedRange, Error> {
            verify_files(paths, self.authority.certificate.as_bytes())
        }

        fn refused(&self, paths: &[PathBuf], word: &str) {
            let error = self.verify(paths).unwrap_err();
            assert_eq!(error.code().number, 8436);
            assert!(error.detail().contains(word), "{}", error.detail());
        }
    }

    #[test]
    fn files_are_one_piece_of_the_log_in_any_order() {
        let fixture = Fixture::new();
        let parts = [(1, 4), (5, 9), (10, 10)].map(|(from, to)| fixture.archive(from, to, "a"));
        let [one, two, three] = parts;
        let all = [three.clone(), one.clone(), two.clone()];
        let range = fixture.verify(&all).unwrap();
        assert_eq!((range.first, range.last, range.files), (1, 10, 3));
        assert_eq!(range.head, rows(1, 10, "a").1[9].hash);
        let range = fixture.verify(&[three.clone(), two.clone()]).unwrap();
        assert_eq!((range.first, range.last), (5, 10));
        fixture.refused(&[one.clone(), three], "rows 5 to 9 are missing");
        // The same rows may be in several files: after a kill between two writes, or of two
        // servers.
        let twice = [
            one.clone(),
            fixture.archive(1, 7, "a"),
            two,
            fixture.archive(2, 3, "a"),
        ];
        assert_eq!(fixture.verify(&twice).unwrap().last, 9);
        for (from, to) in [(1, 4), (2, 3), (3, 3), (4, 6), (3, 6)] {
            let other = fixture.archive(from, to, "b");
            fixture.refused(&[one.clone(), other], "differ in row");
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let fixture = Fixture::new();
        let pipe = fixture.put("pipe", b"");
        std::fs::remove_file(&pipe).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        fixture.refused(&[pipe], "not a regular file");
    }

    #[test]
    fn every_change_of_a_file_is_found() {
        let fixture = Fixture::new();
        let path = fixture.archive(2, 5, "a");
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = fixture.put("changed", &changed);
            assert!(fixture.verify(&[changed]).is_err(), "byte {at}");
            let cut = fixture.put("cut", &bytes[..at]);
            assert!(fixture.verify(&[cut]).is_err(), "cut at {at}");
        }
        let text = String::from_utf8(bytes).unwrap();
        let beside = text.replacen("{\"n\":3,", "{\"n\":3,\"note\":\"x\",", 1);
        assert_ne!(beside, text);
        fixture.refused(
            &[fixture.put("beside", beside.as_bytes())],
            "in which rows are written",
        );
        let longer = format!("{text}{text}");
        fixture.refused(&[fixture.put("longer", longer.as_bytes())], "not a row");
        let of_another = authority::create_authority("test").unwrap().certificate;
        let error = verify_files(&[path], of_another.as_bytes()).unwrap_err();
        assert!(error.detail().contains("not signed by this authority"));
    }
}
