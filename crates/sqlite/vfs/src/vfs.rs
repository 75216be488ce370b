//! The VFS "strongroom": decides, when SQLite opens a file, which `Body` it gets. Everything else goes to the VFS below.
//!
//! Invariants:
//! V1. A file that begins with the sealed magic is never given to SQLite as a plain one.
//! V2. A temporary file is always sealed: SQLite does not say which database its rows come from.
//! V3. The log or journal of a sealed database is sealed, or not opened at all.
//!
//! Must not: replace a method that the VFS below already answers correctly.
#![expect(unsafe_code, reason = "called by SQLite with raw pointers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use strongroom_format::code;
use strongroom_format::header::{HEADER_LEN, Header, HeaderError, ObjectKind, is_sealed};
use strongroom_format::layout::is_zero;
use strongroom_format::sqlite::{AuxKind, JOURNAL_MAGIC, Prologue, prologue_layout};
use strongroom_keyring::{Error, KeySource, Keyring, inspect_checksum, redo};

use crate::api::api;
use crate::birth;
use crate::body::{Body, PassThrough};
use crate::connection;
use crate::ffi::{
    SQLITE_ACCESS_EXISTS, SQLITE_CANTOPEN, SQLITE_ERROR, SQLITE_IOERR, SQLITE_OK,
    SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_READONLY, SQLITE_OPEN_SUBJOURNAL,
    SQLITE_OPEN_SUPER_JOURNAL, SQLITE_OPEN_TEMP_DB, SQLITE_OPEN_TEMP_JOURNAL,
    SQLITE_OPEN_TRANSIENT_DB, SQLITE_OPEN_WAL, any_fn, sqlite3_file, sqlite3_vfs,
};
use crate::handle::{self, LOWER_OFFSET, lower_of, with};
use crate::journal::{self, JournalFile, JournalOf};
use crate::keys::{Parameters, never_plain};
use crate::lower::{Lower, Rc, RcResult, check};
use crate::main_file::MainFile;
use crate::past;
use crate::plain::PlainFile;
use crate::remote::{self, Pointer};
use crate::report::{report, report_error};
use crate::super_journal::{self, SuperReader, SuperWriter};
use crate::temp::TempFile;
use crate::wal::WalFile;

/// The VFS's name, for `?vfs=` and `sqlite3_vfs_find`.
pub const NAME: &CStr = c"strongroom";
const TEMPORARY: c_int = SQLITE_OPEN_TEMP_DB
    | SQLITE_OPEN_TRANSIENT_DB
    | SQLITE_OPEN_TEMP_JOURNAL
    | SQLITE_OPEN_SUBJOURNAL;

struct Registered(*mut sqlite3_vfs);
// SAFETY: written once, before SQLite can use it; SQLite itself shares VFS objects between threads.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}
static REGISTERED: OnceLock<Registered> = OnceLock::new();

/// Whether `vfs` is this one.
#[must_use]
pub(crate) fn is_ours(vfs: *mut sqlite3_vfs) -> bool {
    REGISTERED
        .get()
        .is_some_and(|ours| std::ptr::eq(ours.0, vfs))
}

/// Registers the VFS over the default one, and makes it the default. Idempotent. `put_back` is
/// called before SQLite opens a database past it.
pub(crate) fn register(put_back: fn()) -> Result<(), Error> {
    let Some(api) = api() else {
        return Err(Error::new(&code::BUG, "SQLite's functions are not known"));
    };
    if REGISTERED.get().is_some() {
        take_place_again();
        return Ok(());
    }
    // SAFETY: null asks for the default VFS.
    let below = unsafe { (api.vfs_find)(std::ptr::null()) };
    // SAFETY: a registered VFS lives as long as the process.
    let Some(model) = (unsafe { below.as_ref() }) else {
        return Err(Error::new(&code::BUG, "SQLite has no default VFS"));
    };
    let ours = Box::new(sqlite3_vfs {
        version: model.version.min(3),
        os_file_size: model
            .os_file_size
            .max(c_int::try_from(size_of::<remote::RemoteHandle>()).unwrap_or(16))
            .saturating_add(c_int::try_from(LOWER_OFFSET).unwrap_or(64)),
        max_pathname: model.max_pathname,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: below.cast::<c_void>(),
        open: Some(open),
        delete: Some(delete),
        access: Some(access),
        full_pathname: Some(full_pathname),
        dl_open: Some(dl_open),
        dl_error: Some(dl_error),
        dl_sym: Some(dl_sym),
        dl_close: Some(dl_close),
        randomness: Some(randomness),
        sleep: Some(sleep),
        current_time: Some(current_time),
        last_error: Some(last_error),
        current_time_int64: Some(current_time_int64),
        set_system_call: Some(set_system_call),
        get_system_call: Some(get_system_call),
        next_system_call: Some(next_system_call),
    });
    let ours = Box::into_raw(ours);
    if REGISTERED.set(Registered(ours)).is_err() {
        return Ok(());
    }
    // SAFETY: `ours` is never freed.
    let rc = unsafe { (api.vfs_register)(ours, 1) };
    past::watch(api, below, put_back);
    if rc == SQLITE_OK {
        Ok(())
    } else {
        Err(Error::new(
            &code::BUG,
            format!("sqlite3_vfs_register: {rc}"),
        ))
    }
}

