//! The constructor: runs before `main`, opens the instances that the program will work on, or ends the program.
//!
//! Invariants: R1, R2; a program that is not PostgreSQL's is not touched unless it is asked for; `postgres` asked only
//! for its version or its help opens nothing.
//!
//! Must not: leave a program running that would read or write a sealed instance without its keys.
#![expect(unsafe_code, reason = "the constructor, and the process's environment")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use shield::discover::{self, ROOTS_VARIABLE};
use shield::instance::{self, Instance};
use shield::real::Errno;
use shield::{roots, scratch, source};
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::{next, process, report};

/// Runs the shield in any program, not only in PostgreSQL's.
const ALL_VARIABLE: &str = "STRONGROOM_SHIELD_ALL";
/// Lets a sealed server dump core, which then holds data in clear.
const CORE_VARIABLE: &str = "STRONGROOM_ALLOW_CORE_DUMPS";
/// The file name by which the library finds itself in `LD_PRELOAD`.
const LIBRARY: &[u8] = b"libstrongroom_shield";

// SAFETY: the C library calls each function of this section once, before main(), with main()'s arguments.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

extern "C" fn constructor(count: c_int, arguments: *const *const c_char, _: *const *const c_char) {
    // SAFETY: main()'s arguments, as the C library passes them.
    let arguments = unsafe { collect(count, arguments) };
    process::learn_working_directory();
    let Some(program) = Program::of(&arguments) else {
        return;
    };
    if let Err(error) = start(program, &arguments) {
        report::line(format_args!("strongroom: {error}; {}", error.code().todo));
        // SAFETY: ends the process without running anything of the program's.
        unsafe { libc::_exit(1) };
    }
}

/// # Safety
/// `arguments` points to `count` terminated strings.
unsafe fn collect(count: c_int, arguments: *const *const c_char) -> Vec<Vec<u8>> {
    let count = usize::try_from(count).unwrap_or(0);
    (0..count)
        .map_while(|index| {
            // SAFETY: index < count.
            let argument = unsafe { arguments.add(index).read() };
            // SAFETY: null (never, but checked) or a terminated string.
            (!argument.is_null()).then(|| unsafe { CStr::from_ptr(argument) }.to_bytes().to_vec())
        })
        .collect()
}

/// What the program is to the shield.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// The server.
    Server,
    /// Another program of PostgreSQL's that works on data directories.
    Frontend,
    /// `pg_ctl`: it starts servers, which fetch their keys themselves, and seldom reads one sealed file.
    Control,
}

/// Programs of PostgreSQL's that read or write files of a data directory.
const FRONTENDS: &[&[u8]] = &[
    b"initdb",
    b"pg_archivecleanup",
    b"pg_basebackup",
    b"pg_checksums",
    b"pg_combinebackup",
    b"pg_controldata",
    b"pg_createsubscriber",
    b"pg_ctl",
    b"pg_receivewal",
    b"pg_recvlogical",
    b"pg_resetwal",
    b"pg_rewind",
    b"pg_test_fsync",
    b"pg_upgrade",
    b"pg_verifybackup",
    b"pg_waldump",
    b"pg_walsummary",
];

impl Program {
    /// `None` for a program that is none of the shield's business.
    fn of(arguments: &[Vec<u8>]) -> Option<Self> {
        let file = std::env::current_exe().ok()?;
        let name = file.file_name()?.as_bytes();
        let asks = |option: &[u8]| arguments.get(1).is_some_and(|first| first == option);
        if name == b"postgres" || name == b"postmaster" {
            let only_tells = [
                &b"-V"[..],
                b"--version",
                b"-?",
                b"--help",
                b"--describe-config",
            ];
            return (!only_tells.into_iter().any(asks)).then_some(Self::Server);
        }
        if name == b"pg_ctl" {
            return Some(Self::Control);
        }
        let all = std::env::var_os(ALL_VARIABLE).is_some_and(|value| value == "1");
        (all || FRONTENDS.contains(&name)).then_some(Self::Frontend)
    }
}

