//! What a verb says of the certificate that it made, imported or restored.
//!
//! Must not: show a private key.

use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{CertificateInfo, Keyring};

use crate::context::Context;
use crate::failure::{Failure, warn};

/// Says which certificate it is and what was done, then what is not well with it.
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

/// Warns of a private key that is in this keyring only, and of dates.
fn warn_about(keyring: &Keyring, certificate: &CertificateInfo) {
    if let Some((code, detail)) = certificate.export_warning() {
        warn(code, &format!("{}; {detail}", keyring.path().display()));
    }
    if !certificate.is_valid_now() {
        warn(&code::CERT_DATES, &certificate.name);
    }
}
