//! Reads a certificate, with or without its private key, from a PEM, DER or PKCS #12 file.
//!
//! Must not: write a file.

use std::io::ErrorKind;
use std::path::Path;

use strongroom_crypto::Identity;
use strongroom_format::code;

use crate::error::Error;
use crate::key_input::read_file;
use crate::source::{KeySource, SourceContext};

/// Reads a certificate from a file, with or without its private key: PEM, DER, PKCS #12, at most 64
/// KiB. `source` is asked for the passphrase only when the file needs one.
///
/// # Errors
/// SR-1006 there is no such file; SR-2007 it cannot be read; SR-2029 it holds no certificate, or is
/// longer than 64 KiB; SR-2027 the key is weak; SR-2028 the private key is another's; SR-2030 the
/// passphrase does not open it; what `source` reports; SR-5001 when the system reports an error.
pub fn read_identity(
    path: &Path,
    source: &KeySource,
    context: &SourceContext,
) -> Result<Identity, Error> {
    let file = read_file(path).map_err(|error| match path.symlink_metadata() {
        Err(missing) if missing.kind() == ErrorKind::NotFound => {
            Error::new(&code::NOT_FOUND, path.display().to_string())
        }
        _ if error.code() == &code::KEY_MALFORMED => Error::new(
            &code::CERT_FILE,
            format!("{}: longer than 64 KiB", path.display()),
        ),
        _ => error,
    })?;
    let passphrase = Identity::needs_passphrase(file.as_slice())
        .then(|| source.passphrase(context))
        .transpose()?;
    let read = Identity::read(file.as_slice(), passphrase.as_ref());
    read.map_err(|error| Error::from(error).about(path.display()))
}
