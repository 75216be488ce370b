//! Operations on a whole database: encrypt, decrypt, rekey, verify.
//!
//! Invariants:
//! Q1. An output gets its name only when it is complete and durable. Until then it is a temporary
//!     file beside it, which is removed on failure. An existing file is never overwritten.
//! Q2. The source of a copy is not changed.
//! Q3. After a failure nothing of the output remains, durably, or the error says where it is.
//!
//! Must not: write a plaintext page anywhere but in the output that `decrypt` was asked for.
#![expect(
    unsafe_code,
    reason = "the raw connection is passed to the VFS's rekey"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use strongroom_format::code;
use strongroom_format::header::is_sealed;
use strongroom_format::hex::hex;
use strongroom_keyring::storage::{self, About};
use strongroom_keyring::{Error, KeySource, durable};
use strongroom_sqlite_vfs as vfs;

use crate::foreign;
use crate::open::{OpenOptions, explain, open, open_with, opener_of, register, uri, with_key};

pub use strongroom_sqlite_vfs::{BadUnit, Freshness, RekeyReport, UnitKind, VerifyReport};

static CANCELLED: AtomicBool = AtomicBool::new(false);

/// Stops the [`encrypt`] or [`decrypt`] that is running in this process: it fails with SR-1005 and
/// removes its output. Only sets a flag, so a signal handler may call it.
pub fn cancel() {
    CANCELLED.store(true, Ordering::Relaxed);
}

/// The output of [`encrypt`] or [`decrypt`].
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Pages of the output.
    pub pages: u64,
    /// Page size of the output, in bytes.
    pub page_size: u32,
    /// Length of the output, in bytes.
    pub bytes: u64,
}

