//! Attestation reports of AMD SEV-SNP, and the table of certificates that comes with one.
//!
//! Sources: AMD, "SEV Secure Nested Paging Firmware ABI Specification" (publication 56860), tables
//! `ATTESTATION_REPORT`, "Guest Policy", `TCB_VERSION` and "Format for an ECDSA P-384 with SHA-384
//! Signature"; AMD, "Guest-Hypervisor Communication Block Standardization" (publication 56421),
//! "SNP Extended Guest Request", for the certificates. What is accepted is in
//! docs/spec/columns-channel.md, "SEV-SNP". Invariants: a length is checked against what is there;
//! evidence with anything behind it is not read. Must not: verify anything.

use alloc::vec::Vec;

use crate::layout::{array, bytes, is_zero, layout, u32_at, u64_at};

/// `SIGNATURE_ALGO`: ECDSA on P-384 with SHA-384.
const ECDSA_P384_SHA384: u32 = 1;
/// The versions of a report that are read.
const VERSIONS: core::ops::RangeInclusive<u32> = 2..=5;
/// The most certificates of a table.
const CERTIFICATES_MAX: usize = 16;

/// Bits of `POLICY` (AMD's table "Guest Policy").
pub mod snp_policy {
    /// The guest may run where threads share a core.
    pub const SMT: u64 = 1 << 16;
    /// Always one.
    pub const RESERVED_ONE: u64 = 1 << 17;
    /// A migration agent may take the guest to another machine.
    pub const MIGRATE_MA: u64 = 1 << 18;
    /// The host may read and write the guest's memory.
    pub const DEBUG: u64 = 1 << 19;
}

layout! {
    /// Layout of an attestation report. Its signature covers what stands before `SIGNATURE_R`.
    snp_report_layout, 1184, {
        VERSION @ 0, 4;
        GUEST_SVN @ 4, 4;
        POLICY @ 8, 8;
        FAMILY_ID @ 16, 16;
        IMAGE_ID @ 32, 16;
        VMPL @ 48, 4;
        SIGNATURE_ALGO @ 52, 4;
        CURRENT_TCB @ 56, 8;
        PLATFORM_INFO @ 64, 8;
        KEY_INFO @ 72, 4;
        RESERVED @ 76, 4;
        REPORT_DATA @ 80, 64;
        MEASUREMENT @ 144, 48;
        HOST_DATA @ 192, 32;
        ID_KEY_DIGEST @ 224, 48;
        AUTHOR_KEY_DIGEST @ 272, 48;
        REPORT_ID @ 320, 32;
        REPORT_ID_MA @ 352, 32;
        REPORTED_TCB @ 384, 8;
        CPUID @ 392, 24;
        CHIP_ID @ 416, 64;
        COMMITTED_TCB @ 480, 8;
        BUILDS @ 488, 8;
        LAUNCH_TCB @ 496, 8;
        LATER @ 504, 168;
        SIGNATURE_R @ 672, 72;
        SIGNATURE_S @ 744, 72;
        SIGNATURE_RESERVED @ 816, 368;
    }
}

layout! {
    /// Layout of an entry in the table of certificates.
    snp_certificate_layout, 24, {
        GUID @ 0, 16;
        OFFSET @ 16, 4;
        LENGTH @ 20, 4;
    }
}

/// The security versions of a platform's firmware (`TCB_VERSION`). Greater numbers are newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnpTcb {
    /// Of the boot loader of the secure processor.
    pub boot_loader: u8,
    /// Of the operating system of the secure processor.
    pub tee: u8,
    /// Of the SNP firmware.
    pub snp: u8,
    /// Of the microcode.
    pub microcode: u8,
    /// Of the FMC firmware, which processors have from Turin on; zero before.
    pub fmc: u8,
}

impl SnpTcb {
    /// Reads a `TCB_VERSION`: as processors write it that have an FMC (from Turin on), or as those
    /// before do. `None` unless its reserved bytes are zero.
    #[must_use]
    pub fn read(bytes: [u8; 8], with_fmc: bool) -> Option<Self> {
        let (tcb, reserved) = match (with_fmc, bytes) {
            (true, [fmc, boot_loader, tee, snp, r0, r1, r2, microcode]) => {
                let tcb = Self {
                    boot_loader,
                    tee,
                    snp,
                    microcode,
                    fmc,
                };
                (tcb, [r0, r1, r2, 0])
            }
            (false, [boot_loader, tee, r0, r1, r2, r3, snp, microcode]) => {
                let tcb = Self {
                    boot_loader,
                    tee,
                    snp,
                    microcode,
                    fmc: 0,
                };
                (tcb, [r0, r1, r2, r3])
            }
        };
        is_zero(&reserved).then_some(tcb)
    }

    /// Whether each of the numbers is at least that of `minimum`.
    #[must_use]
    pub const fn is_at_least(&self, minimum: &Self) -> bool {
        self.boot_loader >= minimum.boot_loader
            && self.tee >= minimum.tee
            && self.snp >= minimum.snp
            && self.microcode >= minimum.microcode
            && self.fmc >= minimum.fmc
    }
}