fn start(program: Program, arguments: &[Vec<u8>]) -> Result<(), Error> {
    next::find_all().map_err(|name| Error::new(&code::PG_SYMBOL, name))?;
    let environment: Vec<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .collect();
    // A data directory is named to the server as such; frontends are also given files within one.
    let parents = if program == Program::Server { 0 } else { 3 };
    let here = process::working_directory();
    let candidates = discover::candidates(arguments, &environment, here, parents);
    let sealed = discover::sealed(candidates);
    check_roots(here)?;
    if sealed.is_empty() {
        return if program == Program::Server {
            refuse_plain()
        } else {
            Ok(())
        };
    }
    if program == Program::Control {
        // Fetching a key may cost a command's run, and a key that is handed over can be fetched once.
        return LATER
            .set(sealed)
            .map_err(|_| Error::new(&code::BUG, "started twice"));
    }
    // A key command must not run under the shield, whatever it is.
    let preload = take_out_of_preload();
    let opened = scratch::prepare()
        .map_err(|_| Error::new(&code::IO, "no memory for buffers"))
        .and_then(|()| open(&sealed));
    if program == Program::Server {
        forget_keys();
        forbid_core_dumps();
    } else {
        put_back(preload);
    }
    if is_running("pg_upgrade") {
        // It copies pg_xact and pg_multixact with `cp`, from one instance's keys to another's.
        // SAFETY: before main() there is one thread.
        unsafe { std::env::set_var(ALL_VARIABLE, "1") };
    }
    opened?;
    if program == Program::Server && !strongroom_crypto::memory_is_locked() {
        let code = &code::MEMORY_NOT_LOCKED;
        report::line(format_args!(
            "strongroom: SR-{:04}: {}; {}",
            code.number, code.what, code.todo
        ));
    }
    Ok(())
}

/// What `pg_ctl` will open when it reads the control file: to promote, and from 18 on when a start has failed.
static LATER: OnceLock<Vec<Found>> = OnceLock::new();

/// The one sealed file that `pg_ctl` reads.
const CONTROL_FILE: &[u8] = b"global/pg_control";

/// Opens what [`LATER`] holds, if `path` asks for it. `pg_ctl` has one thread.
///
/// # Errors
/// EACCES when an instance does not open; it has been said why.
pub(crate) fn open_later(path: &[u8]) -> Result<(), Errno> {
    let Some(later) = LATER.get().filter(|_| path.ends_with(CONTROL_FILE)) else {
        return Ok(());
    };
    let preload = take_out_of_preload();
    let opened = open(later);
    put_back(preload);
    opened.map_err(|error| {
        report::line(format_args!("strongroom: {error}; {}", error.code().todo));
        Errno(libc::EACCES)
    })
}

/// A core of the server would hold user data in clear, and the kernel writes it into the data directory. A limit of 1
/// byte forbids files, and pipes too, which a limit of 0 does not (core(5)).
fn forbid_core_dumps() {
    if std::env::var_os(CORE_VARIABLE).is_some_and(|value| value == "1") {
        return;
    }
    let one = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: a valid structure for the call.
    let _refused = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const one) };
}

/// A server that was given a key or a root, but whose data directory is not sealed.
fn refuse_plain() -> Result<(), Error> {
    let roots = std::env::var_os(ROOTS_VARIABLE);
    let key = source::from_environment(variable);
    if roots.is_none() && key.is_none() {
        return Ok(());
    }
    Err(Error::new(
        &code::PG_NOT_SEALED,
        "no strongroom.header in it",
    ))
}

/// What is called an instance must be one: a program would write it in clear.
fn check_roots(here: &[u8]) -> Result<(), Error> {
    let roots = std::env::var_os(ROOTS_VARIABLE).unwrap_or_default();
    for root in discover::named_roots(roots.as_bytes()) {
        let path = Path::new(OsStr::from_bytes(here)).join(OsStr::from_bytes(root));
        if !instance::is_sealed(&path) {
            return Err(Error::new(&code::PG_NOT_SEALED, path.display().to_string()));
        }
    }
    Ok(())
}

