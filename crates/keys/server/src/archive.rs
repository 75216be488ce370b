//! Archives of the audit log: files with rows that were taken out of the store, and their check
//! without a server. The form of a file is specified in docs/spec/keyserver.md, "Archives".
//!
//! Invariants: AR1, a file counts only when the authority's signature covers the hashes at both of
//! its ends, and every row between them is chained, byte for byte as `audit --json` prints it; AR2,
//! of files that hold the same rows, all must agree on them.
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

/// First bytes of what is signed.
const LABEL: &[u8] = b"strongroom/v1/audit-archive\0";
/// The version of a file's form.
const FORMAT: u32 = 1;
/// Longest line of a file, in bytes. A row is far shorter.
const LINE_MAX: u64 = 1024 * 1024;

/// The first line of an archive: which rows it holds, and the authority's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The version of the file's form: 1.
    pub strongroom_audit_archive: u32,
    /// The server's id, in hexadecimal digits.
    pub server_id: String,
    /// Number of the first row.
    pub first: u64,
    /// Number of the last row.
    pub last: u64,
    /// The hash of the row before the first one.
    pub before: String,
    /// The hash of the last row.
    pub head: String,
    /// When the archive was made, in seconds since the Unix epoch.
    pub made: u64,
    /// The authority's signature over all of the above, in hexadecimal digits.
    pub signature: String,
}

impl Head {
    fn message(&self) -> Vec<u8> {
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

/// The name of the file for these rows. Names sort as the rows do.
#[must_use]
pub fn name(first: u64, last: u64) -> String {
    format!("{}{last:020}.jsonl", begin_of_name(first))
}

/// The beginning of the name of an archived file; `first` is the number of the file's first row.
#[must_use]
pub fn begin_of_name(first: u64) -> String {
    format!("audit-{first:020}-")
}

/// The bytes of an archive with these rows, of which there is at least one, and which follow a row
/// with hash `before`. Its last row's hash.
///
/// # Errors
/// SR-8440 when the authority cannot sign; SR-9001.
pub fn written(
    id: &ServerId,
    authority: &Authority,
    before: &str,
    rows: &[Row],
    made: u64,
) -> Result<(Vec<u8>, String), Error> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(Error::new(&code::BUG, "an archive without a row"));
    };
    let mut head = Head {
        strongroom_audit_archive: FORMAT,
        server_id: hex(id),
        first: first.n,
        last: last.n,
        before: before.to_owned(),
        head: last.hash.clone(),
        made,
        signature: String::new(),
    };
    head.signature = authority::sign(authority, &head.message())?;
    let failed = |error: serde_json::Error| Error::new(&code::BUG, error.to_string());
    let mut bytes = serde_json::to_vec(&head).map_err(failed)?;
    bytes.push(b'\n');
    for row in rows {
        serde_json::to_writer(&mut bytes, row).map_err(failed)?;
        bytes.push(b'\n');
    }
    Ok((bytes, head.head))
}

/// A file that is read: its first line is checked, its rows are not yet.
struct Reader {
    path: PathBuf,
    lines: BufReader<File>,
    head: Head,
}

