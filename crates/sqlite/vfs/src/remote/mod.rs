//! Sealed databases on a web server: which opens ask for one, and how it takes the place of a file
//! of the VFS below.
//!
//! This crate contains no HTTP client: the extension and the library register one ([`set_client`]).
//! The client delivers ciphertext, which `main_file` treats like that of a file below.
//!
//! Invariants:
//! D1. Nothing is written: every write to the file below fails with `SQLITE_READONLY`, and the file
//!     reports that it is immutable, so that SQLite neither locks it nor looks for a log or journal
//!     beside its name.
//! D2. An address comes from the program that opens the connection, or from a pointer file that has
//!     the name of one and that other users cannot write; not from SQL (unless
//!     `STRONGROOM_ATTACH_URL=1`).
//! D3. Only authentic pages are read: a database sealed with AES-256-CTR is refused, and so is a
//!     plain one.
//! D4. A page that does not authenticate is fetched once more, past every cache, before an error is
//!     returned.
//!
//! Must not: know HTTP; use the local file of the connection's name, except to read a pointer.

mod client;
mod file;
mod pointer;

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::{Cipher, HEADER_LEN, is_sealed};
use strongroom_format::slot::Slot;
use strongroom_keyring::{Error, passphrase_cost};

use crate::connection_list;
use crate::ffi::{SQLITE_OK, SQLITE_OPEN_MAIN_DB, sqlite3_file};
use crate::key_options::KeyOptions;
use crate::lower::LowerFile;
use crate::report::{report, report_error};
use crate::sqlite_code::{SqliteCode, SqliteResult};

pub use client::{RemoteClient, RemoteFile, set_client};
pub(crate) use file::{RemoteHandle, is_remote};
pub(crate) use pointer::Pointer;

use client::connect;

thread_local! {
    static BY_APPLICATION: Cell<bool> = const { Cell::new(false) };
}

/// Runs `open` and returns its result. Databases that this thread opens meanwhile count as asked
/// for by the application itself, so that they may be remote (D2). The former setting is restored
/// afterwards, also after a panic.
pub fn asked_by_application<T>(open: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        /// Restores the former setting of this thread.
        fn drop(&mut self) {
            BY_APPLICATION.set(self.0);
        }
    }
    let _back = Back(BY_APPLICATION.replace(true));
    open()
}

/// Whether this open is one of a main database whose URI has the parameter `url`, and so asks for a
/// remote database.
pub(crate) fn is_requested(name: *const c_char, flags: c_int) -> bool {
    flags & SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() && file::parameter(name, "url").is_some()
}

/// Opens the remote database that the URI names, in the memory at `place`, where a file of the VFS
/// below would be. Returns `SQLITE_OK` or the code of the reported error: SR-2248 if SQL named the
/// address, and those of the client (SR-2240 to SR-2253, SR-3001).
pub(crate) fn open(name: *const c_char, place: *mut sqlite3_file, out_flags: *mut c_int) -> c_int {
    let opened = check_permission(name).and_then(|()| connect(&|key| file::parameter(name, key)));
    match opened {
        Ok(remote) => {
            file::install(place, remote, out_flags);
            SQLITE_OK
        }
        Err(SqliteCode(rc)) => rc,
    }
}

/// Checks that the address may be used (D2): the application asked for it, `STRONGROOM_ATTACH_URL`
/// is 1, or no SQL statement can have named it. SR-2248 otherwise.
fn check_permission(name: *const c_char) -> SqliteResult<()> {
    if BY_APPLICATION.get() {
        return Ok(());
    }
    let permitted = std::env::var_os("STRONGROOM_ATTACH_URL").is_some_and(|value| value == "1");
    // A connection that is older than the extension reaches this VFS only through the parameter
    // `vfs`, and is not in the list of connections.
    let by_sql =
        || file::parameter(name, "vfs").is_some() || connection_list::may_be_opened_by_sql();
    if permitted || !by_sql() {
        return Ok(());
    }
    Err(report(&code::REMOTE_SQL, file::label(name)))
}

