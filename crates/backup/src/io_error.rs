//! SR-5001 for an error of the operating system about a path.
//!
//! Must not: be used for a medium, whose name may be a URL.

use std::io;
use std::path::Path;

use crate::Error;

/// Makes SR-5001 with the path and the system's error in its detail.
pub(crate) fn io_error(path: &Path, error: io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}
