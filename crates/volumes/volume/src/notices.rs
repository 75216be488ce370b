//! Messages for the user that do not end the work.
//!
//! Must not: print; carry a secret.

use strongroom_format::code::Code;
use strongroom_keyring::Error;

/// Takes messages while work goes on.
pub trait Notices {
    /// Shows the user a remark.
    fn note(&self, text: &str);

    /// Shows the user a warning under a stable code; `detail` says what it is about.
    fn warn(&self, code: &'static Code, detail: &str);
}

/// Returns an error as a part of a message: its code, the code's text and the detail.
#[must_use]
pub fn summary(error: &Error) -> String {
    let code = error.code();
    format!("SR-{:04}, {}: {}", code.number, code.what, error.detail())
}