impl Reader {
    /// # Errors
    /// SR-1006; SR-8436 when it is not an archive, or not signed by this authority.
    fn open(path: &Path, authority: &[u8]) -> Result<Self, Error> {
        let shown = || path.display().to_string();
        let (file, _) = open_regular(path, Link::Followed).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(&code::NOT_FOUND, shown()),
            _ if is_not_regular(&error) => broken(path, "it is not a regular file"),
            _ => Error::io(shown(), error),
        })?;
        let mut lines = BufReader::new(file);
        let line = line(&mut lines, path)?.unwrap_or_default();
        let head: Option<Head> = serde_json::from_slice(&line).ok();
        let head = head.ok_or_else(|| broken(path, "its first line is not that of an archive"))?;
        if head.strongroom_audit_archive != FORMAT {
            return Err(broken(path, "its form is of a newer version"));
        }
        if head.first == 0 || head.last < head.first {
            return Err(broken(path, "it says that it holds no rows"));
        }
        if !authority::is_signed(authority, &head.message(), &head.signature)? {
            return Err(broken(path, "it was not signed by this authority"));
        }
        Ok(Self {
            path: path.to_owned(),
            lines,
            head,
        })
    }

    /// Reads and checks every row.
    ///
    /// # Errors
    /// SR-8436.
    fn each(&mut self, mut take: impl FnMut(&Row) -> Result<(), Error>) -> Result<(), Error> {
        let head = &self.head;
        let mut chain = Chain::after(head.first.saturating_sub(1), &head.before);
        while let Some(line) = line(&mut self.lines, &self.path)? {
            let row: Option<Row> = serde_json::from_slice(&line).ok();
            let row = row.ok_or_else(|| broken(&self.path, "a line is not a row"))?;
            // The hash covers the members that a row has, and not others beside them.
            if serde_json::to_vec(&row).ok().as_deref() != Some(line.as_slice()) {
                let detail = format!("row {} is not written as a row is", row.n);
                return Err(broken(&self.path, &detail));
            }
            chain
                .take(&row)
                .map_err(|error| broken(&self.path, error.detail()))?;
            take(&row)?;
        }
        match chain.head() == (head.last, head.head.as_str()) {
            true => Ok(()),
            false => Err(broken(&self.path, "it does not end where it says")),
        }
    }
}

fn broken(path: &Path, what: &str) -> Error {
    Error::new(&code::SERVER_AUDIT, format!("{}: {what}", path.display()))
}

/// The next line without its end.
fn line(lines: &mut BufReader<File>, path: &Path) -> Result<Option<Vec<u8>>, Error> {
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

/// What files say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The server's id, in hexadecimal digits.
    pub server_id: String,
    /// Number of the first row.
    pub first: u64,
    /// Number of the last row.
    pub last: u64,
    /// The hash of the last row.
    pub head: String,
    /// How many files there were.
    pub files: usize,
}

/// Checks one file with all of its rows; what it says of itself.
///
/// # Errors
/// SR-1006, SR-8436; SR-8440 for the authority's certificate.
pub fn checked(path: &Path, authority: &[u8]) -> Result<Head, Error> {
    let mut reader = Reader::open(path, authority)?;
    reader.each(|_| Ok(()))?;
    Ok(reader.head)
}

