//! The machine's TPM as an opener of volumes: its address, and the client that the volume library
//! calls.
//!
//! Invariant V3: the address of the TPM is on the command line or in the table of volumes, never in
//! a token.
//!
//! Must not: wait without an end.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keys_providers::tpm::sealer;
use strongroom_keys_tpm::{Registers, Sealer};
use strongroom_luks2::Metadata;
use strongroom_volume::tpm::{Tpm, add, opening, secret_of_metadata};
use strongroom_volume::{Error, Volume};

use crate::failure::Failure;

/// Where the TPM is.
#[derive(Args, Clone, Default)]
pub(super) struct TpmAddress {
    /// Where the TPM is: a path, device:PATH, or a simulator's ADDRESS:PORT or
    /// swtpm:host=ADDRESS,port=PORT [default: /dev/tpmrm0]
    #[arg(long, value_name = "PLACE", help_heading = "Opened by")]
    pub(super) tcti: Option<String>,
}

impl TpmAddress {
    /// The passphrase that the key makes which the TPM unseals, in the usual time of providers.
    pub(super) fn secret(&self, volume: &mut Volume) -> Result<SecretBytes, Failure> {
        let sealer = self.open()?;
        Ok(opening(volume, &|sealed| Ok(sealer.unseal(None, sealed)?))?)
    }

    /// As [`TpmAddress::secret`], of a header that libcryptsetup has not read; and the slots it is
    /// for.
    pub(super) fn secret_of(
        &self,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<(SecretBytes, Vec<u32>), Failure> {
        let sealer = self.open()?;
        let unseal = |sealed: &[u8]| Ok(sealer.unseal(None, sealed)?);
        Ok(secret_of_metadata(path, metadata, &unseal)?)
    }

    /// Adds a slot that the TPM opens while these registers are as they are. `secret` opens the
    /// volume already.
    pub(super) fn enroll(
        &self,
        volume: &mut Volume,
        secret: &SecretBytes,
        registers: Option<&str>,
    ) -> Result<u32, Failure> {
        let sealer = self.open()?;
        let registers = registers.map(Registers::parse).transpose();
        let registers = registers.map_err(|why| Error::new(&code::KEY_OPTION, why))?;
        let registers = registers.unwrap_or_default();
        Ok(add(volume, secret, &mut |key| {
            Ok(sealer.seal(registers, None, key)?)
        })?)
    }

    fn open(&self) -> Result<Sealer, Error> {
        sealer(self.tcti.as_deref(), None)
    }
}

/// Opens the TPM at an address, for as long as `time` says.
pub(super) fn open_tpm(tcti: Option<&str>, time: Option<Duration>) -> Result<Box<dyn Tpm>, Error> {
    Ok(Box::new(Opened(sealer(tcti, time)?)))
}

struct Opened(Sealer);

impl Tpm for Opened {
    fn clock_ms(&self) -> Result<u64, Error> {
        Ok(self.0.clock()?)
    }

    fn unseal(&self, sealed: &[u8]) -> Result<SecretKey, Error> {
        Ok(self.0.unseal(None, sealed)?)
    }

    fn seal_until(self: Box<Self>, key: &SecretKey, end_ms: u64) -> Result<Vec<u8>, Error> {
        let sealer = self.0.before(end_ms);
        Ok(sealer.seal(Registers::default(), None, key)?)
    }

    fn unseal_until(self: Box<Self>, sealed: &[u8], end_ms: u64) -> Result<SecretKey, Error> {
        Ok(self.0.before(end_ms).unseal(None, sealed)?)
    }
}