/// If the opened local file is a pointer file: connects to the address in it, closes the local
/// file, opens the remote one in its place, and returns the pointer. `None`, with nothing changed,
/// if it is none. SR-2250 if the pointer cannot be used. `head` is the beginning of the file.
pub(crate) fn open_pointer_target(
    lower: LowerFile,
    path: &str,
    head: &[u8],
) -> SqliteResult<Option<Pointer>> {
    let Some(pointer) = Pointer::parse(Path::new(path), head) else {
        return Ok(None);
    };
    let pointer = pointer.map_err(|error| report_error(&error))?;
    let remote = connect(&|key| pointer.get(key))?;
    lower.close()?;
    file::install(lower.as_ptr(), remote, std::ptr::null_mut());
    Ok(Some(pointer))
}

/// Reads the options of the URI. `key_id` is taken from the pointer if the URI names no key.
pub(crate) fn key_options(
    of_uri: impl Fn(&str) -> Option<String>,
    pointer: Option<&Pointer>,
) -> Result<KeyOptions, Error> {
    let sources = ["key_id", "key_env", "key_file", "key_command"];
    let has_key = sources.iter().any(|name| of_uri(name).is_some());
    KeyOptions::read(|name| {
        let pointed = || match name {
            "key_id" if !has_key => pointer.and_then(|pointer| pointer.get(name)),
            _ => None,
        };
        of_uri(name).or_else(pointed)
    })
}

/// Reads the header of a remote database. SR-3001 if it is not sealed, SR-3006 if it is cut short.
/// The caller checks its structure.
pub(crate) fn read_header(lower: LowerFile) -> SqliteResult<Vec<u8>> {
    let mut header = vec![0; HEADER_LEN];
    let whole = lower.read_whole(&mut header, 0)?;
    match (is_sealed(&header), whole) {
        (true, true) => Ok(header),
        (true, false) => Err(report(&code::HEADER_TRUNCATED, name(lower))),
        (false, _) => Err(report(&code::NOT_SEALED, name(lower))),
    }
}

/// Refuses a remote database whose cipher is not AES-256-GCM, as SR-2249 (D3). Local files pass.
pub(crate) fn check_cipher(lower: LowerFile, cipher: Cipher) -> SqliteResult<()> {
    if is_remote(lower) && cipher != Cipher::Aes256Gcm {
        return Err(report(&code::REMOTE_CIPHER, name(lower)));
    }
    Ok(())
}

/// Most memory that a key slot of a remote database may ask for, in KiB: 1 GiB.
const MEMORY_MAX_KIB: u32 = 1 << 20;

/// Most work that the key slots of a remote database may ask for together, in KiB that Argon2id
/// fills: 4 GiB, which is eighteen slots at the default cost, and takes some three seconds.
const WORK_MAX_KIB: u64 = 4 << 20;

/// Refuses a remote database whose key slots need too much memory or work of Argon2id, as SR-2254
/// (D5). Local files pass. An attacker who answers in the server's place could choose the costs,
/// because they are used before anything is authentic.
pub(crate) fn check_cost(lower: LowerFile, slots: &[Slot]) -> SqliteResult<()> {
    let (memory, work) = passphrase_cost(slots);
    if is_remote(lower) && (memory > MEMORY_MAX_KIB || work > WORK_MAX_KIB) {
        let detail = format!("{}: {memory} KiB, {work} KiB in all", name(lower));
        return Err(report(&code::REMOTE_COST, detail));
    }
    Ok(())
}

/// Returns address and version of a remote file, for messages; empty for any other file.
pub(crate) fn name(lower: LowerFile) -> String {
    file::with(lower, |remote| Ok(remote.name().to_owned())).unwrap_or_default()
}

/// Fetches the bytes at `at` of a remote file again, past every cache, which get them too, and
/// reads them into `page` as they are, sealed. Reports the client's errors (SR-2241 to SR-2247).
/// `SQLITE_IOERR_SHORT_READ` beyond the file's end, `SQLITE_IOERR` if the file is not a remote one.
pub(crate) fn fetch_again(lower: LowerFile, at: u64, page: &mut [u8]) -> SqliteResult<()> {
    file::with(lower, |remote| remote.distrust(at, page.len()))?;
    lower.read(page, at)
}
