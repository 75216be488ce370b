//! The constructor: runs before `main`, and opens the instances that the program will work on, or
//! ends the program.
//!
//! Invariants: R1, R2; a program that is not PostgreSQL's is not affected unless
//! `STRONGROOM_SHIELD_ALL` is set; `postgres` that only prints its version or help opens nothing.
//!
//! Must not: let a program run that would read or write a sealed instance without its keys.
#![expect(unsafe_code, reason = "the constructor, and the process's environment")]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::OnceLock;

use shield::discover::{self, ROOTS_VARIABLE, SearchScope};
use shield::instance::{self, Instance};
use shield::real::Errno;
use shield::source::{self, Source};
use shield::{open_instances, scratch};
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::environment::{
    ALL_VARIABLE, read_settings, remove_from_preload, remove_key_variables, restore_preload,
};
use crate::{next, process, report};

/// The variable that allows a sealed server to dump core. A core dump holds data in clear.
const CORE_VARIABLE: &str = "STRONGROOM_ALLOW_CORE_DUMPS";

// SAFETY: the C library calls each function of this section once, before main(), with main()'s
// arguments.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// Runs before `main`: notes the working directory and, in a program that works on data
/// directories, opens its instances. If [`start`] fails, writes the error to standard error and
/// ends the program with status 1.
extern "C" fn constructor(count: c_int, arguments: *const *const c_char, _: *const *const c_char) {
    // SAFETY: main()'s arguments, as the C library passes them.
    let arguments = unsafe { collect(count, arguments) };
    process::update_working_directory();
    let Some(program) = Program::of(&arguments) else {
        return;
    };
    if let Err(error) = start(program, &arguments) {
        report::line(format_args!("strongroom: {error}; {}", error.code().todo));
        // SAFETY: ends the process without running anything of the program's.
        unsafe { libc::_exit(1) };
    }
}

/// Copies the arguments of the program, up to the first null pointer.
///
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

/// The kinds of programs that the shield distinguishes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// The server.
    Server,
    /// Another program of PostgreSQL's that works on data directories.
    Frontend,
    /// `pg_ctl`: it starts servers, which fetch their keys themselves, and rarely reads one sealed
    /// file.
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
    /// The kind of this program, by the name of its executable. `None` for one that does not work
    /// on data directories (unless `STRONGROOM_SHIELD_ALL` is 1), for a server that only prints
    /// something (`--version`, `--help`, `-C data_directory` and others), and if the executable's
    /// path is not known.
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
            // `pg_ctl` runs this to learn the data directory, which needs no key.
            let asks_where = asks(b"-C")
                && arguments
                    .get(2)
                    .is_some_and(|what| what == b"data_directory");
            let tells = asks_where || only_tells.into_iter().any(asks);
            return (!tells).then_some(Self::Server);
        }
        if name == b"pg_ctl" {
            return Some(Self::Control);
        }
        let all = std::env::var_os(ALL_VARIABLE).is_some_and(|value| value == "1");
        (all || FRONTENDS.contains(&name)).then_some(Self::Frontend)
    }
}

