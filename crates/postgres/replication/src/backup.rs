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

/// Bytes of the list of tablespaces at the most.
const TABLESPACES_MAX: usize = 4 << 20;

/// A piece of a manifest that is sent, in bytes.
const PIECE: usize = 64 * 1024;

/// When the backup's checkpoint is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// At once, at the price of a burst of writes.
    Fast,
    /// Over the usual time, minutes.
    Spread,
}

/// What the manifest has of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestChecksums {
    /// Only its size.
    None,
    /// Finds accidents.
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

/// What is asked of the server (PostgreSQL documentation, `BASE_BACKUP`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupOptions {
    /// Stands in the backup's `backup_label`.
    pub label: String,
    /// Sizes of the tablespaces, which cost the server a look at all files first. Progress is told
    /// in any case.
    pub progress: bool,
    /// When the checkpoint is done.
    pub checkpoint: Checkpoint,
    /// Put the log that the backup needs into its archive.
    pub wal: bool,
    /// Let the server wait for its archive to have the log that the backup needs.
    pub wait: bool,
    /// kB a second, 32 to 1048576. `None`: as fast as it goes.
    pub max_rate: Option<u32>,
    /// The links to tablespaces as a file `tablespace_map`.
    pub tablespace_map: bool,
    /// Let the server verify the checksums of the pages that it reads.
    pub verify_checksums: bool,
    /// A manifest, with these checksums.
    pub manifest: Option<ManifestChecksums>,
    /// Only what changed since the backup whose manifest [`Connection::upload_manifest`] sent.
    /// PostgreSQL 17 and later.
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

