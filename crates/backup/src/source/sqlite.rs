//! The source for a SQLite database, which may be in use. SQLite makes a consistent copy beside the
//! database, and the copy is stored. The copy of a sealed database is sealed for the same key, and
//! so is what is restored. A plain copy can be read by the same users as the database.
//!
//! Must not: write a plaintext page of a sealed database anywhere; leave a copy behind.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_crypto::random16;
use strongroom_format::backup::{Member, MemberKind};
use strongroom_format::{code, hex};
use strongroom_sqlite::OpenOptions;
use strongroom_sqlite::ops::{Copied, copy_online};

use super::Source;
use crate::head::{Description, Kind, SqliteFacts};
use crate::leftovers;
use crate::stream::writer::StreamWriter;
use crate::{Error, Result};

/// Bytes read at a time.
const READ: usize = 256 * 1024;

/// How the names of copies end.
const COPY: &str = ".backup";
/// The endings of a database and of the files that SQLite puts beside it.
const JOURNALS: [&str; 5] = ["", "-journal", "-wal", "-shm", "-strongroom"];

/// A SQLite database.
pub struct SqliteSource {
    path: PathBuf,
    options: OpenOptions,
    facts: SqliteFacts,
    total: Option<Arc<AtomicU64>>,
}

impl SqliteSource {
    /// The database at `path`, which `options` opens. Nothing is opened yet.
    #[must_use]
    pub fn new(path: &Path, options: OpenOptions) -> Self {
        Self {
            path: path.to_path_buf(),
            options,
            facts: SqliteFacts::default(),
            total: None,
        }
    }
}

impl Source for SqliteSource {
    fn kind(&self) -> Kind {
        Kind::Sqlite
    }

    /// The path of the database, as it was given.
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Opens the database once, so that a wrong key is found before anything is written, and
    /// removes copies that killed runs left beside it more than a day ago; it is no error when
    /// these cannot be removed.
    fn prepare(&mut self) -> Result<()> {
        // The key is tried before anything is written to the medium.
        strongroom_sqlite::open(&self.path, &self.options).map(drop)?;
        let beside = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Copies that killed runs have left. Those that cannot be removed do no harm.
        drop(leftovers::collect(beside, is_copy_name));
        Ok(())
    }

    /// Copies the database beside itself while it may be in use, writes the copy to the stream as
    /// one file, and removes it. The copy of a sealed database is sealed for the same key. SR-7114
    /// when the copy cannot be read; errors of SQLite.
    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_os_string();
        let copy = Removed(self.path.with_file_name(copy_name(&random16()?)));
        let Copied { report, sealed } =
            copy_online(&self.path, &copy.0, &self.options, &mut |_, _| {})?;
        self.facts = SqliteFacts {
            page_size_bytes: report.page_size,
            pages: report.pages,
            sealed_source: sealed,
        };
        let failed =
            |error| Error::caused(&code::BACKUP_SOURCE, copy.0.display().to_string(), error);
        let mut file = File::open(&copy.0).map_err(failed)?;
        // The name is no longer needed: a run that is killed from here on leaves nothing.
        std::fs::remove_file(&copy.0).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if let Some(total) = &self.total {
            total.store(about.len(), Ordering::Relaxed);
        }
        let root = Member {
            kind: MemberKind::Directory,
            mode: 0o700,
            owner: about.uid(),
            group: about.gid(),
            seconds: about.mtime(),
            nanoseconds: 0,
            path: b".".to_vec(),
            target: Vec::new(),
        };
        stream.member(&root)?;
        stream.member(&Member {
            kind: MemberKind::File,
            mode: about.mode() & 0o7777,
            path: name.as_bytes().to_vec(),
            ..root
        })?;
        let mut buffer = vec![0; READ];
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                got => stream.data(buffer.get(..got).unwrap_or_default())?,
            }
        }
        stream.end_file().map(drop)
    }

    /// Keeps the counter. [`Source::write`] puts the size of the database's copy, in bytes, into it
    /// before it writes the copy to the medium.
    fn note_total(&mut self, total: Arc<AtomicU64>) {
        self.total = Some(total);
    }

    /// Puts page size, number of pages, and whether the source was sealed into the description.
    fn describe(&self, description: &mut Description) {
        description.sqlite = Some(self.facts.clone());
    }
}

/// Returns the name of a copy: a dot, so that it is hidden, 32 random hexadecimal digits,
/// `.backup`.
fn copy_name(random: &[u8; 16]) -> String {
    format!(".{}{COPY}", hex::hex(random))
}

/// Whether a file of this name is left over from a copy of the database: the copy (see
/// `copy_name`), the unfinished one with a dot before its name and `.TAG.part` after it
/// (`strongroom_sqlite::ops`), or a journal, write-ahead log, `-shm` or `-strongroom` file of
/// either. Looks at the name only.
fn is_copy_name(name: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(name) = name.strip_prefix('.') else {
        return false;
    };
    let name = name.strip_prefix('.').unwrap_or(name);
    let Some((random, rest)) = name.split_at_checked(32) else {
        return false;
    };
    let Some(rest) = rest.strip_prefix(COPY).filter(|_| hex(random)) else {
        return false;
    };
    let tagged = rest.strip_prefix('.').and_then(|rest| {
        let (tag, rest) = rest.split_at_checked(12)?;
        rest.strip_prefix(".part").filter(|_| hex(tag))
    });
    JOURNALS.contains(&tagged.unwrap_or(rest))
}

/// A file that is removed when this is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    /// Removes the file; an error, also that there is none, is ignored.
    fn drop(&mut self) {
        // If copying failed, there is no file.
        drop(std::fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_told_by_their_names() {
        let copy = copy_name(&[0xa5; 16]);
        assert!(is_copy_name(&copy), "{copy}");
        assert!(is_copy_name(&format!("{copy}-journal")));
        let under_way = format!(".{copy}.0123456789ab.part");
        assert!(is_copy_name(&under_way), "{under_way}");
        assert!(is_copy_name(&format!("{under_way}-journal")));
        assert!(!is_copy_name(&format!("{under_way}.x")));
        for other in ["db.backup", ".backup", ".0123.backup", "", ".x"] {
            assert!(!is_copy_name(other), "{other}");
        }
        assert!(!is_copy_name(&format!("{copy}2")));
        assert!(!is_copy_name(&copy[1..]));
        assert!(!is_copy_name(
            ".\u{e9}123456789012345678901234567890\u{e9}.backup"
        ));
    }
}