/// Finds and opens the sealed instances that the program may work on. In a server it then wipes and
/// removes the variables with keys and forbids core dumps; other programs keep `LD_PRELOAD`.
/// `pg_ctl` only notes its instances, for [`open_deferred`]. A server without any instance goes to
/// [`start_without_instance`].
///
/// Errors: SR-7005 if the C library lacks a function, SR-7004 if a named root is not sealed,
/// SR-7003 if a conversion began before there was a header, SR-5001 without memory, and those of
/// [`open`]. Warnings (SR-2023, SR-2038, SR-2040) are written by a server only.
fn start(program: Program, arguments: &[Vec<u8>]) -> Result<(), Error> {
    next::find_all().map_err(|name| Error::new(&code::PG_SYMBOL, name))?;
    let environment: Vec<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .collect();
    let here = process::working_directory();
    let reach = match program {
        Program::Server => SearchScope::Configured,
        Program::Control => SearchScope::ConfiguredAndParents,
        // Debian's pg_upgradecluster gives pg_upgrade the directories of configuration.
        Program::Frontend if is_running("pg_upgrade") => SearchScope::ConfiguredAndParents,
        Program::Frontend => SearchScope::Parents,
    };
    let candidates = discover::candidate_directories(arguments, &environment, here, reach);
    let converting = discover::unfinished_conversion(&candidates);
    let sealed = discover::sealed_instances(candidates);
    check_roots(here)?;
    if sealed.is_empty() {
        return match (program, converting) {
            // A conversion was stopped before it wrote the header.
            (Program::Server, Some(directory)) => {
                let directory = String::from_utf8_lossy(directory.as_bytes()).into_owned();
                Err(Error::new(&code::PG_CONVERTING, directory))
            }
            (Program::Server, None) => start_without_instance(arguments),
            _ => Ok(()),
        };
    }
    read_settings();
    if program == Program::Control {
        // Fetching a key may run a command, and some keys can be fetched only once.
        return DEFERRED
            .set(sealed)
            .map_err(|_| Error::new(&code::BUG, "started twice"));
    }
    // A key command must not run under the shield.
    let preload = remove_from_preload();
    let opened = scratch::prepare()
        .map_err(|_| Error::new(&code::IO, "no memory for buffers"))
        .and_then(|()| open(&sealed));
    if program == Program::Server {
        remove_key_variables(opened.as_deref().unwrap_or_default());
        forbid_core_dumps();
    } else {
        restore_preload(preload);
    }
    if is_running("pg_upgrade") {
        // pg_upgrade copies pg_xact and pg_multixact with `cp`, which has to work under the shield.
        // SAFETY: before main() there is one thread.
        unsafe { std::env::set_var(ALL_VARIABLE, "1") };
    }
    opened?;
    if program == Program::Server && !strongroom_crypto::memory_is_locked() {
        warn(&code::MEMORY_NOT_LOCKED);
    }
    if program == Program::Server && strongroom_keyring::take_text_as_raw_key_warning() {
        warn(&code::TEXT_AS_RAW_KEY);
    }
    if program == Program::Server && strongroom_keyring::take_older_keyring_warning() {
        warn(&code::KEYRING_OLDER_USED);
    }
    Ok(())
}

/// Writes a warning with its code and what to do about it to standard error.
fn warn(code: &code::Code) {
    report::line(format_args!(
        "strongroom: SR-{:04}: {}; {}",
        code.number, code.what, code.todo
    ));
}

/// The instances that `pg_ctl` opens when it reads the control file: to promote, and since version
/// 18 after a start that failed.
static DEFERRED: OnceLock<Vec<SealedDirectory>> = OnceLock::new();

/// The one sealed file that `pg_ctl` reads.
const CONTROL_FILE: &[u8] = b"global/pg_control";

/// Opens the instances of [`DEFERRED`] if `path` is the control file; does nothing for any other
/// path, or without such instances. The library is out of `LD_PRELOAD` meanwhile. `pg_ctl` has one
/// thread.
///
/// # Errors
/// EACCES when an instance does not open; the reason was written to standard error.
pub(crate) fn open_deferred(path: &[u8]) -> Result<(), Errno> {
    let Some(later) = DEFERRED.get().filter(|_| path.ends_with(CONTROL_FILE)) else {
        return Ok(());
    };
    let preload = remove_from_preload();
    let opened = open(later);
    restore_preload(preload);
    opened.map(drop).map_err(|error| {
        report::line(format_args!("strongroom: {error}; {}", error.code().todo));
        Errno(libc::EACCES)
    })
}

/// Forbids core dumps of the server, unless `STRONGROOM_ALLOW_CORE_DUMPS` is 1: a core would hold
/// user data in clear, in the data directory. A limit of 1 byte forbids files and pipes; a limit of
/// 0 would not forbid pipes (core(5)). A hard limit of 0 cannot be raised to 1; the process is then
/// made undumpable, which has side effects.
fn forbid_core_dumps() {
    if std::env::var_os(CORE_VARIABLE).is_some_and(|value| value == "1") {
        return;
    }
    let one = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: a valid structure for the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const one) } != 0 {
        // SAFETY: plain arguments.
        let _done = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    }
}