/// Writes a sealed copy of the plain database `plain` to `sealed`, with the key, cipher and page
/// size of `options` (page size 0: the source's). The source is not changed; an existing target is
/// never overwritten, and after an error none is left. `progress` gets pages done and pages in all.
///
/// # Errors
/// SR-1002 when the target exists, SR-1003 when it is the source, SR-1006 when there is no source;
/// SR-3011 when the source is sealed already, SR-2288 when another product seems to have encrypted
/// it, SR-4011 when its last page is cut; SR-2001 without a key; SR-1001 for a page size that is
/// not valid; SR-1005 after [`cancel`].
pub fn encrypt(
    plain: &Path,
    sealed: &Path,
    options: &OpenOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, Error> {
    check_names(plain, sealed)?;
    if sealed_at(plain)? {
        return Err(Error::new(
            &code::ALREADY_SEALED,
            plain.display().to_string(),
        ));
    }
    let size = about(plain)?.len;
    if let Some(foreign) = foreign::recognise(&vfs::head(plain, foreign::SAMPLE)?, size) {
        let detail = format!("{}: {}", plain.display(), foreign.describe());
        return Err(Error::new(&code::OTHER_CIPHER, detail));
    }
    if options.page_size != 0 && vfs::valid_page_size(options.page_size).is_none() {
        return Err(Error::new(
            &code::USAGE,
            format!("page size {}", options.page_size),
        ));
    }
    let opener = options
        .opener(sealed, true)?
        .ok_or_else(|| Error::new(&code::NO_KEY, sealed.display().to_string()))?;
    let mut source = open_source(plain, &OpenOptions::default())?;
    let own_page_size = number(&source, "page_size")?;
    // SQLite silently reads zeros where the last page is cut off. It has played a journal back
    // already, which may have made the file shorter.
    let size = about(plain)?.len;
    let beyond = u64::try_from(own_page_size)
        .ok()
        .and_then(|own| size.checked_rem(own));
    if let Some(beyond @ 1..) = beyond {
        let detail = format!(
            "{}: its last page has {beyond} of {own_page_size} bytes",
            plain.display()
        );
        return Err(Error::new(&code::MALFORMED, detail));
    }
    let page_size = match options.page_size {
        0 => own_page_size,
        size => i64::from(size),
    };
    // The standard way to have VACUUM INTO write another page size; the source keeps its own.
    source
        .pragma_update(None, "page_size", page_size)
        .map_err(explain)?;
    let parameters = [
        ("cipher", options.cipher.name().to_owned()),
        ("page_size", page_size.to_string()),
        ("freshness", u8::from(options.freshness).to_string()),
    ];
    Temporary::publish(sealed, |temporary| {
        let target = uri(temporary, &parameters)?;
        with_key(temporary, Some(opener.clone()), || {
            copy(&mut source, &target, temporary, progress)
        })?;
        let finished = OpenOptions {
            page_size: 0,
            ..OpenOptions::default()
        };
        let result = open_with(temporary, &finished, Some(opener))?;
        finish(plain, &source, result, temporary)
    })
}

/// Writes a plain copy of the sealed database `sealed` to `plain`, with the source's permissions.
/// The source is not changed; an existing target is never overwritten, and after an error none is
/// left. `progress` gets pages done and pages in all.
///
/// # Errors
/// SR-1002 when the target exists, SR-1003 when it is the source, SR-1006 when there is no source;
/// SR-3001 when the source is not sealed; SR-2001 without a key, SR-2002 for a wrong one; SR-4001
/// for a damaged page; SR-1005 after [`cancel`].
pub fn decrypt(
    sealed: &Path,
    plain: &Path,
    options: &OpenOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, Error> {
    check_names(sealed, plain)?;
    if !sealed_at(sealed)? {
        return Err(Error::new(&code::NOT_SEALED, sealed.display().to_string()));
    }
    let opener = options
        .opener(sealed, false)?
        .ok_or_else(|| Error::new(&code::NO_KEY, sealed.display().to_string()))?;
    let mut source = open_with(sealed, &OpenOptions::default(), Some(opener))?;
    Temporary::publish(plain, |temporary| {
        let target = uri(temporary, &[("allow_plaintext", "1".to_owned())])?;
        copy(&mut source, &target, temporary, progress)?;
        let result = open_with(temporary, &OpenOptions::default(), None)?;
        finish(sealed, &source, result, temporary)
    })
}

/// Writes a consistent copy of the database `source`, which may be in use, to `copy`: a plain one
/// of a plain database, of a sealed one a database that is sealed for the same key with the same
/// cipher, under a data key of its own. An existing `copy` is never overwritten. `progress` gets
/// pages done and pages in all.
///
/// # Errors
/// SR-1002 when `copy` exists, SR-1003 when it is the source, SR-1006 when there is no source;
/// SR-2001 when the source is sealed and no key is given; SR-2012 when the key is retired; SR-1005
/// after [`cancel`].
pub fn copy_online(
    source: &Path,
    copy: &Path,
    options: &OpenOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Copied, Error> {
    check_names(source, copy)?;
    let sealed = sealed_at(source)?;
    let (opener, parameters) = if sealed {
        let opener = options
            .opener(source, false)?
            .ok_or_else(|| Error::new(&code::NO_KEY, source.display().to_string()))?;
        let header = strongroom_keyring::redo::newest_header(source, &vfs::head(source, 4096)?);
        let header = strongroom_format::header::Header::parse(&header);
        let header = header.map_err(|_| Error::new(&code::HEADER_DAMAGED, ""))?;
        let parameters = vec![
            ("cipher", header.cipher.name().to_owned()),
            ("page_size", header.unit_size.to_string()),
            ("freshness", u8::from(header.freshness).to_string()),
        ];
        (Some(opener), parameters)
    } else {
        (None, Vec::new())
    };
    let mut connection = match &opener {
        Some(opener) => open_with(source, &OpenOptions::default(), Some(opener.clone()))?,
        None => open_source(source, &OpenOptions::default())?,
    };
    let report = Temporary::publish(copy, |temporary| {
        let target = uri(temporary, &parameters)?;
        with_key(temporary, opener.clone(), || {
            self::copy(&mut connection, &target, temporary, progress)
        })?;
        let result = open_with(temporary, &OpenOptions::default(), opener)?;
        finish(source, &connection, result, temporary)
    })?;
    Ok(Copied { report, sealed })
}

/// The output of [`copy_online`].
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// The copy.
    pub report: Report,
    /// Whether it is sealed, as its source is.
    pub sealed: bool,
}

/// Gives the database a new data key and seals every page again (`slots_only`: only rewraps its
/// data key for `new_key`, and reports no pages). Without `new_key` the key slot stays as it is.
/// Finishes a rekey that was interrupted first, also when only the new key still opens the
/// database; if that rekey was for another key, the database gets another data key for `new_key`
/// after it. Waits up to 5 seconds for locks. `progress` gets pages done and pages in all.
///
/// # Errors
/// SR-3001 when the database is not sealed; SR-2001 without a key in `options`; SR-2019 for
/// `slots_only` without a new key; SR-6010 when other connections keep it from finishing; those of
/// `open`.
pub fn rekey(
    sealed: &Path,
    options: &OpenOptions,
    new_key: Option<&KeySource>,
    slots_only: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RekeyReport, Error> {
    if !sealed_at(sealed)? {
        return Err(Error::new(&code::NOT_SEALED, sealed.display().to_string()));
    }
    if slots_only && new_key.is_none() {
        return Err(Error::new(
            &code::KEY_OPTION,
            "--slots-only needs a new key",
        ));
    }
    if options.key.is_none() {
        return Err(Error::new(&code::NO_KEY, sealed.display().to_string()));
    }
    let new = new_key
        .map(|source| opener_of(source, options, sealed, true))
        .transpose()?;
    let connection = match open(sealed, options) {
        // It was interrupted after the header was rewritten: only the new key opens the database
        // now.
        Err(error) if error.code().number == code::WRONG_KEY.number && new.is_some() => {
            let resumed = open_with(sealed, &OpenOptions::default(), new.clone());
            match resumed {
                Ok(connection) if under_way(sealed)? => connection,
                _ => return Err(error),
            }
        }
        other => other?,
    };
    connection
        .busy_timeout(std::time::Duration::from_secs(5))
        .map_err(explain)?;
    // SAFETY: the connection outlives the call, which neither closes nor keeps it.
    let raw = unsafe { connection.handle() }.cast::<vfs::sqlite3>();
    if slots_only {
        let Some(new) = new else {
            return Err(Error::new(&code::KEY_OPTION, ""));
        };
        vfs::rewrap(raw, "main", &new.recipient()?)?;
        return Ok(RekeyReport {
            pages: 0,
            epoch: 0,
            resumed: false,
        });
    }
    vfs::rekey(raw, "main", new.as_deref(), progress)
}

/// Authenticates every page, log frame and journal slot of the database at `sealed`, and returns
/// what it found. Takes SQLite's shared lock, and changes nothing. `progress` gets pages done and
/// pages in all.
///
/// # Errors
/// SR-1006 when there is no file, SR-3001 when it is not a sealed database, SR-2001 without a key,
/// SR-6010 while a writer keeps it locked, those of opening the header. Damage is in the report.
pub fn verify(
    sealed: &Path,
    options: &OpenOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport, Error> {
    if !sealed_at(sealed)? {
        return Err(Error::new(&code::NOT_SEALED, sealed.display().to_string()));
    }
    let opener = options
        .opener(sealed, false)?
        .ok_or_else(|| Error::new(&code::NO_KEY, sealed.display().to_string()))?;
    vfs::verify(sealed, &opener, progress)
}

/// Accepts the database's pages as they are as its newest state: computes their digest again,
/// writes it durably, and returns its root. For use after [`verify`] could not tell whether a page
/// is an older copy, or when an older copy is accepted.
///
/// # Errors
/// SR-3001 when the database is not sealed; SR-4014 when it keeps no freshness; SR-6010 when other
/// connections keep its log in use; those of `open`.
pub fn settle(sealed: &Path, options: &OpenOptions) -> Result<[u8; 32], Error> {
    if !sealed_at(sealed)? {
        return Err(Error::new(&code::NOT_SEALED, sealed.display().to_string()));
    }
    let connection = open(sealed, options)?;
    connection
        .busy_timeout(std::time::Duration::from_secs(5))
        .map_err(explain)?;
    // SAFETY: the connection outlives the call, which neither closes nor keeps it.
    let raw = unsafe { connection.handle() }.cast::<vfs::sqlite3>();
    vfs::settle(raw, "main")
}

/// Opens a plain database to copy it: read only if it cannot be opened for writing (SR-5001), as on
/// a read-only medium.
fn open_source(path: &Path, options: &OpenOptions) -> Result<Connection, Error> {
    match open_with(path, options, None) {
        // A database on a read-only medium can still be copied.
        Err(error) if error.code().number == code::IO.number => open_with(
            path,
            &OpenOptions {
                read_only: true,
                ..OpenOptions::default()
            },
            None,
        ),
        other => other,
    }
}

/// Checks the names of a copy: SR-1006 when there is no source, SR-1003 when the target is the
/// source, SR-1002 when the target exists.
fn check_names(source: &Path, target: &Path) -> Result<(), Error> {
    let files = storage::of(source);
    let original = files
        .canonical(source)
        .map_err(|_| Error::new(&code::NOT_FOUND, source.display().to_string()))?;
    let there = storage::of(target).canonical(target);
    if there.is_ok_and(|target| target == original) {
        return Err(Error::new(&code::SAME_FILE, target.display().to_string()));
    }
    if storage::of(target).is_taken(target) {
        return Err(Error::new(&code::EXISTS, target.display().to_string()));
    }
    Ok(())
}

/// Whether the file begins with the sealed magic; false for an empty file. Registers the VFS.
/// Errors: those of [`register`]; SR-1006 when the file does not exist, SR-6009 when its path is
/// not UTF-8, SR-5001 when it cannot be read.
fn sealed_at(path: &Path) -> Result<bool, Error> {
    register()?;
    Ok(is_sealed(&vfs::head(path, 4096)?))
}

/// Whether a rekey of the database has begun and is not finished, by its newest header. False if
/// the header does not parse. Errors: SR-1006 if the file does not exist, SR-6009 if its path is
/// not UTF-8, SR-5001 if it cannot be read, SR-9001 if the VFS is not registered.
fn under_way(path: &Path) -> Result<bool, Error> {
    let header = strongroom_keyring::redo::newest_header(path, &vfs::head(path, 4096)?);
    let parsed = strongroom_format::header::Header::parse(&header);
    Ok(parsed.is_ok_and(|header| header.previous_epoch != 0))
}

/// Returns the value of a PRAGMA that is a number. The error is our own if the VFS reported one,
/// else made of SQLite's.
fn number(connection: &Connection, pragma: &str) -> Result<i64, Error> {
    connection
        .pragma_query_value(None, pragma, |row| row.get(0))
        .map_err(explain)
}

/// Runs VACUUM INTO on a thread of its own, and waits for it. `progress` gets the pages that the
/// size of the target shows, every 20 ms. SR-1005 if [`cancel`] was called meanwhile.
fn copy(
    source: &mut Connection,
    target: &str,
    target_path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let page_size = u64::try_from(number(source, "page_size")?)
        .unwrap_or(4096)
        .max(1);
    let total = u64::try_from(number(source, "page_count")?).unwrap_or(0);
    progress(0, total);
    let interrupt = source.get_interrupt_handle();
    std::thread::scope(|scope| {
        // Our error text belongs to the thread that ran the statement.
        let work = scope.spawn(move || source.execute("VACUUM INTO ?1", [target]).map_err(explain));
        while !work.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            if CANCELLED.load(Ordering::Relaxed) {
                interrupt.interrupt();
            }
            // Reading a file's size opens nothing, so it drops no lock.
            let bytes = std::fs::metadata(target_path).map_or(0, |metadata| metadata.len());
            progress((bytes / page_size).min(total), total);
        }
        work.join()
            .unwrap_or_else(|_| Err(Error::new(&code::BUG, "copying panicked")))
    })?;
    if CANCELLED.load(Ordering::Relaxed) {
        return Err(Error::new(&code::SQL, "interrupted"));
    }
    progress(total, total);
    Ok(())
}

/// Gives the output `result` the source's journal mode if that is WAL, closes it, gives its file
/// the source's permissions, and returns its size. SR-5001 if a file cannot be read or changed;
/// otherwise the errors of SQLite.
fn finish(
    source_path: &Path,
    source: &Connection,
    result: Connection,
    temporary: &Path,
) -> Result<Report, Error> {
    let mode: String = source
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(explain)?;
    if mode.eq_ignore_ascii_case("wal") {
        result
            .pragma_update(None, "journal_mode", "wal")
            .map_err(explain)?;
    }
    let pages = u64::try_from(number(&result, "page_count")?).unwrap_or(0);
    let page_size = u32::try_from(number(&result, "page_size")?).unwrap_or(0);
    result.close().map_err(|(_, error)| explain(error))?;
    let mode = about(source_path)?.mode;
    storage::of(temporary)
        .set_mode(temporary, mode)
        .map_err(|error| Error::io(temporary.display().to_string(), error))?;
    Ok(Report {
        pages,
        page_size,
        bytes: about(temporary)?.len,
    })
}

/// Returns what the file system, or the server, knows of a file: length, permissions and so on.
/// SR-5001 if it cannot be asked, also if there is no file.
fn about(path: &Path) -> Result<About, Error> {
    storage::of(path)
        .about(path)
        .map_err(|error| Error::io(path.display().to_string(), error))
}

/// An unfinished output, and the files that SQLite creates beside it.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Makes an output with `make`, which gets the path of a temporary file to write to, and
    /// renames it durably to `target` (Q1). On failure, what was written is removed (Q3), or the
    /// error says what is left. SR-1002 if `target` exists by then.
    fn publish(
        target: &Path,
        make: impl FnOnce(&Path) -> Result<Report, Error>,
    ) -> Result<Report, Error> {
        let temporary = Self::beside(target)?;
        let mut named = false;
        let made = make(&temporary.path).and_then(|report| {
            temporary.give_name(target, &mut named)?;
            Ok(report)
        });
        let error = match made {
            Ok(report) => {
                // A closed database has no files beside it, and the output is complete.
                drop(temporary.remove());
                return Ok(report);
            }
            Err(error) => error,
        };
        // The output has its name, but the name may not be durable, so the output is removed.
        let unnamed = if named { remove(target) } else { Ok(()) };
        let removed = temporary.remove();
        Err(match unnamed.and(removed) {
            Ok(()) => error,
            Err(left) => Error::new(
                error.code(),
                format!("{}; what was written is left: {left}", error.detail()),
            ),
        })
    }

    /// Creates an empty file with a random name beside the target. Clears an earlier cancellation.
    /// SR-1001 if the target has no file name, SR-5001 if the file cannot be created.
    fn beside(target: &Path) -> Result<Self, Error> {
        let name = target
            .file_name()
            .ok_or_else(|| Error::new(&code::USAGE, target.display().to_string()))?;
        let random = strongroom_crypto::random16()
            .map_err(|error| Error::new(&code::IO, error.to_string()))?;
        let tag = hex(random.first_chunk::<6>().unwrap_or(&[0; 6]));
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{tag}.part"));
        let path = target.with_file_name(temporary);
        CANCELLED.store(false, Ordering::Relaxed);
        // Created before SQLite opens it, so that other users cannot read an unfinished decryption.
        let made = storage::of(&path).create_new(&path);
        made.map_err(|error| Error::io(path.display().to_string(), error))?;
        Ok(Self { path })
    }

    /// Renames the file to `target`, durably, unless that exists (SR-1002). `named` becomes true if
    /// the output has its name, even if that is not durable.
    fn give_name(&self, target: &Path, named: &mut bool) -> Result<(), Error> {
        let published = durable::publish(&self.path, target);
        *named = published.is_ok() || !storage::of(&self.path).is_taken(&self.path);
        published.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::new(&code::EXISTS, target.display().to_string())
            }
            _ => Error::io(target.display().to_string(), error),
        })
    }

    /// Removes the file, and those that SQLite keeps beside it, durably. Tries all; returns the
    /// first error.
    fn remove(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for suffix in ["", "-journal", "-wal", "-shm", "-strongroom"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            let removed = remove(Path::new(&path));
            result = result.and(removed);
        }
        result
    }
}

/// Removes a file durably, if it is there. SR-5001 if it cannot be removed.
fn remove(path: &Path) -> Result<(), Error> {
    let failed = |error| Err(Error::io(path.display().to_string(), error));
    match storage::of(path).remove(path) {
        Ok(()) => durable::sync_dir_of(path).or_else(failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => failed(error),
    }
}
