//! The options that give Intel's own judgement of TDX platforms, and say what of it is accepted.
//!
//! Must not: verify a signature itself, or fetch a file.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use strongroom_columns_proxy::channel::{
    CollateralError, EnclaveIdentity, TcbInfo, TcbSigner, TcbStatus, TdxCollateral, TdxPolicy,
};
use strongroom_format::columns::tdx::COLLATERAL_MAX;

use crate::failure::Failure;

/// Intel's judgement of TDX platforms.
#[derive(Args)]
pub(super) struct IntelsJudgement {
    /// Intel's TCB info for the zone's family of processors, as its service answers: decides which
    /// platforms are accepted. May be given several times, for several families
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["tdx_measurements", "tdx_qe_identity", "tdx_tcb_signer"]
    )]
    tdx_tcb_info: Vec<PathBuf>,
    /// Intel's identity of the quoting enclave for TDX, as its service answers
    #[arg(long, value_name = "FILE", requires = "tdx_tcb_info")]
    tdx_qe_identity: Option<PathBuf>,
    /// Certificates of the key that signs both, in PEM: the answer's header TCB-Info-Issuer-Chain,
    /// decoded
    #[arg(long, value_name = "FILE", requires = "tdx_tcb_info")]
    tdx_tcb_signer: Option<PathBuf>,
    /// Status that is accepted besides `UpToDate`, of platform, module and enclave; may be given
    /// several times
    #[arg(long, value_name = "STATUS", requires = "tdx_tcb_info")]
    tdx_accept: Vec<AcceptedStatus>,
    /// For how many days after its `nextUpdate` Intel's judgement counts
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 0,
        requires = "tdx_tcb_info"
    )]
    tdx_tcb_grace: u16,
}

/// What can be accepted besides `UpToDate`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AcceptedStatus {
    /// `SWHardeningNeeded`
    SwHardeningNeeded,
    /// `ConfigurationNeeded`
    ConfigurationNeeded,
    /// `ConfigurationAndSWHardeningNeeded`
    ConfigurationAndSwHardeningNeeded,
    /// `OutOfDate`
    OutOfDate,
    /// `OutOfDateConfigurationNeeded`
    OutOfDateConfigurationNeeded,
}

impl From<AcceptedStatus> for TcbStatus {
    /// Returns the status that is meant.
    fn from(status: AcceptedStatus) -> Self {
        match status {
            AcceptedStatus::SwHardeningNeeded => Self::SwHardeningNeeded,
            AcceptedStatus::ConfigurationNeeded => Self::ConfigurationNeeded,
            AcceptedStatus::ConfigurationAndSwHardeningNeeded => {
                Self::ConfigurationAndSwHardeningNeeded
            }
            AcceptedStatus::OutOfDate => Self::OutOfDate,
            AcceptedStatus::OutOfDateConfigurationNeeded => Self::OutOfDateConfigurationNeeded,
        }
    }
}

impl IntelsJudgement {
    /// Reads the files and verifies that Intel has signed them, under the root and the lists of
    /// revoked certificates of `policy`. `now` is in seconds since 1970. `None` if none was given.
    /// SR-1001 for a file that is not taken, also because it has expired; SR-5001 for one that
    /// cannot be read.
    pub(super) fn read(
        &self,
        policy: &TdxPolicy,
        now: u64,
    ) -> Result<Option<TdxCollateral>, Failure> {
        let (Some(identity), Some(signer)) = (&self.tdx_qe_identity, &self.tdx_tcb_signer) else {
            return Ok(None);
        };
        let signer = open(signer, |file| {
            TcbSigner::read(file, &policy.root, &policy.revocation_lists)
        })?;
        let enclave = open(identity, |file| EnclaveIdentity::read(file, &signer))?;
        let infos = self.tdx_tcb_info.iter();
        let infos: Result<Vec<_>, _> = infos
            .map(|path| open(path, |file| TcbInfo::read(file, &signer)))
            .collect();
        let refused = |why| Failure::usage(&format!("--tdx-tcb-info: {why}"));
        let collateral = TdxCollateral::new(signer, infos?, enclave);
        let mut collateral = collateral.map_err(refused)?;
        collateral.accepted = self.tdx_accept.iter().copied().map(Into::into).collect();
        collateral.grace_days = self.tdx_tcb_grace;
        collateral.check_dates(now).map_err(refused)?;
        Ok(Some(collateral))
    }
}

/// Reads a file of limited size and takes from it what `take` does. SR-5001 if it cannot be read,
/// SR-1001 if it is not taken.
fn open<T>(
    path: &Path,
    take: impl FnOnce(&[u8]) -> Result<T, CollateralError>,
) -> Result<T, Failure> {
    let failed = |error| Failure::io(path, &error);
    let refused = |why| Failure::usage(&format!("{}: {why}", path.display()));
    let mut content = Vec::new();
    let limit = u64::try_from(COLLATERAL_MAX).unwrap_or(u64::MAX);
    let limited = File::open(path).map_err(failed)?;
    let mut limited = limited.take(limit.saturating_add(1));
    limited.read_to_end(&mut content).map_err(failed)?;
    take(&content).map_err(refused)
}

#[cfg(test)]
mod tests;