fn is_running(program: &str) -> bool {
    std::env::current_exe().is_ok_and(|file| file.file_name().is_some_and(|name| name == program))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

type Found = (std::path::PathBuf, Vec<Vec<u8>>);

fn open(sealed: &[Found]) -> Result<(), Error> {
    let mut opened = Vec::new();
    for (directory, spellings) in sealed {
        opened.push(open_one(directory, spellings, sealed.len() > 1)?);
    }
    for instance in opened {
        roots::add(instance).map_err(|_| Error::new(&code::PG_ROOTS, ""))?;
    }
    Ok(())
}

/// The environment's key, or that of the instance's own configuration; where there are several instances, whichever
/// of the two opens it.
fn open_one(directory: &Path, spellings: &[Vec<u8>], several: bool) -> Result<Instance, Error> {
    let given = source::from_environment(variable);
    let own = |directory| source::from_configuration(directory);
    let missing = || Error::new(&code::NO_KEY, directory.display().to_string());
    let Some(given) = given else {
        let source = own(directory)?.ok_or_else(missing)?;
        return Instance::open(directory, spellings, &source.key.opener(&source.context)?);
    };
    let outcome = given
        .key
        .opener(&given.context)
        .and_then(|opener| Instance::open(directory, spellings, &opener));
    match (outcome, own(directory)) {
        (Err(error), Ok(Some(source))) if several && is_other_key(&error) => {
            Instance::open(directory, spellings, &source.key.opener(&source.context)?)
        }
        (outcome, _) => outcome,
    }
}

fn is_other_key(error: &Error) -> bool {
    error.code() == &code::WRONG_KEY || error.code() == &code::UNKNOWN_KEY_ID
}

/// Takes the shield out of `LD_PRELOAD` and gives the former value.
fn take_out_of_preload() -> Option<OsString> {
    let former = std::env::var_os("LD_PRELOAD")?;
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    let kept: Vec<&[u8]> = former
        .as_bytes()
        .split(is_separator)
        .filter(|path| !path.is_empty() && !contains(path, LIBRARY) && !is_this_library(path))
        .collect();
    // SAFETY: before main(), or in `pg_ctl`, there is one thread.
    unsafe {
        if kept.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", OsStr::from_bytes(&kept.join(&b':')));
        }
    }
    Some(former)
}

fn put_back(preload: Option<OsString>) {
    if let Some(preload) = preload {
        // SAFETY: before main(), or in `pg_ctl`, there is one thread.
        unsafe { std::env::set_var("LD_PRELOAD", preload) };
    }
}

/// Whether `path` leads to this library under another name.
fn is_this_library(path: &[u8]) -> bool {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address of a function of this library, and one structure to be filled.
    let found = unsafe { libc::dladdr((&raw const CONSTRUCTOR).cast(), about.as_mut_ptr()) };
    // SAFETY: zeroed, or filled by the C library.
    let own = unsafe { about.assume_init() }.dli_fname;
    if found == 0 || own.is_null() {
        return false;
    }
    // SAFETY: the name of a loaded library, terminated, valid while it is loaded.
    let own = unsafe { CStr::from_ptr(own) }.to_bytes();
    let file = |path: &[u8]| Path::new(OsStr::from_bytes(path)).metadata().ok();
    match (file(own), file(path)) {
        (Some(own), Some(other)) => (own.dev(), own.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

fn contains(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}

/// Removes what tells of keys from the environment that children will get; a key's own value is overwritten where it
/// stands, so that /proc does not show it either.
fn forget_keys() {
    let mut names = vec![String::from(source::KEY_VARIABLE)];
    let prefix = source::VARIABLE_PREFIX;
    names.extend(variable(&format!("{prefix}ENV")));
    for name in names {
        let Ok(name) = std::ffi::CString::new(name) else {
            continue;
        };
        // SAFETY: before main() there is one thread; the value is a terminated string of the environment block, which
        // is writable.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if !value.is_null() {
                let len = CStr::from_ptr(value).count_bytes();
                std::ptr::write_bytes(value, b'0', len);
                libc::unsetenv(name.as_ptr());
            }
        }
    }
    let inherited = variable(&format!("{prefix}FD")).and_then(|fd| fd.parse::<c_int>().ok());
    if let Some(fd) = inherited.filter(|fd| *fd > libc::STDERR_FILENO) {
        // SAFETY: the descriptor was inherited for this purpose, and nothing of this process uses it.
        unsafe { next::close(fd) };
    }
    for kind in ["ID", "ENV", "FILE", "COMMAND", "FD"] {
        // SAFETY: before main() there is one thread.
        unsafe { std::env::remove_var(format!("{prefix}{kind}")) };
    }
    for name in [source::KEYRING_VARIABLE, ROOTS_VARIABLE, ALL_VARIABLE] {
        // SAFETY: as above.
        unsafe { std::env::remove_var(name) };
    }
}