/// A tablespace that the backup has an archive of.
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
    /// A tar archive begins; an earlier one is done.
    Archive {
        /// `base.tar`, or the tablespace's oid and `.tar`. Never a path.
        name: &'a str,
        /// Where the tablespace is on the server; `None` for the data directory.
        tablespace: Option<&'a Path>,
    },
    /// The archive's next bytes.
    Data(&'a [u8]),
    /// The manifest begins; the last archive is done.
    Manifest,
    /// The manifest's next bytes.
    ManifestData(&'a [u8]),
    /// Bytes that the server has read so far, of all archives.
    Progress(u64),
    /// The backup is done.
    End(BackupEnd),
}

/// Where a backup ends: it is consistent once the log up to here is replayed.
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

/// An event whose bytes are still in the connection's buffer.
enum Place {
    Archive(Range<usize>, Range<usize>),
    Data(Range<usize>),
    Manifest,
    Progress(u64),
    End(BackupEnd),
}

impl Connection {
    /// Sends the manifest of an earlier backup, for an incremental one on this connection.
    ///
    /// # Errors
    /// [`Error::Unsupported`] before PostgreSQL 17; [`Error::Io`] of `manifest`; the server's.
    pub fn upload_manifest(&mut self, manifest: &mut dyn Read) -> Result<()> {
        self.at_least_17()?;
        self.send("UPLOAD_MANIFEST", UPLOADING)?;
        if !matches!(self.reply(UPLOADING)?, Reply::CopyIn) {
            return self.out_of_place("a manifest that was not asked for");
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
                _ => return self.out_of_place("an answer to a manifest"),
            }
        }
    }

    fn at_least_17(&self) -> Result<()> {
        if self.major() >= 17 {
            return Ok(());
        }
        let major = self.major();
        Err(Error::Unsupported(format!(
            "incremental backups of PostgreSQL {major}; 17 is the first that has them"
        )))
    }

    /// Begins a backup: returns when the server's checkpoint is done and its first bytes are about
    /// to come.
    ///
    /// # Errors
    /// [`Error::Misuse`], [`Error::Unsupported`], the server's, those of the connection.
    pub fn base_backup(&mut self, options: &BackupOptions) -> Result<BaseBackup<'_>> {
        if options.incremental {
            self.at_least_17()?;
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
                        _ => return self.out_of_place("a list of tablespaces that is too long"),
                    }
                }
                Ok(Reply::Complete(_)) => {}
                Ok(Reply::CopyOut) => break,
                Ok(_) => return self.out_of_place("an answer that does not begin a backup"),
                Err(error) => {
                    // Nothing was received yet, so the connection can go on.
                    if matches!(&error, Error::Server(told) if !told.is_fatal()) {
                        self.recover(BEGINNING);
                    }
                    return Err(error);
                }
            }
        }
        let begun = begun(&sets);
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
    /// Where recovery of the backup begins.
    #[must_use]
    pub const fn start(&self) -> Lsn {
        self.start
    }

    /// The timeline of that position.
    #[must_use]
    pub const fn timeline(&self) -> u32 {
        self.timeline
    }

    /// What there will be archives of; the data directory is one of them.
    #[must_use]
    pub fn tablespaces(&self) -> &[Tablespace] {
        &self.tablespaces
    }

    /// The notices that came so far: see [`Connection::take_notices`].
    pub fn take_notices(&mut self) -> Vec<crate::Notice> {
        self.connection.take_notices()
    }

    /// The next event. After [`BackupEvent::End`] it is that again.
    ///
    /// # Errors
    /// The server's, of the protocol, of the connection. What was received until then is no backup;
    /// every later call is [`Error::GivenUp`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend what it returns"
    )]
    pub fn next(&mut self) -> Result<BackupEvent<'_>> {
        let place = match self.stage {
            Stage::Done(end) => Place::End(end),
            _ => self.advance()?,
        };
        let bytes = |range| self.connection.session.bytes(range);
        Ok(match place {
            Place::Archive(name, path) => {
                let name = str::from_utf8(bytes(name)).unwrap_or_default();
                let path = bytes(path);
                BackupEvent::Archive {
                    name,
                    tablespace: (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path))),
                }
            }
            Place::Data(range) if self.stage == Stage::InManifest => {
                BackupEvent::ManifestData(bytes(range))
            }
            Place::Data(range) => BackupEvent::Data(bytes(range)),
            Place::Manifest => BackupEvent::Manifest,
            Place::Progress(bytes) => BackupEvent::Progress(bytes),
            Place::End(end) => BackupEvent::End(end),
        })
    }

    fn advance(&mut self) -> Result<Place> {
        let taken = match self.connection.reply(DURING)? {
            Reply::CopyData(body) => self.take(body),
            Reply::CopyDone => self.finish(),
            _ => Err("a message that does not belong into a backup".into()),
        };
        taken.or_else(|stopped| match stopped {
            Stopped::By(error) => Err(error),
            Stopped::Wrong(text) => self.connection.out_of_place(text),
        })
    }

    /// One message of the copy: its first byte says what it is.
    fn take(&mut self, body: Range<usize>) -> std::result::Result<Place, Stopped> {
        let payload = self.connection.session.bytes(body.clone());
        let mut fields = Fields(payload);
        let kind = fields.byte();
        match (kind, self.stage) {
            (Some(b'd'), Stage::InArchive | Stage::InManifest) => {
                Ok(Place::Data(body.start + 1..body.end))
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
                Ok(Place::Archive(start..end, end + 1..end + 1 + path))
            }
            (Some(b'm'), Stage::InArchive) if self.manifest && fields.0.is_empty() => {
                self.stage = Stage::InManifest;
                Ok(Place::Manifest)
            }
            (Some(b'p'), _) => {
                let number = fields.uint64().filter(|_| fields.0.is_empty());
                let bytes = number.ok_or("a progress that is no number")?;
                Ok(Place::Progress(bytes))
            }
            _ => Err("a part of a backup that has no place here".into()),
        }
    }

    /// After the last byte: the end's position, and "ready".
    fn finish(&mut self) -> std::result::Result<Place, Stopped> {
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
            match self.connection.reply(DURING).map_err(Stopped::By)? {
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
        Ok(Place::End(end))
    }
}

/// Why a step failed.
enum Stopped {
    /// The connection has been told already.
    By(Error),
    Wrong(&'static str),
}

impl From<&'static str> for Stopped {
    fn from(text: &'static str) -> Self {
        Self::Wrong(text)
    }
}

/// A name that can be a file's in any directory: callers may use it as one.
fn is_file_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.iter().all(plain) && !name.starts_with(b".")
}

fn begun(sets: &[Vec<Row>]) -> Result<(Lsn, u32, Vec<Tablespace>)> {
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

fn position(row: &Row) -> Result<(Lsn, u32)> {
    Ok((parse_column(row, 0)?, parse_column(row, 1)?))
}

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