/// The key that has signed a report (`SIGNING_KEY` in `KEY_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnpSigner {
    /// The VCEK: the chip's own, for its firmware.
    Vcek,
    /// The VLEK: a cloud provider's, for a firmware on any of its chips.
    Vlek,
}

/// What a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnpReport<'a> {
    /// What the guest's owner permits: bits of [`snp_policy`].
    pub policy: u64,
    /// The privilege level of the guest that asked; 0 has the most rights.
    pub vmpl: u32,
    /// The key that has signed the report.
    pub signer: SnpSigner,
    /// The guest's own data.
    pub report_data: &'a [u8],
    /// The digest of the memory with which the guest was started.
    pub measurement: [u8; 48],
    /// The number of the chip; zeros if its owner hides it.
    pub chip_id: [u8; 64],
    /// The `TCB_VERSION` for which the key was derived.
    pub reported_tcb: [u8; 8],
    /// That of the firmware that runs.
    pub current_tcb: [u8; 8],
    /// That below which the firmware cannot go back.
    pub committed_tcb: [u8; 8],
    /// That of the firmware under which the guest was started.
    pub launch_tcb: [u8; 8],
}

/// The evidence of provider 3: a report, and the certificates that the host has added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnpEvidence<'a> {
    /// What is signed.
    pub signed: &'a [u8],
    /// What it says.
    pub report: SnpReport<'a>,
    /// ECDSA: r and s, big-endian, 48 bytes each.
    pub signature: [u8; 96],
    /// The certificates of the table, in DER. Whose they are is for whoever verifies them.
    pub certificates: Vec<&'a [u8]>,
}

impl<'a> SnpEvidence<'a> {
    /// Parses evidence: a report, the table of certificates, and nothing after it. `None` unless it
    /// has the one form that is accepted. Nothing is verified.
    #[must_use]
    pub fn parse(evidence: &'a [u8]) -> Option<Self> {
        use snp_report_layout as at;
        let (report, table) = evidence.split_at_checked(at::SIZE)?;
        let form = VERSIONS.contains(&u32_at(report, at::VERSION)?)
            && u32_at(report, at::SIGNATURE_ALGO)? == ECDSA_P384_SHA384
            && is_zero(bytes(report, at::SIGNATURE_RESERVED)?);
        form.then_some(())?;
        let mut signature = [0; 96];
        let (r, s) = signature.split_at_mut(48);
        copy_reversed(bytes(report, at::SIGNATURE_R)?, r)?;
        copy_reversed(bytes(report, at::SIGNATURE_S)?, s)?;
        Some(Self {
            signed: report.get(..at::SIGNATURE_R.offset)?,
            report: SnpReport::read(report)?,
            signature,
            certificates: read_table(table)?,
        })
    }
}

impl<'a> SnpReport<'a> {
    /// Reads what the report says. `None` when it is cut short, or was signed by no key or by an
    /// unknown one.
    fn read(report: &'a [u8]) -> Option<Self> {
        use snp_report_layout as at;
        // Bit 1 (MASK_CHIP_KEY) says that there is no signature. Bits 2 to 4 name the key.
        let signer = match u32_at(report, at::KEY_INFO)? & 0b1_1110 {
            0 => SnpSigner::Vcek,
            0b100 => SnpSigner::Vlek,
            _ => return None,
        };
        Some(Self {
            policy: u64_at(report, at::POLICY)?,
            vmpl: u32_at(report, at::VMPL)?,
            signer,
            report_data: bytes(report, at::REPORT_DATA)?,
            measurement: array(report, at::MEASUREMENT)?,
            chip_id: array(report, at::CHIP_ID)?,
            reported_tcb: array(report, at::REPORTED_TCB)?,
            current_tcb: array(report, at::CURRENT_TCB)?,
            committed_tcb: array(report, at::COMMITTED_TCB)?,
            launch_tcb: array(report, at::LAUNCH_TCB)?,
        })
    }
}

/// Copies a little-endian number to `out` as a big-endian one. `None` when it does not fit.
fn copy_reversed(number: &[u8], out: &mut [u8]) -> Option<()> {
    let (low, high) = number.split_at_checked(out.len())?;
    is_zero(high).then_some(())?;
    for (to, from) in out.iter_mut().zip(low.iter().rev()) {
        *to = *from;
    }
    Some(())
}

