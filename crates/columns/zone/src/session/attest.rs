//! Attestation: evidence that the zone is the program that it claims to be.
//!
//! Evidence has to bind [`binding`], the digest of the attestation's head, which holds the public
//! key of the channel: so keys that are sealed for that public key reach the attested program only.
//! Must not: keep a secret.

mod evidence;
mod tsm;

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use strongroom_crypto::sha256;
use strongroom_format::columns::channel::{Attestation, AttestationProvider, BINDING_LABEL};
use strongroom_keys_tpm::Tpm;

pub use evidence::EvidenceSource;
pub use tsm::{Hardware, TsmAttester};

/// A source of evidence.
pub trait Attester: Send {
    /// The kind of evidence that this source gives.
    fn provider(&self) -> AttestationProvider;

    /// Returns evidence that binds these 32 bytes, from [`binding`].
    ///
    /// # Errors
    /// If the platform does not give any.
    fn evidence(&self, binding: &[u8; 32]) -> io::Result<Vec<u8>>;
}

/// The digest that evidence has to bind: the digest of the attestation's head, with nonce and
/// public key.
#[must_use]
pub fn binding(attestation: &Attestation) -> [u8; 32] {
    sha256(&[BINDING_LABEL.as_bytes(), &attestation.head()])
}

/// For development: the zone itself states the digest of its program. **It proves nothing**: a
/// client accepts it only where it is configured to.
#[derive(Debug)]
pub struct ProcessAttester {
    measurement: [u8; 32],
}

impl ProcessAttester {
    /// Reads the running program's file, and keeps its SHA-256 as its measurement.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn new() -> io::Result<Self> {
        let mut program = Vec::new();
        File::open("/proc/self/exe")?.read_to_end(&mut program)?;
        Ok(Self {
            measurement: sha256(&[&program]),
        })
    }
}

impl Attester for ProcessAttester {
    /// The kind "process", which proves nothing.
    fn provider(&self) -> AttestationProvider {
        AttestationProvider::Process
    }

    /// The program's SHA-256, then `binding`, unsigned. Never fails.
    fn evidence(&self, binding: &[u8; 32]) -> io::Result<Vec<u8>> {
        Ok([self.measurement, *binding].concat())
    }
}

/// A TPM 2.0, which attests what its platform has started: quotes by an attestation key that is in
/// the TPM already.
/// The TPM signs for some milliseconds on a simulator, a tenth of a second or more on a chip.
pub struct TpmAttester {
    tpm: Arc<Tpm>,
    key: u32,
    pcrs: u32,
}

impl TpmAttester {
    /// A source of quotes by the key of handle `key`, of the registers `pcrs` (bit n: register n)
    /// of the SHA-256 bank. Makes one quote to try it.
    ///
    /// # Errors
    /// If the TPM gives no quote.
    pub fn new(tpm: Arc<Tpm>, key: u32, pcrs: u32) -> io::Result<Self> {
        let attester = Self { tpm, key, pcrs };
        attester.evidence(&[0; 32])?;
        Ok(attester)
    }
}

impl Attester for TpmAttester {
    /// The kind "TPM".
    fn provider(&self) -> AttestationProvider {
        AttestationProvider::Tpm
    }

    /// A quote of the TPM over `binding`. Takes from some milliseconds to a tenth of a second or
    /// more. Fails if the TPM does not answer or refuses.
    fn evidence(&self, binding: &[u8; 32]) -> io::Result<Vec<u8>> {
        Ok(self.tpm.quote(self.key, self.pcrs, binding)?)
    }
}
