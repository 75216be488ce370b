//! Restores, in the environment of a program that is about to be started, the variables that load
//! this library into it.
//!
//! Programs start others with an environment of their own (`env -i`, Python's `subprocess` with
//! `env=`, a service manager), and such a child would write plain databases.
//!
//! Must not: allocate in [`with_variables`], which a child of `fork` or `vfork` calls; change an
//! environment that excludes this library on purpose ([`OUTSIDE_VARIABLE`]) or already has it.
#![expect(unsafe_code, reason = "reads environments as C keeps them")]

use std::ffi::{CStr, CString, OsString, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use strongroom_format::run::{
    COMMAND_VARIABLE, DEFAULT_VARIABLE, NEVER_PLAIN_VARIABLE, OUTSIDE_VARIABLE, forbids_plain,
};

use crate::objects::{file_of, own_address};

/// The part of its file name by which this library is recognised in a list of preloaded libraries.
const LIBRARY: &[u8] = b"libstrongroom_sqlite_run";
const PRELOAD: &str = "LD_PRELOAD";
/// Most variables of a changed environment, and the longest list of preloaded libraries in bytes.
/// Both are on the stack of the caller.
const VARIABLES: usize = 4096;
const PRELOAD_MAX: usize = 8192;

/// The settings with which this program was started.
pub(crate) struct OwnSettings {
    /// `LD_PRELOAD=` and the path of this library.
    preload: CString,
    /// The variable that says where the key is, with its name.
    default: CString,
    /// The variable that names the command, with its name.
    command: Option<CString>,
    /// The command's file, by device and inode.
    command_file: Option<(u64, u64)>,
    /// Plain databases are forbidden.
    pub(crate) never_plain: bool,
}

static OWN: OnceLock<Option<OwnSettings>> = OnceLock::new();

// SAFETY: the dynamic linker calls each function of this section once, as the library is loaded.
#[unsafe(link_section = ".init_array")]
#[used]
static AT_LOAD: extern "C" fn() = at_load;

/// Reads the settings as soon as this library is loaded, before the program runs and can change
/// them.
extern "C" fn at_load() {
    OWN.get_or_init(OwnSettings::take);
}

/// Returns the settings with which this program was started. `None` when a needed variable was
/// missing: started programs then do not get this library, because this program does not have it
/// either.
pub(crate) fn own() -> Option<&'static OwnSettings> {
    OWN.get_or_init(OwnSettings::take).as_ref()
}

impl OwnSettings {
    /// Reads the variables that `strongroom sqlite run` has set, and the path of this library.
    /// `None` when one that is needed is missing.
    fn take() -> Option<Self> {
        let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let entry = |name: &str, value: OsString| {
            let mut entry = name.as_bytes().to_vec();
            entry.push(b'=');
            entry.extend_from_slice(&value.into_vec());
            CString::new(entry).ok()
        };
        let library = file_of(own_address())?.into_bytes();
        let command = value(COMMAND_VARIABLE);
        let file = command
            .as_ref()
            .and_then(|path| std::fs::metadata(path).ok());
        Some(Self {
            preload: entry(PRELOAD, OsString::from_vec(library))?,
            default: entry(DEFAULT_VARIABLE, value(DEFAULT_VARIABLE)?)?,
            command: command.and_then(|path| entry(COMMAND_VARIABLE, path)),
            command_file: file.map(|about| (about.dev(), about.ino())),
            never_plain: value(NEVER_PLAIN_VARIABLE)
                .is_some_and(|value| forbids_plain(value.as_encoded_bytes())),
        })
    }

    /// Whether the file with this device and inode is the `strongroom` command, which has its own
    /// SQLite and seals what it writes.
    pub(crate) fn is_command(&self, device: u64, inode: u64) -> bool {
        self.command_file == Some((device, inode))
    }
}

/// Returns the value in an entry `NAME=value`; `None` if it has another name.
fn value_of<'a>(entry: &'a CStr, name: &str) -> Option<&'a [u8]> {
    let rest = entry.to_bytes().strip_prefix(name.as_bytes())?;
    rest.strip_prefix(b"=")
}