/// Makes the VFS the default again where the one below it is: `sqlite3_initialize` after
/// `sqlite3_shutdown` does that. Another default was made by somebody, and stays. Whether it was so.
pub(crate) fn take_place_again() -> bool {
    let (Some(api), Some(ours)) = (api(), REGISTERED.get()) else {
        return false;
    };
    // SAFETY: null asks for the default VFS.
    let default = unsafe { (api.vfs_find)(std::ptr::null()) };
    // SAFETY: registered before, and never freed.
    default == below_of(ours.0) && unsafe { (api.vfs_register)(ours.0, 1) } == SQLITE_OK
}

/// The VFS that this one stands on. `None` before [`register`].
pub(crate) fn below() -> Option<*mut sqlite3_vfs> {
    REGISTERED.get().map(|ours| below_of(ours.0))
}

fn below_of(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: SQLite calls with our own VFS object, whose app_data is the VFS below.
    unsafe { (*vfs).app_data }.cast::<sqlite3_vfs>()
}

/// What SQLite asked to open.
struct Request {
    name: *const c_char,
    path: String,
    flags: c_int,
    lower: Lower,
}

impl Request {
    fn parameter(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        // SAFETY: `name` is a file name from SQLite's core, which is what the function asks for.
        let value = unsafe { (api()?.uri_parameter)(self.name, key.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: a text of SQLite's.
        Some(unsafe { connection::text_of(value.cast()) })
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the allocation that SQLite made for us; a null table says that nothing needs closing.
    unsafe { (*file).methods = std::ptr::null() };
    let below_vfs = below_of(vfs);
    // SAFETY: the allocation has our part first.
    let below = unsafe { lower_of(file) };
    let Some(call) = past::open_of(below_vfs) else {
        return SQLITE_CANTOPEN;
    };
    let rc = if remote::asked_for(name, flags) {
        remote::open(name, below, out_flags)
    } else {
        // SAFETY: the arguments are SQLite's own.
        unsafe { call(below_vfs, name, below, flags, out_flags) }
    };
    if rc != SQLITE_OK {
        // SAFETY: a VFS that failed may have left a table that wants closing; SQLite would close our file only.
        if unsafe { !(*below).methods.is_null() } {
            // SAFETY: it has a method table, so it is open as far as it got.
            close_quietly(unsafe { Lower::new(below) });
        }
        return rc;
    }
    // SAFETY: opened just now.
    let lower = unsafe { Lower::new(below) };
    let path = if name.is_null() {
        String::new()
    } else {
        // SAFETY: SQLite's file name.
        unsafe { connection::text_of(name.cast()) }
    };
    let request = Request {
        name,
        path,
        flags,
        lower,
    };
    let chosen = catch_unwind(AssertUnwindSafe(|| choose(&request)))
        .unwrap_or_else(|_| Err(report(&code::BUG, "opening a file panicked")));
    match chosen {
        Ok(body) => {
            // SAFETY: the allocation that SQLite made for us; the file below was opened above.
            match unsafe { handle::install(file, body) } {
                Ok(()) => SQLITE_OK,
                Err(Rc(rc)) => {
                    close_quietly(lower);
                    rc
                }
            }
        }
        Err(Rc(rc)) => {
            close_quietly(lower);
            rc
        }
    }
}

fn close_quietly(lower: Lower) {
    if lower.close().is_err() {
        report(&code::IO, "closing a file that could not be used");
    }
}

fn choose(request: &Request) -> RcResult<Box<dyn Body>> {
    let lower = request.lower;
    if request.flags & TEMPORARY != 0 {
        return Ok(Box::new(TempFile::new(lower)?));
    }
    if request.flags & SQLITE_OPEN_MAIN_DB != 0 {
        return choose_main(request);
    }
    if request.flags & SQLITE_OPEN_MAIN_JOURNAL != 0 {
        return choose_auxiliary(request, |main, sealed| {
            let of = JournalOf {
                sealed,
                main: main.lower(),
                link: Arc::clone(main.link()),
            };
            Box::new(JournalFile::new(lower, of))
        });
    }
    if request.flags & SQLITE_OPEN_WAL != 0 {
        return choose_auxiliary(request, |main, sealed| {
            let link = Arc::clone(main.link());
            Box::new(WalFile::new(lower, main.lower(), sealed, link))
        });
    }
    if request.flags & SQLITE_OPEN_SUPER_JOURNAL != 0 {
        return choose_super(request);
    }
    Ok(Box::new(PassThrough(lower)))
}

/// A main database: sealed, plain, or new.
fn choose_main(request: &Request) -> RcResult<Box<dyn Body>> {
    if remote::is_remote(request.lower) {
        return choose_remote(request, None);
    }
    let parameters =
        Parameters::read(|key| request.parameter(key)).map_err(|error| report_error(&error))?;
    let mut header = vec![0; HEADER_LEN];
    let size = request.lower.size()?;
    let whole = request.lower.read_whole(&mut header, 0)?;
    if size > 0 && is_sealed(&header) {
        if !whole {
            return Err(report(&code::HEADER_TRUNCATED, request.path.as_str()));
        }
        return open_sealed(request, &parameters, &header);
    }
    if let Some(pointer) = remote::follow(request.lower, &request.path, &header)? {
        return choose_remote(request, Some(&pointer));
    }
    let empty = size == 0 || birth::unfinished(size, &header);
    let key = opener(request, &parameters, empty)?;
    match key {
        None if never_plain() => Err(report(&code::NEVER_PLAIN, request.path.as_str())),
        None => Ok(Box::new(PlainFile::new(
            request.lower,
            request.path.clone(),
            size == 0,
            parameters.allow_plaintext,
        ))),
        Some(opener) if empty => {
            let source = connection::vacuum_source_page_size();
            let wanted = parameters.wanted(source.flatten().unwrap_or(4096));
            // A connection's own database is laid out by SQLite, as a plain one is, so that PRAGMA auto_vacuum and
            // page_size work on it; the reserve is asked for as soon as it is open (`connection::lay_out`). For an
            // attached one there is no such moment: it is told of the reserve by a header that fixes its layout.
            let free = source.is_some() || !connection::opened_by_sql();
            let path = request.path.clone();
            let main = MainFile::create(request.lower, path, wanted, opener, free)?;
            Ok(Box::new(main))
        }
        Some(_) => {
            let plain = header.starts_with(b"SQLite format 3\0");
            Err(report(
                if plain {
                    &code::PLAIN_FILE
                } else {
                    &code::NOT_SEALED
                },
                request.path.as_str(),
            ))
        }
    }
}

/// A database on a web server, which stands in the place of the file below.
fn choose_remote(request: &Request, pointer: Option<&Pointer>) -> RcResult<Box<dyn Body>> {
    let parameters = remote::parameters(|key| request.parameter(key), pointer)
        .map_err(|error| report_error(&error))?;
    let header = remote::header(request.lower)?;
    open_sealed(request, &parameters, &header)
}

/// V1: structure is checked before a key is asked for, so that damage is told apart from a wrong key.
fn open_sealed(
    request: &Request,
    parameters: &Parameters,
    in_place: &[u8],
) -> RcResult<Box<dyn Body>> {
    // Of a remote database, nothing local has a say in it.
    let (header, path) = if remote::is_remote(request.lower) {
        (in_place.to_vec(), remote::name(request.lower))
    } else {
        let newest = redo::newest_header(Path::new(&request.path), in_place);
        (newest, request.path.clone())
    };
    let path = path.as_str();
    let parsed = match Header::parse(&header) {
        Err(HeaderError::Newer(version)) => {
            return Err(report(
                &code::NEWER_FORMAT,
                format!("{path}: version {version}"),
            ));
        }
        Ok(parsed) if inspect_checksum(&header) => parsed,
        _ => return Err(report(&code::HEADER_DAMAGED, path)),
    };
    if parsed.kind != ObjectKind::Sqlite {
        return Err(report(
            &code::WRONG_KIND,
            format!("{path}: {}", parsed.kind.name()),
        ));
    }
    remote::check_cipher(request.lower, parsed.cipher)?;
    remote::check_cost(request.lower, &parsed.slots)?;
    let opener = opener(request, parameters, false)?;
    Ok(Box::new(MainFile::existing(
        request.lower,
        path.to_owned(),
        parsed.unit_size,
        opener,
    )?))
}

fn opener(
    request: &Request,
    parameters: &Parameters,
    creating: bool,
) -> RcResult<Option<Arc<strongroom_keyring::Opener>>> {
    // Whoever can make an application run ATTACH must not thereby be able to make it run a command: neither one in
    // the URI, nor one that a keyring named in the URI has for its provider; nor load a module or send credentials.
    let is_command = matches!(parameters.source, Some(KeySource::Command(_)))
        || parameters
            .keyring
            .as_deref()
            .is_some_and(|path| Keyring::status(path).is_ok_and(|about| about.provider_acts));
    let allowed =
        std::env::var_os("STRONGROOM_ATTACH_KEY_COMMAND").is_some_and(|value| value == "1");
    // A connection older than the guard reaches it only through this parameter, and is not known to it.
    let by_sql = || request.parameter("vfs").is_some() || connection::opened_by_sql();
    if is_command && !allowed && by_sql() {
        return Err(report(&code::KEY_COMMAND_REFUSED, request.path.as_str()));
    }
    parameters
        .opener(&request.path, creating)
        .map_err(|error| report_error(&error))
}

/// V3: the log or journal of a database: sealed when the database is.
fn choose_auxiliary(
    request: &Request,
    sealed_body: impl FnOnce(&mut MainFile, Arc<crate::sealed::Sealed>) -> Box<dyn Body>,
) -> RcResult<Box<dyn Body>> {
    let Some(api) = api() else {
        return Err(Rc(SQLITE_IOERR));
    };
    // SAFETY: SQLite opens journals and logs with names that it made itself, as the function demands.
    let main = unsafe { (api.database_file_object)(request.name) };
    if !handle::is_ours(main) {
        // Another VFS stands above this one and the database is hidden in its file object.
        let database = request
            .path
            .strip_suffix("-journal")
            .or_else(|| request.path.strip_suffix("-wal"));
        let sealed = crate::sealed::Sealed::known(|path, _| Some(path) == database);
        if !sealed.is_empty() {
            return Err(report(&code::FOREIGN_VFS, request.path.as_str()));
        }
        return Ok(Box::new(PassThrough(request.lower)));
    }
    let mut sealed_body = Some(sealed_body);
    let body = with(main, |open| {
        let Some(main) = open.body.as_main() else {
            return Ok(None);
        };
        let sealed = main.sealed_for_auxiliary()?;
        Ok(sealed_body.take().map(|make| make(main, sealed)))
    })?;
    Ok(body.unwrap_or_else(|| Box::new(PassThrough(request.lower))))
}

/// Whether this is the beginning of a sealed journal, too short for its first mark and even for its prologue.
fn begins_journal(bytes: &[u8]) -> bool {
    let magic = bytes.get(..JOURNAL_MAGIC.len().min(bytes.len()));
    bytes.len() < prologue_layout::SIZE
        && magic.is_some_and(|magic| JOURNAL_MAGIC.starts_with(magic))
}

/// A super-journal, or a journal that recovery looks at as one.
fn choose_super(request: &Request) -> RcResult<Box<dyn Body>> {
    let lower = request.lower;
    if request.flags & SQLITE_OPEN_READONLY == 0 {
        return Ok(Box::new(SuperWriter::new(lower)));
    }
    let size = usize::try_from(lower.size()?.min(1 << 20)).map_err(|_| Rc(SQLITE_IOERR))?;
    let mut bytes = vec![0; size];
    lower.read_whole(&mut bytes, 0)?;
    if !bytes.is_empty() && begins_journal(&bytes) {
        // A sealed journal's first write that stopped short: it was never synced, so nothing depends on it and it names nobody. Its
        // own database alone would have removed it.
        return Ok(Box::new(PassThrough(lower)));
    }
    if AuxKind::of(&bytes).is_none() {
        return match bytes.first() {
            // Names in clear: SQLite writes absolute paths.
            Some(b'/') => Ok(Box::new(SuperReader::clear(
                lower,
                request.path.clone(),
                bytes,
            ))),
            // A plain database's journal: empty, ended (zeros), or beginning as SQLite's do.
            None | Some(0xd9) => Ok(Box::new(PassThrough(lower))),
            Some(0) if bytes.get(..28).is_some_and(is_zero) => Ok(Box::new(PassThrough(lower))),
            Some(_) => Err(report(&code::SUPER_JOURNAL, request.path.as_str())),
        };
    }
    let Some(prologue) = Prologue::parse(&bytes) else {
        return Err(report(&code::SUPER_JOURNAL, request.path.as_str()));
    };
    if prologue.kind == AuxKind::SuperJournal {
        return Ok(Box::new(SuperReader::open(
            lower,
            request.path.clone(),
            &bytes,
        )?));
    }
    Ok(Box::new(SuperReader::presume(lower, request.path.clone())?))
}

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $missing:expr;)*) => {
        $(
            unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs, $($arg: $type),*) -> $ret {
                let below = below_of(vfs);
                // SAFETY: a registered VFS.
                match unsafe { (*below).$name } {
                    // SAFETY: the arguments are passed on unchanged.
                    Some(call) => unsafe { call(below, $($arg),*) },
                    None => $missing,
                }
            }
        )*
    };
}

