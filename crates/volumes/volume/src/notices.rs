//! Messages for the user that do not end the work.
//!
//! Must not: print; carry a secret.

use strongroom_format::code::Code;
use strongroom_keyring::Error;

/// Takes messages while work goes on.
pub trait Notices {
    /// A remark.
    fn note(&self, text: &str);

    /// A warning under a stable code.
    fn warn(&self, code: &'static Code, detail: &str);
}

/// Code, text of the code and detail of an error, to be a part of a message.
#[must_use]
pub fn summary(error: &Error) -> String {
    let code = error.code();
    format!("SR-{:04}, {}: {}", code.number, code.what, error.detail())
}
