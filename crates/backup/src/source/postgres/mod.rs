//! The source for a PostgreSQL cluster, over the replication protocol: its data directory, its
//! tablespaces, and the log that makes the copy consistent by itself. Every file is compared with
//! the server's own manifest before the set exists.
//!
//! Must not: complete a set that disagrees with the manifest; put a password into the set.

mod manifest;
mod tar;

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_format::backup::{Member, MemberKind};
use strongroom_format::code;
use strongroom_postgres_replication::{
    BackupEnd, BackupEvent, BackupOptions, BaseBackup, Checkpoint, Config, Connection,
};

use self::manifest::Received;
use self::tar::{Archive, Entry, Sort, Visitor};
use super::Source;
use crate::chain::Base;
use crate::head::{Description, Kind, PostgresFacts, TablespaceFacts};
use crate::stream::writer::StreamWriter;
use crate::{Error, Result};

/// The file for the server's manifest, as `pg_basebackup` names it.
const MANIFEST: &[u8] = b"backup_manifest";
/// Most bytes of a manifest: a million files.
const MANIFEST_MAX: usize = 256 << 20;

/// A running PostgreSQL server.
pub struct PostgresSource {
    config: Config,
    shown: String,
    label: String,
    spread: bool,
    connection: Option<Connection>,
    facts: PostgresFacts,
    total: Option<Arc<AtomicU64>>,
    base: Option<Base>,
    manifest: Vec<u8>,
}

impl PostgresSource {
    /// The server that `config` names. `shown` is put into the set's description, and must not
    /// contain secrets. With `spread` the checkpoint may take its usual time. Nothing is sent yet.
    #[must_use]
    pub fn new(config: Config, shown: String, label: String, spread: bool) -> Self {
        Self {
            config,
            shown,
            label,
            spread,
            connection: None,
            facts: PostgresFacts::default(),
            total: None,
            base: None,
            manifest: Vec::new(),
        }
    }

    /// Connects, unless there is a connection already, and returns the cluster's system identifier.
    ///
    /// # Errors
    /// SR-7115 when the server cannot be reached, or refuses.
    pub fn identify(&mut self) -> Result<&str> {
        self.prepare()?;
        Ok(&self.facts.system_identifier)
    }

    /// Makes the set incremental, with only what has changed since `base`.
    pub fn build_on(&mut self, base: Base) {
        self.facts.base_set_id = Some(base.set_id().to_owned());
        self.base = Some(base);
    }
}

impl Source for PostgresSource {
    fn kind(&self) -> Kind {
        Kind::Postgres
    }

    /// The server's name as the caller has given it, without secrets.
    fn shown(&self) -> String {
        self.shown.clone()
    }

    /// Connects, unless there is a connection already, and asks the server for its system
    /// identifier, version and segment size. SR-7115 when that fails.
    fn prepare(&mut self) -> Result<()> {
        if self.connection.is_some() {
            return Ok(());
        }
        let mut connection = Connection::open(&self.config).map_err(server)?;
        let identity = connection.identify_system().map_err(server)?;
        self.facts.system_identifier = identity.system.to_string();
        let version = connection.show("server_version_num").map_err(server)?;
        self.facts.server_version = version.parse().unwrap_or(0);
        let size = connection.show("wal_segment_size").map_err(server)?;
        self.facts.segment_size_bytes =
            size_of(&size).ok_or_else(|| unexpected("wal_segment_size"))?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Has the server make a base backup, with its log, and writes it to the stream; compares every
    /// file with the server's manifest. SR-7115 when the server refuses or fails; SR-7116 when a
    /// file differs; SR-7160 when the server cannot build on the base.
    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()> {
        let connection = self.connection.as_mut();
        let connection = connection.ok_or_else(|| Error::new(&code::BUG, "not prepared"))?;
        let options = BackupOptions {
            label: self.label.clone(),
            checkpoint: if self.spread {
                Checkpoint::Spread
            } else {
                Checkpoint::Fast
            },
            wal: true,
            tablespace_map: false,
            // Only to show progress, because the server has to walk all files for it.
            progress: self.total.is_some(),
            incremental: self.base.is_some(),
            ..BackupOptions::default()
        };
        if let Some(base) = &self.base {
            let mut manifest = base.manifest();
            connection
                .upload_manifest(&mut manifest)
                .map_err(incremental)?;
        }
        let mut backup = connection.base_backup(&options).map_err(incremental)?;
        self.facts.start_lsn = backup.start().to_string();
        self.facts.timeline = backup.timeline();
        self.facts.tablespaces = tablespaces(&backup)?;
        if let Some(total) = &self.total {
            let sizes = backup.tablespaces().iter().filter_map(|space| space.bytes);
            total.store(sizes.sum(), Ordering::Relaxed);
        }
        let mut receiver = Receiver::new(stream);
        receiver.begin(&self.facts.tablespaces)?;
        let end = receiver.receive(&mut backup)?;
        self.manifest = receiver.finish()?;
        self.facts.end_lsn = end.position.to_string();
        self.facts.end_timeline = end.timeline;
        self.facts.manifest = true;
        Ok(())
    }

    /// Keeps the counter; the server is then asked for the size of the cluster, for which it has to
    /// walk all files.
    fn note_total(&mut self, total: Arc<AtomicU64>) {
        self.total = Some(total);
    }

    /// Puts the facts of the cluster and of this backup into the description.
    fn describe(&self, description: &mut Description) {
        description.postgres = Some(self.facts.clone());
    }

    /// Returns the server's manifest; empty before [`Source::write`], never `None`.
    fn manifest(&self) -> Option<&[u8]> {
        Some(&self.manifest)
    }
}

/// Writes the backup that the server sends to the stream.
struct Receiver<'a, 'b> {
    stream: &'a mut StreamWriter<'b>,
    /// The path in the data directory that the current archive is for.
    prefix: Vec<u8>,
    received: Received,
    /// The open file: its path, its bytes so far.
    file: Option<(Vec<u8>, u64)>,
    manifest: Vec<u8>,
    /// A tablespace whose member waits for the first entry of its archive, which names its owner.
    space: Option<Member>,
    /// Owner and group of the server's files, which are those of `PG_VERSION`.
    owner: (u32, u32),
}

impl<'a, 'b> Receiver<'a, 'b> {
    /// A receiver that writes to `stream`, with nothing received yet.
    fn new(stream: &'a mut StreamWriter<'b>) -> Self {
        Self {
            stream,
            prefix: Vec::new(),
            received: Received::new(),
            file: None,
            manifest: Vec::new(),
            space: None,
            owner: (0, 0),
        }
    }

