//! The machine's TPM as an opener of volumes: its address, and the client that the volume library
//! calls.
//!
//! Invariant V3: the address of the TPM is on the command line or in the table of volumes, never in
//! a token.
//!
//! Must not: wait without an end.

use std::time::Duration;

use clap::Args;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keys_providers::tpm::sealer;
use strongroom_keys_tpm::{Registers, Sealer};
use strongroom_volume::tpm::{Tpm, add};
use strongroom_volume::tpm_place::TpmPlace;
use strongroom_volume::{Error, Volume};

use crate::failure::Failure;

/// Where the TPM is.
#[derive(Args, Clone, Default)]
pub(super) struct TpmAddress {
    /// Where the TPM is: a path, device:PATH, or a simulator's ADDRESS:PORT or
    /// swtpm:host=ADDRESS,port=PORT [default: /dev/tpmrm0]
    #[arg(long, value_name = "PLACE", help_heading = "Opened by")]
    tcti: Option<String>,
}

impl TpmAddress {
    /// Returns the TPM at the address of the options, or of this machine, without opening it. Each
    /// of its tasks may take as long as a provider may.
    pub(super) fn place(&self) -> TpmPlace {
        TpmPlace {
            tcti: self.tcti.clone(),
            open: open_tpm,
        }
    }

    /// Adds a key slot whose key the TPM seals to the present values of these registers (`None`:
    /// the default ones), and returns its number. `secret` opens the volume already. SR-2019 for
    /// the address or the registers, SR-2002 if `secret` opens nothing; the errors of the TPM.
    pub(super) fn enroll(
        &self,
        volume: &mut Volume,
        secret: &SecretBytes,
        registers: Option<&str>,
    ) -> Result<u32, Failure> {
        let sealer = sealer(self.tcti.as_deref(), None)?;
        let registers = registers.map(Registers::parse).transpose();
        let registers = registers.map_err(|why| Error::new(&code::KEY_OPTION, why))?;
        let registers = registers.unwrap_or_default();
        Ok(add(volume, secret, &mut |key| {
            Ok(sealer.seal(registers, None, key)?)
        })?)
    }
}

/// Returns the TPM at this address, or of this machine, without a request to it. All its tasks
/// together may take `time`, counted from now; `None`: each task may take as long as a provider
/// may. SR-2019 if the address is not valid.
pub(super) fn open_tpm(tcti: Option<&str>, time: Option<Duration>) -> Result<Box<dyn Tpm>, Error> {
    Ok(Box::new(Opened(sealer(tcti, time)?)))
}

struct Opened(Sealer);

impl Tpm for Opened {
    /// Returns the TPM's clock in milliseconds, which does not run while it has no power. SR-2101
    /// if the TPM cannot be reached.
    fn clock_ms(&self) -> Result<u64, Error> {
        Ok(self.0.clock()?)
    }

    /// Has the TPM unseal a key that was sealed without a time limit. SR-2101 if the TPM cannot be
    /// reached, SR-2103 if another TPM sealed it, SR-2105 if the bytes are damaged, SR-2106 if the
    /// registers have changed.
    fn unseal(&self, sealed: &[u8]) -> Result<SecretKey, Error> {
        Ok(self.0.unseal(None, sealed)?)
    }

    /// Has the TPM seal a key to its present state, so that it unseals only until its clock reaches
    /// `end_ms` milliseconds. SR-2101 if the TPM cannot be reached, SR-2104 if its owner hierarchy
    /// is switched off.
    fn seal_until(self: Box<Self>, key: &SecretKey, end_ms: u64) -> Result<Vec<u8>, Error> {
        let sealer = self.0.before(end_ms);
        Ok(sealer.seal(Registers::default(), None, key)?)
    }

    /// Has the TPM unseal a key that was sealed until `end_ms`, which must be the same value.
    /// Errors as [`Self::unseal`], SR-2106 also after that time.
    fn unseal_until(self: Box<Self>, sealed: &[u8], end_ms: u64) -> Result<SecretKey, Error> {
        Ok(self.0.before(end_ms).unseal(None, sealed)?)
    }
}