/// Returns the certificates of a table: entries up to one whose GUID is zero, then the bytes to
/// which they point. None for a table of no bytes. `None` when an entry points outside the table,
/// when there are more than 16, or when bytes follow the last one.
fn read_table(table: &[u8]) -> Option<Vec<&[u8]>> {
    use snp_certificate_layout as at;
    let mut certificates = Vec::new();
    if table.is_empty() {
        return Some(certificates);
    }
    let mut entries = table.chunks_exact(at::SIZE);
    let (mut covered, mut end_of_all) = (at::SIZE, 0);
    loop {
        let entry = entries.next()?;
        let (offset, length) = (u32_at(entry, at::OFFSET)?, u32_at(entry, at::LENGTH)?);
        if is_zero(bytes(entry, at::GUID)?) {
            break;
        }
        covered = covered.checked_add(at::SIZE)?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (certificates.len() < CERTIFICATES_MAX).then_some(())?;
        certificates.push(table.get(start..end)?);
        end_of_all = end.max(end_of_all);
    }
    (covered.max(end_of_all) == table.len()).then_some(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Vec<u8> {
        let mut report = Vec::from([0; snp_report_layout::SIZE]);
        report[0] = 2;
        report[52] = 1;
        report[10] = 3;
        report[144] = 9;
        report[672] = 7;
        report[744 + 47] = 8;
        report
    }

    fn table(certificates: &[&[u8]]) -> Vec<u8> {
        let (mut entries, mut content) = (Vec::new(), Vec::new());
        let head = certificates.len().checked_add(1).unwrap();
        let head = head.checked_mul(snp_certificate_layout::SIZE).unwrap();
        for certificate in certificates {
            entries.extend_from_slice(&[1; 16]);
            let offset = content.len().checked_add(head).unwrap();
            for number in [offset, certificate.len()] {
                entries.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
            }
            content.extend_from_slice(certificate);
        }
        [&entries[..], &[0; 24], &content].concat()
    }

    #[test]
    fn a_report_and_its_certificates_are_read() {
        let bare = report();
        let evidence = SnpEvidence::parse(&bare).unwrap();
        assert_eq!(evidence.signed, &bare[..672]);
        assert_eq!(
            evidence.report.policy,
            snp_policy::SMT | snp_policy::RESERVED_ONE
        );
        assert_eq!(evidence.report.measurement[0], 9);
        assert_eq!((evidence.signature[47], evidence.signature[48]), (7, 8));
        assert!(evidence.certificates.is_empty());
        let with = [&bare[..], &table(&[b"one", b"", b"three"])].concat();
        let evidence = SnpEvidence::parse(&with).unwrap();
        assert_eq!(evidence.certificates, [&b"one"[..], b"", b"three"]);
        let empty = [&bare[..], &table(&[])].concat();
        assert!(SnpEvidence::parse(&empty).is_some());
        let most = [&bare[..], &table(&[&b"x"[..]; 16])].concat();
        assert!(SnpEvidence::parse(&most).is_some());
        let many = [&bare[..], &table(&[&b"x"[..]; 17])].concat();
        assert_eq!(SnpEvidence::parse(&many), None);
    }

    #[test]
    fn every_cut_and_every_odd_field_is_refused() {
        let with = [&report()[..], &table(&[b"one", b"two"])].concat();
        for cut in 0..with.len() {
            let taken = SnpEvidence::parse(&with[..cut]).is_some();
            assert_eq!(taken, cut == snp_report_layout::SIZE, "{cut} bytes");
        }
        let mut longer = with.clone();
        longer.push(0);
        assert_eq!(SnpEvidence::parse(&longer), None, "a byte too much");
        // Version, algorithm, no key, an unknown key, behind r, behind s, after the signature,
        // an offset, a length.
        for (at, value) in [
            (0, 1),
            (0, 6),
            (52, 0),
            (72, 0b10),
            (72, 0b11100),
            (720, 1),
            (815, 1),
            (816, 1),
            (1184 + 17, 1),
            (1184 + 21, 1),
        ] {
            let mut bad = with.clone();
            bad[at] = value;
            assert_eq!(SnpEvidence::parse(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn versions_of_firmware_are_read_in_both_orders_and_compared_one_by_one() {
        let before = SnpTcb::read([1, 2, 0, 0, 0, 0, 3, 4], false).unwrap();
        let expected = SnpTcb {
            boot_loader: 1,
            tee: 2,
            snp: 3,
            microcode: 4,
            fmc: 0,
        };
        assert_eq!(before, expected);
        let from_turin = SnpTcb::read([5, 1, 2, 3, 0, 0, 0, 4], true).unwrap();
        assert_eq!(from_turin, SnpTcb { fmc: 5, ..expected });
        assert!(from_turin.is_at_least(&before) && !before.is_at_least(&from_turin));
        for at in 0..8 {
            let mut older = [9; 8];
            for reserved in [2, 3, 4, 5] {
                older[reserved] = 0;
            }
            let all = SnpTcb::read(older, false).unwrap();
            older[at] = if (2..6).contains(&at) { 1 } else { 8 };
            let read = SnpTcb::read(older, false);
            assert!(read.is_none_or(|read| !read.is_at_least(&all)), "byte {at}");
        }
        assert_eq!(SnpTcb::read([0, 0, 0, 0, 1, 0, 0, 0], true), None);
    }
}