    /// Writes the directories that must come first, the root and, if there are tablespaces,
    /// `pg_tblspc`: the server sends tablespaces before the data directory. Errors of the medium.
    fn begin(&mut self, spaces: &[TablespaceFacts]) -> Result<()> {
        self.stream.member(&directory(b".", self.owner))?;
        if !spaces.is_empty() {
            self.stream.member(&directory(b"pg_tblspc", self.owner))?;
        }
        Ok(())
    }

    /// Receives all archives and the manifest, and returns where the backup ends. SR-7115 for
    /// anything that does not belong in a backup.
    fn receive(&mut self, backup: &mut BaseBackup<'_>) -> Result<BackupEnd> {
        let spaces = backup.tablespaces().to_vec();
        let mut archive: Option<Archive> = None;
        loop {
            match backup.next().map_err(server)? {
                BackupEvent::Archive { name, .. } => {
                    finish_archive(archive.replace(Archive::default()))?;
                    if self.space.is_some() {
                        return Err(unexpected("an archive without entries"));
                    }
                    let oid: Option<u32> =
                        name.strip_suffix(".tar").and_then(|oid| oid.parse().ok());
                    self.prefix = match oid {
                        None => Vec::new(),
                        Some(oid) => {
                            let space = spaces.iter().find(|space| space.oid == Some(oid));
                            let place = space.and_then(|space| space.location.as_ref());
                            let place = place.ok_or_else(|| unexpected("an archive"))?;
                            self.begin_tablespace(oid, place.as_os_str().as_bytes())
                        }
                    };
                }
                BackupEvent::Data(bytes) => {
                    let archive = archive.as_mut().ok_or_else(|| unexpected("data"))?;
                    archive.feed(bytes, self)?;
                }
                BackupEvent::Manifest => finish_archive(archive.take())?,
                BackupEvent::ManifestData(bytes) => {
                    if self.manifest.len().saturating_add(bytes.len()) > MANIFEST_MAX {
                        return Err(unexpected("a manifest that is too long"));
                    }
                    self.manifest.extend_from_slice(bytes);
                }
                BackupEvent::Progress(_) => {}
                BackupEvent::End(end) => return Ok(end),
            }
        }
    }

    /// Compares all files with the manifest (SR-7116), writes the manifest, then the root again
    /// with its owner. Returns the manifest.
    fn finish(&mut self) -> Result<Vec<u8>> {
        if self.space.is_some() {
            return Err(unexpected("an archive without entries"));
        }
        manifest::check(&self.manifest, &self.received)?;
        let mut member = directory(MANIFEST, self.owner);
        member.kind = MemberKind::File;
        member.mode = 0o600;
        self.stream.member(&member)?;
        let manifest = std::mem::take(&mut self.manifest);
        self.stream.data(&manifest)?;
        self.stream.end_file()?;
        self.stream.member(&directory(b".", self.owner))?;
        Ok(manifest)
    }

