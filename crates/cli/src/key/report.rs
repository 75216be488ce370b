//! What `create` and `rotate` say of the key that they made.
//!
//! Must not: show a key.

use strongroom_format::code;
use strongroom_keyring::{KeyInfo, Keyring};

use crate::context::Context;
use crate::failure::{Failure, warn};

/// Prints name and version of the key that was made. Warns with SR-2022 on standard error if the
/// keyring has keys that are in no export, because what they seal is lost with the keyring.
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