pass_on! {
    delete(name: *const c_char, sync_dir: c_int) -> c_int = SQLITE_IOERR;
    full_pathname(name: *const c_char, size: c_int, out: *mut c_char) -> c_int = SQLITE_IOERR;
    dl_open(name: *const c_char) -> *mut c_void = std::ptr::null_mut();
    dl_error(size: c_int, out: *mut c_char) -> () = ();
    dl_sym(library: *mut c_void, name: *const c_char) -> any_fn = None;
    dl_close(library: *mut c_void) -> () = ();
    randomness(size: c_int, out: *mut c_char) -> c_int = 0;
    sleep(microseconds: c_int) -> c_int = 0;
    current_time(out: *mut f64) -> c_int = SQLITE_ERROR;
    last_error(size: c_int, out: *mut c_char) -> c_int = 0;
    set_system_call(name: *const c_char, call: any_fn) -> c_int = SQLITE_ERROR;
    get_system_call(name: *const c_char) -> any_fn = None;
    next_system_call(name: *const c_char) -> *const c_char = std::ptr::null();
}

/// Milliseconds since the beginning of the Julian calendar's days. A VFS of version 2 may have the
/// time as days only: SQLite asks ours for milliseconds by its version alone
/// (`sqlite3OsCurrentTimeInt64` in src/os.c).
unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, out: *mut i64) -> c_int {
    const DAY_MS: f64 = 86_400_000.0;
    let below = below_of(vfs);
    // SAFETY: a registered VFS; tables of version 1 end before the member, but ours has their
    // version then, and SQLite does not ask.
    if let Some(call) = unsafe { (*below).current_time_int64 } {
        // SAFETY: the arguments are passed on unchanged.
        return unsafe { call(below, out) };
    }
    let mut days = 0.0;
    // SAFETY: `days` is writable.
    let rc = unsafe { current_time(vfs, &raw mut days) };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "days of the calendar, times 8.64e7"
    )]
    // SAFETY: SQLite gives a place for the result.
    unsafe {
        out.write((days * DAY_MS) as i64);
    }
    rc
}