    /// Begins a tablespace's archive: its member waits for the first entry. Returns the path of its
    /// files.
    fn begin_tablespace(&mut self, oid: u32, place: &[u8]) -> Vec<u8> {
        let path = format!("pg_tblspc/{oid}").into_bytes();
        let mut member = directory(&path, self.owner);
        member.kind = MemberKind::Tablespace;
        member.target = place.to_vec();
        self.space = Some(member);
        [path.as_slice(), b"/"].concat()
    }
}

impl Visitor for Receiver<'_, '_> {
    /// Writes the member of an archive's entry, and before the first one that of its tablespace.
    /// Roots of archives and links to tablespaces are skipped, because they were written already.
    /// Errors of the medium.
    fn entry(&mut self, entry: &Entry) -> Result<()> {
        if let Some(mut space) = self.space.take() {
            (space.owner, space.group) = (entry.owner, entry.group);
            self.stream.member(&space)?;
        }
        let path = [self.prefix.as_slice(), &entry.name].concat();
        // The root of an archive was written as a member already, and so were the links to
        // tablespaces.
        if entry.name == b"." && entry.sort == Sort::Directory {
            return Ok(());
        }
        if entry.sort == Sort::Link && path.starts_with(b"pg_tblspc/") {
            return Ok(());
        }
        if path == b"PG_VERSION" {
            self.owner = (entry.owner, entry.group);
        }
        let kind = match entry.sort {
            Sort::File => MemberKind::File,
            Sort::Directory => MemberKind::Directory,
            Sort::Link => MemberKind::Link,
        };
        if kind == MemberKind::File {
            self.file = Some((path.clone(), 0));
        }
        self.stream.member(&Member {
            kind,
            mode: entry.mode,
            owner: entry.owner,
            group: entry.group,
            seconds: entry.seconds,
            nanoseconds: 0,
            path,
            target: entry.target.clone(),
        })
    }

    /// Writes the next bytes of the open file to the stream, and counts them. Errors of the medium.
    fn data(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some((_, size)) = &mut self.file {
            *size = size.saturating_add(bytes.len() as u64);
        }
        self.stream.data(bytes)
    }

    /// Ends the open file, and notes its size and digest for the comparison with the manifest.
    /// SR-7115 for a path that came twice.
    fn end(&mut self) -> Result<()> {
        let digest = self.stream.end_file()?;
        if let Some((path, size)) = self.file.take()
            && self.received.insert(path, (size, digest)).is_some()
        {
            return Err(unexpected("a file that came twice"));
        }
        Ok(())
    }
}

/// Checks that an archive, if there was one, ended with its end mark (SR-7115).
fn finish_archive(archive: Option<Archive>) -> Result<()> {
    archive.map_or(Ok(()), |archive| archive.finish())
}

/// Makes a member for a directory, with mode 0700 and the current time.
fn directory(path: &[u8], (owner, group): (u32, u32)) -> Member {
    Member {
        kind: MemberKind::Directory,
        mode: 0o700,
        owner,
        group,
        seconds: i64::try_from(crate::clock::now_unix_s()).unwrap_or(0),
        nanoseconds: 0,
        path: path.to_vec(),
        target: Vec::new(),
    }
}

/// The tablespaces of the backup, except for the default one. SR-7115 for one without a place.
fn tablespaces(backup: &BaseBackup<'_>) -> Result<Vec<TablespaceFacts>> {
    let mut out = Vec::new();
    for space in backup.tablespaces() {
        if let (Some(oid), Some(location)) = (space.oid, &space.location) {
            let location = location.to_string_lossy().into_owned();
            out.push(TablespaceFacts { oid, location });
        } else if space.oid.is_some() {
            return Err(unexpected("a tablespace without a place"));
        }
    }
    Ok(out)
}

/// Parses a size as `SHOW` prints it: a number and B, kB, MB or GB. Returns bytes; `None` for any
/// other form.
fn size_of(shown: &str) -> Option<u64> {
    let digits = shown.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match shown.get(digits.len()..)? {
        "" | "B" => 1,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Makes SR-7115 of an error of the server.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn server(error: strongroom_postgres_replication::Error) -> Error {
    Error::new(&code::BACKUP_SERVER, error.to_string())
}

/// Makes SR-7160 when the server cannot build on the base, because summaries of the log are off or
/// missing, or the base is of another timeline or cluster; SR-7115 for other errors.
fn incremental(error: strongroom_postgres_replication::Error) -> Error {
    let refused = matches!(
        error,
        strongroom_postgres_replication::Error::Unsupported(_)
    ) || error.sqlstate() == Some("55000");
    if refused {
        return Error::new(&code::INCREMENTAL_BASE, error.to_string());
    }
    server(error)
}

/// Makes SR-7115 for something that does not belong in a backup.
fn unexpected(what: &str) -> Error {
    Error::new(
        &code::BACKUP_SERVER,
        format!("{what} that does not belong into a backup"),
    )
}
