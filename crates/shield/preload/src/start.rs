//! The constructor: runs before main(), opens the instances that the program will work on, or ends the program.
//!
//! Invariants: R1, R2; a program that is not PostgreSQL's is not touched unless it is asked for; `postgres` asked only
//! for its version or its help opens nothing.
//!
//! Must not: leave a program running that would read or write a sealed instance without its keys.
#![expect(unsafe_code, reason = "the constructor, and the process's environment")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use shield::discover::{self, ROOTS_VARIABLE};
use shield::instance::Instance;
use shield::{roots, scratch, source};
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::{next, process, report};

/// Runs the shield in any program, not only in PostgreSQL's.
const ALL_VARIABLE: &str = "STRONGROOM_SHIELD_ALL";
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
            let only_tells = [&b"-V"[..], b"--version", b"-?", b"--help", b"--describe-config"];
            return (!only_tells.into_iter().any(asks)).then_some(Self::Server);
        }
        if name == b"pg_ctl" {
            // It reads the control file to promote, and nothing else that is sealed.
            let promotes = arguments.iter().any(|argument| argument == b"promote");
            return promotes.then_some(Self::Frontend);
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
    let parents = if program == Program::Server { 0 } else { 2 };
    let here = process::working_directory();
    let candidates = discover::candidates(arguments, &environment, here, parents);
    let sealed = discover::sealed(candidates);
    if sealed.is_empty() {
        return if program == Program::Server { refuse_plain() } else { Ok(()) };
    }
    scratch::prepare().map_err(|_| Error::new(&code::IO, "no memory for buffers"))?;
    // A key command must not run under the shield, whatever it is.
    let preload = take_out_of_preload();
    let opened = open(&sealed);
    if program == Program::Server {
        forget_keys();
    } else if let Some(preload) = preload {
        // SAFETY: before main() there is one thread.
        unsafe { std::env::set_var("LD_PRELOAD", preload) };
    }
    if is_running("pg_upgrade") {
        // It copies pg_xact and pg_multixact with `cp`, from one instance's keys to another's.
        // SAFETY: as above.
        unsafe { std::env::set_var(ALL_VARIABLE, "1") };
    }
    opened
}

/// A server that was given a key or a root, but whose data directory is not sealed.
fn refuse_plain() -> Result<(), Error> {
    let roots = std::env::var_os(ROOTS_VARIABLE);
    let key = source::from_environment(variable);
    if roots.is_none() && key.is_none() {
        return Ok(());
    }
    Err(Error::new(&code::PG_NOT_SEALED, "no strongroom.header in it"))
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
        .filter(|path| !path.is_empty() && !contains(path, LIBRARY))
        .collect();
    // SAFETY: before main() there is one thread.
    unsafe {
        if kept.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", OsStr::from_bytes(&kept.join(&b':')));
        }
    }
    Some(former)
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
