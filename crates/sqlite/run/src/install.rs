//! Finds the SQLite that a caller is linked to, and loads the extension into it, once.
//!
//! The extension is registered as an automatic extension, and so is called with SQLite's table of
//! functions when a connection to `:memory:` is opened. That also works where SQLite must not load
//! extensions by SQL, and it happens after the program has configured its SQLite, which is possible
//! only before the first connection.
//!
//! Invariants:
//! - G1. One SQLite of a process has the extension. Databases of another SQLite are not opened.
//! - G2. A failed attempt is repeated at the next call, and reported each time.
//! - G3. A program whose environment no longer says where the key is opens no database.
//!
//! Must not: let a database be opened without the extension.
#![expect(unsafe_code, reason = "calls SQLite by symbols that were looked up")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use strongroom_format::code::{self, Code};
use strongroom_format::run::DEFAULT_VARIABLE;

use crate::objects::{Library, base_of, file_of, keep, own_directory};

const EXTENSION: &str = "libstrongroom_sqlite.so";
const EXTENSION_ENTRY: &CStr = c"sqlite3_strongroomsqlite_init";

/// The extension's result when it is to stay loaded (`SQLITE_OK_LOAD_PERMANENTLY`).
const OK_LOAD_PERMANENTLY: c_int = 256;
/// `SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE`.
const READ_WRITE_CREATE: c_int = 2 | 4;

type Entry = unsafe extern "C" fn(*mut c_void, *mut *mut c_char, *const c_void) -> c_int;

/// Functions of one SQLite.
#[derive(Clone, Copy)]
pub(crate) struct Sqlite {
    /// `sqlite3_open`.
    pub(crate) open: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int,
    /// `sqlite3_open16`.
    pub(crate) open16: unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int,
    /// `sqlite3_open_v2`.
    pub(crate) open_v2:
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    auto_extension: unsafe extern "C" fn(Entry) -> c_int,
    cancel_auto_extension: unsafe extern "C" fn(Entry) -> c_int,
}

impl Sqlite {
    /// Looks up the functions that `library`, or one that it needs, exports. `None` if one is
    /// missing.
    fn of(library: &Library) -> Option<Self> {
        // SAFETY: SQLite's functions of these names have these types since 3.8.7.
        unsafe {
            Some(Self {
                open: function(library, c"sqlite3_open")?,
                open16: function(library, c"sqlite3_open16")?,
                open_v2: function(library, c"sqlite3_open_v2")?,
                close: function(library, c"sqlite3_close")?,
                auto_extension: function(library, c"sqlite3_auto_extension")?,
                cancel_auto_extension: function(library, c"sqlite3_cancel_auto_extension")?,
            })
        }
    }

    /// Returns the address at which its library begins in memory. `None` if no file holds it.
    fn base(&self) -> Option<usize> {
        base_of(self.open as *const c_void)
    }
}

/// Returns the function of this name in `library`; `None` if it has none.
///
/// # Safety
/// `T` is the type of the function of this name.
pub(crate) unsafe fn function<T: Copy>(library: &Library, name: &CStr) -> Option<T> {
    let address = library.symbol(name)?;
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: a function pointer has the size of an address; the caller's word for its type.
    Some(unsafe { std::mem::transmute_copy::<*mut c_void, T>(&address) })
}

/// The SQLite that has the extension, and the address at which it begins in memory (G1).
static SERVED: Mutex<Option<Sqlite>> = Mutex::new(None);

/// Returns the address at which the SQLite that has the extension begins in memory. `None` if none
/// has it.
pub(crate) fn served_base() -> Option<usize> {
    let served_base = *SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    served_base.as_ref().and_then(Sqlite::base)
}

