//! Programs for `strongroom sqlite run`: which file a name means, and whether the SQLite extension
//! can be loaded into it.
//!
//! The executable's bytes are read by `strongroom_sqlite_program`.
//!
//! Must not: run anything; accept a program that can be seen to be unsuitable.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_sqlite_program::{
    EXECUTABLE_MAX, Interpreter, OTHER_RIGHTS, SCRIPTS, dynamic_linker, has_own_sqlite,
    interpreter, is_elf, kind, script_line,
};

/// Returns the program's file, found as the shell finds it: a name without a slash is looked for in
/// `PATH`. Checks that the SQLite extension can be loaded into it, by its bytes; runs nothing.
///
/// # Errors
/// SR-2285 when the SQLite extension cannot be loaded into the program; SR-1006 when there is no
/// such file; an I/O error with the path when it cannot be read.
pub fn check(word: &OsStr) -> Result<PathBuf, Error> {
    let program = find_in_path(word)?;
    check_file(&program, SCRIPTS)?;
    Ok(program)
}

/// Makes the error SR-2285, that the SQLite extension cannot be loaded into the program at `path`,
/// with the reason `why`.
fn refusal(path: &Path, why: &str) -> Error {
    Error::new(&code::RUN_PROGRAM, format!("{}: {why}", path.display()))
}

/// Returns the file of a program: a name with a slash as it is, another one from `PATH`. SR-1006 if
/// there is none.
fn find_in_path(word: &OsStr) -> Result<PathBuf, Error> {
    let named = PathBuf::from(word);
    let missing = || Error::new(&code::NOT_FOUND, named.display().to_string());
    if word.as_bytes().contains(&b'/') {
        return named.is_file().then(|| named.clone()).ok_or_else(missing);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(word));
    let found = candidates.find(|path| is_executable(path));
    found.ok_or_else(missing)
}

/// Whether `path` is a regular file that has any permission bit for execution. Symbolic links are
/// followed.
fn is_executable(path: &Path) -> bool {
    let about = std::fs::metadata(path);
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Checks that the extension can be loaded into the program at `path`, or, for a script, into its
/// interpreter, through up to `scripts` scripts. SR-2285 if not: also for a set-user-ID or
/// set-group-ID program, and for a file that is neither a program nor a script.
fn check_file(path: &Path, scripts: u32) -> Result<(), Error> {
    let file = File::open(path).map_err(|e| Error::opening(path, e))?;
    let about = file.metadata().map_err(|e| Error::on_path(path, e))?;
    let mut bytes = Vec::new();
    let read = file.take(EXECUTABLE_MAX).read_to_end(&mut bytes);
    read.map_err(|e| Error::on_path(path, e))?;
    if let Some(line) = script_line(&bytes) {
        if scripts == 0 {
            return Err(refusal(path, "scripts that lead to scripts"));
        }
        let next = match interpreter(line) {
            Some(Interpreter::Program(named)) => PathBuf::from(OsStr::from_bytes(named)),
            Some(Interpreter::ByEnv(named)) => find_in_path(OsStr::from_bytes(named))?,
            None => return Err(refusal(path, "its first line names no program")),
        };
        return check_file(&next, scripts - 1);
    }
    if !is_elf(&bytes) {
        return Err(refusal(path, "neither a program nor a script"));
    }
    if about.permissions().mode() & OTHER_RIGHTS != 0 {
        let why = "it runs with other rights than yours (set-user-ID), and no library can be preloaded into such a program";
        return Err(refusal(path, why));
    }
    check_elf(path, &bytes)
}

/// Checks that the extension can be loaded into the executable `bytes`. SR-2285 if it is for
/// another processor or C library, static, or has an SQLite of its own. Compares it with this
/// program's own file.
fn check_elf(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let own_path = std::env::current_exe();
    let own_path = own_path.map_err(|e| Error::on_path(Path::new("/proc/self/exe"), e))?;
    let own = std::fs::read(&own_path).map_err(|e| Error::on_path(&own_path, e))?;
    if kind(bytes) != kind(&own) {
        return Err(refusal(path, "a program for another kind of processor"));
    }
    let Some(linker) = dynamic_linker(bytes) else {
        return Err(refusal(
            path,
            "a static program: no library can be put into it",
        ));
    };
    let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
    if let Some(ours) = dynamic_linker(&own)
        && name(linker) != name(ours)
    {
        return Err(refusal(path, "it is built for another C library"));
    }
    if has_own_sqlite(bytes) {
        return Err(refusal(path, "it has an SQLite of its own"));
    }
    Ok(())
}
