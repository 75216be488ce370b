//! `BASE_BACKUP`: a copy of a whole cluster, as the server sends it.
//!
//! Invariants:
//! - Q13: the end is an event of its own, [`BackupEvent::End`], which comes only after the server
//!   sent every archive that it had announced, the manifest that was asked for, the position at
//!   which the backup ends and its "ready". Everything else that stops a backup is an error, a
//!   connection that ends in good order included.
//! - Q8: bytes of an archive are handed out where they were read.
//!
//! Must not: look into an archive. That it has its end mark, and that it is what the manifest says,
//! is for the caller.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use postgres_protocol::message::frontend;
use strongroom_postgres_wire::Fields;
use strongroom_postgres_wire::client::{Error, Reply, Result, Row};

use crate::command::{optional, parse_column, quote, text};
use crate::connection::{Connection, row_bytes};
use crate::lsn::Lsn;

const DURING: &str = "a base backup was being received";
const BEGINNING: &str = "a base backup was being begun";
const UPLOADING: &str = "a manifest was being sent";

/// Largest list of tablespaces, in bytes.
const TABLESPACES_MAX: usize = 4 << 20;

/// Bytes of a manifest that are sent in one message.
const PIECE: usize = 64 * 1024;

/// How fast the server carries out the checkpoint with which a backup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// At once, with a burst of writes.
    Fast,
    /// Over the usual time (`checkpoint_completion_target`), which is minutes.
    Spread,
}

/// The checksum that the manifest has of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestChecksums {
    /// None: only the file's size.
    None,
    /// CRC-32C, which detects accidental damage only.
    Crc32c,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// Options of a backup (PostgreSQL documentation, `BASE_BACKUP`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupOptions {
    /// The text in the backup's `backup_label`.
    pub label: String,
    /// Whether the server estimates the sizes of the tablespaces, for which it has to look at all
    /// files first. [`BackupEvent::Progress`] comes in any case.
    pub progress: bool,
    /// How fast the checkpoint is carried out.
    pub checkpoint: Checkpoint,
    /// Whether the archive includes the log that the backup needs.
    pub wal: bool,
    /// Whether the server waits until it has archived the log that the backup needs.
    pub wait: bool,
    /// The most kB a second, 32 to 1048576. `None`: no limit.
    pub max_rate: Option<u32>,
    /// Whether the links to tablespaces come as a file `tablespace_map`.
    pub tablespace_map: bool,
    /// Whether the server verifies the checksums of the pages that it reads.
    pub verify_checksums: bool,
    /// Whether there is a manifest, and with which checksums.
    pub manifest: Option<ManifestChecksums>,
    /// Whether the backup has only the blocks that changed since the one whose manifest
    /// [`Connection::upload_manifest`] sent. PostgreSQL 17 and later.
    pub incremental: bool,
}

impl Default for BackupOptions {
    /// A full backup that begins at once, with a manifest of SHA-256 and without the log.
    fn default() -> Self {
        Self {
            label: String::from("strongroom"),
            progress: false,
            checkpoint: Checkpoint::Fast,
            wal: false,
            wait: true,
            max_rate: None,
            tablespace_map: true,
            verify_checksums: true,
            manifest: Some(ManifestChecksums::Sha256),
            incremental: false,
        }
    }
}

/// A tablespace, or the data directory: the backup has one archive of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablespace {
    /// `None`: the data directory itself.
    pub oid: Option<u32>,
    /// Where it is on the server; `None` for the data directory.
    pub location: Option<PathBuf>,
    /// Estimated bytes; only with `progress`.
    pub bytes: Option<u64>,
}

/// One step of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupEvent<'a> {
    /// A tar archive begins; the one before it has ended.
    Archive {
        /// `base.tar`, or the tablespace's oid and `.tar`. Never a path.
        name: &'a str,
        /// Where the tablespace is on the server; `None` for the data directory.
        tablespace: Option<&'a Path>,
    },
    /// The archive's next bytes.
    Data(&'a [u8]),
    /// The manifest begins; the last archive has ended.
    Manifest,
    /// The manifest's next bytes.
    ManifestData(&'a [u8]),
    /// Bytes that the server has read so far, of all archives.
    Progress(u64),
    /// The backup is complete.
    End(BackupEnd),
}

/// The end of a backup: it is consistent once the log up to this position is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupEnd {
    /// The position.
    pub position: Lsn,
    /// Its timeline.
    pub timeline: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing yet.
    Before,
    InArchive,
    InManifest,
    Done(BackupEnd),
}

