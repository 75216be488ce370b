//! Messages of the volume library, on standard error.
//!
//! Must not: end a command.

use strongroom_format::code::Code;
use strongroom_volume::notices::Notices;

use crate::failure;

/// Writes the library's messages to standard error.
pub(super) struct StandardError;

impl Notices for StandardError {
    /// Writes a line that begins with `note: ` to standard error.
    fn note(&self, text: &str) {
        failure::note(text);
    }

    /// Writes a warning to standard error.
    fn warn(&self, code: &'static Code, detail: &str) {
        failure::warn(code, detail);
    }
}
