//! Writes messages to standard error.
//!
//! Invariants: nothing is allocated or locked; a line is written with one call, so that lines of
//! several processes do not mix.
//!
//! Must not: print a secret, or contents of a file.

use std::fmt::{self, Write};

use crate::next;
use strongroom_format::code::Code;

/// Longest line.
const LINE_MAX: usize = 1024;

struct Line {
    bytes: [u8; LINE_MAX],
    len: usize,
}

impl Write for Line {
    /// Appends the text; what does not fit is cut off without an error.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is for the newline; text that does not fit is cut off.
        let room = LINE_MAX.saturating_sub(self.len).saturating_sub(1);
        let taken = text
            .as_bytes()
            .get(..text.len().min(room))
            .unwrap_or_default();
        let end = self.len.saturating_add(taken.len());
        if let Some(space) = self.bytes.get_mut(self.len..end) {
            space.copy_from_slice(taken);
            self.len = end;
        }
        Ok(())
    }
}

/// Writes a refusal to standard error, with its code and what to do about it. It does not refuse
/// anything itself.
pub(crate) fn refuse(code: &Code, detail: fmt::Arguments<'_>) {
    line(format_args!(
        "strongroom: SR-{:04}: {} ({detail}); {}",
        code.number, code.what, code.todo
    ));
}

/// Writes one line to standard error with a single call. Text beyond 1023 bytes is cut off; errors
/// are ignored.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; LINE_MAX],
        len: 0,
    };
    // `write_str` never fails.
    let _always = line.write_fmt(text);
    if let Some(last) = line.bytes.get_mut(line.len) {
        *last = b'\n';
    }
    let end = line.len.saturating_add(1);
    next::write_all_stderr(line.bytes.get(..end).unwrap_or_default());
}
