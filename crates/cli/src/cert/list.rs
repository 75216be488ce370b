//! `strongroom cert list`: every certificate, without the root key.
//!
//! Must not: ask for the root key. What is shown is checksummed, not authenticated.

use clap::Args;
use serde::Serialize;
use strongroom_format::hex::hex;
use strongroom_format::text::printable;
use strongroom_inspect::time::rfc3339;
use strongroom_keyring::{Certificate, CertificateInfo, Keyring};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// List the certificates.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert list --json"))]
pub(super) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The JSON result: docs/reference/exit-codes.md.
#[derive(Serialize)]
struct ListJson {
    certificates: Vec<CertificateJson>,
}

/// One certificate. Fields of the certificate itself are null when it cannot be read.
#[derive(Serialize)]
struct CertificateJson {
    name: String,
    state: &'static str,
    id: String,
    private_key: bool,
    exported: Option<String>,
    exported_unix_s: Option<u64>,
    subject: Option<String>,
    issuer: Option<String>,
    rsa_bits: Option<u32>,
    thumbprint: Option<String>,
    not_before: Option<String>,
    not_before_unix_s: Option<i64>,
    not_after: Option<String>,
    not_after_unix_s: Option<i64>,
    created: String,
    created_unix_s: u64,
}

impl ListArgs {
    /// Prints every certificate as a table or JSON. Needs no root key, so nothing is authenticated.
    /// SR-2004 if there is no keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let status = Keyring::status(&context.keyring_path())?;
        let all: Vec<CertificateJson> = status
            .certificates
            .iter()
            .map(CertificateJson::of)
            .collect();
        if self.json {
            return context.output.json(&ListJson { certificates: all });
        }
        let head = [
            "NAME",
            "STATE",
            "PRIVATE KEY",
            "RSA",
            "NOT AFTER",
            "ID",
            "SUBJECT",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(all.iter().map(row));
        context.output.text(&columns(&rows))
    }
}

/// Returns the cells of one certificate in the table. What cannot be read is `?`; the id is cut to
/// 16 digits.
fn row(certificate: &CertificateJson) -> Vec<String> {
    let unknown = || "?".to_owned();
    let key = match (certificate.private_key, &certificate.exported) {
        (false, _) => "not here",
        (true, None) => "NOT EXPORTED",
        (true, Some(_)) => "exported",
    };
    vec![
        printable(&certificate.name),
        certificate.state.to_owned(),
        key.to_owned(),
        certificate
            .rsa_bits
            .map_or_else(unknown, |bits| bits.to_string()),
        certificate.not_after.clone().unwrap_or_else(unknown),
        // Enough to distinguish them; --json has all of it.
        certificate.id.chars().take(16).collect(),
        certificate
            .subject
            .as_deref()
            .map_or_else(unknown, printable),
    ]
}

impl CertificateJson {
    /// Returns the JSON form of a certificate. The fields of the certificate itself are `None` if
    /// it cannot be parsed, and a date before 1970 has no text.
    fn of(info: &CertificateInfo) -> Self {
        let read = Certificate::from_der(&info.der).ok();
        let read = read.as_ref();
        let validity = read.and_then(Certificate::validity_unix_s);
        let shown = |time: i64| u64::try_from(time).ok().map(rfc3339);
        let thumbprint = read.and_then(|read| read.thumbprint().ok());
        Self {
            name: info.name.clone(),
            state: info.state.name(),
            id: hex(&info.id),
            private_key: info.has_private_key,
            exported: info.exported_unix_s.map(rfc3339),
            exported_unix_s: info.exported_unix_s,
            subject: read.map(Certificate::subject),
            issuer: read.map(Certificate::issuer),
            rsa_bits: read.map(Certificate::bits),
            thumbprint: thumbprint.map(|digest| hex(&digest)),
            not_before: validity.and_then(|(from, _)| shown(from)),
            not_before_unix_s: validity.map(|(from, _)| from),
            not_after: validity.and_then(|(_, to)| shown(to)),
            not_after_unix_s: validity.map(|(_, to)| to),
            created: rfc3339(info.created_unix_s),
            created_unix_s: info.created_unix_s,
        }
    }
}
