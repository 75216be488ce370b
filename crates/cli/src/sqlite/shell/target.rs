//! What the shell opens: a file, a `file:` URI with the guard's parameters, or `:memory:`.
//!
//! Must not: pass a secret in a URI; key options go to the guard as they are.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_format::code;
use strongroom_keyring::KeySource;

use crate::failure::Failure;
use crate::guard;

/// Opens what `text` names.
pub(super) fn open(
    text: &str,
    key: Option<KeySource>,
    keyring: Option<PathBuf>,
    read_only: bool,
) -> Result<Connection, Failure> {
    if text != ":memory:" && !text.starts_with("file:") {
        return guard::open(Path::new(text), key, keyring, read_only);
    }
    if key.is_some() {
        let detail = "a key option goes with a file name; a URI names its key itself, as in \
                      'file:x.db?key_id=NAME'";
        return Err(Failure::new(&code::KEY_OPTION, detail));
    }
    guard::open_uri(text, keyring, read_only)
}