/// A backup that is being received. Dropped before its end, it gives its connection up.
#[derive(Debug)]
pub struct BaseBackup<'a> {
    connection: &'a mut Connection,
    start: Lsn,
    timeline: u32,
    tablespaces: Vec<Tablespace>,
    manifest: bool,
    archives: usize,
    stage: Stage,
}

/// A [`BackupEvent`] whose bytes are still a range of the connection's input.
enum Event {
    Archive(Range<usize>, Range<usize>),
    Data(Range<usize>),
    Manifest,
    Progress(u64),
    End(BackupEnd),
}

impl Connection {
    /// Sends the manifest of an earlier backup, on which an incremental one on this connection is
    /// then based.
    ///
    /// # Errors
    /// [`Error::Unsupported`] before PostgreSQL 17; [`Error::Io`] when `manifest` cannot be read;
    /// [`Error::Server`] when the server refuses the manifest; those of the connection. All but the
    /// first give the connection up.
    pub fn upload_manifest(&mut self, manifest: &mut dyn Read) -> Result<()> {
        self.require_17()?;
        self.send("UPLOAD_MANIFEST", UPLOADING)?;
        if !matches!(self.reply(UPLOADING)?, Reply::CopyIn) {
            return self.fail_protocol("a manifest that was not asked for");
        }
        let mut piece = vec![0; PIECE];
        loop {
            let got = match manifest.read(&mut piece) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.state = crate::connection::State::GivenUp;
                    return Err(Error::Io(error));
                }
                Ok(0) => break,
                Ok(got) => got,
            };
            let bytes = piece.get(..got).unwrap_or_default();
            let message = frontend::CopyData::new(bytes);
            let message = message.map_err(|_| Error::Misuse("a piece that is too long"))?;
            message.write(self.output());
            self.flush(UPLOADING)?;
        }
        frontend::copy_done(self.output());
        self.flush(UPLOADING)?;
        loop {
            match self.reply(UPLOADING)? {
                Reply::Complete(_) => {}
                Reply::Ready => return Ok(()),
                _ => return self.fail_protocol("an answer to a manifest"),
            }
        }
    }

    /// Refuses a server that has no incremental backups: [`Error::Unsupported`].
    fn require_17(&self) -> Result<()> {
        if self.major() >= 17 {
            return Ok(());
        }
        let major = self.major();
        Err(Error::Unsupported(format!(
            "incremental backups of PostgreSQL {major}; 17 is the first that has them"
        )))
    }

    /// Begins a backup. Returns once the server has carried out its checkpoint and has announced
    /// the tablespaces.
    ///
    /// # Errors
    /// [`Error::Misuse`] for options that the server does not allow; [`Error::Unsupported`] for an
    /// incremental backup before PostgreSQL 17; [`Error::Server`] when the server refuses, after
    /// which the connection can be used again; [`Error::Protocol`] and those of the connection.
    pub fn base_backup(&mut self, options: &BackupOptions) -> Result<BaseBackup<'_>> {
        if options.incremental {
            self.require_17()?;
        }
        let command = command(options)?;
        self.send(&command, BEGINNING)?;
        let (mut sets, mut bytes): (Vec<Vec<Row>>, usize) = (Vec::new(), 0);
        loop {
            match self.reply(BEGINNING) {
                Ok(Reply::Columns(_)) if sets.len() < 2 => sets.push(Vec::new()),
                Ok(Reply::Row(row)) => {
                    bytes += row_bytes(&row);
                    match sets.last_mut() {
                        Some(set) if bytes <= TABLESPACES_MAX => set.push(row),
                        _ => return self.fail_protocol("a list of tablespaces that is too long"),
                    }
                }
                Ok(Reply::Complete(_)) => {}
                Ok(Reply::CopyOut) => break,
                Ok(_) => return self.fail_protocol("an answer that does not begin a backup"),
                Err(error) => {
                    // Nothing was received yet, so the connection can go on.
                    if matches!(&error, Error::Server(told) if !told.is_fatal()) {
                        self.recover(BEGINNING);
                    }
                    return Err(error);
                }
            }
        }
        let begun = parse_beginning(&sets);
        if begun.is_err() {
            self.state = crate::connection::State::GivenUp;
        }
        let (start, timeline, tablespaces) = begun?;
        Ok(BaseBackup {
            connection: self,
            start,
            timeline,
            tablespaces,
            manifest: options.manifest.is_some(),
            archives: 0,
            stage: Stage::Before,
        })
    }
}

