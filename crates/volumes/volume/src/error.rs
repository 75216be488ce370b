//! Errors with Strongroom's codes: of libcryptsetup, of the system, and of a device in use.
//!
//! Must not: leave out what libcryptsetup has said of its error.

use std::path::Path;

use libcryptsetup_rs::LibcryptErr;
use rustix::io::Errno;
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

use crate::ffi::take_messages;

/// Makes the error for a call to libcryptsetup that failed, with `what` it was about and what the
/// library has said. By the error's number SR-2002 (wrong key), SR-8320 (busy), SR-8327 (no
/// device-mapper) or SR-5001 (the system), otherwise SR-8324.
pub(crate) fn failed(what: impl Into<String>, error: &LibcryptErr) -> Error {
    let code = errno(error).map_or(&code::VOLUME_LIBRARY, code_of);
    failed_as(code, what, error)
}

/// Makes the error of this code for a call to libcryptsetup that failed. The detail has `what` it
/// was about and the messages that the library has given since they were last taken, or else the
/// error's own text.
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

/// Returns the system's number in an error of libcryptsetup. `None` when it has none.
pub(crate) fn errno(error: &LibcryptErr) -> Option<Errno> {
    match error {
        LibcryptErr::IOError(error) => error.raw_os_error().map(Errno::from_raw_os_error),
        _ => None,
    }
}

/// Returns the code for an error number of libcryptsetup: SR-2002 for `EPERM`, SR-8320 for `EBUSY`,
/// SR-8327 for `ENOTSUP` and `ENODEV`, SR-5001 for `EIO`, `EACCES`, `ENOSPC` and `EROFS`, and
/// SR-8324 for all others.
fn code_of(errno: Errno) -> &'static Code {
    match errno {
        Errno::PERM => &code::WRONG_KEY,
        Errno::BUSY => &code::VOLUME_IN_USE,
        Errno::NOTSUP | Errno::NODEV => &code::VOLUME_KERNEL,
        Errno::IO | Errno::ACCESS | Errno::NOSPC | Errno::ROFS => &code::IO,
        _ => &code::VOLUME_LIBRARY,
    }
}

/// Returns SR-8320, in use, for the device or file at `path`; `why` says by what.
pub(crate) fn in_use(path: &Path, why: &str) -> Error {
    Error::new(&code::VOLUME_IN_USE, format!("{}: {why}", path.display()))
}

/// Returns SR-5001 with the path and the system's error.
pub(crate) fn io(path: &Path, error: std::io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}
