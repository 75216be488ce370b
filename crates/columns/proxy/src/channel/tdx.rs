//! Checks the quotes of Intel TDX for which keys are released: docs/spec/columns-channel.md, "TDX".
//!
//! Sources: Intel, "Trust Domain Extensions Data Center Attestation Primitives: Quote Generation
//! Library and Quote Verification Library", for the quote; Intel, "SGX PCK Certificate and
//! Certificate Revocation List Profile Specification", for the platform's certificate; Intel, "API
//! for Provisioning Certification Service", `TCB Info` and `Enclave Identity`, for what is
//! compared.
//!
//! Invariant: nothing in a quote is used before all signatures up to the pinned root were checked.
//! Must not: fetch anything.

mod collateral;
mod judgement;
mod platform;
mod status;

use strongroom_crypto::{sha256, verify_p256};
use strongroom_format::columns::tdx::{QeReport, TdReport, TdxQuote, td_attribute};

use super::error::ChannelError;
use super::x509::{Certificate, IssuedWith, read_pem};

use platform::Platform;

pub use collateral::{CollateralError, EnclaveIdentity, TcbInfo, TcbSigner};
pub use judgement::TdxCollateral;
pub use platform::TdxTcb;
pub use status::TcbStatus;

/// SHA-256 of the `SubjectPublicKeyInfo` of the "Intel SGX Root CA".
const INTEL_ROOT: [u8; 32] = [
    0xa0, 0xaf, 0x03, 0x12, 0x89, 0xf5, 0xd5, 0xd4, 0x13, 0x2f, 0x91, 0x86, 0x06, 0x8a, 0x7f, 0xc1,
    0x36, 0x28, 0x63, 0x3b, 0xa2, 0x35, 0x77, 0x74, 0x72, 0xe2, 0x9b, 0x6b, 0x6c, 0x67, 0xa4, 0x9e,
];
/// `MRSIGNER` of Intel's quoting enclave for trust domains ("TD QE").
const QE_SIGNER: [u8; 32] = [
    0xdc, 0x9e, 0x2a, 0x7c, 0x6f, 0x94, 0x8f, 0x17, 0x47, 0x4e, 0x34, 0xa7, 0xfc, 0x43, 0xed, 0x03,
    0x0f, 0x7c, 0x15, 0x63, 0xf1, 0xba, 0xbd, 0xdf, 0x63, 0x40, 0xc8, 0x2e, 0x0e, 0x54, 0xa8, 0xc5,
];
/// Its `ISVPRODID`.
const QE_PRODUCT: u16 = 2;
/// The `ISVSVN` that Intel's `Enclave Identity` of June 2023 calls up to date.
const QE_SVN: u16 = 4;
/// Its attributes, INIT and PROVISIONKEY, and the one that may differ, MODE64BIT.
const QE_FLAGS: u64 = 0x11;
const QE_FLAGS_FREE: u64 = 0x4;

/// What a trust domain was started with: the digests have to be these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdMeasurement {
    /// `MRTD`: the firmware.
    pub mrtd: [u8; 48],
    /// `RTMR0` to `RTMR3`; `None`: not compared.
    pub rtmr: [Option<[u8; 48]>; 4],
    /// `MRCONFIGID`; `None`: not compared.
    pub mrconfigid: Option<[u8; 48]>,
}

impl TdMeasurement {
    /// Whether the report has these digests.
    fn holds(&self, report: &TdReport<'_>) -> bool {
        let mut registers = self.rtmr.iter().zip(&report.rtmr);
        self.mrtd == report.mrtd
            && registers.all(|(wanted, found)| wanted.is_none_or(|wanted| wanted == *found))
            && self
                .mrconfigid
                .is_none_or(|wanted| wanted == report.mrconfigid)
    }
}

/// Which quotes of TDX are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdxPolicy {
    /// The measurements that are allowed: one of these; with none, no quote is accepted.
    pub measurements: Vec<TdMeasurement>,
    /// The oldest platforms that are allowed: as new as one of these. With none, Intel's judgement
    /// alone decides; without that, no quote is accepted.
    pub minimum: Vec<TdxTcb>,
    /// Intel's judgement of platforms, which has to hold too. It was verified when it was read:
    /// `root` and `revocation_lists` have no effect on it.
    pub collateral: Option<TdxCollateral>,
    /// The oldest security version (`ISVSVN`) of the quoting enclave that is allowed.
    pub minimum_qe_svn: u16,
    /// Lists of revoked certificates in DER; those of other issuers are passed over.
    pub revocation_lists: Vec<Vec<u8>>,
    /// SHA-256 of the `SubjectPublicKeyInfo` of the root that is trusted.
    pub root: [u8; 32],
}

impl TdxPolicy {
    /// A policy with Intel's root, without Intel's judgement, and with the oldest quoting enclave
    /// that Intel called up to date in 2023.
    #[must_use]
    pub const fn new(measurements: Vec<TdMeasurement>, minimum: Vec<TdxTcb>) -> Self {
        Self {
            measurements,
            minimum,
            collateral: None,
            minimum_qe_svn: QE_SVN,
            revocation_lists: Vec::new(),
            root: INTEL_ROOT,
        }
    }
}