impl BaseBackup<'_> {
    /// Returns the position where recovery of the backup begins.
    #[must_use]
    pub const fn start(&self) -> Lsn {
        self.start
    }

    /// Returns the timeline of that position.
    #[must_use]
    pub const fn timeline(&self) -> u32 {
        self.timeline
    }

    /// Returns the tablespaces of which there will be archives; the data directory is one of them.
    #[must_use]
    pub fn tablespaces(&self) -> &[Tablespace] {
        &self.tablespaces
    }

    /// Removes and returns the notices that came so far: see [`Connection::take_notices`].
    pub fn take_notices(&mut self) -> Vec<crate::Notice> {
        self.connection.take_notices()
    }

    /// Waits for the next event, and returns it. After [`BackupEvent::End`] every call returns that
    /// again.
    ///
    /// # Errors
    /// [`Error::Server`] when the server ends the backup; [`Error::Protocol`];
    /// [`Error::EndedEarly`], [`Error::TimedOut`] and [`Error::Io`] of the connection. The parts
    /// that were received until then are no backup; every later call is [`Error::GivenUp`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend what it returns"
    )]
    pub fn next(&mut self) -> Result<BackupEvent<'_>> {
        let event = match self.stage {
            Stage::Done(end) => Event::End(end),
            _ => self.advance()?,
        };
        let bytes = |range| self.connection.session.bytes(range);
        Ok(match event {
            Event::Archive(name, path) => {
                let name = str::from_utf8(bytes(name)).unwrap_or_default();
                let path = bytes(path);
                BackupEvent::Archive {
                    name,
                    tablespace: (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path))),
                }
            }
            Event::Data(range) if self.stage == Stage::InManifest => {
                BackupEvent::ManifestData(bytes(range))
            }
            Event::Data(range) => BackupEvent::Data(bytes(range)),
            Event::Manifest => BackupEvent::Manifest,
            Event::Progress(bytes) => BackupEvent::Progress(bytes),
            Event::End(end) => BackupEvent::End(end),
        })
    }

    /// Reads one message of a backup that has not ended. A message that the protocol does not allow
    /// gives the connection up.
    fn advance(&mut self) -> Result<Event> {
        let taken = match self.connection.reply(DURING)? {
            Reply::CopyData(body) => self.parse(body),
            Reply::CopyDone => self.finish(),
            _ => Err("a message that does not belong into a backup".into()),
        };
        taken.or_else(|failure| match failure {
            Failure::Connection(error) => Err(error),
            Failure::Protocol(text) => self.connection.fail_protocol(text),
        })
    }

    /// Parses one `CopyData`, whose first byte is its kind, and counts the archives that begin.
    fn parse(&mut self, body: Range<usize>) -> std::result::Result<Event, Failure> {
        let payload = self.connection.session.bytes(body.clone());
        let mut fields = Fields(payload);
        let kind = fields.byte();
        match (kind, self.stage) {
            (Some(b'd'), Stage::InArchive | Stage::InManifest) => {
                Ok(Event::Data(body.start + 1..body.end))
            }
            (Some(b'n'), Stage::Before | Stage::InArchive) => {
                let (name, path) = fields
                    .string()
                    .zip(fields.string())
                    .ok_or("an archive without a name")?;
                if !is_file_name(name) || !fields.0.is_empty() {
                    return Err("an archive whose name is not one".into());
                }
                if self.archives == self.tablespaces.len() {
                    return Err("more archives than tablespaces".into());
                }
                let start = body.start + 1;
                let (end, path) = (start + name.len(), path.len());
                self.archives += 1;
                self.stage = Stage::InArchive;
                Ok(Event::Archive(start..end, end + 1..end + 1 + path))
            }
            (Some(b'm'), Stage::InArchive) if self.manifest && fields.0.is_empty() => {
                self.stage = Stage::InManifest;
                Ok(Event::Manifest)
            }
            (Some(b'p'), _) => {
                let number = fields.uint64().filter(|_| fields.0.is_empty());
                let bytes = number.ok_or("a progress that is no number")?;
                Ok(Event::Progress(bytes))
            }
            _ => Err("a part of a backup that has no place here".into()),
        }
    }

    /// Reads from the last byte of the copy to `ReadyForQuery`, and returns the backup's end: its
    /// position and timeline. A protocol failure when an archive or the manifest is missing.
    fn finish(&mut self) -> std::result::Result<Event, Failure> {
        let expected = if self.manifest {
            Stage::InManifest
        } else {
            Stage::InArchive
        };
        if self.stage != expected || self.archives != self.tablespaces.len() {
            return Err("a backup that lacks an archive or its manifest".into());
        }
        let mut rows: Vec<Row> = Vec::new();
        loop {
            match self.connection.reply(DURING).map_err(Failure::Connection)? {
                Reply::Columns(_) | Reply::Complete(_) => {}
                Reply::Row(row) if rows.is_empty() => rows.push(row),
                Reply::Ready => break,
                _ => return Err("a message after a backup".into()),
            }
        }
        let row = rows.first().ok_or("a backup without its end")?;
        let (position, timeline) = position(row).map_err(|_| "an end that is no position")?;
        let end = BackupEnd { position, timeline };
        if end.position < self.start {
            return Err("a backup that ends before it begins".into());
        }
        self.stage = Stage::Done(end);
        Ok(Event::End(end))
    }
}

