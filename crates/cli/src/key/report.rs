//! What `create` and `rotate` say of the key that they made.
//!
//! Must not: show a key.

use strongroom_format::code;
use strongroom_keyring::{KeyInfo, Keyring};

use crate::context::Context;
use crate::failure::{Failure, warn};

/// Says which key was made, and that losing the keyring loses what it seals.
pub(super) fn report(
    context: &mut Context,
    keyring: &Keyring,
    key: &KeyInfo,
) -> Result<(), Failure> {
    let line = format!("key {} version {}", key.name, key.version);
    context.output.line(&line)?;
    context.output.flush()?;
    if keyring.unexported() {
        let detail = format!(
            "{}; strongroom keyring export --out FILE --ask",
            keyring.path().display()
        );
        warn(&code::NOT_EXPORTED, &detail);
    }
    Ok(())
}
