//! Checks the attestation reports of SEV-SNP for which keys are released:
//! docs/spec/columns-channel.md, "SEV-SNP".
//!
//! Sources: AMD, "SEV Secure Nested Paging Firmware ABI Specification" (publication 56860), for the
//! report; AMD, "Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification"
//! (publication 57230), for certificates and their extensions.
//!
//! Invariant: nothing in a report is used before its signature was checked with a key that leads to
//! a trusted root. Must not: fetch a certificate.

use strongroom_crypto::verify_p384;
use strongroom_format::columns::sev_snp::{SnpEvidence, SnpReport, SnpSigner, SnpTcb, snp_policy};
use x509_parser::asn1_rs::{Oid, oid};

use super::error::ChannelError;
use super::x509::{Certificate, IssuedWith};

/// SHA-256 of the `SubjectPublicKeyInfo` of AMD's root keys (ARK) of Milan, Genoa and Turin, as
/// published in the certificate chains of AMD's key distribution service.
pub const AMD_ROOTS: [[u8; 32]; 3] = [
    [
        0x9f, 0x05, 0x6b, 0xee, 0x44, 0x37, 0x7e, 0x29, 0x30, 0x8c, 0xb5, 0xff, 0xa8, 0x95, 0xbd,
        0xfb, 0x62, 0xd1, 0x88, 0x81, 0xfa, 0x6b, 0xed, 0x8d, 0x6f, 0x07, 0x5b, 0x02, 0x04, 0x08,
        0x9c, 0xb9,
    ],
    [
        0x42, 0x9a, 0x69, 0xc9, 0x42, 0x2a, 0xa2, 0x58, 0xee, 0x4d, 0x8d, 0xb5, 0xfc, 0xda, 0x9c,
        0x64, 0x70, 0xef, 0x15, 0xf8, 0xcd, 0x5a, 0x9c, 0xeb, 0xd6, 0xcb, 0xc7, 0xd9, 0x0b, 0x86,
        0x38, 0x31,
    ],
    [
        0x4f, 0x12, 0x54, 0x10, 0x56, 0x3a, 0x2a, 0xb9, 0xa5, 0x03, 0x56, 0xf9, 0x24, 0x3f, 0x6f,
        0xe0, 0xb6, 0xf7, 0x3d, 0xe9, 0x86, 0x03, 0xf5, 0x3f, 0x90, 0x33, 0x9c, 0x70, 0xe9, 0xd7,
        0xad, 0x08,
    ],
];

/// Which reports of SEV-SNP are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnpPolicy {
    /// The launch measurements that are allowed; with none, no report is accepted.
    pub measurements: Vec<[u8; 48]>,
    /// The oldest firmware and microcode that are allowed.
    pub minimum: SnpTcb,
    /// SHA-256 of the `SubjectPublicKeyInfo` of the roots (ARK) that are trusted.
    pub roots: Vec<[u8; 32]>,
    /// Certificates in DER that take part when the zone does not give them: ARK, ASK, VCEK.
    pub certificates: Vec<Vec<u8>>,
    /// Lists of revoked certificates in DER; those of other issuers are passed over.
    pub revocation_lists: Vec<Vec<u8>>,
    /// The highest number of a privilege level (VMPL) that a report may come from.
    pub highest_vmpl: u32,
    /// Whether the guest may run where threads share a core.
    pub smt: bool,
    /// Whether a cloud provider's key (VLEK) may sign, which does not say on which chip.
    pub vlek: bool,
}

impl SnpPolicy {
    /// A policy with AMD's roots, for reports of VMPL 0 signed by a chip's own key, from guests
    /// that may share cores.
    #[must_use]
    pub fn new(measurements: Vec<[u8; 48]>, minimum: SnpTcb) -> Self {
        Self {
            measurements,
            minimum,
            roots: AMD_ROOTS.to_vec(),
            certificates: Vec::new(),
            revocation_lists: Vec::new(),
            highest_vmpl: 0,
            smt: true,
            vlek: false,
        }
    }
}

/// Checks that the evidence is a report that satisfies the policy, and returns the guest's data in
/// it, which the caller has to check. `now` is in seconds since 1970; it counts for a VLEK only.
/// Fails with `Malformed`, `Signature`, `Chain`, `Revoked`, `Dates`, `Guest`, `Firmware` or
/// `Launch`.
pub(super) fn verify<'a>(
    evidence: &'a [u8],
    policy: &SnpPolicy,
    now: u64,
) -> Result<&'a [u8], ChannelError> {
    let evidence = SnpEvidence::parse(evidence).ok_or(ChannelError::Malformed)?;
    let given = policy.certificates.iter().map(Vec::as_slice);
    let all = evidence.certificates.iter().copied().chain(given);
    // The host's table may hold more than certificates, as lists of revoked ones.
    let certificates: Vec<_> = all.filter_map(Certificate::parse).collect();
    let signer = find_signer(&evidence, &certificates)?;
    check_chain(signer, &certificates, policy)?;
    let report = &evidence.report;
    let with_fmc = check_signer(signer, report, policy, now)?;
    check_firmware(report, with_fmc, &policy.minimum)?;
    check_guest(report, policy)?;
    if policy.measurements.contains(&report.measurement) {
        Ok(report.report_data)
    } else {
        Err(ChannelError::Launch)
    }
}

