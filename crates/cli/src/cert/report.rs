//! What a verb says of the certificate that it made, imported or restored.
//!
//! Must not: show a private key.

use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{CertificateInfo, Keyring};

use crate::context::Context;
use crate::failure::{Failure, warn};

/// Prints the certificate's name, `done` (what was done) and its id. Then warns on standard error
/// as [`warn_about`] does. SR-5001 if standard output cannot be written.
pub(super) fn report(
    context: &mut Context,
    keyring: &Keyring,
    certificate: &CertificateInfo,
    done: &str,
) -> Result<(), Failure> {
    let line = format!(
        "certificate {} {done}: id {}",
        certificate.name,
        hex(&certificate.id)
    );
    context.output.line(&line)?;
    context.output.flush()?;
    warn_about(keyring, certificate);
    Ok(())
}

/// Warns with SR-2033 if the private key was never exported from this keyring, and with SR-2035 if
/// the certificate is not valid today.
fn warn_about(keyring: &Keyring, certificate: &CertificateInfo) {
    if let Some((code, detail)) = certificate.export_warning() {
        warn(code, &format!("{}; {detail}", keyring.path().display()));
    }
    if !certificate.is_valid_now() {
        warn(&code::CERT_DATES, &certificate.name);
    }
}
