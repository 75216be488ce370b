//! Libraries that are preloaded into other programs: where they are, and the value of `LD_PRELOAD`.
//!
//! Must not: load a library into this process.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use strongroom_format::code::Code;
use strongroom_keyring::Error;

/// Where packages put libraries, each with and without `strongroom/`.
const DIRECTORIES: &[&str] = &[
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// Finds the library `file`: the one that the environment's `variable` names, else beside the
/// command, else where packages put it. Loads nothing.
///
/// # Errors
/// `missing` when there is none, or `LD_PRELOAD` cannot hold its path; SR-5001 without a working
/// directory.
pub fn find(file: &str, variable: &str, missing: &'static Code) -> Result<PathBuf, Error> {
    let found = match std::env::var_os(variable).filter(|value| !value.is_empty()) {
        Some(named) => named_library(named, variable, missing)?,
        None => candidates(file)
            .find(|path| path.is_file())
            .ok_or_else(|| Error::new(missing, ""))?,
    };
    // An entry of LD_PRELOAD cannot hold a separator.
    let separators = [b':', b' ', b'\t', b'\n'];
    let bytes = found.as_os_str().as_bytes();
    if bytes.iter().any(|byte| separators.contains(byte)) {
        return Err(Error::new(missing, found.display().to_string()));
    }
    Ok(found)
}

/// Returns the absolute path of the library that a variable names. Errors: `missing` when no file
/// is there; SR-5001 without a working directory.
fn named_library(
    named: OsString,
    variable: &str,
    missing: &'static Code,
) -> Result<PathBuf, Error> {
    let path = PathBuf::from(named);
    let absolute = std::path::absolute(&path).map_err(|e| Error::on_path(&path, e))?;
    if absolute.is_file() {
        return Ok(absolute);
    }
    let detail = format!("{variable} names {}", path.display());
    Err(Error::new(missing, detail))
}

/// Iterates over the paths where the library `file` may be: beside the command, then where packages
/// put it. They need not exist.
fn candidates(file: &str) -> impl Iterator<Item = PathBuf> {
    let command = std::env::current_exe().ok();
    let here = command
        .as_deref()
        .and_then(Path::parent)
        .map(Path::to_path_buf);
    let beside = here.into_iter().flat_map(|here| {
        let lib = here.parent().map(|up| up.join("lib"));
        let strongroom = lib.as_ref().map(|lib| lib.join("strongroom"));
        [Some(here), lib, strongroom].into_iter().flatten()
    });
    let system = DIRECTORIES
        .iter()
        .flat_map(|path| [Path::new(path).join("strongroom"), PathBuf::from(path)]);
    beside
        .chain(system)
        .map(move |directory| directory.join(file))
}

/// Returns a value for `LD_PRELOAD` with `library` before what is there; the present value when
/// that has it already. Sets nothing.
#[must_use]
pub fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(former) = std::env::var_os("LD_PRELOAD").filter(|former| !former.is_empty()) {
        if former
            .to_string_lossy()
            .split([':', ' '])
            .any(|path| Path::new(path) == library)
        {
            return former;
        }
        value.push(":");
        value.push(former);
    }
    value
}