/// Why a step failed.
enum Failure {
    /// An error for which the connection was given up already.
    Connection(Error),
    /// A message that the protocol does not allow here.
    Protocol(&'static str),
}

impl From<&'static str> for Failure {
    /// Makes [`Failure::Protocol`] of a text.
    fn from(text: &'static str) -> Self {
        Self::Protocol(text)
    }
}

/// Returns whether the name can be that of a file in any directory: callers may use it as one.
fn is_file_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.iter().all(plain) && !name.starts_with(b".")
}

/// Returns start, timeline and tablespaces, from the result sets with which a backup begins.
/// [`Error::Protocol`] when they have another form, or do not have the data directory exactly once.
fn parse_beginning(sets: &[Vec<Row>]) -> Result<(Lsn, u32, Vec<Tablespace>)> {
    let [first, rows] = sets else {
        return Err(Error::protocol("a backup without a beginning"));
    };
    let [row] = first.as_slice() else {
        return Err(Error::protocol("a backup without a beginning"));
    };
    let (start, timeline) = position(row)?;
    let tablespaces = rows.iter().map(tablespace).collect::<Result<Vec<_>>>()?;
    if tablespaces
        .iter()
        .filter(|space| space.oid.is_none())
        .count()
        != 1
    {
        return Err(Error::protocol("a backup without the data directory"));
    }
    Ok((start, timeline, tablespaces))
}

/// Returns the position and the timeline in a row. [`Error::Protocol`] when it has another form.
fn position(row: &Row) -> Result<(Lsn, u32)> {
    Ok((parse_column(row, 0)?, parse_column(row, 1)?))
}

/// Returns the tablespace that a row describes; one without an OID is the data directory.
/// [`Error::Protocol`] when it has another form.
fn tablespace(row: &Row) -> Result<Tablespace> {
    let location = row.get(1).and_then(Option::as_deref);
    let kilobytes: Option<u64> = match text(row, 2)? {
        None => None,
        Some(_) => optional(row, 2)?,
    };
    Ok(Tablespace {
        oid: optional(row, 0)?,
        location: location
            .filter(|path| !path.is_empty())
            .map(|path| PathBuf::from(OsStr::from_bytes(path))),
        bytes: kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024)),
    })
}

/// Returns the text of the command `BASE_BACKUP`. [`Error::Misuse`] for a rate out of range, an
/// incremental backup without a manifest, or a label with a zero byte. Whatever else the server may
/// refuse is not checked.
fn command(options: &BackupOptions) -> Result<String> {
    if let Some(rate) = options.max_rate
        && !(32..=1_048_576).contains(&rate)
    {
        return Err(Error::Misuse("a rate from 32 to 1048576 kB a second"));
    }
    if options.incremental && options.manifest.is_none() {
        return Err(Error::Misuse("an incremental backup without a manifest"));
    }
    let mut command = format!("BASE_BACKUP (LABEL {}", quote(&options.label)?);
    let checkpoint = match options.checkpoint {
        Checkpoint::Fast => "fast",
        Checkpoint::Spread => "spread",
    };
    let mut put = |option: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(command, ", {option}");
    };
    put(format_args!("PROGRESS {}", options.progress));
    put(format_args!("CHECKPOINT '{checkpoint}'"));
    put(format_args!("WAL {}", options.wal));
    put(format_args!("WAIT {}", options.wait));
    put(format_args!("TABLESPACE_MAP {}", options.tablespace_map));
    put(format_args!(
        "VERIFY_CHECKSUMS {}",
        options.verify_checksums
    ));
    if let Some(rate) = options.max_rate {
        put(format_args!("MAX_RATE {rate}"));
    }
    match options.manifest {
        None => put(format_args!("MANIFEST 'no'")),
        Some(checksums) => {
            let name = match checksums {
                ManifestChecksums::None => "NONE",
                ManifestChecksums::Crc32c => "CRC32C",
                ManifestChecksums::Sha224 => "SHA224",
                ManifestChecksums::Sha256 => "SHA256",
                ManifestChecksums::Sha384 => "SHA384",
                ManifestChecksums::Sha512 => "SHA512",
            };
            put(format_args!("MANIFEST 'yes', MANIFEST_CHECKSUMS '{name}'"));
        }
    }
    if options.incremental {
        put(format_args!("INCREMENTAL"));
    }
    command.push(')');
    Ok(command)
}