/// Lets a server start that has no sealed instance, and warns with SR-7024 (unless it runs for
/// `initdb` or only prints a setting), because the instance may have lost its header, or be in
/// another directory. SR-7004 if the server was given a key or a root.
fn start_without_instance(arguments: &[Vec<u8>]) -> Result<(), Error> {
    refuse_plain()?;
    // `initdb` runs it with `--boot` and `--single`, and `-C` only prints a setting.
    let first = arguments.get(1).map_or(&b""[..], Vec::as_slice);
    if !first.starts_with(b"--") && !first.starts_with(b"-C") {
        let code = &code::PG_NOTHING_SEALED;
        report::line(format_args!(
            "strongroom: SR-{:04}: {}; {}",
            code.number, code.what, code.todo
        ));
    }
    Ok(())
}

/// For a server whose data directory has no header: SR-7004 if the environment names a key or a
/// root all the same.
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

/// Checks that every root that the environment names, relative to `here`, is a sealed instance:
/// SR-7004 if one is not, because a program would write it in clear.
fn check_roots(here: &[u8]) -> Result<(), Error> {
    let roots = std::env::var_os(ROOTS_VARIABLE).unwrap_or_default();
    for root in discover::split_roots(roots.as_bytes()) {
        let path = Path::new(OsStr::from_bytes(here)).join(OsStr::from_bytes(root));
        if !instance::is_sealed(&path) {
            return Err(Error::new(&code::PG_NOT_SEALED, path.display().to_string()));
        }
    }
    Ok(())
}

/// Whether this program's executable has this name.
fn is_running(program: &str) -> bool {
    std::env::current_exe().is_ok_and(|file| file.file_name().is_some_and(|name| name == program))
}

/// The value of an environment variable. `None` if it is not set or not UTF-8.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A sealed directory by its canonical path, and its other spellings.
type SealedDirectory = (std::path::PathBuf, Vec<Vec<u8>>);

/// Opens all instances, and adds them to the open ones only when every one has opened. Returns the
/// names of the variables that held key material. SR-7006 if there are more than 8; otherwise the
/// errors of [`open_one`].
fn open(sealed: &[SealedDirectory]) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    let mut secrets = Vec::new();
    for (directory, spellings) in sealed {
        let (instance, variables) = open_one(directory, spellings, sealed.len() > 1)?;
        all.push(instance);
        secrets.extend(variables);
    }
    for instance in all {
        open_instances::add(instance).map_err(|_| Error::new(&code::PG_ROOTS, ""))?;
    }
    Ok(secrets)
}

/// Opens an instance with the key that the environment names, or else with that of its own
/// configuration. Where there are several instances, the configuration's key is tried too if the
/// environment's key is not this instance's. Returns also the names of the variables that hold
/// either key.
///
/// Errors: SR-2001 if neither names a key; otherwise those of reading the configuration (SR-7007),
/// of fetching the key and of opening the header.
fn open_one(
    directory: &Path,
    spellings: &[Vec<u8>],
    several: bool,
) -> Result<(Instance, Vec<String>), Error> {
    let own = source::from_configuration(directory);
    let missing = || Error::new(&code::NO_KEY, directory.display().to_string());
    let with = |source: &Source| {
        let opener = source.key.opener(&source.context)?;
        Instance::open(directory, spellings, &opener)
    };
    let Some(given) = source::from_environment(variable) else {
        let source = own?.ok_or_else(missing)?;
        return Ok((with(&source)?, source.variables()?));
    };
    // Errors in the configuration do not matter if the key of the environment opens the instance.
    let own = own.ok().flatten();
    let instance = match (with(&given), &own) {
        (Err(error), Some(source)) if several && is_other_key(&error) => with(source),
        (outcome, _) => outcome,
    }?;
    let mut secrets = given.variables()?;
    let others = own.map(|source| source.variables().unwrap_or_default());
    secrets.extend(others.into_iter().flatten());
    Ok((instance, secrets))
}

/// Whether the error (SR-2002 or SR-2003) means that the key does not belong to the instance.
fn is_other_key(error: &Error) -> bool {
    error.code() == &code::WRONG_KEY || error.code() == &code::UNKNOWN_KEY_ID
}