/// Whether a file is there. Of a journal that a super-journal lists which is being read, all of it is first (J9).
unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let settled = catch_unwind(AssertUnwindSafe(|| {
        if name.is_null() || flags != SQLITE_ACCESS_EXISTS {
            return Ok(());
        }
        // SAFETY: SQLite gives a name that ends with a zero.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok(path) if super_journal::owner_of(path).is_some() => journal::settle(path),
            _ => Ok(()),
        }
    }));
    match settled {
        Ok(Ok(())) => {}
        Ok(Err(Rc(rc))) => return rc,
        Err(_) => return SQLITE_IOERR,
    }
    let below = below_of(vfs);
    // SAFETY: a registered VFS.
    match unsafe { (*below).access } {
        // SAFETY: the arguments are passed on unchanged.
        Some(call) => unsafe { call(below, name, flags, out) },
        None => SQLITE_IOERR,
    }
}

/// `path` as SQLite makes it absolute, which is how databases are known here.
pub fn absolute(path: &str) -> Option<String> {
    let ours = REGISTERED.get()?.0;
    // SAFETY: registered and never freed.
    let size = unsafe { (*ours).max_pathname }.saturating_add(1);
    let name = CString::new(path).ok()?;
    let mut out = vec![0_u8; usize::try_from(size).ok()?];
    // SAFETY: `out` has room for `size` bytes.
    let rc = unsafe { full_pathname(ours, name.as_ptr(), size, out.as_mut_ptr().cast()) };
    // A symbolic link is resolved and reported as such (SQLITE_OK_SYMLINK).
    check(rc & 0xff).ok()?;
    CStr::from_bytes_until_nul(&out)
        .ok()?
        .to_str()
        .ok()
        .map(str::to_owned)
}