/// Checks files, in whatever order they come: each by itself, and that together they are one piece
/// of the log of one server. `authority`: the server's authority, in PEM.
///
/// # Errors
/// SR-1006; SR-8436 when one is not whole, rows between two are missing, or two tell different
/// things of the same rows; SR-8440 for the authority's certificate.
pub fn verified(paths: &[PathBuf], authority: &[u8]) -> Result<Whole, Error> {
    let mut readers = paths
        .iter()
        .map(|path| Reader::open(path, authority))
        .collect::<Result<Vec<_>, _>>()?;
    readers.sort_by_key(|reader| (reader.head.first, reader.head.last));
    let Some(first) = readers.first().map(|reader| reader.head.clone()) else {
        return Err(Error::new(&code::NOT_FOUND, "no archive was named"));
    };
    let mut whole = Whole {
        server_id: first.server_id,
        first: first.first,
        last: first.first.saturating_sub(1),
        head: first.before,
        files: readers.len(),
    };
    // The hashes at the ends of all files. Those that meet or overlap have them in common.
    let mut ends: BTreeMap<u64, Option<String>> = BTreeMap::new();
    for Head { first, last, .. } in readers.iter().map(|reader| &reader.head) {
        ends.insert(first.saturating_sub(1), None);
        ends.insert(*last, None);
    }
    for reader in &mut readers {
        let (head, path) = (reader.head.clone(), reader.path.clone());
        if head.server_id != whole.server_id {
            return Err(broken(&path, "it is another server's"));
        }
        let expected = whole.last.saturating_add(1);
        if head.first > expected {
            let missing = format!("rows {expected} to {} are missing", head.first - 1);
            return Err(Error::new(&code::SERVER_AUDIT, missing));
        }
        let mut same = |n: u64, hash: &str| match ends.get_mut(&n) {
            Some(Some(known)) if known != hash => {
                let detail = format!("it and another file tell different things of row {n}");
                Err(broken(&path, &detail))
            }
            Some(known) => {
                *known = Some(hash.to_owned());
                Ok(())
            }
            None => Ok(()),
        };
        same(head.first - 1, &head.before)?;
        reader.each(|row| same(row.n, &row.hash))?;
        if head.last > whole.last {
            (whole.last, whole.head) = (head.last, head.head);
        }
    }
    Ok(whole)
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

    struct Room {
        directory: tempfile::TempDir,
        authority: Authority,
    }

    impl Room {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
                authority: authority::create("test").unwrap(),
            }
        }

        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.directory.path().join(name);
            File::create(&path).unwrap().write_all(bytes).unwrap();
            path
        }

        fn archive(&self, from: u64, to: u64, actor: &str) -> PathBuf {
            let (before, rows) = rows(from, to, actor);
            let (bytes, _) = written(&[7; 16], &self.authority, &before, &rows, 5).unwrap();
            self.put(&format!("{from}-{to}-{actor}"), &bytes)
        }

        fn verified(&self, paths: &[PathBuf]) -> Result<Whole, Error> {
            verified(paths, self.authority.certificate.as_bytes())
        }

        fn refused(&self, paths: &[PathBuf], word: &str) {
            let error = self.verified(paths).unwrap_err();
            assert_eq!(error.code().number, 8436);
            assert!(error.detail().contains(word), "{}", error.detail());
        }
    }

    #[test]
    fn files_are_one_piece_of_the_log_in_any_order() {
        let room = Room::new();
        let parts = [(1, 4), (5, 9), (10, 10)].map(|(from, to)| room.archive(from, to, "a"));
        let [one, two, three] = parts;
        let all = [three.clone(), one.clone(), two.clone()];
        let whole = room.verified(&all).unwrap();
        assert_eq!((whole.first, whole.last, whole.files), (1, 10, 3));
        assert_eq!(whole.head, rows(1, 10, "a").1[9].hash);
        let whole = room.verified(&[three.clone(), two.clone()]).unwrap();
        assert_eq!((whole.first, whole.last), (5, 10));
        room.refused(&[one.clone(), three], "rows 5 to 9 are missing");
        // The same rows may be in several files: after a kill between two writes, or of two
        // servers.
        let twice = [
            one.clone(),
            room.archive(1, 7, "a"),
            two,
            room.archive(2, 3, "a"),
        ];
        assert_eq!(room.verified(&twice).unwrap().last, 9);
        for (from, to) in [(1, 4), (2, 3), (3, 3), (4, 6), (3, 6)] {
            let other = room.archive(from, to, "b");
            room.refused(&[one.clone(), other], "different things of row");
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let room = Room::new();
        let pipe = room.put("pipe", b"");
        std::fs::remove_file(&pipe).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        room.refused(&[pipe], "not a regular file");
    }

    #[test]
    fn every_change_of_a_file_is_found() {
        let room = Room::new();
        let path = room.archive(2, 5, "a");
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = room.put("changed", &changed);
            assert!(room.verified(&[changed]).is_err(), "byte {at}");
            let cut = room.put("cut", &bytes[..at]);
            assert!(room.verified(&[cut]).is_err(), "cut at {at}");
        }
        let text = String::from_utf8(bytes).unwrap();
        let beside = text.replacen("{\"n\":3,", "{\"n\":3,\"note\":\"x\",", 1);
        assert_ne!(beside, text);
        room.refused(&[room.put("beside", beside.as_bytes())], "as a row is");
        let longer = format!("{text}{text}");
        room.refused(&[room.put("longer", longer.as_bytes())], "not a row");
        let of_another = authority::create("test").unwrap().certificate;
        let error = verified(&[path], of_another.as_bytes()).unwrap_err();
        assert!(error.detail().contains("not signed by this authority"));
    }
}
