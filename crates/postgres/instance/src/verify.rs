//! Verification: authenticates what can be authenticated in a sealed instance, which is
//! its header and its containers, at the names that they were sealed for; and finds zeros that were
//! written into its transaction status files from outside.
//!
//! Invariant: the result names, by class, the files that are sealed without a tag, and so are not
//! authenticated: blocks and streams.
//!
//! Must not: change a file, or need PostgreSQL.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use strongroom_format::code::{self, Code};
use strongroom_format::header::Header;
use strongroom_keyring::Error;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::layout::{BlockKey, FileLayout};
use strongroom_postgres_shield::real::Errno;
use strongroom_postgres_shield::resolve::Seal;
use strongroom_postgres_shield::{container_name, scratch};

use crate::chosen::{ChosenKey, GivenKey};
use crate::contents::{Contents, check_control, seal_of};
use crate::directory::Directory;
use crate::unsealed::files;

/// The word for a container in results.
const CONTAINER: &str = "container";
/// The word for a transaction status file in results.
const STATUS_FILE: &str = "transaction status file";
/// Directories of transaction status files that PostgreSQL makes durable.
const LASTING_STATUS: [&str; 3] = ["pg_xact", "pg_multixact", "pg_commit_ts"];
/// The system's code for input that is not what was written, which is how a container tells that it
/// does not open.
const EIO: Errno = Errno(5);

/// What was checked of an instance, and what was found.
pub struct Verification {
    /// The cipher's name.
    pub cipher: &'static str,
    /// A rotation was begun and not finished.
    pub rekey_under_way: bool,
    /// What was checked, by kind of file.
    pub checked: Vec<CheckedFiles>,
    /// The files that are bad.
    pub bad: Vec<BadFile>,
    /// What was not checked, as sentences.
    pub not_checked: Vec<String>,
    /// The failure that the bad files amount to.
    pub failure: Option<Error>,
}

/// The files of one kind.
pub struct CheckedFiles {
    /// The kind.
    pub kind: &'static str,
    /// How many were read.
    pub count: u64,
    /// How many of them are good.
    pub good: u64,
    /// Whether a good one is authentic. Otherwise it is only free of zeros that somebody wrote.
    pub is_authenticated: bool,
}

/// A file that is bad.
pub struct BadFile {
    /// Its kind.
    pub kind: &'static str,
    /// Its number among the files of this kind that were read, from 1.
    pub index: u64,
    /// Where, as PostgreSQL counts.
    pub offset_bytes: u64,
    /// What is wrong.
    pub code: &'static Code,
    /// The file, relative to the data directory.
    pub file: String,
}

/// Checks the sealed instance in the directory `path`: its header, its containers, and zeros in
/// transaction status files. Changes nothing. `progress` is called with the number of files that
/// were looked at, and of how many.
///
/// # Errors
/// SR-7011 when `path` is no data directory; SR-7003 while it is converted, SR-7004 when it is not
/// sealed; those of its key and header; SR-7001 when they do not open the control file; SR-5001
/// when the system reports an error. Other files that are bad are no error, but in
/// [`Verification::failure`].
pub fn verify(
    path: &Path,
    given: GivenKey,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verification, Error> {
    let directory = Directory::at(path)?;
    let is_instance = directory.major().is_some() || directory.is_sealed();
    if !is_instance && !directory.is_converting() {
        let detail = "a directory, and no data directory of PostgreSQL's: name a file";
        return Err(directory.failure(&code::PG_NOT_INSTANCE, detail));
    }
    directory.check_sealed()?;
    let chosen = ChosenKey::required(given, &directory)?;
    let object = chosen.open(&directory)?;
    let instance = chosen.instance(&directory)?;
    check_control(&directory, &instance)?;
    let finds_zeros = object.header().sealed_zeros;
    let looked = FileCheck::read_all_files(&directory, &instance, finds_zeros, progress)?;
    let failure = looked.bad.first().map(|first| {
        let detail = format!("{} bad, the first is {}", looked.bad.len(), first.file);
        directory.failure(first.code, &detail)
    });
    let mut checked = vec![looked.checked(CONTAINER, looked.containers)];
    if finds_zeros {
        checked.push(looked.checked(STATUS_FILE, looked.status_files));
    }
    Ok(Verification {
        cipher: object.header().cipher.name(),
        rekey_under_way: object.previous_epoch().is_some(),
        checked,
        bad: looked.bad,
        not_checked: not_checked(&directory, object.header()),
        failure,
    })
}

/// What was looked at in a data directory.
struct FileCheck {
    containers: u64,
    status_files: u64,
    bad: Vec<BadFile>,
}

impl FileCheck {
    /// Reads every file that can be checked, and counts them by kind. A file that is gone, because
    /// the server has removed it meanwhile, is left out; damaged ones are in the result.
    ///
    /// # Errors
    /// SR-7002 when a part of the instance is missing, or a file cannot be one of a sealed
    /// instance; SR-5001 when reading fails otherwise.
    fn read_all_files(
        directory: &Directory,
        instance: &Instance,
        finds_zeros: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, Error> {
        let found = files(&directory.path)?;
        let total = found.len() as u64;
        let mut looked = Self {
            containers: 0,
            status_files: 0,
            bad: Vec::new(),
        };
        for (done, (relative, _)) in (1_u64..).zip(&found) {
            let Some((seal, kind)) = unit_kind(relative, finds_zeros) else {
                continue;
            };
            // A running server removes and replaces files.
            let path = directory.path.join(relative);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::on_path(&path, error)),
            };
            let count = match kind {
                CONTAINER => &mut looked.containers,
                _ => &mut looked.status_files,
            };
            *count += 1;
            match read_to_end(&Contents::new(&file, instance, seal)) {
                Ok(()) => {}
                Err((EIO, offset_bytes)) => looked.bad.push(BadFile {
                    kind,
                    index: *count,
                    offset_bytes,
                    code: code_of(kind),
                    file: relative.display().to_string(),
                }),
                Err((errno, _)) => {
                    let error = std::io::Error::from_raw_os_error(errno.0);
                    return Err(Error::on_path(&path, error));
                }
            }
            progress(done, total);
        }
        Ok(looked)
    }

    /// Returns how many of the `count` files of a kind are good.
    fn checked(&self, kind: &'static str, count: u64) -> CheckedFiles {
        let bad = self.bad.iter().filter(|unit| unit.kind == kind).count();
        CheckedFiles {
            kind,
            count,
            good: count - bad as u64,
            // The blocks of transaction status files have no tags.
            is_authenticated: kind == CONTAINER,
        }
    }
}

