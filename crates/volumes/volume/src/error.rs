//! Errors with Strongroom's codes: of libcryptsetup, of the system, and of a device in use.
//!
//! Must not: leave out what libcryptsetup has said of its error.

use std::path::Path;

use libcryptsetup_rs::LibcryptErr;
use rustix::io::Errno;
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

use crate::ffi::take_messages;

/// The failure of `what`, by the number that libcryptsetup gave.
pub(crate) fn failed(what: impl Into<String>, error: &LibcryptErr) -> Error {
    let code = errno(error).map_or(&code::VOLUME_LIBRARY, code_of);
    failed_as(code, what, error)
}

/// As [`failed`], under this code.
pub(crate) fn failed_as(
    code: &'static Code,
    what: impl Into<String>,
    error: &LibcryptErr,
) -> Error {
    let said = take_messages();
    let what = what.into();
    let detail = match (errno(error), said.as_str()) {
        (_, said) if !said.is_empty() => format!("{what}: {said}"),
        (Some(errno), _) => format!("{what}: {}", std::io::Error::from(errno)),
        (None, _) => format!("{what}: {error}"),
    };
    Error::new(code, detail)
}

/// The system's number, if the error has one.
pub(crate) fn errno(error: &LibcryptErr) -> Option<Errno> {
    match error {
        LibcryptErr::IOError(error) => error.raw_os_error().map(Errno::from_raw_os_error),
        _ => None,
    }
}

fn code_of(errno: Errno) -> &'static Code {
    match errno {
        Errno::PERM => &code::WRONG_KEY,
        Errno::BUSY => &code::VOLUME_IN_USE,
        Errno::NOTSUP | Errno::NODEV => &code::VOLUME_KERNEL,
        Errno::IO | Errno::ACCESS | Errno::NOSPC | Errno::ROFS => &code::IO,
        _ => &code::VOLUME_LIBRARY,
    }
}

/// SR-8320 for the device or file at `path`.
pub(crate) fn in_use(path: &Path, why: &str) -> Error {
    Error::new(&code::VOLUME_IN_USE, format!("{}: {why}", path.display()))
}

/// SR-5001 with the path.
pub(crate) fn io(path: &Path, error: std::io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

/// As [`io`], but SR-1006 when there is nothing at `path`.
pub(crate) fn missing(path: &Path, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        Error::new(&code::NOT_FOUND, path.display().to_string())
    } else {
        io(path, error)
    }
}
