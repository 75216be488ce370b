//! The options that say whose column keys a command uses, and which zones get them.
//!
//! Must not: release a key itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use strongroom_columns_proxy::channel::{AttestationPolicy, PcrPolicy, TrustedKey};
use strongroom_columns_proxy::zones::KnownZones;

use super::reports::{ReportTrust, fixed};
use crate::failure::Failure;

/// Whose keys, and which zones get them.
#[derive(Args)]
pub(super) struct ZoneTrust {
    /// Key of the keyring that column keys come from
    #[arg(long, value_name = "ID")]
    pub(super) key_id: String,
    /// Release keys to a zone that only says itself what it is: for development, it proves nothing
    #[arg(long)]
    accept_process_attestation: bool,
    /// Digest (SHA-256) of a zone's program that may have the keys; any unless given
    #[arg(long = "measurement", value_name = "HEX", value_parser = fixed::<32>)]
    measurements: Vec<[u8; 32]>,
    /// Public area (`TPM2B_PUBLIC`) of a TPM's attestation key whose quotes are believed
    #[arg(long = "trust-tpm", value_name = "FILE", requires = "pcrs")]
    tpm_keys: Vec<PathBuf>,
    /// What registers of that TPM's SHA-256 bank have to hold; given several times: one of these
    #[arg(long, value_name = "PCR=HEX,...", value_parser = parse_policy, requires = "tpm_keys")]
    pcrs: Vec<PcrPolicy>,
    #[command(flatten)]
    reports: ReportTrust,
    /// File that keeps which keys a zone has shown to hold: these go to no other zone. Beside the
    /// keyring unless given
    #[arg(long, value_name = "FILE")]
    zones: Option<PathBuf>,
    /// Release keys over one connection to a zone that does not hold them although another one did:
    /// a new zone, or one that has lost its last value under the key
    #[arg(long)]
    new_zone: bool,
}

impl ZoneTrust {
    /// Returns which attestations are accepted, and the file of the zones that have shown to hold
    /// the keys, which is beside the keyring at `keyring` unless it was named. SR-1001 for what is
    /// no TPM's key or no certificate; SR-5001 for a file that cannot be read.
    pub(super) fn policy(
        self,
        keyring: &Path,
    ) -> Result<(AttestationPolicy, Arc<KnownZones>), Failure> {
        let zones = self.zones;
        let zones = zones.unwrap_or_else(|| keyring.with_extension("zones"));
        let known = KnownZones::at(zones.clone(), self.new_zone);
        let known = known.map_err(|error| Failure::io(&zones, &error))?;
        let accepted = AttestationPolicy {
            process: self.accept_process_attestation,
            measurements: self.measurements,
            tpm_keys: read_trusted_keys(&self.tpm_keys)?,
            pcrs: self.pcrs,
            sev_snp: self.reports.snp()?,
            tdx: self.reports.tdx()?,
        };
        Ok((accepted, Arc::new(known)))
    }
}

/// Reads the public area of a TPM's attestation key from each file. SR-5001 if a file cannot be
/// read, SR-1001 if it holds no such key.
fn read_trusted_keys(paths: &[PathBuf]) -> Result<Vec<TrustedKey>, Failure> {
    let read = |path: &PathBuf| {
        let public = std::fs::read(path).map_err(|error| Failure::io(path, &error))?;
        TrustedKey::new(public).ok_or_else(|| {
            Failure::usage(&format!(
                "{}: not the public area of an attestation key: ECC on P-256 with ECDSA or RSA with RSASSA, SHA-256, \
                 fixed to its TPM, restricted to signing",
                path.display()
            ))
        })
    };
    paths.iter().map(read).collect()
}

/// Parses `PCR=HEX,PCR=HEX`: values that registers of a TPM must have. The error is the text that
/// clap shows.
fn parse_policy(text: &str) -> Result<PcrPolicy, String> {
    let value = |one: &str| {
        let (number, value) = one.split_once('=')?;
        Some((number.parse().ok()?, fixed(value).ok()?))
    };
    let values: Option<Vec<_>> = text.split(',').map(value).collect();
    values
        .and_then(|values| PcrPolicy::new(&values))
        .ok_or_else(|| {
            String::from("registers 0 to 23 with 64 hexadecimal digits each: 0=HEX,11=HEX")
        })
}
