//! The words by which Intel judges a platform, a TDX module or an enclave.
//!
//! Source: Intel, "API for Provisioning Certification Service", version 4, `tcbStatus`. Must not:
//! decide which of them is accepted.

use std::fmt;

use serde::Deserialize;

/// How Intel judges a state (`tcbStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TcbStatus {
    /// Nothing is missing.
    UpToDate,
    /// The software in the trust domain has to be hardened against a known flaw.
    #[serde(rename = "SWHardeningNeeded")]
    SwHardeningNeeded,
    /// The machine may need other settings.
    ConfigurationNeeded,
    /// Both.
    #[serde(rename = "ConfigurationAndSWHardeningNeeded")]
    ConfigurationAndSwHardeningNeeded,
    /// Updates are missing.
    OutOfDate,
    /// Updates are missing, and the machine may need other settings.
    OutOfDateConfigurationNeeded,
    /// Its keys are no longer to be trusted.
    Revoked,
    /// A word that Intel has not defined in the versions that are read.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for TcbStatus {
    /// Writes Intel's word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UpToDate => "UpToDate",
            Self::SwHardeningNeeded => "SWHardeningNeeded",
            Self::ConfigurationNeeded => "ConfigurationNeeded",
            Self::ConfigurationAndSwHardeningNeeded => "ConfigurationAndSWHardeningNeeded",
            Self::OutOfDate => "OutOfDate",
            Self::OutOfDateConfigurationNeeded => "OutOfDateConfigurationNeeded",
            Self::Revoked => "Revoked",
            Self::Unknown => "a word that is not known",
        })
    }
}