/// Checks that the evidence is a quote that satisfies the policy, and returns the trust domain's
/// data in it, which the caller has to check. `now` is in seconds since 1970; it counts for Intel's
/// judgement only. Fails with `Malformed`, `Signature`, `Chain`, `Revoked`, `Guest`, `Firmware`,
/// `Uncovered`, `Expired`, `Judged` or `Launch`.
pub(super) fn verify<'a>(
    evidence: &'a [u8],
    policy: &TdxPolicy,
    now: u64,
) -> Result<&'a [u8], ChannelError> {
    let quote = TdxQuote::parse(evidence).ok_or(ChannelError::Malformed)?;
    let text = quote.chain.strip_suffix(&[0]).unwrap_or(quote.chain);
    let chain = read_pem(text).ok_or(ChannelError::Malformed)?;
    let platform = check_chain(&chain, &quote, policy)?;
    check_quote(&quote)?;
    check_enclave(&quote.qe, policy.minimum_qe_svn)?;
    check_platform(&platform, &quote, policy, now)?;
    let refused = td_attribute::UNTRUSTED | td_attribute::MIGRATABLE;
    if quote.report.attributes & refused != 0 {
        return Err(ChannelError::Guest);
    }
    let mut measurements = policy.measurements.iter();
    if measurements.any(|wanted| wanted.holds(&quote.report)) {
        Ok(quote.report.report_data)
    } else {
        Err(ChannelError::Launch)
    }
}

/// Checks the certificates from the platform's key to the root, in this order, and that the
/// platform's key has signed the quoting enclave's report. Returns what the platform's certificate
/// says. Fails with `Chain`, `Revoked` or `Signature`.
fn check_chain(
    chain: &[Vec<u8>],
    quote: &TdxQuote<'_>,
    policy: &TdxPolicy,
) -> Result<Platform, ChannelError> {
    let parsed = chain.iter().map(|der| Certificate::parse(der));
    let parsed: Option<Vec<_>> = parsed.collect();
    let parsed = parsed.ok_or(ChannelError::Malformed)?;
    let [leaf, issuer, last] = parsed.as_slice() else {
        return Err(ChannelError::Chain);
    };
    let is_trusted = last.key_digest() == policy.root
        && issuer.is_issued_by(last, IssuedWith::P256)
        && leaf.is_issued_by(issuer, IssuedWith::P256);
    if !is_trusted {
        return Err(ChannelError::Chain);
    }
    leaf.check_lists(issuer, IssuedWith::P256, &policy.revocation_lists)?;
    issuer.check_lists(last, IssuedWith::P256, &policy.revocation_lists)?;
    let platform = Platform::of(leaf).ok_or(ChannelError::Chain)?;
    let key = leaf.public_key().try_into();
    let key = key.map_err(|_| ChannelError::Chain)?;
    let signed = verify_p256(key, quote.qe_signed, &quote.qe_signature);
    signed.map_err(|_| ChannelError::Signature)?;
    Ok(platform)
}

/// Checks that the quoting enclave's report is for the attestation key, and that this has signed
/// the quote. Fails with `Signature`.
fn check_quote(quote: &TdxQuote<'_>) -> Result<(), ChannelError> {
    let (bound, rest) = quote.qe.report_data.split_at(32);
    let digest = sha256(&[&quote.attestation_key, quote.qe_auth]);
    if bound != digest || rest.iter().any(|byte| *byte != 0) {
        return Err(ChannelError::Signature);
    }
    let mut point = [4; 65];
    let (_, coordinates) = point.split_at_mut(1);
    coordinates.copy_from_slice(&quote.attestation_key);
    let signed = verify_p256(&point, quote.signed, &quote.signature);
    signed.map_err(|_| ChannelError::Signature)
}

/// Checks that the quoting enclave is Intel's, not for debugging, and new enough. Fails with
/// `Chain` for another enclave, or `Firmware` for an old one.
fn check_enclave(enclave: &QeReport, minimum_svn: u16) -> Result<(), ChannelError> {
    let is_intels = enclave.mr_signer == QE_SIGNER
        && enclave.product == QE_PRODUCT
        && enclave.flags & !QE_FLAGS_FREE == QE_FLAGS
        && enclave.misc_select == 0;
    if !is_intels {
        return Err(ChannelError::Chain);
    }
    let is_new = enclave.svn >= minimum_svn;
    is_new.then_some(()).ok_or(ChannelError::Firmware)
}

/// Checks that the platform is as new as one of the owner's levels, where there are any, and that
/// Intel's judgement of it is accepted, where the owner has given that. Fails with `Firmware`, also
/// if there is neither, or as [`TdxCollateral::judge`].
fn check_platform(
    platform: &Platform,
    quote: &TdxQuote<'_>,
    policy: &TdxPolicy,
    now: u64,
) -> Result<(), ChannelError> {
    let tcb = TdxTcb {
        fmspc: platform.fmspc,
        sgx: platform.components,
        pce: platform.pce,
        tdx: quote.report.tee_tcb_svn,
    };
    let judged_alone = policy.minimum.is_empty() && policy.collateral.is_some();
    let is_new = policy.minimum.iter().any(|least| tcb.is_at_least(least));
    if !is_new && !judged_alone {
        return Err(ChannelError::Firmware);
    }
    match &policy.collateral {
        Some(collateral) => collateral.judge(platform, &tcb, &quote.qe, now),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
