//! What a certificate says: its name, and when it is valid.
//!
//! Must not: decide whether a certificate is trusted.

use strongroom_tls::certificates;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// When a certificate is valid, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its first second.
    pub begins: u64,
    /// Its last second.
    pub ends: u64,
}

impl Validity {
    /// Whether the certificate is to be renewed at `now`, in seconds since the Unix epoch: at most
    /// a third of its time remains, or it has expired.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        let third = self.ends.saturating_sub(self.begins) / 3;
        now >= self.ends.saturating_sub(third)
    }
}

/// Returns the validity and the common name of the first certificate in a PEM text. The name is
/// empty where the certificate has none. Whether the certificate is trusted is not checked.
///
/// # Errors
/// A text for an operator if there is no certificate, or it cannot be parsed.
pub(crate) fn validity_and_name(pem: &[u8]) -> Result<(Validity, String), String> {
    let found = certificates(pem).map_err(|error| error.to_string())?;
    let first = found.first().map(AsRef::as_ref).unwrap_or_default();
    let (_, read) = X509Certificate::from_der(first)
        .map_err(|_| String::from("the certificate cannot be read"))?;
    let unix = |at: x509_parser::time::ASN1Time| u64::try_from(at.timestamp()).unwrap_or(0);
    let name = read.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok()).unwrap_or_default();
    let validity = Validity {
        begins: unix(read.validity().not_before),
        ends: unix(read.validity().not_after),
    };
    Ok((validity, name.to_owned()))
}