/// Returns the certificate whose key has signed the report. Fails with `Chain` if there is none of
/// a key on P-384, or `Signature` if no such key has signed it.
fn find_signer<'a>(
    evidence: &SnpEvidence<'_>,
    certificates: &'a [Certificate<'a>],
) -> Result<&'a Certificate<'a>, ChannelError> {
    let mut candidates = certificates
        .iter()
        .filter(|one| one.public_key().len() == POINT)
        .peekable();
    candidates.peek().ok_or(ChannelError::Chain)?;
    candidates
        .find(|one| verify_p384(one.public_key(), evidence.signed, &evidence.signature).is_ok())
        .ok_or(ChannelError::Signature)
}

/// Bytes of a point of P-384, uncompressed.
const POINT: usize = 97;

/// Checks that one of the certificates (ASK) has issued `signer`, that one of a root that is
/// trusted has issued that, and that neither was revoked. Fails with `Chain` or `Revoked`.
fn check_chain(
    signer: &Certificate<'_>,
    certificates: &[Certificate<'_>],
    policy: &SnpPolicy,
) -> Result<(), ChannelError> {
    let with = IssuedWith::RsaPss;
    let is_root = |one: &&Certificate<'_>| policy.roots.contains(&one.key_digest());
    let issuers = certificates.iter().filter(|one| !is_root(one));
    for issuer in issuers.filter(|issuer| signer.is_issued_by(issuer, with)) {
        let mut roots = certificates.iter().filter(is_root);
        let Some(root) = roots.find(|root| issuer.is_issued_by(root, with)) else {
            continue;
        };
        signer.check_lists(issuer, with, &policy.revocation_lists)?;
        return issuer.check_lists(root, with, &policy.revocation_lists);
    }
    Err(ChannelError::Chain)
}

/// Checks that the signer's certificate is for the chip and the firmware that the report names, and
/// returns whether the processor has an FMC. Fails with `Chain` for a certificate of another chip
/// or firmware, `Guest` for a VLEK that is not allowed, or `Dates` for one that is not valid now.
fn check_signer(
    signer: &Certificate<'_>,
    report: &SnpReport<'_>,
    policy: &SnpPolicy,
    now: u64,
) -> Result<bool, ChannelError> {
    let hardware = signer.extension(&oid!(1.3.6.1.4.1.3704.1.4));
    match (report.signer, hardware) {
        (SnpSigner::Vcek, Some(id)) if is_chip(id, &report.chip_id) => {}
        (SnpSigner::Vlek, None) if !policy.vlek => return Err(ChannelError::Guest),
        (SnpSigner::Vlek, None) => {
            signer
                .is_valid_at(now)
                .then_some(())
                .ok_or(ChannelError::Dates)?;
        }
        _ => return Err(ChannelError::Chain),
    }
    let fmc = oid!(1.3.6.1.4.1.3704.1.3.9);
    let with_fmc = signer.extension(&fmc).is_some();
    let number = |number: &Oid<'_>| signer.small_extension(number).ok_or(ChannelError::Chain);
    let certified = SnpTcb {
        boot_loader: number(&oid!(1.3.6.1.4.1.3704.1.3.1))?,
        tee: number(&oid!(1.3.6.1.4.1.3704.1.3.2))?,
        snp: number(&oid!(1.3.6.1.4.1.3704.1.3.3))?,
        microcode: number(&oid!(1.3.6.1.4.1.3704.1.3.8))?,
        fmc: if with_fmc { number(&fmc)? } else { 0 },
    };
    let reported = SnpTcb::read(report.reported_tcb, with_fmc);
    if reported == Some(certified) {
        Ok(with_fmc)
    } else {
        Err(ChannelError::Chain)
    }
}

/// Whether a certificate's `HWID` is the report's `CHIP_ID`: 64 bytes, or from Turin on the first
/// eight. A chip whose owner hides the number is none.
fn is_chip(hardware: &[u8], chip: &[u8; 64]) -> bool {
    let sizes = hardware.len() == 64 || hardware.len() == 8;
    let (id, rest) = chip.split_at(hardware.len().min(chip.len()));
    sizes && id == hardware && rest.iter().all(|byte| *byte == 0) && chip != &[0; 64]
}

/// Checks that the firmware has never been older than `minimum` since the guest was started, and
/// cannot go back below it. Fails with `Firmware`.
fn check_firmware(
    report: &SnpReport<'_>,
    with_fmc: bool,
    minimum: &SnpTcb,
) -> Result<(), ChannelError> {
    let versions = [
        report.reported_tcb,
        report.current_tcb,
        report.committed_tcb,
        report.launch_tcb,
    ];
    let is_new = |bytes| SnpTcb::read(bytes, with_fmc).is_some_and(|tcb| tcb.is_at_least(minimum));
    let are_new = versions.into_iter().all(is_new);
    are_new.then_some(()).ok_or(ChannelError::Firmware)
}

/// Checks that nobody may debug or migrate the guest, and that it runs as the policy allows. Fails
/// with `Guest`.
fn check_guest(report: &SnpReport<'_>, policy: &SnpPolicy) -> Result<(), ChannelError> {
    let refused = snp_policy::DEBUG | snp_policy::MIGRATE_MA;
    let shares_cores = report.policy & snp_policy::SMT != 0;
    let allowed = report.policy & refused == 0
        && report.policy & snp_policy::RESERVED_ONE != 0
        && (policy.smt || !shares_cores)
        && report.vmpl <= policy.highest_vmpl;
    allowed.then_some(()).ok_or(ChannelError::Guest)
}

#[cfg(test)]
mod tests;