/// Yields the entries of a C environment; none for null.
///
/// # Safety
/// `environment` is null, or a list of entries that ends with a null pointer.
unsafe fn entries<'a>(environment: *const *const c_char) -> impl Iterator<Item = &'a CStr> {
    let mut next = environment;
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: the list has not ended.
        let entry = unsafe { next.read() };
        if entry.is_null() {
            return None;
        }
        // SAFETY: there is an entry behind this one, or the null pointer.
        next = unsafe { next.add(1) };
        // SAFETY: an entry is a text that ends with a zero byte.
        Some(unsafe { CStr::from_ptr(entry) })
    })
}

/// Whether the environment neither loads this library nor excludes it on purpose
/// (`OUTSIDE_VARIABLE` is 1).
///
/// # Safety
/// As [`entries`].
unsafe fn lacks_library(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's word.
    !unsafe { entries(environment) }.any(|entry| {
        value_of(entry, OUTSIDE_VARIABLE) == Some(b"1")
            || value_of(entry, PRELOAD)
                .is_some_and(|list| list.windows(LIBRARY.len()).any(|part| part == LIBRARY))
    })
}

/// Calls `start` with `environment`, or, where that lacks this library, with a copy on the stack to
/// which the missing variables are added, and returns its result. `None`, without a call, when it
/// is too long for that. Allocates nothing.
///
/// # Safety
/// As [`entries`].
pub(crate) unsafe fn with_variables<T>(
    environment: *const *const c_char,
    start: impl FnOnce(*const *const c_char) -> T,
) -> Option<T> {
    // SAFETY: the caller's word.
    let own = own().filter(|_| unsafe { lacks_library(environment) });
    let Some(own) = own else {
        return Some(start(environment));
    };
    let mut list = [const { MaybeUninit::<*const c_char>::uninit() }; VARIABLES];
    let mut preload = [0_u8; PRELOAD_MAX];
    let mut used = 0_usize;
    let mut put = |entry: *const c_char| {
        list.get_mut(used)?.write(entry);
        used = used.checked_add(1)?;
        Some(())
    };
    let (mut has_default, mut has_command) = (false, false);
    let mut former: &[u8] = b"";
    // SAFETY: the caller's word.
    for entry in unsafe { entries(environment) } {
        if let Some(value) = value_of(entry, PRELOAD) {
            former = value;
            continue;
        }
        has_default |= value_of(entry, DEFAULT_VARIABLE).is_some();
        has_command |= value_of(entry, COMMAND_VARIABLE).is_some();
        put(entry.as_ptr())?;
    }
    let separator: &[u8] = if former.is_empty() { b"" } else { b":" };
    let mut at = 0_usize;
    for part in [own.preload.to_bytes(), separator, former, b"\0"] {
        let end = at.checked_add(part.len())?;
        preload.get_mut(at..end)?.copy_from_slice(part);
        at = end;
    }
    put(preload.as_ptr().cast())?;
    if !has_default {
        put(own.default.as_ptr())?;
    }
    if let (false, Some(command)) = (has_command, &own.command) {
        put(command.as_ptr())?;
    }
    put(std::ptr::null())?;
    Some(start(list.as_ptr().cast()))
}

/// Sets the variables that load this library again in this process's environment, if the program
/// has removed them: for functions of the C library that start a program with it and take none.
pub(crate) fn restore_preload() {
    // SAFETY: the process's own environment.
    let lacks = unsafe { lacks_library(own_environment()) };
    let Some(own) = own().filter(|_| lacks) else {
        return;
    };
    let former = std::env::var_os(PRELOAD).unwrap_or_default();
    let mut list = value_of(&own.preload, PRELOAD).unwrap_or_default().to_vec();
    if !former.is_empty() {
        list.push(b':');
        list.extend_from_slice(former.as_bytes());
    }
    set(PRELOAD, &list);
    for (name, entry) in [
        (DEFAULT_VARIABLE, Some(&own.default)),
        (COMMAND_VARIABLE, own.command.as_ref()),
    ] {
        let value = entry.and_then(|entry| value_of(entry, name));
        if let (None, Some(value)) = (std::env::var_os(name), value) {
            set(name, value);
        }
    }
}

/// Sets a variable in the environment of this process. Does nothing for a text with a zero byte.
fn set(name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) {
        // SAFETY: texts that end with a zero byte. A program that starts another with its own
        // environment while a thread of it changes that one has no defined environment anyway.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    }
}

/// Returns the environment of this process as C keeps it.
pub(crate) fn own_environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: a pointer of the C library's, read as `execv` reads it.
    unsafe { environ }
}
