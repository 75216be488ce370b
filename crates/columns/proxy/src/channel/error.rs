//! Errors of the channel to the zone.

use std::fmt;

use strongroom_crypto::CryptoError;

use super::tdx::TcbStatus;

/// Why a channel was not opened, or a message not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The zone speaks another version of the channel.
    OtherVersion,
    /// Not an attestation.
    Malformed,
    /// It answers another nonce: an old one, replayed.
    Replayed,
    /// It comes too long after the request.
    Late,
    /// The evidence does not belong to the public key.
    Unbound,
    /// The quote is not signed by a key that is trusted.
    Untrusted,
    /// The TPM's registers hold other values than those that are allowed.
    Registers,
    /// The provider proves nothing, and the client is not configured to accept it.
    ProvesNothing,
    /// The program is not one that is allowed.
    Measurement,
    /// The zone attests with a kind of report that the client has no policy for.
    NoPolicy,
    /// The certificates of a report lead to no root that is trusted, or are for another platform.
    Chain,
    /// A certificate of the report is on a list of revoked ones.
    Revoked,
    /// The report is not signed by the key of its certificate.
    Signature,
    /// The certificate of the key that signed the report is not valid now.
    Dates,
    /// The virtual machine may be debugged or migrated, does not run as the policy says, or a VLEK
    /// attests it that is not accepted.
    Guest,
    /// The firmware, microcode or module below the virtual machine is too old.
    Firmware,
    /// Intel's judgement that was given is of other processors, or of other TDX modules.
    Uncovered,
    /// Intel's judgement is not valid yet, or its time is over.
    Expired,
    /// Intel judges the platform, its TDX module or its quoting enclave in a way that is not
    /// accepted.
    Judged(TcbStatus),
    /// The virtual machine was started with something that is not allowed.
    Launch,
    /// The zone does not hold a key that another zone has shown to hold.
    AnotherZone,
    /// The zone names a key of the client's that it does not hold.
    Unproven,
    /// The file with the keys that a zone has shown to hold cannot be read or written.
    Record,
    /// A message does not open, or is out of order.
    Message,
    /// No random numbers or no locked memory.
    System,
}

impl fmt::Display for ChannelError {
    /// Writes why the zone is not trusted, without any value or key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherVersion => {
                "the zone speaks another version of the channel than this client: use the proxy \
                 and the zone of one version of Strongroom"
            }
            Self::Malformed => "the zone's attestation is not of a form that is known",
            Self::Replayed => "the zone's attestation answers another request than this client's",
            Self::Late => "the zone's attestation came too late",
            Self::Unbound => "the zone's evidence does not belong to its key",
            Self::Untrusted => "the zone's TPM quote is not signed by a key that is trusted",
            Self::Registers => {
                "the registers of the zone's TPM hold other values than those that are allowed"
            }
            Self::ProvesNothing => {
                "the zone attests itself, which proves nothing, and that was not accepted"
            }
            Self::Measurement => "the zone runs a program that is not allowed",
            Self::NoPolicy => {
                "the zone attests with a report of SEV-SNP or TDX, and none was accepted: name what \
                 it may be started with (--snp-measurement, --tdx-measurement)"
            }
            Self::Chain => {
                "the certificates of the zone's report do not lead to a root that is trusted, or are \
                 for another platform: give those that are missing (--snp-certificates), and see \
                 that they are for this processor and its firmware"
            }
            Self::Revoked => {
                "a certificate behind the zone's report was revoked (--snp-crl, --tdx-crl): the \
                 platform is no longer one that its maker vouches for"
            }
            Self::Signature => {
                "the zone's report is not signed by the key of its certificate: somebody has changed \
                 it, or the certificate is that of another processor or firmware"
            }
            Self::Dates => {
                "the certificate of the key that signed the zone's report is not valid at this \
                 time: the host has to get a new one, or this machine's clock is wrong"
            }
            Self::Guest => {
                "the zone's virtual machine may be debugged or migrated, shares cores, reports from \
                 another privilege level, or by a cloud's key (VLEK): start it with another policy, \
                 or allow what you trust (--snp-max-vmpl, --snp-accept-vlek)"
            }
            Self::Firmware => {
                "the firmware, microcode or module below the zone's virtual machine is older than \
                 the options of this command allow: have the host updated"
            }
            Self::Uncovered => {
                "Intel's TCB info that was given is for other processors than the zone's, or does \
                 not name its TDX module: fetch the one for them (--tdx-tcb-info)"
            }
            Self::Expired => EXPIRED,
            Self::Judged(status) => return write_judged(*status, f),
            Self::Launch => {
                "the zone's virtual machine was started with something that is not allowed: compare \
                 its measurement with the options of this command"
            }
            Self::AnotherZone => {
                "the zone does not hold the column key, although a zone did before: it may be another one, made to get the key \
                 (docs/reference/columns-proxy.md says when --new-zone is right)"
            }
            Self::Unproven => "the zone names a column key that it does not hold",
            Self::Record => "the file of --zones cannot be read, written or locked",
            Self::Message => "a message from the zone does not open, or is out of order",
            Self::System => "no random numbers or no locked memory",
        })
    }
}

/// What is said of [`ChannelError::Expired`].
const EXPIRED: &str = "Intel's TCB info or enclave identity has expired, or is not valid yet: fetch \
    newer ones and start this command again (--tdx-tcb-info, --tdx-qe-identity), see that this \
    machine's clock is right, or say for how many days more they may count (--tdx-tcb-grace)";

/// Writes what Intel says of the zone's platform, and what to do.
fn write_judged(status: TcbStatus, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let what = "the zone's platform, TDX module or quoting enclave";
    match status {
        TcbStatus::Revoked | TcbStatus::Unknown => write!(
            f,
            "Intel's word about {what} is {status}, which is never accepted"
        ),
        _ => write!(
            f,
            "Intel's word about {what} is {status}: have the host updated, or read the advisories \
             in the TCB info and accept it (--tdx-accept)"
        ),
    }
}

impl std::error::Error for ChannelError {}

impl From<CryptoError> for ChannelError {
    /// Turns every error of the primitives into [`ChannelError::System`].
    fn from(_: CryptoError) -> Self {
        Self::System
    }
}