/// Returns the SQLite that the code at `caller` is linked to, and loads the extension into it first
/// if that was not done. `None`, after a report, when there is none, when the extension cannot be
/// loaded (SR-2285, SR-2286), or when another SQLite has it (SR-2274, G1).
pub(crate) fn sqlite_of(caller: *const c_void) -> Option<Sqlite> {
    // A panic while this was locked leaves it consistent: it is set at once.
    let mut served_base = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let linked = linked_to(caller);
    let meant = match (linked, *served_base) {
        (Some(linked), Some(known)) if linked.base() == known.base() => return Some(known),
        (Some(linked), _) => linked,
        // An extension of SQLite calls through the table that it was given, and is linked to no
        // SQLite.
        (None, Some(known)) => return Some(known),
        (None, None) => {
            report(
                &code::RUN_PROGRAM,
                "no SQLite into which the extension can be loaded",
            );
            return None;
        }
    };
    if served_base.is_some() {
        let name = file_of(meant.open as *const c_void).unwrap_or_default();
        report(&code::OTHER_SQLITE, &name.to_string_lossy());
        return None;
    }
    install_into(&meant).map(|()| *served_base.insert(meant))
}

/// Returns the SQLite that the library of `caller` is or contains; otherwise the next one in the
/// order of loading. `None` if there is none.
fn linked_to(caller: *const c_void) -> Option<Sqlite> {
    let library = file_of(caller).and_then(|name| Library::loaded(&name));
    let own = library.as_ref().and_then(Sqlite::of);
    own.or_else(|| Sqlite::of(&Library::next()))
}

/// The extension's entry point, while a connection is opened for it.
static ENTRY: OnceLock<Entry> = OnceLock::new();

/// Loads the extension into an SQLite, by opening and closing a connection in memory. Reports
/// SR-2285 and returns `None` if the variable that says where the key is was removed, or SQLite
/// refuses.
fn install_into(sqlite: &Sqlite) -> Option<()> {
    // Without the variable the extension would treat every database as one that is meant to be
    // plain.
    if std::env::var_os(DEFAULT_VARIABLE).is_none_or(|value| value.is_empty()) {
        let detail = format!("{DEFAULT_VARIABLE} was taken out of its environment");
        report(&code::RUN_PROGRAM, &detail);
        return None;
    }
    let entry = extension_entry()?;
    ENTRY.get_or_init(|| entry);
    keep(sqlite.open as *const c_void);
    let mut connection = std::ptr::null_mut();
    // SAFETY: SQLite's own functions; `enter` has the type of an entry point and lives as long as
    // the process.
    let rc = unsafe {
        (sqlite.auto_extension)(enter);
        let rc = (sqlite.open_v2)(
            c":memory:".as_ptr(),
            &raw mut connection,
            READ_WRITE_CREATE,
            std::ptr::null(),
        );
        (sqlite.close)(connection);
        (sqlite.cancel_auto_extension)(enter);
        rc
    };
    if rc == 0 {
        return Some(());
    }
    // The extension has reported the details.
    report(&code::RUN_PROGRAM, &format!("SQLite result code {rc}"));
    None
}

/// The automatic extension while [`install_into`] opens its connection. Calls the extension's entry
/// point, and turns "permanently", which SQLite does not accept here, into success.
unsafe extern "C" fn enter(
    connection: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    let Some(entry) = ENTRY.get() else { return 1 };
    // SAFETY: SQLite's own arguments.
    match unsafe { entry(connection, error, routines) } {
        OK_LOAD_PERMANENTLY => 0,
        rc => rc,
    }
}

/// Loads the extension that lies beside this library, and returns its entry point. Reports SR-2286
/// and returns `None` when there is none.
fn extension_entry() -> Option<Entry> {
    let path = own_directory().map(|own| own.join(EXTENSION));
    let library = path.as_deref().and_then(Library::load);
    // SAFETY: the extension's entry point has this type.
    let entry = library.and_then(|library| unsafe { function(&library, EXTENSION_ENTRY) });
    if entry.is_none() {
        let shown = path.map_or_else(|| EXTENSION.to_owned(), |path| path.display().to_string());
        report(&code::RUN_LIBRARY, &shown);
    }
    entry
}

/// Writes an error and what to do about it as one line to standard error, unless
/// `STRONGROOM_LOG=off`. The programs know nothing of the extension, and SQLite's interface has no
/// text.
pub(crate) fn report(code: &Code, detail: &str) {
    if std::env::var_os("STRONGROOM_LOG").is_some_and(|value| value == "off") {
        return;
    }
    let (number, what, todo) = (code.number, code.what, code.todo);
    let line = format!("strongroom: SR-{number:04}: {what} ({detail}); {todo}\n");
    // Standard error may be closed; the caller still gets the result code.
    drop(std::io::stderr().write_all(line.as_bytes()));
}
