//! The machine's TPM as an opener of volumes: its address, sealing and unsealing.
//!
//! Invariant V3: the address of the TPM is on the command line or in the table of volumes, never in
//! a token.
//!
//! Must not: wait without an end.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keys_providers::tpm::sealer;
use strongroom_keys_tpm::Registers;
use strongroom_luks2::Metadata;
use strongroom_volume::tpm::{TpmToken, add, of_any, opening};
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
    /// The passphrase that the TPM's part makes, in at most `time` or the time of providers.
    pub(super) fn secret(
        &self,
        volume: &mut Volume,
        time: Option<Duration>,
    ) -> Result<SecretBytes, Failure> {
        let sealer = sealer(self.tcti.as_deref(), time)?;
        Ok(opening(volume, &|sealed| Ok(sealer.unseal(None, sealed)?))?)
    }

    /// As [`TpmAddress::secret`], of a header that libcryptsetup has not read; and the slots it is
    /// for.
    pub(super) fn secret_of(
        &self,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<(SecretBytes, Vec<u32>), Failure> {
        let tokens = metadata.tokens.values();
        let tokens: Vec<TpmToken> = tokens.filter_map(TpmToken::of).collect();
        let sealer = sealer(self.tcti.as_deref(), None)?;
        let what = path.display().to_string();
        let mut slots = Vec::new();
        let unseal = |sealed: &[u8]| Ok(sealer.unseal(None, sealed)?);
        let secret = of_any(&tokens, &what, &unseal, &mut |token, _| {
            slots.clone_from(&token.slots);
            Ok(true)
        })?;
        Ok((secret, slots))
    }

    /// Adds a slot that the TPM opens while these registers are as they are. `secret` opens the
    /// volume already.
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