/// Returns the code for a file of a kind that is bad: SR-7001 for a container, otherwise SR-7029.
fn code_of(kind: &str) -> &'static Code {
    match kind {
        CONTAINER => &code::PG_FILE,
        _ => &code::PG_STATUS_ZEROS,
    }
}

/// Returns how a file is sealed and as what it is checked; `None` when there is nothing to check.
/// Transaction status files that PostgreSQL does not keep through a restart may hold zeros after a
/// power cut; they are made anew. So is the one container that a kill leaves between two names.
fn unit_kind(relative: &Path, finds_zeros: bool) -> Option<(Seal, &'static str)> {
    let seal = seal_of(relative)
        .filter(|seal| !container_name::is_temporary_summary(seal.class, &seal.tweak))?;
    let lasts = LASTING_STATUS.iter().any(|name| relative.starts_with(name));
    match (seal.layout, seal.key) {
        (FileLayout::Container, _) => Some((seal, CONTAINER)),
        (FileLayout::Block, BlockKey::Slru) if finds_zeros && lasts => Some((seal, STATUS_FILE)),
        _ => None,
    }
}

/// Reads a file to its end; an error has the offset that was not read, as PostgreSQL counts.
fn read_to_end(contents: &Contents<'_>) -> Result<(), (Errno, u64)> {
    let mut buffer = vec![0; scratch::LEN];
    let mut offset = 0;
    loop {
        match contents.read(&mut buffer, offset) {
            Ok(0) => return Ok(()),
            Ok(length) => offset += length as u64,
            Err(errno) => return Err((errno, offset)),
        }
    }
}

/// Lists in sentences what a verification of this instance does not check.
fn not_checked(directory: &Directory, header: &Header) -> Vec<String> {
    let mut out = vec![
        String::from(
            "relations, log, transaction status but for zeros, control file: sealed without authentication; \
             `strongroom pg run -D DIR -- pg_checksums --check -D DIR` finds damage, not intent",
        ),
        String::from("streams and temporary files: sealed without authentication"),
        String::from("files in clear: `strongroom pg status --plaintext` lists them"),
        String::from("whether this is the newest state, and whether every file is there"),
    ];
    if !header.bound_names {
        out.push(String::from(
            "whether a small sealed file was put in the place of another: an older version sealed the instance; \
             `strongroom pg decrypt` and `strongroom pg encrypt` make one whose files are bound to their names",
        ));
    }
    if !header.sealed_zeros {
        out.push(String::from(
            "zeros that somebody wrote into transaction status files: an older version sealed the instance; \
             `strongroom pg decrypt` and `strongroom pg encrypt` make one whose zeros are checked",
        ));
    }
    if let Some(pid) = directory.server() {
        out.push(format!(
            "what the running server (process {pid}) wrote meanwhile"
        ));
    }
    out
}
